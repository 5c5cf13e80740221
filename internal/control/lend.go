package control

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/terminal"
)

type lending struct{}

// Lend returns ctx for a request whose terminals are the peer's alone, such as that of a
// terminal.Session. Over a stream the peer gets a pseudo-terminal of its own, with the
// attributes and the size of the one that is sent, and its changes of size. The one that is
// sent is raw meanwhile, since the peer's acts on keys. When it hangs up, so does the peer's.
func Lend(ctx context.Context) context.Context { return context.WithValue(ctx, lending{}, true) }

func isLent(ctx context.Context) bool { return ctx.Value(lending{}) != nil }

// A lentTerminal is one that the peer has.
type lentTerminal struct {
	file   *os.File
	state  terminal.State // when it was lent
	over   chan struct{}
	giveUp sync.Once
}

// sizeInterval is the time between two looks at the size of a lent terminal. Only processes
// that it controls are told of a change.
const sizeInterval = 200 * time.Millisecond

// lendTerminal makes the terminal fd raw; nil if it is none.
func lendTerminal(fd int) (*lentTerminal, error) {
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "terminal")
	if !terminal.Is(f) {
		f.Close()
		return nil, nil
	}
	t := &lentTerminal{file: f, over: make(chan struct{})}
	if t.state, err = terminal.Look(f); err == nil {
		err = terminal.MakeRaw(f)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("terminal: %w", err)
	}
	return t, nil
}

// follow tells the peer of changes of the size.
func (t *lentTerminal) follow(s *stream) {
	defer t.file.Close()
	ticker := time.NewTicker(sizeInterval)
	defer ticker.Stop()
	for last := t.state.Window; ; {
		select {
		case <-ticker.C:
		case <-t.over:
			// It fails for one that has hung up, which has nobody any more.
			_ = t.state.Restore(t.file)
			return
		}
		now, err := terminal.Look(t.file)
		if err == nil && now.Window != last {
			last = now.Window
			s.tell(frameSize, uint32(last.Rows)<<16|uint32(last.Columns))
		}
	}
}

// end gives the terminal back.
func (t *lentTerminal) end() { t.giveUp.Do(func() { close(t.over) }) }

func (d *descriptor) resize(size uint32) {
	// It fails for a terminal that has hung up.
	_ = terminal.Resize(d.f, uint16(size>>16), uint16(size))
}

// makeTerminal makes a pseudo-terminal, the controlling end first.
func makeTerminal(state terminal.State) (fds [2]int, err error) {
	control, peer, err := terminal.Open()
	if err != nil {
		return fds, err
	}
	defer control.Close()
	defer peer.Close()
	if err := state.Restore(peer); err != nil {
		return fds, err
	}
	if err := terminal.Resize(peer, state.Window.Rows, state.Window.Columns); err != nil {
		return fds, err
	}
	both, err := duplicate([]*os.File{control, peer})
	if err != nil {
		return fds, err
	}
	return [2]int(both), nil
}

// stateLen is the length of a terminal's state in a table of files.
const stateLen = 2 + 2 + 4*4 + len(unix.Termios{}.Cc)

func appendState(b []byte, s terminal.State) []byte {
	b = binary.BigEndian.AppendUint16(b, s.Window.Rows)
	b = binary.BigEndian.AppendUint16(b, s.Window.Columns)
	for _, flags := range []uint32{s.Attributes.Iflag, s.Attributes.Oflag, s.Attributes.Cflag, s.Attributes.Lflag} {
		b = binary.BigEndian.AppendUint32(b, flags)
	}
	return append(b, s.Attributes.Cc[:]...)
}

func parseState(b []byte) (s terminal.State) {
	s.Window.Rows, s.Window.Columns = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	for i, flags := range []*uint32{&s.Attributes.Iflag, &s.Attributes.Oflag, &s.Attributes.Cflag, &s.Attributes.Lflag} {
		*flags = binary.BigEndian.Uint32(b[4+4*i:])
	}
	copy(s.Attributes.Cc[:], b[20:])
	return s
}
