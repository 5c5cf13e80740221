package libtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/need"
)

// sources is the folder of the library's.
const sources = "../lib"

// A mode has flags that everything is compiled with.
type mode struct{ name, flags string }

var modes = []mode{
	{"address", "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined"},
	{"thread", "-O1 -g -fsanitize=thread"},
}

// plain has the flags that the library is compiled with for use.
var plain = mode{"plain", "-O2 -Wl,-z,defs"}

// needCompiler skips a test where nothing can be compiled.
func needCompiler(t *testing.T) {
	t.Helper()
	need.Check(t, need.Programs("make", "gcc", "awk"))
}

// compileLibrary returns the folder with the library. It looks at the sources, so that Go does not take the result of a
// test before they were changed.
func compileLibrary(t *testing.T, m mode) string {
	t.Helper()
	needCompiler(t)
	for _, folder := range []string{sources, "../rnic", "testdata"} {
		files, err := filepath.Glob(filepath.Join(folder, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if _, err := os.Stat(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	run(t, "make", "-C", "../..", "verbs-lib", "VERBS_OUT="+dir, "VERBS_CFLAGS="+m.flags)
	return dir
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// compile compiles a C file of testdata, with more arguments, in a mode.
func compile(t *testing.T, m mode, to, source string, more ...string) {
	t.Helper()
	args := []string{"-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I" + sources, "-o", to, filepath.Join("testdata", source)}
	run(t, "gcc", slices.Concat(args, more, strings.Fields(m.flags))...)
}

// TestPrograms runs the programs of testdata, each of which says what is not so, or what a sanitizer has found.
func TestPrograms(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			dir := compileLibrary(t, m)
			engine, library := filepath.Join(dir, "engine.so"), filepath.Join(dir, "libibverbs.so.1")
			compile(t, m, engine, "engine.c", "-shared", "-fPIC")
			for _, name := range []string{"objects", "posting", "queues", "events", "connecting", "forking", "starting", "threads"} {
				t.Run(name, func(t *testing.T) {
					if (name == "forking" || name == "starting") && m.name == "thread" {
						t.Skip("the thread sanitizer does not follow a fork of a program with threads")
					}
					program := filepath.Join(dir, name)
					compile(t, m, program, name+".c", library, "-ldl", "-lpthread")
					cmd := exec.CommandContext(t.Context(), "timeout", "60", program)
					// Variables of the tests' own environment must not decide.
					cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "NDKLAB_RNIC_LIBRARY="+engine, "TSAN_OPTIONS=halt_on_error=1", "ASAN_OPTIONS=detect_leaks=1")
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Errorf("%v\n%s", err, out)
					}
				})
			}
		})
	}
}
