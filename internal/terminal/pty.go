// Package terminal connects the caller's terminal to a command that runs in a node.
//
// The caller makes a pseudo-terminal and gives the command one end of it, as any
// other file; the command becomes its session's leader and takes that end for its
// controlling terminal (node.Command.Terminal). The caller keeps the other end, and
// copies between it and its own terminal, which is raw meanwhile: the node's terminal acts
// on keys, so that Ctrl-C ends what runs in its foreground there. When the caller ends, for
// whatever reason, the kernel hangs the node's terminal up.
//
// Both ends are of the caller's devpts, which nodes see too, since their mounts are
// copies of the caller's: `tty` prints its name there. A node of another host has a terminal of
// its own, to which package control copies (control.Lend). The package knows nothing of
// nodes and labs, and starts no process.
//
// Start reading at Attach.
package terminal

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Open makes a pseudo-terminal: the end that controls it, and the one that programs
// take for their terminal. Neither becomes the caller's controlling terminal.
func Open() (control, peer *os.File, err error) {
	control, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("pseudo-terminal: %w", err)
	}
	defer func() {
		if err != nil {
			control.Close()
		}
	}()
	var number int
	err = ioctl(control, func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil { // it is made locked
			return err
		}
		number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("pseudo-terminal: %w", err)
	}
	peer, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("pseudo-terminal: %w", err)
	}
	return control, peer, nil
}

// Is reports whether f is a terminal.
func Is(f *os.File) bool {
	_, err := attributes(f)
	return err == nil
}

// attributes returns a terminal's attributes (termios(3)).
func attributes(f *os.File) (*unix.Termios, error) {
	var t *unix.Termios
	err := ioctl(f, func(fd int) (err error) {
		t, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	})
	return t, err
}

func setAttributes(f *os.File, t *unix.Termios) error {
	return ioctl(f, func(fd int) error { return unix.IoctlSetTermios(fd, unix.TCSETS, t) })
}

// raw returns t for a terminal that passes on what is typed, and shows what it is sent,
// as it is (cfmakeraw(3)).
func raw(t unix.Termios) *unix.Termios {
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag &^= unix.CSIZE | unix.PARENB
	t.Cflag |= unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return &t
}

// copySize gives one terminal the size of another's window.
func copySize(to, from *os.File) error {
	var size *unix.Winsize
	err := ioctl(from, func(fd int) (err error) {
		size, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		return err
	})
	if err != nil {
		return err
	}
	return ioctl(to, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
}

// A Window is the size of a terminal's window.
type Window struct{ Rows, Columns uint16 }

// A State is a terminal's attributes and the size of its window.
type State struct {
	Attributes unix.Termios
	Window     Window
}

// Look returns a terminal's state.
func Look(f *os.File) (State, error) {
	t, err := attributes(f)
	if err != nil {
		return State{}, err
	}
	var size *unix.Winsize
	err = ioctl(f, func(fd int) (err error) {
		size, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		return err
	})
	if err != nil {
		return State{}, err
	}
	return State{*t, Window{size.Row, size.Col}}, nil
}

// Restore gives a terminal the attributes of a state.
func (s State) Restore(f *os.File) error { return setAttributes(f, &s.Attributes) }

// MakeRaw has a terminal pass on what is typed, and show what it is sent, as it is.
func MakeRaw(f *os.File) error {
	t, err := attributes(f)
	if err != nil {
		return err
	}
	return setAttributes(f, raw(*t))
}

// ioctl calls do with f's descriptor, which stays as it is: File.Fd would make it
// blocking.
func ioctl(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// Resize sets the size of a terminal's window. Programs in its foreground are told.
func Resize(t *os.File, rows, columns uint16) error {
	return ioctl(t, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
}

// Keep returns a function that gives a terminal the attributes back that it has now, and reports whether it had others.
func Keep(f *os.File) (restore func() (changed bool, err error), err error) {
	kept, err := attributes(f)
	if err != nil {
		return nil, err
	}
	return func() (bool, error) {
		now, err := attributes(f)
		if err != nil || *now == *kept {
			return false, err
		}
		return true, setAttributes(f, kept)
	}, nil
}
