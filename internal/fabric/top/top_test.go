package top

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/internal/terminal"
	"golang.org/x/sys/unix"
)

// panicking has a process of the test be a program whose model panics: in the loop, or in a command.
const panicking = "NDKLAB_TEST_PANICS"

func TestMain(m *testing.M) {
	if where := os.Getenv(panicking); where != "" {
		shown := newModel("pair", false, nil, asks{}, time.Second)
		if where == "in a command" {
			shown.observe = func(time.Duration) tea.Cmd { return func() tea.Msg { panic("here") } }
		}
		err := run(tea.NewProgram(shown, tea.WithoutSignalHandler()))
		if errors.Is(err, tea.ErrProgramPanic) && control.CodeOf(err) != control.Unable {
			os.Exit(7)
		}
		os.Exit(1)
	}
	leak.Main(m)
}

// After a panic the terminal is what it was, and the error is not the user's.
func TestPanic(t *testing.T) {
	for _, where := range []string{"in the loop", "in a command"} {
		keys, tty, err := terminal.Open()
		if err != nil {
			t.Fatal(err)
		}
		var shown bytes.Buffer
		var reading sync.WaitGroup
		reading.Go(func() { _, _ = io.Copy(&shown, keys) }) // until nobody has the other end
		before := attributes(t, tty)
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), panicking+"="+where, "TERM=xterm")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
		_ = cmd.Run() // the exit code tells
		if diff := cmp.Diff(before, attributes(t, tty)); diff != "" {
			t.Errorf("%s: the terminal is not what it was: %s", where, diff)
		}
		tty.Close()
		reading.Wait()
		keys.Close()
		if cmd.ProcessState.ExitCode() != 7 || strings.LastIndex(shown.String(), "\x1b[?1049h") > strings.LastIndex(shown.String(), "\x1b[?1049l") {
			t.Errorf("%s: %v\n%q", where, cmd.ProcessState, &shown)
		}
	}
}

func attributes(t *testing.T, tty *os.File) *unix.Termios {
	t.Helper()
	a, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
