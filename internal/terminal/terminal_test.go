package terminal

import (
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// envPanics makes the test binary lend its terminal and panic.
const envPanics = "NDKLAB_TEST_PANICS"

func TestMain(m *testing.M) {
	if where := os.Getenv(envPanics); where != "" {
		panics(where)
	}
	os.Exit(m.Run())
}

func panics(where string) {
	s, err := Attach(os.Stdin, os.Stdout)
	if err != nil {
		panic(err)
	}
	if is, err := attributes(os.Stdin); err != nil || cmp.Equal(is, s.saved) {
		os.Exit(9)
	}
	if where == "here" {
		defer func() { _ = s.Detach() }()
		panic("here")
	}
	go s.guarded(func() { panic("elsewhere") })()
	select {}
}

// A terminal is given back upon a panic, wherever it is.
func TestPanic(t *testing.T) {
	for _, where := range []string{"here", "elsewhere"} {
		control, peer, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		defer control.Close()
		defer peer.Close()
		before, err := attributes(peer)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(os.Environ(), envPanics+"="+where)
		cmd.Stdin, cmd.Stdout = peer, peer
		err = cmd.Run()
		if cmd.ProcessState.ExitCode() != 2 { // a panic's
			t.Errorf("%s: %v", where, err)
		}
		after, err := attributes(peer)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s: %s", where, diff)
		}
	}
}

// All output that a command has written by its end is shown, however late.
func TestDetachShowsTheRest(t *testing.T) {
	keys, tty, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	defer tty.Close()
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	full := make([]byte, 64<<10) // what a pipe holds
	if _, err := out.Write(full); err != nil {
		t.Fatal(err)
	}
	s, err := Attach(tty, out)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if _, err := s.Peer().WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	for waiting := 1; waiting > 0; { // until it is about to be shown, for which there is no room
		err := ioctl(s.control, func(fd int) (err error) {
			waiting, err = unix.IoctlGetInt(fd, unix.TIOCINQ)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	write("last\n")
	detached := make(chan error, 1)
	go func() {
		detached <- s.Detach()
		out.Close()
	}()
	<-s.ended
	shown, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(shown[len(full):]); got != "first\r\nlast\r\n" {
		t.Errorf("shown %q", got)
	}
	if err := <-detached; err != nil {
		t.Error(err)
	}
}

// Only terminals are terminals.
func TestIs(t *testing.T) {
	control, peer, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	defer peer.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if !Is(peer) || Is(null) {
		t.Errorf("a terminal: %v; /dev/null: %v", Is(peer), Is(null))
	}
	if _, err := Attach(null, null); err == nil {
		t.Error("/dev/null can be lent as a terminal")
	}
}
