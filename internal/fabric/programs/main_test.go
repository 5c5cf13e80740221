package programs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/nobody"
	"github.com/ndklab/ndklab/internal/node/verbs"
)

// unfit says why nodes of this machine have no libraries for programs, if so.
var unfit error

// TestMain builds the libraries.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if need.Long() && os.Getenv(verbs.FolderVariable) == "" {
		folder, err := os.MkdirTemp("", "programs")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(folder)
		unfit = build(folder)
		os.Setenv(verbs.FolderVariable, folder)
	}
	return m.Run()
}

// build makes the libraries, for any user.
func build(folder string) error {
	if err := os.Chmod(folder, 0o755); err != nil {
		return err
	}
	out, err := exec.Command("make", "-C", filepath.Join("..", "..", ".."), "verbs", "VERBS_OUT="+folder).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make verbs: %w: %s", err, out)
	}
	return nil
}

// fit skips a test where long ones are not asked for, or nodes of this machine have no libraries for programs.
func fit(t *testing.T) {
	t.Helper()
	need.Time(t)
	need.Check(t, unfit)
}

// All tests pass for an ordinary user, too, with a home of its own: the short form of them, if not all are asked for.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user")
	}
	fit(t)
	home := t.TempDir()
	// The folders that lead to it are root's alone.
	if err := errors.Join(os.Chown(home, nobody.ID, nobody.ID), os.Chmod(filepath.Dir(home), 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.timeout=15m", "-test.v")
	if !all {
		cmd.Args = append(cmd.Args, "-test.short")
	}
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR=", "TMPDIR="+home, "HOME="+home, "NDKLAB_ARTIFACTS=")
	cmd.Dir = home
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody.Credential()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if need.Required() && !strings.Contains(string(out), "--- PASS: TestRDMACM") {
		t.Errorf("no tests ran:\n%s", out)
	}
}
