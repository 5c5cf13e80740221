// Package nobody has tests that run as root do something as an ordinary user.
//
// Start reading at Become.
package nobody

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// ID is that of a user and a group that every system has.
const ID = 65534

// Credential returns what processes of the user have.
func Credential() *syscall.Credential { return &syscall.Credential{Uid: ID, Gid: ID} }

// Home returns a folder of the user's for the time of the test.
func Home(t testing.TB) string {
	t.Helper()
	home, err := os.MkdirTemp("", "ndklab-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chown(home, ID, ID); err != nil {
		t.Fatal(err)
	}
	return home
}

// Environment returns what the environment has to say of where the user's files go.
func Environment(home string) []string {
	return []string{"HOME=" + home, "TMPDIR=" + home, "XDG_RUNTIME_DIR="}
}

// Become has a command that is to be started be the user's, with a home.
func Become(c *exec.Cmd, home string) {
	c.Dir, c.Env = "/", append(os.Environ(), Environment(home)...)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: Credential()}
}
