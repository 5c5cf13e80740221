// Package pace holds packets back that nobody acknowledges, those of unreliable connections and of
// datagrams, while a peer has as many as its receive buffer has room for: what flow control of the link
// (IEEE 802.1Qbb) does for adapters on a lossless fabric.
//
// It is pure: the bytes sent, the peer's Answers and the present time go in; the limit of bytes to send and the
// next deadline come out.
//
// A sender counts the bytes that it has sent to one receive buffer of a peer. Behind some of them it sends
// a Mark (package mad), which says how many there were. The peer answers each Mark when it has taken it out of the buffer:
// then it has taken out what was sent before, or that was lost, which makes no difference. So nothing that
// is lost stays counted, and the peer keeps no account. Later Marks and Answers make up for those that are
// lost; when none follows, the Mark is sent again.
//
// Only adapters of our kind answer. A sender does not wait for a peer that has not answered for a while, until that peer
// answers.
//
// Start reading at Path, which is the sender's; Buffer is the receiver's.
package pace

import (
	"math"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

const (
	// FirstWindow bounds the bytes under way to a peer that has not answered yet. Some ten peers may begin at once
	// with the least receive buffer that Linux gives.
	FirstWindow = 32 << 10
	// MinWindow is the least window, with room for two packets of 4 KiB.
	MinWindow = 10 << 10
	// A window has marksPerWindow Marks, or minMarksPerWindow where they would be less than a super-packet apart.
	marksPerWindow    = 4
	minMarksPerWindow = 2
	superPacket       = 64 << 10
	// unpacedInterval is the number of bytes between Marks to a peer that does not answer.
	unpacedInterval = 1 << 20

	// A Mark that is not answered while somebody waits is sent again after minInterval at least, and after firstInterval
	// where no round trip is known. Each further interval is twice as long, up to maxInterval.
	minInterval   = time.Millisecond
	firstInterval = 10 * time.Millisecond
	maxInterval   = 100 * time.Millisecond
	// unansweredWait bounds the wait for a peer that has never answered, answeredWait for one that has.
	unansweredWait = 300 * time.Millisecond
	answeredWait   = 2 * time.Second
	// staleAfter is the age of the last Mark from which the shortest round trip is measured anew.
	staleAfter = 10 * time.Second
)

// A Path leads to one receive buffer of a peer. Calls must not overlap. The caller counts the bytes sent:
// those of all packets so far, with what a packet takes beside its payload.
type Path struct {
	id       uint64
	unpaced  bool // the peer does not answer
	answered bool // it did once
	window   uint64
	taken    uint64 // bytes, as the newest Mark that was answered says
	takenAt  time.Duration
	marked   uint64 // likewise the newest Mark that was sent
	markedAt time.Duration
	shortest time.Duration // the shortest round trip; 0: unknown

	since    time.Duration // when the wait for room began
	next     time.Duration // when the Mark is to be sent again; 0 if nobody waits
	interval time.Duration // from one Mark to the next
}

// NewPath makes a path with an ID that no other of the peer's senders has.
func NewPath(id uint64) *Path { return &Path{id: id, window: FirstWindow} }

// Limit returns the number of bytes that may have been sent before the next packet.
func (p *Path) Limit() uint64 {
	if p.unpaced {
		return math.MaxUint64
	}
	return p.taken + p.window
}

// NextMark returns the number of bytes sent at which the next Mark is due.
func (p *Path) NextMark() uint64 {
	if p.unpaced {
		return p.marked + unpacedInterval
	}
	return p.marked + max(p.window/marksPerWindow, min(p.window/minMarksPerWindow, superPacket))
}

// Mark makes the Mark that is to follow the bytes sent so far.
func (p *Path) Mark(now time.Duration, sent uint64) mad.Mark {
	if now-p.markedAt > staleAfter {
		p.shortest = 0
	}
	p.marked, p.markedAt = sent, now
	return mad.Mark{ID: p.id, Sent: sent, At: now, Taken: p.taken, Since: p.takenAt}
}

// HandleAnswer takes the peer's Answer. One that is old, or of another sender, changes nothing.
func (p *Path) HandleAnswer(now time.Duration, a *mad.Answer) {
	if a.ID != p.id || a.Sent <= p.taken || a.Sent > p.marked || a.Taken >= a.Sent || a.Since > a.At || a.At > now {
		return
	}
	took := max(1, now-a.At)
	if p.shortest == 0 || took < p.shortest {
		p.shortest = took
	}
	p.taken, p.takenAt, p.next = a.Sent, now, 0
	p.answered, p.unpaced = true, false
	// Bytes on their way take no room in the buffer: as many as the peer takes in the shortest round trip.
	held := float64(a.Sent-a.Taken) * float64(p.shortest) / float64(max(1, now-a.Since))
	p.window = max(uint64(a.Window), MinWindow) + uint64(held)
}

// StartWaiting notes that somebody waits for more than Limit. The caller repeats it after each Answer as long as that holds.
func (p *Path) StartWaiting(now time.Duration) {
	if p.next != 0 {
		return
	}
	p.interval = firstInterval
	if p.shortest > 0 {
		p.interval = min(max(4*p.shortest, minInterval), maxInterval)
	}
	p.since, p.next = now, now+p.interval
}

// Deadline returns when HandleTimeout is to be called; 0 if nobody waits.
func (p *Path) Deadline() time.Duration { return p.next }

// HandleTimeout is to be called when the deadline has passed and somebody still waits. It reports whether a Mark is to be
// sent; if not, the wait is over.
func (p *Path) HandleTimeout(now time.Duration) (ask bool) {
	longest := unansweredWait
	if p.answered {
		longest = answeredWait
	}
	if now-p.since >= longest {
		p.unpaced, p.next = true, 0
		return false
	}
	p.interval = min(2*p.interval, maxInterval)
	p.next = min(now+p.interval, p.since+longest)
	return true
}

// period is the least time for which a sender counts after it has sent a Mark.
const period = 100 * time.Millisecond

// A Buffer divides a receive buffer among its senders. Calls must not overlap.
type Buffer struct {
	size              uint64
	began             time.Duration       // of the present period
	current, previous map[uint64]struct{} // senders in the present period and the one before
}

// NewBuffer makes a Buffer of so many bytes of packets.
func NewBuffer(size int) *Buffer {
	return &Buffer{size: uint64(size), current: map[uint64]struct{}{}, previous: map[uint64]struct{}{}}
}

// Answer answers a Mark that has been taken out of the buffer.
func (b *Buffer) Answer(now time.Duration, m *mad.Mark) mad.Answer {
	if passed := now - b.began; passed >= period {
		b.current, b.previous = b.previous, b.current
		clear(b.current)
		if passed >= 2*period {
			clear(b.previous)
		}
		b.began = now
	}
	b.current[m.ID] = struct{}{}
	window := b.size / uint64(max(len(b.current), len(b.previous)))
	return mad.Answer{Mark: *m, Window: uint32(min(max(window, MinWindow), math.MaxUint32))}
}
