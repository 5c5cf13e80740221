// Command forecast says what `make test` will skip on this machine, why, and about how long it takes. It reads the tests of the
// module, whose folder is its argument, and runs none.
package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/ndklab/ndklab/internal/need"
)

// Minutes that the tests take on referenceCPUs processors with nothing beside them, when all is built.
const (
	referenceCPUs = 2
	plainMinutes  = 8
	longMinutes   = 16
)

// needs has all that tests ask package need for.
type needs struct {
	tests    int
	long     int                 // tests that take long
	programs map[string][]string // which folders' tests ask for a program
}

func main() {
	doctor.Child()
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	found, err := read(os.DirFS(root))
	if err != nil {
		fmt.Fprintln(os.Stderr, "forecast:", err)
		os.Exit(1)
	}
	found.tell(os.Stdout, doctor.Examine(context.Background()), func(program string) bool {
		_, err := exec.LookPath(program)
		return err == nil
	})
}

// read reads the test files of a module. Other modules below it, and folders that the go command leaves out, are none of it.
func read(module fs.FS) (*needs, error) {
	n := &needs{programs: map[string][]string{}}
	return n, fs.WalkDir(module, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := d.Name()
			_, err := fs.Stat(module, filepath.Join(path, "go.mod"))
			if path != "." && (err == nil || base == "testdata" || base == "node_modules" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(module, path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		n.add(file, filepath.Dir(path))
		return nil
	})
}

// add adds what a file of a folder asks for.
func (n *needs) add(file *ast.File, folder string) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
			n.tests++
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		of, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if in, ok := of.X.(*ast.Ident); !ok || in.Name != "need" {
			return true
		}
		switch of.Sel.Name {
		case "Time":
			n.long++
		case "Programs":
			for _, arg := range call.Args {
				literal, ok := arg.(*ast.BasicLit)
				if !ok {
					continue // a table has it
				}
				if name, err := strconv.Unquote(literal.Value); err == nil && !slices.Contains(n.programs[name], folder) {
					n.programs[name] = append(n.programs[name], folder)
				}
			}
		}
		return true
	})
}

// tell writes the forecast.
func (n *needs) tell(w io.Writer, machine doctor.Diagnosis, has func(program string) bool) {
	minutes := plainMinutes
	if need.Long() {
		minutes = longMinutes
	}
	fmt.Fprintf(w, "%d tests: some %d minutes on %d processors (here: %d), and longer the first time, when all is built\n", n.tests, minutes, referenceCPUs, runtime.NumCPU())
	if !need.Long() {
		fmt.Fprintf(w, "skipped: what takes long, in %d places: %s=1 has it run\n", n.long, need.LongVariable)
	}
	for _, obstacle := range machine.Obstacles() {
		fmt.Fprintf(w, "skipped: tests with labs, which cannot run here: %s\n", obstacle)
	}
	for _, program := range slices.Sorted(maps.Keys(n.programs)) {
		if !has(program) {
			fmt.Fprintf(w, "skipped: tests that need the program %s, which is not in PATH: in %s\n", program, strings.Join(n.programs[program], ", "))
		}
	}
	fmt.Fprintln(w, "`go test -v` says of each test that is skipped why; with", need.Variable+"=1 it fails instead")
}
