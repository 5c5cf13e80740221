// Package impair is the model of an impaired link: given the packets that enter
// one direction of it, it returns which arrive at the other end, when, and how
// altered.
//
// A packet first waits for its turn at the sender, whose queue is finite and may
// mark it, and takes the time that the direction's rate gives it; then it
// travels for the delay, give or take the jitter; or it is lost on the way. It
// may be duplicated there, some of its bits may flip, and it may overtake
// others. Faults do the same to RoCEv2 packets that are chosen by what they say.
//
// # Rate
//
// A rate is that of an Ethernet wire: a packet takes, beyond its own bytes from
// the Ethernet header to the end of the payload, the time of a preamble with
// start delimiter (8 bytes), a frame check sequence (4) and a gap (12), and
// frames shorter than 60 bytes are padded to that. So a RoCEv2 packet with a
// payload of 4096 bytes, 4154 bytes long, takes 4178, and 10 Gb/s are 9.80 Gb/s
// of payload. Bursts, queues and the thresholds of ECN are in these wire bytes,
// too. WireBytes is the rule.
//
// # Randomness
//
// Every random decision is a function of the lab's seed, the link's name, the
// direction, the kind of decision and the packet's place among those that
// entered the direction: the same packets in the same order have the same outcome,
// whatever their timing, and a change of one setting leaves the decisions of
// the others alone. Marks and drops of a queue, flaps, and how many packets there are to
// overtake depend on time by their nature.
//
// A Record holds a decision; a Direction can Replay a Sequence of them.
//
// The model is pure: time is an argument, and nothing here does I/O, locks or
// allocates per packet. The engine that applies it to real packets is linkem.
//
// Start reading at Direction.Packet.
package impair

import (
	"cmp"
	"math"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// Bytes that a frame costs on a wire beyond its own.
const (
	framing  = 8 + 4 + 12 // bytes: preamble with start delimiter, frame check sequence, gap
	minFrame = 60         // bytes: shorter frames are padded to this, 64 with the check sequence
)

// WireBytes returns the byte times for which a frame keeps an Ethernet wire busy. frame
// is its length in bytes from the destination address to the end of the
// payload, as Linux counts, without the frame check sequence.
func WireBytes(frame int) int { return max(frame, minFrame) + framing }

// A Direction is the state of one direction of a link. It is not for use by
// several goroutines at once.
type Direction struct {
	place    uint64 // of the present packet among those that entered, from 1
	plain    bool   // the settings do nothing but to queue and to delay
	queue    queue
	order    order
	settings topology.Impairment
	asked    account
	draws    draws

	// The other settings, prepared for use, and the state of each.
	flap    flap
	faults  []fault
	loss    loss
	jitter  jitter
	corrupt corrupt

	sequence *Sequence // that is replayed; nil: none
	next     int       // index in the sequence
	replayed Replayed
}

// New makes a direction without impairments. seed is the lab's, link the link's
// name, and index 0 or 1 tells its directions apart.
func New(seed uint64, link string, index int) *Direction {
	d := &Direction{draws: newDraws(seed, link, index)}
	d.order.resize(0)
	d.queue.free.ns = math.MinInt64 // nothing was sent
	return d
}

// Settings returns the present settings.
func (d *Direction) Settings() topology.Impairment { return d.settings }

// Set changes the settings, which must be valid (see
// [topology.Impairment.Check]), at an instant, for the packets to come. Packets on their
// way are not affected. Counts of packets, bursts and periods go on where a setting does
// not change.
func (d *Direction) Set(s topology.Impairment, at time.Duration) {
	d.asked.close(&d.settings)
	old := d.settings
	d.settings = s
	d.plain = s.Equal(topology.Impairment{Delay: s.Delay, Rate: s.Rate, Burst: s.Burst, Queue: s.Queue})
	if old.Flap != s.Flap {
		d.flap = flap{Flap: s.Flap, since: at}
	}
	if !sameFaults(old.Faults, s.Faults) {
		d.faults = newFaults(s.Faults)
	}
	if !sameLoss(old.Loss, s.Loss) {
		d.loss = newLoss(s.Loss)
	}
	d.queue.set(&s, at)
	d.jitter = newJitter(s.Jitter)
	d.corrupt = corrupt{s.Corrupt}
	d.order.resize(d.depth())
}

// Begin begins anew at an instant: the next packet is the first to enter, for draws,
// losses, faults, flaps and AskedSince, as in a direction that has just been made. The
// settings stay, and so do packets that are queued or on their way. If logged is true,
// places and so draws go on: those of a log count from its beginning.
func (d *Direction) Begin(at time.Duration, logged bool) {
	d.asked.begin(&d.settings)
	if !logged {
		d.place = 0
	}
	d.flap.since = at
	d.faults = newFaults(d.settings.Faults)
	d.loss = newLoss(d.settings.Loss)
}

// depth returns the most packets that another may overtake.
func (d *Direction) depth() int {
	depth := 0
	if d.settings.Reorder.Probability > 0 {
		depth = max(1, d.settings.Reorder.Depth)
	}
	if d.sequence != nil {
		depth = max(depth, d.sequence.depth)
	}
	return depth
}

// Identifies reports whether the settings ask for the identity of RoCEv2
// packets. It changes with Set and Replay alone.
func (d *Direction) Identifies() bool {
	return len(d.faults) > 0 || d.settings.Corrupt.Probability > 0 || d.sequence != nil
}

// Packet decides on the next packet, which enters at the instant at. Instants never go
// back.
func (d *Direction) Packet(p *Packet, at time.Duration) (v Verdict) {
	d.place++
	var recorded *recorded
	if d.sequence != nil {
		recorded = d.recorded(p)
	}
	switch {
	case recorded != nil:
		d.again(recorded, p, at, &v)
	case d.plain:
		d.carry(p, at, &v)
	case d.settings.Cut:
		v.Fate, v.Cause = Down, Cut
	case d.flap.Period > 0 && d.flap.cuts(at):
		v.Fate, v.Cause = Down, Flap
	default:
		d.decide(p, at, &v)
	}
	return v
}

// carry decides on a packet that is queued and delayed, as decide would: most links of a simulation do nothing else.
func (d *Direction) carry(p *Packet, at time.Duration, v *Verdict) {
	d.asked.packets++
	sent, _, room := d.enqueue(p, at)
	if !room {
		v.Fate = QueueFull
		return
	}
	v.Queued = sent - at
	v.Departs = d.order.follow(sent + d.settings.Delay)
}

// enqueue has a packet wait for the rate, if there is room. It returns when its last bit has left the sender, and what was in the queue.
func (d *Direction) enqueue(p *Packet, at time.Duration) (sent time.Duration, found uint64, room bool) {
	if d.queue.rate == 0 {
		return at, 0, true
	}
	wire := uint64(WireBytes(p.Frame))
	room = d.queue.room(wire, at)
	found = d.queue.backlog
	if room {
		sent = d.queue.transmit(wire, at)
	}
	return sent, found, room
}

// decide decides on a packet that the settings apply to.
//
// Faults and losses count it whatever else happens to it, so that they depend neither on
// each other nor on its timing. A packet that will be lost queues like any other.
//
// v is zero. It is a parameter because copies of it would take a third of the time.
func (d *Direction) decide(p *Packet, at time.Duration, v *Verdict) {
	d.asked.packets++
	var done *fault
	if len(d.faults) > 0 && p.RoCE != nil {
		done, v.Fault = d.fault(p.RoCE)
	}
	cause := d.lose()
	sent, found, room := d.enqueue(p, at)
	if cause == None && done != nil && done.Action == topology.Drop {
		cause = Fault
	}
	if cause != None {
		v.Fate, v.Cause = Lost, cause
		return
	}
	if !room {
		v.Fate = QueueFull
		return
	}

	s := &d.settings
	v.Queued = sent - at
	v.Mark = p.ECT && s.ECN.Max > 0 && d.marks(found)
	v.Twice = s.Duplicate > 0 && d.draws.chance(ofDuplicate, d.place, s.Duplicate)
	if s.Corrupt.Probability > 0 && d.draws.chance(ofCorrupt, d.place, s.Corrupt.Probability) {
		v.Flip = d.corrupt.flip(p, d.draws.bits(ofFlip, d.place))
	}
	own := sent + d.travel()
	if done != nil {
		switch done.Action {
		case topology.Double:
			v.Twice = true
		case topology.Corrode:
			v.Flip = corrupt{}.flip(p, d.draws.bits(ofFlip, d.place))
		case topology.Postpone:
			v.Postponed = done.Delay
			v.Departs = max(own, d.order.last()) + done.Delay
			return
		}
	}
	if s.Reorder.Probability == 0 {
		v.Departs = d.order.follow(own)
		return
	}
	hurries := d.draws.chance(ofReorder, d.place, s.Reorder.Probability)
	v.Departs, v.Overtakes = d.order.reorder(own, sent, hurries, d.jitter.kind != steady)
}

// travel returns the delay with its jitter, never below 0.
func (d *Direction) travel() time.Duration {
	t := d.settings.Delay
	if d.jitter.kind != steady {
		t = max(0, t+d.jitter.shift(d.draws.bits(ofJitter, d.place)))
	}
	return t
}

// LeastDelay returns the least delay of every packet to come, whatever is drawn: 0 if
// the settings guarantee none. It changes with Set and Replay alone.
func (d *Direction) LeastDelay() time.Duration {
	if d.sequence != nil {
		return 0
	}
	return leastDelay(&d.settings, d.jitter.kind)
}

// LeastDelay returns that of a Direction with such settings, which replays nothing.
func LeastDelay(s *topology.Impairment) time.Duration {
	return leastDelay(s, newJitter(s.Jitter).kind)
}

func leastDelay(s *topology.Impairment, jitter distribution) time.Duration {
	switch {
	case s.Reorder.Probability > 0:
		return 0
	case jitter == steady:
		return s.Delay
	case jitter == even:
		return max(0, s.Delay-s.Jitter.Spread)
	}
	return 0
}

// marks reports whether an ECN-capable packet is marked that found so many wire bytes in
// the queue.
func (d *Direction) marks(found uint64) bool {
	e := d.settings.ECN
	switch {
	case found <= e.Min:
		return false
	case found >= e.Max:
		return true
	}
	return d.draws.chance(ofMark, d.place, cmp.Or(e.Probability, 1)*float64(found-e.Min)/float64(e.Max-e.Min))
}

// A flap is a topology.Flap that took effect at an instant.
type flap struct {
	topology.Flap
	since time.Duration
}

// cuts reports whether the direction is cut at an instant.
func (f *flap) cuts(at time.Duration) bool {
	return (at-f.since)%f.Period >= f.Period-f.Down
}
