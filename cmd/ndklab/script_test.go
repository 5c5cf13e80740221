package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/nobody"
	"github.com/ndklab/ndklab/internal/node/cgroup"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	if os.Getenv(envInit) != "" {
		return
	}
	lab.Child()
	doctor.Child()
	testscript.Main(m, map[string]func(){"ndklab": main})
}

// TestScript runs the scripts in testdata/script, which show how ndklab is used.
// They have, besides the commands of testscript:
//
//	exits N COMMAND...   the command must end with exit code N
//	[labs]               true where labs can run
//	[root]               true for root
//	[limits]             true where nodes can have limits
//	$LAB                 a lab's name that nobody else on the machine has, in
//	                     topology files, too
func TestScript(t *testing.T) {
	// Where nohup has the tests ignore it, no shell of a script could do otherwise.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		Setup:               setup,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		Condition: func(name string) (bool, error) {
			switch name {
			case "labs":
				return canRun(), nil
			case "root":
				return os.Geteuid() == 0, nil
			case "limits":
				return cgroup.Open().Prepare(cgroup.Limits{CPU: 1, Memory: 1, PIDs: 1}) == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
	})
}

// envHosts has the labs of scripts be over these hosts, as by --hosts.
const envHosts = "NDKLAB_TEST_HOSTS"

// canRun says whether labs can run here.
var canRun = sync.OnceValue(func() bool { return doctor.Examine(context.Background()).CanRun })

// setup names the script's lab. A lab that a failed script leaves is taken down.
func setup(env *testscript.Env) error {
	name := "cli-" + strconv.Itoa(os.Getpid()) + "-" + strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
	env.Setenv("LAB", name)
	if hosts := os.Getenv(envHosts); hosts != "" {
		env.Setenv("NDKLAB_UP_HOSTS", hosts)
		env.Setenv("NDKLAB_RUN_HOSTS", hosts)
	}
	var files []string
	err := filepath.WalkDir(env.WorkDir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".yaml") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		text := strings.ReplaceAll(string(data), "$LAB", name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	env.Defer(func() {
		down := exec.Command("ndklab", "down", name)
		down.Env = env.Vars
		// As a rule it is down already.
		_ = down.Run()
	})
	return nil
}

// exits is the command of that name.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N COMMAND...")
	}
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var ended *exec.ExitError
		if !errors.As(err, &ended) {
			ts.Fatalf("%v", err)
		}
		code = ended.ExitCode()
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// TestScriptsOverHosts runs scripts again whose labs are over two hosts then.
func TestScriptsOverHosts(t *testing.T) {
	need.Time(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestScript$/^(apply|external|setup)$")
	cmd.Env = append(os.Environ(), envHosts+"=local:2")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// ofUsers matches the scripts of what an ordinary user has otherwise than root.
const ofUsers = "^TestScript$/^(doctor|external|gc|isolation|lab|limits|names)$"

// TestOrdinaryUser runs all tests again without privileges.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user already")
	}
	dir := t.TempDir()
	// t.TempDir is below a directory that is root's alone.
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "ndklab.test")
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "testdata"), os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, nobody.ID, nobody.ID); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.skip=^(TestInit|TestMakeSetsVersion)$") // which ask the go command, and Makefile
	if !need.Long() {
		cmd.Args = append(cmd.Args, "-test.run="+ofUsers)
	}
	if testing.Verbose() {
		cmd.Args = append(cmd.Args, "-test.v")
	}
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody.Credential()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
