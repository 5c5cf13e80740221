package capture

import (
	"context"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/linkem/tap"
	"golang.org/x/sys/unix"
)

// A decision is a tap's report on a packet.
type decision struct {
	source  int
	stamp   int64  // the packet's
	key     uint64 // its signature; 0: somebody else has sent it
	comment string
	missed  uint32
}

// told is decisions of one tap, in its order.
type told struct {
	source    int
	decisions []decision
	reads     int32 // reads of the tap of which these are the last decisions
}

// fates are on the path from those who read taps to the recorder.
type fates struct {
	told chan told
	// behind is, by source, how many reads of the tap are under way or have decisions that
	// the recorder does not have yet. It says so before the tap is empty.
	behind []atomic.Int32
}

func newFates(sources int) *fates {
	return &fates{told: make(chan told, 64), behind: make([]atomic.Int32, sources)}
}

// read passes on what the tap of a source says of the packets that the source sends,
// until ctx ends, or the link, the lab or the capture.
func (f *fates) read(ctx context.Context, s *Source, source int, chunks *chunks) {
	raw, err := s.Tap.SyscallConn()
	if err != nil {
		return // the capture has ended
	}
	counting := countingReader{raw: raw, behind: &f.behind[source]}
	defer func() { f.behind[source].Add(-counting.reads) }()
	reader := tap.NewReader(&counting)
	all := told{source: source}
	for {
		p, err := reader.Next()
		if err != nil {
			return
		}
		d := decision{source: source, stamp: p.Stamp - chunks.ahead[source].Load(), missed: p.Missed}
		if p.Size > 0 && p.Direction == s.Direction {
			d.key, d.comment = signature(source, p.Frame, p.Size), comment(&p)
		}
		all.decisions = append(all.decisions, d)
		if pending := reader.Pending(); !pending {
			all.reads = counting.reads
		} else if len(all.decisions) < 256 {
			continue
		}
		select {
		case f.told <- all:
			counting.reads -= all.reads
			all = told{source: source}
		case <-ctx.Done():
			return
		}
	}
}

// A countingReader reads a tap and counts each read in behind before the tap has less.
type countingReader struct {
	raw    syscall.RawConn
	behind *atomic.Int32
	reads  int32 // those of behind that were not passed on
}

func (c *countingReader) Read(b []byte) (n int, err error) {
	waited := c.raw.Read(func(fd uintptr) bool {
		c.behind.Add(1)
		for n, err = unix.Read(int(fd), b); err == unix.EINTR; n, err = unix.Read(int(fd), b) {
		}
		if n > 0 {
			c.reads++
		} else {
			c.behind.Add(-1)
		}
		return err != unix.EAGAIN
	})
	switch {
	case waited != nil:
		return 0, waited
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// comment says what became of a packet.
func comment(p *tap.Packet) string {
	delay := time.Duration(p.Departs - p.Stamp)
	text := p.Comment
	if p.Departs != 0 && delay >= time.Microsecond {
		if text != "" {
			text += ", "
		}
		text += "delayed " + delay.Round(time.Microsecond).String()
	}
	return strings.ReplaceAll(text, "µ", "u") // for those who look for it
}
