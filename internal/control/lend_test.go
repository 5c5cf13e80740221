package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/terminal"
)

// TestLend: the peer has a terminal that is as the one that is lent, acts on keys in its
// place, and shows what is written there by the answer.
func TestLend(t *testing.T) {
	keepsDescriptors(t)
	keys, tty := newTerminal(t)
	before, err := terminal.Look(tty)
	if err != nil {
		t.Fatal(err)
	}
	serving, lined := make(chan struct{}), make(chan struct{})
	c, _ := streamPair(t, nil, func(_ context.Context, r *Request) (any, error) {
		for i, f := range r.Files {
			state, err := terminal.Look(f)
			if err != nil {
				return nil, fmt.Errorf("file %d: %w", i, err)
			}
			if diff := cmp.Diff(before, state); diff != "" {
				return nil, fmt.Errorf("file %d: %s", i, diff)
			}
		}
		close(serving)
		line, err := bufio.NewReader(r.Files[0]).ReadString('\n')
		if err != nil {
			return nil, err
		}
		close(lined)
		for size := before.Window; size != (terminal.Window{Rows: 50, Columns: 132}); runtime.Gosched() {
			state, err := terminal.Look(r.Files[0])
			if err != nil {
				return nil, err
			}
			size = state.Window
		}
		fmt.Fprint(r.Files[1], "out\n")
		fmt.Fprint(r.Files[2], "err\n")
		return line, nil
	})
	answer := make(chan error, 1)
	var line string
	go func() { answer <- c.call(Lend(t.Context()), "read", nil, &line, tty, tty, tty) }()
	reached(t, serving, answer)
	if _, err := keys.WriteString("helo\x7f\x7fllo\r"); err != nil { // it erases, and takes CR for a newline
		t.Fatal(err)
	}
	reached(t, lined, answer)
	if err := terminal.Resize(tty, 50, 132); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; line != "hello\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	const want = "helo\b \b\b \bllo\r\nout\r\nerr\r\n"
	shown := make([]byte, len(want))
	if _, err := io.ReadFull(keys, shown); string(shown) != want || err != nil {
		t.Errorf("%q is shown, %v, want %q", shown, err, want)
	}
	restored(t, tty, before)
}

// reached waits until a request is where it closes where, which it may not be answered before.
func reached(t *testing.T, where <-chan struct{}, answer <-chan error) {
	t.Helper()
	select {
	case <-where:
	case err := <-answer:
		t.Fatalf("the answer has come: %v", err)
	}
}

// newTerminal is a pseudo-terminal, closed with the test.
func newTerminal(t *testing.T) (keys, tty *os.File) {
	t.Helper()
	keys, tty, err := terminal.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keys.Close(); tty.Close() })
	if err := terminal.Resize(tty, 24, 80); err != nil {
		t.Fatal(err)
	}
	return keys, tty
}

// restored waits until a terminal has the attributes that it had.
func restored(t *testing.T, tty *os.File, before terminal.State) {
	t.Helper()
	for {
		state, err := terminal.Look(tty)
		if err != nil {
			t.Fatal(err)
		}
		if state.Attributes == before.Attributes {
			return
		}
		runtime.Gosched() // a test that waits here for ever fails
	}
}

// TestLendHangsUp: the peer's terminal hangs up when the one that is lent does, or the
// channel ends.
func TestLendHangsUp(t *testing.T) {
	keepsDescriptors(t)
	for name, end := range map[string]func(c *Conn, keys, tty *os.File){
		"the terminal":                 func(_ *Conn, keys, tty *os.File) { keys.Close(); tty.Close() },
		"one that others have as well": func(_ *Conn, keys, tty *os.File) { keys.Close(); tty.Close() },
		"the channel":                  func(c *Conn, _, _ *os.File) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			keys, tty := newTerminal(t)
			if name == "one that others have as well" {
				if err := unix.SetNonblock(int(tty.Fd()), false); err != nil {
					t.Fatal(err)
				}
			}
			serving, told := make(chan struct{}), make(chan error, 1)
			c, _ := streamPair(t, nil, func(_ context.Context, r *Request) (any, error) {
				close(serving)
				_, err := r.Files[0].Read(make([]byte, 1))
				told <- err
				return nil, nil
			})
			answer := make(chan error, 1)
			go func() { answer <- c.call(Lend(t.Context()), "read", nil, nil, tty) }()
			<-serving
			end(c, keys, tty)
			if err := <-told; err == nil {
				t.Error("the peer's terminal goes on")
			}
			if err := <-answer; err != nil && !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// TestLendFails: a terminal of a request that could not be sent is as before.
func TestLendFails(t *testing.T) {
	keepsDescriptors(t)
	_, tty := newTerminal(t)
	before, err := terminal.Look(tty)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := streamPair(t, nil, double)
	c.carrier.(*streams).count[ours] = maxStreams
	err = c.call(Lend(t.Context()), "double", 1, nil, tty)
	if err == nil || !strings.HasSuffix(err.Error(), "16384 files are open at the peer, at most so many can be") {
		t.Errorf("got %v", err)
	}
	if now, err := terminal.Look(tty); now != before || err != nil {
		t.Errorf("%s, %v", cmp.Diff(before, now), err)
	}
	if err := c.call(t.Context(), "double", 1, nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// run is a handler that runs a shell's command with the files, as the session of a terminal if
// there are three.
func run(ctx context.Context, r *Request) (any, error) {
	var command string
	if err := r.decode(&command); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Stdin, cmd.Stdout = r.Files[0], r.Files[1]
	if len(r.Files) == 3 {
		cmd.Stderr = r.Files[2]
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
	for _, f := range r.Files {
		if err := unix.SetNonblock(int(f.Fd()), false); err != nil {
			return nil, err
		}
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for i, f := range r.Files {
		f.Close()
		r.Files[i] = nil
	}
	// Only its output is of interest.
	_ = cmd.Wait()
	return cmd.ProcessState.String(), nil
}

// TestPrograms: programs have a lent terminal as their own, and pipes as of a shell.
func TestPrograms(t *testing.T) {
	keepsDescriptors(t)
	c, _ := streamPair(t, nil, run)
	t.Run("terminal", func(t *testing.T) {
		keys, tty := newTerminal(t)
		answer := make(chan error, 1)
		var state string
		go func() {
			answer <- c.call(Lend(t.Context()), "run", "stty size; echo to it >/dev/tty; exec sleep 1000", &state, tty, tty, tty)
		}()
		const want = "24 80\r\nto it\r\n"
		shown := make([]byte, len(want))
		if _, err := io.ReadFull(keys, shown); string(shown) != want || err != nil {
			t.Errorf("%q, %v, want %q", shown, err, want)
		}
		if _, err := keys.WriteString("\x03"); err != nil { // Ctrl-C, to what is in its foreground
			t.Fatal(err)
		}
		if err := <-answer; state != "signal: interrupt" || err != nil {
			t.Errorf("%s, %v", state, err)
		}
	})
	t.Run("pipes", func(t *testing.T) {
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		r, w := pipe(t)
		answer := make(chan error, 1)
		var state string
		go func() { answer <- c.call(t.Context(), "run", "echo first >/dev/stdout; exec yes", &state, null, w) }()
		const want = "first\ny\n"
		shown := make([]byte, len(want))
		if _, err := io.ReadFull(r, shown); string(shown) != want || err != nil {
			t.Errorf("%q, %v, want %q", shown, err, want)
		}
		r.Close()
		if err := <-answer; (state != "signal: broken pipe" && state != "exit status 1") || err != nil { // as SIGPIPE is ignored or not
			t.Errorf("%s, %v", state, err)
		}
	})
}

// TestNotLent: a terminal that is not the peer's alone stays as it is, with its lines and its
// end.
func TestNotLent(t *testing.T) {
	keepsDescriptors(t)
	keys, tty := newTerminal(t)
	before, err := terminal.Look(tty)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := streamPair(t, nil, func(_ context.Context, r *Request) (any, error) {
		b, err := io.ReadAll(r.Files[0])
		return string(b), err
	})
	var got string
	answer := make(chan error, 1)
	go func() { answer <- c.call(t.Context(), "read", nil, &got, tty, tty) }()
	if _, err := keys.WriteString("line\r\x04"); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; got != "line\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if now, err := terminal.Look(tty); now != before || err != nil {
		t.Errorf("%s, %v", cmp.Diff(before, now), err)
	}
}

// TestTerminalState: a state crosses whole.
func TestTerminalState(t *testing.T) {
	var s terminal.State
	s.Window = terminal.Window{Rows: 1, Columns: 2}
	s.Attributes.Iflag, s.Attributes.Oflag, s.Attributes.Cflag, s.Attributes.Lflag = 3, 4, 5, 6<<24
	copy(s.Attributes.Cc[:], strings.Repeat("\x07\x08", 10))
	b := appendState(nil, s)
	if diff := cmp.Diff(s, parseState(b)); diff != "" || len(b) != stateLen {
		t.Errorf("%d bytes of %d, %s", len(b), stateLen, diff)
	}
}
