package misuse

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/fabric/labtest"
	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/nobody"
	"github.com/ndklab/ndklab/internal/node/verbs"
)

const (
	// envProgram has the program that another run of the tests has compiled.
	envProgram = "NDKLAB_TEST_MISUSE"
	// caseTime bounds a case. None takes more than some seconds on an idle machine.
	caseTime = "60"
	// fillFreed has the C library overwrite memory that is freed, at once: who goes on using it fails.
	fillFreed = "GLIBC_TUNABLES=glibc.malloc.perturb=165:glibc.malloc.tcache_count=0"
	// allTime bounds what the tests do as another user.
	allTime = 10 * time.Minute
)

func TestMain(m *testing.M) { leak.Main(m) }

// compile makes the libraries and the program, where nodes and ordinary users find them, and returns the program's path.
func compile(t *testing.T) string {
	t.Helper()
	need.Time(t)
	if made := os.Getenv(envProgram); made != "" {
		return made
	}
	need.Check(t, need.Programs("make", "gcc", "go"))
	dir, err := os.MkdirTemp("", "misuse")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	libraries, program := filepath.Join(dir, "libraries"), filepath.Join(dir, "misuse")
	run(t, "make", "-C", "../..", "verbs", "VERBS_OUT="+libraries)
	sources, err := filepath.Glob("testdata/*.c")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-E", "-include", "infiniband/verbs.h", "-x", "c", os.DevNull).CombinedOutput(); err != nil {
		need.Check(t, fmt.Errorf("the headers of libibverbs cannot be used: %w: %s", err, out))
	}
	run(t, "gcc", append([]string{"-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o", program},
		append(sources, filepath.Join(libraries, verbs.Ibverbs), "-lpthread", "-ldl")...)...)
	t.Setenv(envProgram, program)
	t.Setenv(verbs.FolderVariable, libraries)
	return program
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// placements lists where the engine may be, as NDKLAB_RNIC has it.
var placements = []string{"program", "process"}

// runCases runs the cases of a program, but those that are to be skipped, in a node, with the engine in a placement. One
// that fails says where; one that crashes has a status from 128 on.
func runCases(t *testing.T, program, placement string, skip func(name string) bool) {
	t.Helper()
	lab := labtest.Up(t, labtest.Topology().Hosts("a", "b").Link("a", "b", labtest.Set("mtu", "4200")))
	node := lab.Node("a")
	names, err := node.Run(lab.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(names) {
		if skip(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			said, err := node.Run(lab.Context(), "env", "NDKLAB_RNIC="+placement, fillFreed, "timeout", "-s", "KILL", caseTime, program, name)
			if exit := (*labtest.ExitError)(nil); errors.As(err, &exit) {
				t.Fatalf("status %d\n%s", exit.Status, exit.Stderr)
			} else if err != nil {
				t.Fatal(err)
			}
			if said != "" {
				t.Log(said)
			}
		})
	}
}

// TestMisuse runs all cases in all placements.
func TestMisuse(t *testing.T) {
	program := compile(t)
	for _, placement := range placements {
		t.Run(placement, func(t *testing.T) { runCases(t, program, placement, func(string) bool { return false }) })
	}
}

// unlinked are the cases, by the beginnings of their names, that an engine which starts with the program cannot have: they
// fork before they open the device, have signals handled on the stacks of its threads, limit what the race detector
// needs, or have it carry out an atomic operation that faults.
var unlinked = []string{"lost-atomic-", "child-", "parent-", "killed-", "many-processes", "signals", "interrupted-", "exit-", "few-", "little-", "dlopen-", "small-"}

// TestRace: the race detector finds nothing in the engine.
func TestRace(t *testing.T) {
	compile(t)
	dir := filepath.Dir(os.Getenv(envProgram))
	archive, program, library := filepath.Join(dir, "engine.a"), filepath.Join(dir, "race"), filepath.Join(dir, "linked.so")
	build := exec.Command("go", "build", "-race", "-buildvcs=false", "-buildmode=c-archive", "-o", archive, "../../verbs/engine")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		need.Check(t, fmt.Errorf("there is no race detector: %w\n%s", err, out))
	}
	sources, err := filepath.Glob("testdata/*.c")
	if err != nil {
		t.Fatal(err)
	}
	run(t, "gcc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", library, "testdata/linked/linked.c", "-ldl")
	run(t, "gcc", slices.Concat([]string{"-std=gnu11", "-D_GNU_SOURCE", "-no-pie", "-rdynamic", "-o", program}, sources,
		[]string{"-Wl,--whole-archive", archive, "-Wl,--no-whole-archive", filepath.Join(dir, "libraries", verbs.Ibverbs), "-lpthread", "-ldl"})...)
	t.Setenv("NDKLAB_RNIC_LIBRARY", library)
	t.Setenv("GORACE", "exitcode=66 atexit_sleep_ms=0")
	runCases(t, program, "program", func(name string) bool {
		return slices.ContainsFunc(unlinked, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	})
}

// An ordinary user has the same.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user")
	}
	compile(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.timeout="+allTime.String(), "-test.run=^TestMisuse$", "-test.v")
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR=", "HOME=/nonexistent", "TMPDIR=/tmp")
	cmd.Dir = "/" // the user need not be able to reach this folder
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody.Credential()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "--- SKIP") {
		t.Skipf("%s", out)
	}
	if !strings.Contains(string(out), "--- PASS: TestMisuse/process/lost-write-target") {
		t.Errorf("no cases ran:\n%s", out)
	}
}
