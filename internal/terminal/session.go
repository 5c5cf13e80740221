package terminal

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Session connects the caller's terminal to a command.
type Session struct {
	in, out *os.File // the caller's
	control *os.File
	peer    *os.File

	saved   *unix.Termios // of in, before
	restore sync.Once

	signals chan os.Signal // SIGWINCH and SIGCONT
	ended   chan struct{}  // closed when follow and show are to end
	work    sync.WaitGroup // follow and show
}

// Attach makes a pseudo-terminal that is set up, and as large, as the terminal in,
// makes that raw, and copies between the two: what is typed at in goes to the
// command, and what that writes to out, another file for the same terminal. It must
// be detached.
func Attach(in, out *os.File) (*Session, error) {
	saved, err := attributes(in)
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	control, peer, err := Open()
	if err != nil {
		return nil, err
	}
	s := &Session{in: in, out: out, control: control, peer: peer, saved: saved,
		signals: make(chan os.Signal, 4), ended: make(chan struct{})}
	err = setAttributes(peer, saved)
	if err == nil {
		err = copySize(control, in)
	}
	if err == nil {
		err = setAttributes(in, raw(*saved))
	}
	if err != nil {
		control.Close()
		peer.Close()
		return nil, fmt.Errorf("terminal: %w", err)
	}
	signal.Notify(s.signals, unix.SIGWINCH, unix.SIGCONT)
	// A window that changed before the signals were asked for.
	s.resize()
	s.work.Go(s.guarded(s.follow))
	s.work.Go(s.guarded(s.copyOutput))
	// Nothing ends a read of a terminal but a key: this goes with the process.
	go s.guarded(s.copyInput)()
	return s, nil
}

// Peer returns the command's end, to be its standard files. The session closes it.
func (s *Session) Peer() *os.File { return s.peer }

// Detach shows what the command has written so far, and restores the caller's terminal.
// A program that still runs at the node's end finds its terminal hung up.
func (s *Session) Detach() error {
	// A deadline in the past ends what copyOutput waits for. If copyInput has hung up, that is
	// over.
	_ = s.control.SetReadDeadline(time.Unix(1, 0))
	signal.Stop(s.signals)
	s.peer.Close()
	close(s.ended)
	s.work.Wait()
	s.control.Close()
	return s.restoreTerminal()
}

// restoreTerminal restores the caller's terminal.
func (s *Session) restoreTerminal() (err error) {
	s.restore.Do(func() {
		if err = setAttributes(s.in, s.saved); err != nil {
			err = fmt.Errorf("terminal: %w", err)
		}
	})
	return err
}

// guarded returns do with the terminal restored before a panic ends the process.
func (s *Session) guarded(do func()) func() {
	return func() {
		whole := false
		defer func() {
			if !whole {
				_ = s.restoreTerminal() // of the two, the panic is to be told
			}
		}()
		do()
		whole = true
	}
}

// follow keeps the window's size. The shell that lets a stopped process continue has
// had the terminal for itself meanwhile: it is made raw again.
func (s *Session) follow() {
	for {
		select {
		case sig := <-s.signals:
			if sig == unix.SIGCONT {
				// It fails for a terminal that is gone, which copyInput will find.
				_ = setAttributes(s.in, raw(*s.saved))
			}
			s.resize()
		case <-s.ended:
			return
		}
	}
}

// resize gives the command the window's size.
func (s *Session) resize() {
	// It fails for a terminal that is gone, which copyInput will find.
	_ = copySize(s.control, s.in)
}

// copyInput copies what is typed. When the caller's terminal is gone, it hangs the
// command's up.
func (s *Session) copyInput() {
	buf := make([]byte, 4096)
	for {
		n, err := s.in.Read(buf)
		if n > 0 {
			if _, err := s.control.Write(buf[:n]); err != nil {
				return // the session is over
			}
		}
		if err != nil {
			s.control.Close()
			s.peer.Close()
			return
		}
	}
}

// copyOutput copies what the command writes until the session is to end, and then what is
// left.
func (s *Session) copyOutput() {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.control.Read(buf)
		if n > 0 {
			if _, err := s.out.Write(buf[:n]); err != nil {
				return // a terminal that is gone, which copyInput will find
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return // hung up
		}
	}
	s.showRest(buf)
}

// mostRest bounds what of the output of processes that the command left behind is
// waited for: the kernel holds some 64 KiB for each terminal.
const mostRest = 256 << 10

// showRest copies what is there already. The kernel looks, before it says that there
// is nothing, for what was written and is not yet passed on (n_tty_read in
// drivers/tty/n_tty.c).
func (s *Session) showRest(buf []byte) {
	for shown := 0; shown < mostRest; {
		n := 0
		err := ioctl(s.control, func(fd int) (err error) {
			n, err = unix.Read(fd, buf)
			return err
		})
		if err != nil || n <= 0 {
			return
		}
		if _, err := s.out.Write(buf[:n]); err != nil {
			return
		}
		shown += n
	}
}
