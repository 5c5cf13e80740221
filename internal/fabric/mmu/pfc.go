package mmu

import (
	"math/bits"
	"time"
)

// A PFC is the content of a priority flow control frame (roce.md 14.4).
type PFC struct {
	Enabled uint8           // classes that it is about: the class-enable vector
	Quanta  [Classes]uint16 // how long each of them is to pause, in times of 512 bits; 0: it is to go on
}

// ask decides whether the neighbour is to pause, after a packet came from it. must says that there was
// no room for that.
func (s *Switch[P]) ask(in, class int, must bool) {
	i := &s.ports[in].ingress[class]
	c := i.class
	// Something must be there that can leave, for only that ends the pause.
	if !c.Lossless || i.xoff || i.held+i.headroom == 0 {
		return
	}
	if must || i.headroom > 0 || c.above(i.held, s.free()) {
		i.xoff = true
		s.tell(in, class)
	}
}

// tell has Pause say what has changed. A change that is taken back before that is not told.
func (s *Switch[P]) tell(in, class int) {
	p := &s.ports[in]
	bit := uint8(1) << class
	if p.ingress[class].xoff == (p.told&bit != 0) {
		p.changed &^= bit
		return
	}
	p.changed |= bit
	s.wake(in)
}

// Pause returns a PFC frame that a port is to send before its next packet; false if there is none.
func (s *Switch[P]) Pause(now time.Duration, out int) (f PFC, ok bool) {
	if uint(out) >= uint(len(s.ports)) {
		return f, false
	}
	s.advance(now)
	if p := &s.ports[out]; p.changed|p.renewed != 0 {
		return s.pause(now, p), true
	}
	return f, false
}

// pause returns the PFC frame of what has changed at a port, and is to be told once more.
func (s *Switch[P]) pause(now time.Duration, p *port[P]) (f PFC) {
	f.Enabled = p.changed | p.renewed
	p.changed, p.renewed = 0, 0
	for class := range Classes {
		bit := uint8(1) << class
		if f.Enabled&bit == 0 {
			continue
		}
		i := &p.ingress[class]
		i.counters.TxPause++
		if !i.xoff {
			p.told &^= bit
			i.renewAt = never
			i.counters.TxPauseTime += now - i.toldAt
			i.counters.TxTransitions++
			continue
		}
		if p.told&bit == 0 {
			p.told |= bit
			i.toldAt = now
		}
		f.Quanta[class] = s.config.Quanta
		i.renewAt = now + QuantaTime(s.config.Quanta, p.config.Rate)/2
		s.due(i.renewAt)
	}
	return f
}

// QuantaTime returns how long a pause lasts at a rate, rounded up to a whole nanosecond.
func QuantaTime(quanta uint16, rate uint64) time.Duration {
	high, low := bits.Mul64(uint64(quanta)*quantumBits, uint64(time.Second))
	if high >= rate { // as long as a duration can be, at less than a bit per second or so
		return never / 4
	}
	ns, rest := bits.Div64(high, low, rate)
	if rest > 0 {
		ns++
	}
	return time.Duration(min(ns, uint64(never/4)))
}

// Paused takes note of a PFC frame that came in by a port. It is about the packets that leave there.
// Classes that are not lossless do not obey.
func (s *Switch[P]) Paused(now time.Duration, in int, f PFC) {
	if uint(in) >= uint(len(s.ports)) {
		return
	}
	s.advance(now)
	p := &s.ports[in]
	for class := range Classes {
		bit := uint8(1) << class
		if f.Enabled&bit == 0 {
			continue
		}
		q := &p.queues[class]
		q.counters.RxPause++
		switch {
		case !p.config.Classes[class].Lossless:
		case f.Quanta[class] == 0:
			if p.paused&bit != 0 {
				s.resume(now, in, class)
			}
		default:
			q.until = now + QuantaTime(f.Quanta[class], p.config.Rate)
			q.calmAt = never
			s.due(q.until)
			if p.paused&bit != 0 {
				continue
			}
			p.paused |= bit
			q.pausedAt = now
			if p.filled&bit != 0 && p.storming&bit == 0 {
				s.stick(q, now)
			}
		}
	}
}

// resume ends a pause.
func (s *Switch[P]) resume(at time.Duration, out, class int) {
	p := &s.ports[out]
	q := &p.queues[class]
	bit := uint8(1) << class
	p.paused &^= bit
	q.stuckAt = never
	q.counters.RxPauseTime += at - q.pausedAt
	q.counters.RxTransitions++
	if p.storming&bit != 0 {
		q.calmAt = at
		// Deadline is not after what the pause would have lasted, and finds this then.
	}
	if p.filled&bit != 0 {
		s.wake(out)
	}
}

// stick begins the time after which the watchdog sees a storm.
func (s *Switch[P]) stick(q *queue[P], now time.Duration) {
	if detect := s.config.Watchdog.Detect; detect > 0 {
		q.stuckAt = now
		s.due(now + detect)
	}
}

// due has Deadline name an instant or an earlier one.
func (s *Switch[P]) due(at time.Duration) { s.deadline = min(s.deadline, at) }

// Deadline returns when Advance is to be called; false if only another call changes anything. It may
// be earlier than anything happens.
func (s *Switch[P]) Deadline() (time.Duration, bool) { return s.deadline, s.deadline != never }

// Advance carries out what time brings: pauses that run out, those that are to be renewed, and the
// watchdog.
func (s *Switch[P]) Advance(now time.Duration) { s.advance(now) }

func (s *Switch[P]) advance(now time.Duration) {
	if now >= s.deadline {
		s.expire(now)
	}
}

func (s *Switch[P]) expire(now time.Duration) {
	s.deadline = never
	w := &s.config.Watchdog
	for out := range s.ports {
		p := &s.ports[out]
		for pending := p.paused | p.storming | p.told; pending != 0; pending &= pending - 1 {
			class := bits.TrailingZeros8(pending)
			bit := uint8(1) << class
			q, i := &p.queues[class], &p.ingress[class]
			// A pause that ran out before the watchdog's time was no storm.
			if q.stuckAt != never && q.stuckAt+w.Detect <= min(now, q.until) {
				s.storm(now, out, class)
			}
			if p.paused&bit != 0 && q.until <= now {
				s.resume(q.until, out, class)
			}
			if q.calmAt != never && q.calmAt+w.Restore <= now {
				p.storming &^= bit
				q.calmAt = never
			}
			if i.renewAt <= now {
				// Pause tells how things are then, were the pause to end and begin anew before.
				i.renewAt = never
				p.renewed |= bit
				s.wake(out)
			}

			if p.paused&bit != 0 {
				s.due(q.until)
			}
			if q.stuckAt != never {
				s.due(q.stuckAt + w.Detect)
			}
			if q.calmAt != never {
				s.due(q.calmAt + w.Restore)
			}
			s.due(i.renewAt)
		}
	}
}

// storm begins a storm: the queue is emptied, or its pause ignored.
func (s *Switch[P]) storm(now time.Duration, out, class int) {
	p := &s.ports[out]
	q := &p.queues[class]
	p.storming |= 1 << class
	q.stuckAt = never
	q.counters.Storms++
	if s.config.Watchdog.Forward {
		s.wake(out)
		return
	}
	for q.packets.len() > 0 {
		s.discarded.push(s.discard(now, out, class))
	}
}

// discard takes the first packet of a queue, which is lost.
func (s *Switch[P]) discard(now time.Duration, out, class int) Departure[P] {
	q := &s.ports[out].queues[class]
	counters := q.counters
	d := s.depart(now, out, class)
	d.Marked = false
	q.counters.Packets, q.counters.Bytes, q.counters.Marked = counters.Packets, counters.Bytes, counters.Marked
	q.counters.Drops[Storm]++
	return d
}

// Discarded returns a packet that had been admitted and was then dropped by the watchdog; false if
// there is no more.
func (s *Switch[P]) Discarded() (d Departure[P], ok bool) {
	if s.discarded.len() == 0 {
		return d, false
	}
	return s.discarded.pop(), true
}
