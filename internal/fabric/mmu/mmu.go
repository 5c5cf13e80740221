// Package mmu is the model of a switch whose ports share one packet buffer, with priority flow
// control (PFC, IEEE 802.1Qbb) and ECN, as docs/spec/congestion.md c1 defines it.
//
// A packet is counted twice. For the port that it came in by (ingress) the count decides whether the
// neighbour there is to pause, and whether there is room; for the port that it leaves by (egress) the
// count decides whether the packet is marked and, in a class that may lose packets, dropped.
//
// # Buffer
//
// Each port and class has a reserve, and each of a lossless class a headroom; what remains of the
// buffer is shared. A port's class may use of the shared part alpha times what is free of it, or a
// fixed size: that is XOFF. Beyond it the neighbour is asked to pause (Pause), and what still
// arrives uses the headroom. Once the class is a gap below XOFF the neighbour is asked to go on. As
// in the reference simulator of docs/spec/congestion.md d, both are looked for when a packet of that
// very port and class arrives or leaves, although the threshold also moves with all others.
//
// # Driver
//
// The model is pure: time goes in, and nothing here does I/O, locks, or allocates per packet once
// its queues have grown. A driver, be it a simulation or an engine, does this:
//
//   - It gives each packet to Arrive once the whole of it is there, and each PFC frame to Paused.
//   - It asks Wake after each call which ports have something to send again.
//   - When a port's wire is free it asks Pause for a PFC frame first, and then Next for a packet. A
//     port for which neither has anything is idle until Wake names it.
//   - Where the wire is free already when a packet comes, Pass does for most packets all of that at once.
//   - It calls Advance at Deadline.
//
// Bytes are those of a wire (impair.WireBytes) or of frames, as the driver likes; only Headroom and
// quanta know of wires. Instants never go back.
//
// # Randomness
//
// The draw that decides whether a packet is marked is a function of the seed, the switch's name, the
// port, the class, and the packet's place among those that entered this queue.
//
// Start reading at Switch.Arrive and Switch.Next; pass.go has the short cut, pfc.go pauses and the watchdog, wait.go
// deadlocks, config.go the settings and preset.go those of known switches.
package mmu

import (
	"math/bits"
	"time"
)

// Classes is the number of traffic classes, which are PFC's priorities.
const Classes = 8

// A Verdict says what happened to a packet that arrived.
type Verdict uint8

// The verdicts. All but Admitted are drops.
const (
	Admitted   Verdict = iota
	NoHeadroom         // a lossless class was beyond XOFF, and its headroom was full
	NoBuffer           // the shared buffer was full
	QueueFull          // a lossy class had reached its limit at the port where the packet was to leave
	Storm              // the watchdog drops what is for this queue
	Invalid            // the switch has no such port or class, or the packet is longer than the port's longest
	verdicts
)

var verdictNames = [verdicts]string{"admitted", "headroom", "buffer", "queue", "storm", "invalid"}

// String returns the reason of a drop, as reports name it.
func (v Verdict) String() string {
	if v < verdicts {
		return verdictNames[v]
	}
	return "unknown"
}

// A Switch is the state of a switch. P is the driver's handle of a packet. It is not for use by
// several goroutines at once.
//
// A simulated network has many, whose state does not fit the processor's caches. So what each packet needs comes first, here
// as in a port, an ingress and a queue.
type Switch[P any] struct {
	ports     []port[P]
	woken     fifo[int]
	shared    int64         // bytes that are neither reserve nor headroom
	used      int64         // of those
	queued    int64         // bytes of all packets
	peak      int64         // the most of queued
	deadline  time.Duration // nothing is due before it
	discarded fifo[Departure[P]]
	held      []int64 // bytes by (in, out, class); see at
	config    Config
}

// A port has both directions of a port of the switch.
type port[P any] struct {
	config *Port

	filled   uint8 // classes whose queue is not empty
	paused   uint8 // classes that the neighbour has paused
	storming uint8 // classes in a storm
	strict   uint8 // classes that are served first

	told    uint8 // classes that the neighbour was asked to pause
	changed uint8 // classes for which told is not what is to be told now
	renewed uint8 // classes whose pause is to be told once more

	turn   int  // class of the weighted schedule whose turn it is
	served bool // it has been given its quantum
	unit   int64
	idle   bool // Next had nothing to send

	ingress [Classes]ingress
	queues  [Classes]queue[P]
}

// An ingress is the account of what came in by a port in a class.
type ingress struct {
	class    *Class // of the port's settings
	held     int64  // bytes in the reserve and in the shared buffer
	headroom int64  // bytes
	peak     int64  // the most of both
	xoff     bool   // the neighbour is to pause
	toldAt   time.Duration
	renewAt  time.Duration // when the pause is to be told once more
	counters *Counters
}

// A queue has what leaves by a port in a class.
type queue[P any] struct {
	packets  fifo[entry[P]]
	bytes    int64
	deficit  int64  // of the weighted schedule, in bytes times port.unit
	entered  uint64 // packets ever
	left     uint64 // likewise
	key      uint64 // of draws
	counters Counters

	pausedAt time.Duration
	until    time.Duration // when the neighbour's pause runs out
	stuckAt  time.Duration // since when it has been paused and not empty; never: it is not
	calmAt   time.Duration // in a storm: since when it has not been paused
}

type entry[P any] struct {
	packet P
	bytes  int32
	in     int32
	ect    bool
	marked bool
}

// A Departure is a packet that leaves.
type Departure[P any] struct {
	Packet P
	In     int // port that it came in by
	Class  int
	Bytes  int
	Marked bool // it is to carry the mark CE: here for the first time, as far as the switch knows
}

// New returns a switch with nothing in it, or the reason why there cannot be one with such settings.
func New[P any](c Config) (*Switch[P], error) {
	if c.Quanta == 0 {
		c.Quanta = MostQuanta
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Ports = append([]Port(nil), c.Ports...)
	s := &Switch[P]{config: c, shared: c.Shared(), deadline: never}
	n := len(c.Ports)
	s.ports = make([]port[P], n)
	s.held = make([]int64, n*n*Classes)
	key := nameKey(c.Seed, c.Name)
	for i := range s.ports {
		p := &s.ports[i]
		p.config, p.idle = &c.Ports[i], true
		for class := range Classes {
			w := int64(p.config.Classes[class].Weight)
			switch {
			case w == 0:
				p.strict |= 1 << class
			case p.unit == 0 || w < p.unit:
				p.unit = w
			}
			q := &p.queues[class]
			q.stuckAt, q.calmAt = never, never
			q.key = mix(key + uint64(i*Classes+class+1)*gamma)
			p.ingress[class].renewAt = never
			p.ingress[class].counters, p.ingress[class].class = &q.counters, &p.config.Classes[class]
		}
	}
	return s, nil
}

// at returns the index in held.
func (s *Switch[P]) at(in, out, class int) int { return (in*len(s.ports)+out)*Classes + class }

// free returns what is free of the shared buffer.
func (s *Switch[P]) free() int64 { return s.shared - s.used }

// Arrive decides on a packet that came in by one port and is to leave by another, and queues it. ect
// says that it may be marked.
func (s *Switch[P]) Arrive(now time.Duration, in, out, class, bytes int, ect bool, packet P) Verdict {
	if uint(in) >= uint(len(s.ports)) || uint(out) >= uint(len(s.ports)) || uint(class) >= Classes ||
		bytes <= 0 || bytes > s.ports[out].config.MaxFrame {
		return Invalid
	}
	s.advance(now)
	from, to := &s.ports[in], &s.ports[out]
	q := &to.queues[class]
	bit := uint8(1) << class
	if to.storming&bit != 0 && !s.config.Watchdog.Forward {
		q.counters.Drops[Storm]++
		return Storm
	}
	if v := s.admit(&from.ingress[class], to.ingress[class].class, q.bytes, int64(bytes)); v != Admitted {
		switch v {
		case QueueFull:
			q.counters.Drops[v]++
		default:
			from.ingress[class].counters.Drops[v]++
		}
		s.ask(in, class, true)
		return v
	}
	s.ask(in, class, false)

	e := entry[P]{packet: packet, bytes: int32(bytes), in: int32(in), ect: ect}
	q.entered++
	if w := &to.config.Classes[class].Mark; w.AtEnqueue && ect {
		e.marked = w.marks(q.bytes, q.key, q.entered)
	}
	q.packets.push(e)
	q.bytes += int64(bytes)
	q.counters.QueuePeak = max(q.counters.QueuePeak, q.bytes)
	s.queued += int64(bytes)
	s.peak = max(s.peak, s.queued)
	s.held[s.at(in, out, class)] += int64(bytes)
	if to.filled&bit == 0 {
		to.filled |= bit
		if to.paused&bit != 0 && to.storming&bit == 0 {
			s.stick(q, now)
		}
	}
	if to.idle && to.ready()&bit != 0 {
		s.wake(out)
	}
	return Admitted
}

// admit finds room for a packet and counts it there.
func (s *Switch[P]) admit(i *ingress, egress *Class, queued, bytes int64) Verdict {
	c := i.class
	share := min(bytes, max(0, i.held+bytes-c.Reserve)) // what the reserve has no room for
	switch {
	case share == 0:
	case c.Lossless:
		// The packet that reaches XOFF is not in the headroom, which is then whole for those that follow.
		if share > s.free() || i.xoff && i.held+bytes-c.Reserve > c.limit(s.free()) {
			if i.headroom+bytes > c.Headroom {
				return NoHeadroom
			}
			i.headroom += bytes
			i.counters.HeadroomPeak = max(i.counters.HeadroomPeak, i.headroom)
			i.peak = max(i.peak, i.held+i.headroom)
			return Admitted
		}
	case share > s.free():
		return NoBuffer
	case egress.full(queued+bytes, s.free()):
		return QueueFull
	}
	i.held += bytes
	s.used += share
	i.peak = max(i.peak, i.held+i.headroom)
	return Admitted
}

// release takes a packet from the account of the port that it came in by: from the headroom first.
func (s *Switch[P]) release(now time.Duration, in, class int, bytes int64) {
	i := &s.ports[in].ingress[class]
	c := i.class
	headroom := min(i.headroom, bytes)
	i.headroom -= headroom
	bytes -= headroom
	s.used -= min(bytes, max(0, i.held-c.Reserve))
	i.held -= bytes
	if i.xoff && i.headroom == 0 && !c.beyond(i.held, s.free()) {
		i.xoff = false
		s.tell(in, class)
	}
}

// Next returns the packet that leaves next by a port; false if none may. Strict classes are first,
// the highest before others; the rest share by their weights what those leave (deficit round robin,
// Shreedhar and Varghese, SIGCOMM'95).
func (s *Switch[P]) Next(now time.Duration, out int) (d Departure[P], ok bool) {
	if uint(out) >= uint(len(s.ports)) {
		return d, false
	}
	s.advance(now)
	p := &s.ports[out]
	ready := p.ready()
	if ready == 0 {
		p.idle = true
		if p.changed|p.renewed != 0 {
			s.wake(out) // since Pause was asked
		}
		return d, false
	}
	var class int
	if first := ready & p.strict; first != 0 {
		class = bits.Len8(first) - 1
	} else {
		class = p.weighted(ready)
	}
	return s.depart(now, out, class), true
}

// Rest reports whether a port has nothing to send now, neither packets nor a PFC frame. Then Wake names the port when it may
// have, as after Next.
func (s *Switch[P]) Rest(out int) bool {
	p := &s.ports[out]
	if p.ready()|p.changed|p.renewed != 0 {
		return false
	}
	p.idle = true
	return true
}

// ready returns the classes that may send.
func (p *port[P]) ready() uint8 { return p.filled & (^p.paused | p.storming) }

// weighted returns the class that the weighted schedule serves next, of those that may send. A class
// is given a quantum each time its turn comes, and has its turn until that does not suffice. The
// quantum of the least weight is the longest packet.
func (p *port[P]) weighted(ready uint8) int {
	for {
		if ready>>p.turn&1 != 0 {
			q := &p.queues[p.turn]
			if !p.served {
				q.deficit += int64(p.config.Classes[p.turn].Weight) * int64(p.config.MaxFrame)
				p.served = true
			}
			if cost := int64(q.packets.first().bytes) * p.unit; cost <= q.deficit {
				q.deficit -= cost
				return p.turn
			}
		}
		p.pass(ready)
	}
}

// pass gives the turn to the next class of those that may send.
func (p *port[P]) pass(ready uint8) {
	next := p.turn + 1
	p.turn, p.served = (next+bits.TrailingZeros8(bits.RotateLeft8(ready, -next)))%Classes, false
}

// depart takes the first packet of a queue, which leaves or is discarded.
func (s *Switch[P]) depart(now time.Duration, out, class int) Departure[P] {
	p := &s.ports[out]
	q := &p.queues[class]
	e := q.packets.pop()
	bytes := int64(e.bytes)
	q.bytes -= bytes
	q.left++
	s.queued -= bytes
	s.held[s.at(int(e.in), out, class)] -= bytes
	if q.packets.len() == 0 {
		p.filled &^= 1 << class
		q.deficit = 0
	}
	s.release(now, int(e.in), class, bytes)
	if w := &p.config.Classes[class].Mark; e.ect && !w.AtEnqueue {
		e.marked = w.marks(q.bytes, q.key, q.left)
	}
	if e.marked {
		q.counters.Marked++
	}
	q.counters.Packets++
	q.counters.Bytes += uint64(bytes)
	return Departure[P]{Packet: e.packet, In: int(e.in), Class: class, Bytes: int(bytes), Marked: e.marked}
}

// wake has Wake name a port, which may have something to send again.
func (s *Switch[P]) wake(i int) {
	if p := &s.ports[i]; p.idle {
		p.idle = false
		s.woken.push(i)
	}
}

// Wake returns a port that had nothing to send and may have now; false if there is no more.
func (s *Switch[P]) Wake() (port int, ok bool) {
	if s.woken.len() == 0 {
		return 0, false
	}
	return s.woken.pop(), true
}

// Change changes the rate of a port in bits per second, by which pauses last, and the marks of what leaves there. A pause
// that has begun lasts as before.
func (s *Switch[P]) Change(out int, rate uint64, marks [Classes]WRED) {
	p := s.ports[out].config
	p.Rate = rate
	for class, mark := range marks {
		p.Classes[class].Mark = mark
	}
}

// Pauses reports whether the neighbour at a port has paused a class.
func (s *Switch[P]) Pauses(out, class int) bool { return s.ports[out].paused>>class&1 != 0 }

// Peak returns the most bytes that the switch has held at once.
func (s *Switch[P]) Peak() int64 { return s.peak }

// Queued returns the bytes that wait to leave by a port in a class.
func (s *Switch[P]) Queued(out, class int) int64 { return s.ports[out].queues[class].bytes }

// A fifo is a ring that grows.
type fifo[T any] struct {
	head, tail uint
	ring       []T // of a length that is a power of 2
}

func (f *fifo[T]) len() int  { return int(f.tail - f.head) }
func (f *fifo[T]) first() *T { return &f.ring[f.head&uint(len(f.ring)-1)] }

func (f *fifo[T]) push(x T) {
	if f.len() == len(f.ring) {
		ring := make([]T, max(8, 2*len(f.ring)))
		n := uint(0)
		for ; f.head != f.tail; n++ {
			ring[n] = *f.first()
			f.head++
		}
		f.ring, f.head, f.tail = ring, 0, n
	}
	f.ring[f.tail&uint(len(f.ring)-1)] = x
	f.tail++
}

func (f *fifo[T]) pop() T {
	first := f.first()
	x := *first
	var none T
	*first = none // keeps nothing alive
	f.head++
	return x
}
