package chaos

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/ndklab/ndklab/internal/built"
	"github.com/ndklab/ndklab/internal/need"
)

var (
	trials = flag.Int("trials", 0, "how many trials; 0: one of each fault")
	seed   = flag.Uint64("seed", 1, "what the trials' choices are drawn from")
	alone  = flag.Int("trial", -1, "the one trial to do, by its number")
	during = flag.String("during", "", "at moments whose name matches this regular expression")
	only   = flag.String("only", "", "do faults whose name matches this regular expression")
)

// scratch is a directory that every user can get into; ndklab is the program.
var scratch, ndklab string

// Trials may leave their thread in a mount namespace of its own. The main thread,
// which /proc/self shows, is kept from them.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if !need.Long() { // every test is skipped
		return m.Run(), nil
	}
	if scratch, err = os.MkdirTemp("", "chaos-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(scratch)
	if err := os.Chmod(scratch, 0o711); err != nil {
		return 0, err
	}
	ndklab = filepath.Join(scratch, "ndklab")
	if err := built.Build(ndklab, "github.com/ndklab/ndklab/cmd/ndklab"); err != nil {
		return 0, err
	}
	if err := buildLibraries(); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// buildLibraries has programs for RDMA find the adapter, and run at a moment of their own,
// where there is a C compiler and such a program.
func buildLibraries() error {
	for _, program := range []string{"cc", pingpong} {
		if _, err := exec.LookPath(program); err != nil {
			return nil
		}
	}
	folder := filepath.Join(scratch, "verbs") // where ndklab looks for them
	if out, err := exec.Command("make", "-C", filepath.Join("..", "..", "..", ".."), "verbs", "VERBS_OUT="+folder).CombinedOutput(); err != nil {
		return fmt.Errorf("make verbs: %w\n%s", err, out)
	}
	moments = append(moments, verbsMoment)
	return nil
}
