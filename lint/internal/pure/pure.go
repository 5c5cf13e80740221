// Package pure is the lint rule that keeps the protocol core what design and
// tests rely on: a function of its inputs.
//
// Two strictnesses exist. A core package (state machines and codecs) may start
// no goroutine, use no lock or channel, do no I/O, read no clock and draw on no
// global source of randomness. A clocked package (adapters and workloads, which
// also run in simulation) may do the former but must take time and randomness
// from what it is given. Test files are held to the second.
//
// Start reading at Analyzer; cmd lint/purelint runs it.
package pure

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// core are the packages that must be pure, by their path in the module.
var core = []string{
	"internal/provider/roce", "internal/provider/roce/mad", "internal/provider/rc", "internal/provider/uc",
	"internal/provider/ud", "internal/provider/pace", "internal/provider/congestion", "internal/provider/cm",
	"internal/fabric/core", "internal/fabric/event", "internal/fabric/impair", "internal/fabric/mmu", "internal/fabric/hazard", "internal/fabric/linkstats", "internal/fabric/linkreport", "internal/fabric/rows",
	"internal/fabric/report/graph", "internal/fabric/report/words", "internal/fabric/figures", "internal/fabric/trace", "internal/fabric/trunk", "internal/fabric/live",
	"internal/node/verbs/rdmacm", "internal/node/verbs/sysclass", "internal/node/verbs/ldcache",
	"internal/topology/naming", "internal/topology/shape", "internal/topology/generate", "internal/topology/diff", "internal/topology/placement", "internal/topology/cabling",
	"internal/failure", "internal/histogram",
}

// clocked are the packages that must not know real time or global randomness.
var clocked = []string{
	"provider", "internal/provider/transport", "internal/provider/gsi", "internal/provider/verbs/ucm",
	"internal/provider/sim", "internal/provider/sim/soak", "internal/provider/sim/trial", "internal/provider/sim/verbsoak",
	"internal/node/workload", "topology", "internal/fabric/scenario",
}

// forbiddenImports lists the packages that a core package has no use for.
var forbiddenImports = []string{
	"os", "os/exec", "os/signal", "net", "net/http", "sync", "sync/atomic", "syscall", "io/fs", "crypto/rand",
	"golang.org/x/sys/unix", "github.com/vishvananda/netlink",
}

// wallClock are the functions of package time that read or wait for real time.
var wallClock = []string{
	"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker",
}

// Analyzer reports what breaks the rule.
var Analyzer = &analysis.Analyzer{
	Name: "pure",
	Doc:  "core packages are pure; they and clocked ones use no wall-clock time and no global randomness",
	Run:  run,
}

func run(pass *analysis.Pass) (any, error) {
	path := strings.TrimSuffix(pass.Pkg.Path(), "_test")
	_, path, _ = strings.Cut(path, "github.com/ndklab/ndklab/")
	isCore := slices.Contains(core, path)
	if !isCore && !slices.Contains(clocked, path) {
		return nil, nil
	}
	for _, file := range pass.Files {
		test := strings.HasSuffix(pass.Fset.Position(file.Pos()).Filename, "_test.go")
		if isCore && !test {
			checkCore(pass, file)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				checkUse(pass, id)
			}
			return true
		})
	}
	return nil, nil
}

func checkCore(pass *analysis.Pass, file *ast.File) {
	for _, spec := range file.Imports {
		if path := strings.Trim(spec.Path.Value, `"`); slices.Contains(forbiddenImports, path) {
			pass.Reportf(spec.Pos(), "a pure package has no use for %s", path)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			pass.Reportf(n.Pos(), "a pure package starts no goroutine")
		case *ast.ChanType:
			pass.Reportf(n.Pos(), "a pure package uses no channel")
		case *ast.GenDecl:
			if n.Tok == token.IMPORT {
				return false
			}
		}
		return true
	})
}

// checkUse reports an identifier that stands for a function of package time
// that knows the present, or of math/rand that draws on the global source.
func checkUse(pass *analysis.Pass, id *ast.Ident) {
	f, ok := pass.TypesInfo.Uses[id].(*types.Func)
	if !ok || f.Pkg() == nil || f.Signature().Recv() != nil {
		return
	}
	switch f.Pkg().Path() {
	case "time":
		if slices.Contains(wallClock, f.Name()) {
			pass.Reportf(id.Pos(), "time.%s is wall-clock time: take the clock that is passed in", f.Name())
		}
	case "math/rand", "math/rand/v2":
		if !strings.HasPrefix(f.Name(), "New") {
			pass.Reportf(id.Pos(), "rand.%s draws on the global source: take the seeded one that is passed in", f.Name())
		}
	}
}
