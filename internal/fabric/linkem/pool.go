package linkem

import (
	"fmt"
	"time"
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
	// Bytes that the budget is charged for a frame and for a run of its packets,
	// besides the frame's own: a slice that grows has room for half as many again.
	// They are most of what short frames take.
	heldCost = int(unsafe.Sizeof(heldFrame{})+unsafe.Sizeof((*heldFrame)(nil))) * 3 / 2
	runCost  = int(unsafe.Sizeof(run{})) * 3 / 2
)

// A buffer holds one long frame or several short ones.
type buffer struct {
	bytes  []byte
	used   int // where the next short frame goes
	frames int // held in it
}

// A heldFrame is a frame in a line.
type heldFrame struct {
	frame   frame.Frame
	buffer  *buffer
	arrived time.Duration // by the machine
	runs    int           // in the queue
}

// A pool is the memory of the delay lines. Its pages come from the kernel as
// they are first used and are reused last in, first out. It belongs to the loop's thread.
type pool struct {
	unused []byte       // never used so far
	free   []*buffer    // no frame is in them
	spare  []*heldFrame // for reuse
	left   int          // of the budget, bytes
}

func newPool(size int) (*pool, error) {
	region, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("delay line memory of %d bytes: %w", size, err)
	}
	// Fewer page faults and address translations; not every kernel has them.
	_ = unix.Madvise(region, unix.MADV_HUGEPAGE)
	return &pool{unused: region, left: size}, nil
}

// get returns an empty buffer, or nil when the budget is spent.
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
	b := &buffer{bytes: p.unused[:bufferLen:bufferLen]}
	p.unused = p.unused[bufferLen:]
	return b
}

// put takes back a buffer that holds no frame any more.
func (p *pool) put(b *buffer) {
	b.used = 0
	p.free = append(p.free, b)
	p.left += bufferLen
}

// room returns memory for a frame of a line: in the buffer that the line's short frames
// share, or in one of its own. The buffer is nil when the budget is spent.
func (p *pool) room(n *line, size int) (*buffer, []byte) {
	if size > shareLimit {
		b := p.get()
		if b == nil {
			return nil, nil
		}
		return b, b.bytes[:size]
	}
	if p.left < heldCost {
		return nil, nil
	}
	if n.shared != nil && bufferLen-n.shared.used < size {
		n.shared = nil // the frames in it will give it back
	}
	if n.shared == nil {
		if n.shared = p.get(); n.shared == nil {
			return nil, nil
		}
	}
	b := n.shared
	room := b.bytes[b.used : b.used+size]
	b.used += (size + 7) &^ 7
	return b, room
}

// hold holds a frame that arrived at an instant and whose bytes are in a buffer.
func (p *pool) hold(b *buffer, f frame.Frame, arrived time.Duration) *heldFrame {
	b.frames++
	p.left -= heldCost
	var h *heldFrame
	if k := len(p.spare) - 1; k >= 0 {
		h, p.spare = p.spare[k], p.spare[:k]
	} else {
		h = new(heldFrame)
	}
	h.frame, h.buffer, h.arrived = f, b, arrived
	return h
}

// release ends the holding of a frame that has left a line.
func (p *pool) release(n *line, h *heldFrame) {
	if h.buffer.frames--; h.buffer.frames == 0 {
		if n.shared == h.buffer {
			n.shared = nil
		}
		p.put(h.buffer)
	}
	h.buffer = nil
	p.left += heldCost
	p.spare = append(p.spare, h)
}
