// Package built builds the programs that the tests of a package run, once for all of them, in a folder that any user can run
// them from.
//
// Start reading at Main.
package built

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Main runs tests as TestMain does, and returns the exit code: with *folder, which it makes and removes, holding the programs of some
// packages, as go build names them.
func Main(m *testing.M, folder *string, packages ...string) int {
	code, err := run(m, folder, packages)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func run(m *testing.M, folder *string, packages []string) (code int, err error) {
	if *folder, err = os.MkdirTemp("", "ndklab-test-"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(*folder)) }()
	if err := os.Chmod(*folder, 0o755); err != nil { // for other users
		return 0, err
	}
	if err := Build(*folder, packages...); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// Build builds the programs of packages, without C, into a file or a folder.
func Build(into string, packages ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-o", into}, packages...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}
