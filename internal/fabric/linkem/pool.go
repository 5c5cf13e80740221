package linkem

import (
	"fmt"
	"unsafe"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"golang.org/x/sys/unix"
)

const (
	// budget bounds the frames in all delay lines together, with what is kept of
	// each, bytes: 100 ms at 10 Gb/s twice.
	budget = 256 << 20
	// bufferLen is a buffer's size: the longest frame, rounded up to cache lines.
	bufferLen = (frame.MaxLen + 63) &^ 63
	// shareLimit is the longest frame that shares a buffer with others, bytes. A
	// longer one keeps the buffer it was received into. So no more than half of
	// the budget is wasted, and no more than this copied.
	shareLimit = bufferLen / 2
	// What the budget is charged for a frame and for a run of its packets, bytes,
	// besides the frame's own: a slice that grows has room for half as many again.
	// Of short frames it is most of what they take.
	heldCost = int(unsafe.Sizeof(held{})+unsafe.Sizeof((*held)(nil))) * 3 / 2
	runCost  = int(unsafe.Sizeof(run{})) * 3 / 2
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
	left int // of the budget, bytes
}

func newPool(size int) (*pool, error) {
	region, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("delay line memory of %d bytes: %w", size, err)
	}
	// Fewer page faults and address translations; not every kernel has them.
	_ = unix.Madvise(region, unix.MADV_HUGEPAGE)
	return &pool{rest: region, left: size}, nil
}

// get is an empty buffer, or nil when the budget is spent.
func (p *pool) get() *buffer {
	if p.left < bufferLen {
		return nil
	}
	p.left -= bufferLen
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b
	}
	b := &buffer{bytes: p.rest[:bufferLen:bufferLen]}
	p.rest = p.rest[bufferLen:]
	return b
}

// put takes back a buffer that holds no frame any more.
func (p *pool) put(b *buffer) {
	b.used = 0
	p.free = append(p.free, b)
	p.left += bufferLen
}
