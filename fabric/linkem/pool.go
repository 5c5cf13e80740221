package linkem

import (
	"fmt"

	"github.com/ndklab/ndklab/fabric/frame"
	"golang.org/x/sys/unix"
)

const (
	// budget bounds the frames in all delay lines together, bytes: 100 ms at
	// 10 Gb/s twice.
	budget = 256 << 20
	// bufferLen is a buffer's size: the longest frame, rounded up to cache lines.
	bufferLen = (frame.MaxLen + 63) &^ 63
	// shareLimit is the longest frame that shares a buffer with others, bytes. A
	// longer one keeps the buffer it was received into. So no more than half of
	// the budget is wasted, and no more than this copied.
	shareLimit = bufferLen / 2
)

// A buffer holds one long frame or several short ones.
type buffer struct {
	bytes  []byte
	used   int // where the next short frame goes
	frames int // held in it
}

// A pool is the memory of the delay lines. Its pages come from the kernel as
// they are first used and are reused last in, first out.
type pool struct {
	rest []byte // never used so far
	free []*buffer
}

func newPool(size int) (*pool, error) {
	region, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("delay line memory of %d bytes: %w", size, err)
	}
	// Fewer page faults and address translations; not every kernel has them.
	_ = unix.Madvise(region, unix.MADV_HUGEPAGE)
	return &pool{rest: region}, nil
}

// get is an empty buffer, or nil when the budget is spent.
func (p *pool) get() *buffer {
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b
	}
	if len(p.rest) < bufferLen {
		return nil
	}
	b := &buffer{bytes: p.rest[:bufferLen:bufferLen]}
	p.rest = p.rest[bufferLen:]
	return b
}

// put takes back a buffer that holds no frame any more.
func (p *pool) put(b *buffer) {
	b.used = 0
	p.free = append(p.free, b)
}
