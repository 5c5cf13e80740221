package impair

import (
	"fmt"
	"time"
)

// A Sequence holds the recorded decisions of one direction, for its Replay. It does not
// change once it was read, so that several may replay it.
type Sequence struct {
	decisions []recorded      // by ascending place
	flips     map[uint64]Flip // by place
	depth     int             // the most that a packet overtakes
}

// recorded holds what replaying needs of a record.
type recorded struct {
	place     uint64
	delay     time.Duration
	postponed time.Duration
	frame     uint32
	roce      Identity
	known     bool
	mark      bool
	twice     bool
	fate      Fate
	cause     Cause
	fault     uint16
	overtakes uint16
}

func (s *Sequence) add(r *Record) error {
	if n := len(s.decisions); n > 0 && s.decisions[n-1].place >= r.Place {
		return fmt.Errorf("place %d of %s comes after place %d", r.Place, r.Link, s.decisions[n-1].place)
	}
	v := &r.Verdict
	c := recorded{
		place: r.Place, frame: uint32(r.Frame), roce: r.RoCE, known: r.Known,
		fate: v.Fate, cause: v.Cause, fault: v.Fault,
	}
	if v.Fate == Passes {
		c.delay, c.postponed, c.overtakes = v.travel(r.At), v.Postponed, v.Overtakes
		c.mark, c.twice = v.Mark, v.Twice
		s.depth = max(s.depth, int(v.Overtakes))
		if v.Flip.Any() {
			if s.flips == nil {
				s.flips = map[uint64]Flip{}
			}
			s.flips[r.Place] = v.Flip
		}
	}
	s.decisions = append(s.decisions, c)
	return nil
}

// Replayed counts the packets of a replay.
type Replayed struct {
	Packets    uint64 `json:"packets"`    // that met the decision recorded for their place
	Diverged   uint64 `json:"diverged"`   // of those, the ones of another identity or length than the recorded packet
	Unrecorded uint64 `json:"unrecorded"` // packets whose place is not in the log
}

// Sub returns the counts since earlier.
func (r Replayed) Sub(earlier Replayed) Replayed {
	return Replayed{Packets: r.Packets - earlier.Packets, Diverged: r.Diverged - earlier.Diverged, Unrecorded: r.Unrecorded - earlier.Unrecorded}
}

// Replay applies to the packets to come the decisions that were recorded for their places,
// whatever packets they are. A packet that passed queues at the present rate, without a limit
// to the queue, is delayed as it was then, and overtakes as many others. The settings apply
// to packets without a record for their place; with the seed and the settings of the recorded
// lab, the decisions on those are what they would have been there.
//
// A nil Sequence ends the replay.
func (d *Direction) Replay(s *Sequence) {
	d.sequence, d.next = s, 0
	d.order.resize(d.depth())
}

// Replayed returns the counts so far.
func (d *Direction) Replayed() Replayed { return d.replayed }

// recorded returns the decision that the log holds for the present packet, if any,
// and nil otherwise.
func (d *Direction) recorded(p *Packet) *recorded {
	all := d.sequence.decisions
	for d.next < len(all) && all[d.next].place < d.place {
		d.next++
	}
	if d.next == len(all) || all[d.next].place != d.place {
		d.replayed.Unrecorded++
		return nil
	}
	c := &all[d.next]
	d.replayed.Packets++
	if c.frame != uint32(p.Frame) || c.known != (p.RoCE != nil) || c.known && c.roce != *p.RoCE {
		d.replayed.Diverged++
	}
	return c
}

// again decides as recorded. The counters and states of the settings go on, for packets
// without a record.
func (d *Direction) again(c *recorded, p *Packet, at time.Duration, v *Verdict) {
	v.Fate, v.Cause, v.Fault = c.fate, c.cause, c.fault
	if c.fate == Down {
		return
	}
	d.asked.packets++
	if len(d.faults) > 0 && p.RoCE != nil {
		d.fault(p.RoCE)
	}
	d.lose()
	if c.fate == QueueFull {
		return
	}
	sent := at
	if d.queue.rate > 0 {
		wire := uint64(WireBytes(p.Frame))
		if d.queue.room(wire, at) || c.fate == Passes {
			sent = d.queue.transmit(wire, at)
		}
	}
	if c.fate == Lost {
		return
	}
	v.Queued, v.Mark, v.Twice, v.Postponed = sent-at, c.mark && p.ECT, c.twice, c.postponed
	v.Flip = d.sequence.flips[c.place]
	if c.postponed > 0 {
		v.Departs = max(sent+c.delay, d.order.last()) + c.postponed
		return
	}
	v.Departs, v.Overtakes = d.order.overtake(sent+c.delay, sent, int(c.overtakes))
}
