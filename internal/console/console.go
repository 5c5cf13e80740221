// Package console has a pseudo-terminal for tests of commands that look for one: it types, changes the window, and
// tells whether a command has left the terminal as it was.
//
// Start reading at Open.
package console

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/terminal"
	"golang.org/x/sys/unix"
)

// A Console is a terminal. Keys takes what is typed and has what is shown; TTY is the commands' end. Both are closed with the test.
type Console struct {
	Keys, TTY *os.File
	before    *unix.Termios
}

// Open returns a terminal with a window of so many rows and columns.
func Open(t testing.TB, rows, columns uint16) *Console {
	t.Helper()
	keys, tty, err := terminal.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		keys.Close()
		tty.Close()
	})
	c := &Console{Keys: keys, TTY: tty}
	c.Resize(t, rows, columns)
	c.before = c.attributes(t)
	return c
}

// Attach has a command that is to be started be the terminal's, in a session of its own.
func (c *Console) Attach(cmd *exec.Cmd) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.TTY, c.TTY, c.TTY
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
}

// Press types keys.
func (c *Console) Press(t testing.TB, keys string) {
	t.Helper()
	if _, err := c.Keys.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// Resize changes the window.
func (c *Console) Resize(t testing.TB, rows, columns uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(c.Keys.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(int(c.Keys.Fd()), true); err != nil { // which Fd takes away
		t.Fatal(err)
	}
}

// Changed returns how the attributes of the terminal differ from those at first; "" if they do not.
func (c *Console) Changed(t testing.TB) string {
	t.Helper()
	return cmp.Diff(c.before, c.attributes(t))
}

func (c *Console) attributes(t testing.TB) *unix.Termios {
	t.Helper()
	a, err := unix.IoctlGetTermios(int(c.TTY.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
