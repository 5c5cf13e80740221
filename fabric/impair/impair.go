// Package impair is the model of an impaired link: given the packets that enter
// one direction of it, it says which arrive at the other end, and when.
//
// A packet first waits for its turn at the sender, whose queue is finite, and
// takes the time that the direction's rate gives it; then it travels for the
// delay, give or take the jitter; or it is lost on the way. Packets never
// overtake each other. Every random decision comes from the lab's seed, the
// link's name and the direction, and depends on nothing but a packet's place
// in the sequence: the same packets in the same order are lost again, however
// they were timed.
//
// The model is pure: time is an argument, and nothing here does I/O, locks or
// allocates per packet. The engine that applies it to real packets is linkem.
//
// Start reading at Direction.
package impair

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// What a frame costs on a wire beyond its own bytes.
const (
	framing  = 8 + 4 + 12 // bytes: preamble with start delimiter, frame check sequence, gap
	minFrame = 60         // bytes: shorter frames are padded to this, 64 with the check sequence
)

// WireBytes is how many byte times a frame keeps an Ethernet wire busy. frame
// is its length in bytes from the destination address to the end of the
// payload, as Linux counts, without the frame check sequence.
func WireBytes(frame int) int { return max(frame, minFrame) + framing }

// The queue before a direction with a rate holds this much; what comes when it
// is full is dropped. The first is about 1000 packets of 4 KiB, what a Linux
// interface queues; the second lets fast links absorb the bursts that fast
// senders make.
const (
	queueBytes = 4 << 20
	queueTime  = 50 * time.Millisecond
)

// queueLimit is the queue's size in wire bytes at a rate in bits per second.
func queueLimit(rate uint64) uint64 {
	return max(queueBytes, rate/8/uint64(time.Second/queueTime))
}

// Asked is what the settings asked for, averaged over the packets that met
// them. Packets that found the link down met none.
type Asked struct {
	Packets uint64        `json:"packets"`   // that met the settings
	Delay   time.Duration `json:"delay_ns"`  // mean
	Jitter  time.Duration `json:"jitter_ns"` // mean
	Loss    float64       `json:"loss"`      // mean probability
	Rate    uint64        `json:"rate_bps"`  // mean over the packets that met a rate, bits per second; 0 if none did
}

// A Direction is the state of one direction of a link. It is not for use by
// several goroutines at once.
type Direction struct {
	settings topology.Impairment
	down     bool
	random   *rand.ChaCha8

	queue   []waiting // from head on, those whose transmission may not have ended
	head    int
	backlog uint64        // wire bytes of those
	free    time.Duration // when the last transmission ends
	rest    uint64        // what free lacks, in units of 1/Rate ns
	last    time.Duration // departure of the last packet that passed

	met    uint64 // packets that met the present settings
	before sums   // of the packets that met earlier ones
}

// waiting is a packet in the queue or in transmission.
type waiting struct {
	sent time.Duration // when its transmission ends
	wire uint64        // bytes
}

type sums struct {
	packets, rated            uint64
	delay, jitter, loss, rate float64
}

// New makes a direction without impairments. seed is the lab's, link the link's
// name, and index 0 or 1 tells its directions apart.
func New(seed uint64, link string, index int) *Direction {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[0:], seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(index))
	name := fnv.New128a()
	name.Write([]byte(link)) // a hash.Hash never fails
	name.Sum(key[:16])
	return &Direction{random: rand.NewChaCha8(key)}
}

// Check says what is wrong with settings, if anything.
func Check(s topology.Impairment) error {
	switch {
	case s.Delay < 0:
		return fmt.Errorf("delay %v is negative", s.Delay)
	case s.Jitter.Spread < 0:
		return fmt.Errorf("jitter %v is negative", s.Jitter.Spread)
	case !(s.Loss.Rate >= 0 && s.Loss.Rate <= 1): // also refuses NaN
		return fmt.Errorf("loss %v is not between 0 and 1", s.Loss.Rate)
	}
	return nil
}

// Settings are the present ones.
func (d *Direction) Settings() topology.Impairment { return d.settings }

// Set changes the settings, which have to be right (see Check), at an instant,
// for the packets to come; those on their way keep their fate.
func (d *Direction) Set(s topology.Impairment, at time.Duration) {
	d.before = d.sums()
	d.met = 0
	if s.Rate != d.settings.Rate {
		d.rest = 0 // its unit changes
	}
	d.settings = s
}

// SetDown cuts the direction, or joins it again. Packets on their way arrive.
func (d *Direction) SetDown(down bool) { d.down = down }

// Identifies reports whether the settings ask for the identity of RoCEv2
// packets. It changes with Set alone.
func (d *Direction) Identifies() bool {
	return len(d.settings.Faults) > 0 || d.settings.Corrupt.Probability > 0
}

// Packet decides on the next packet, which enters at the instant at. That never
// goes back.
func (d *Direction) Packet(p *Packet, at time.Duration) Verdict {
	// Every packet takes the same draws whatever the settings, so that a change
	// of one leaves the others' sequence alone.
	loss, jitter := d.draw(), d.draw()
	if d.down {
		return Verdict{Fate: Down, Cause: Carrier}
	}
	d.met++
	// A packet that will be lost takes its turn like any other. That it counts
	// as lost even if the queue is full keeps the losses independent of timing.
	sent, room := d.transmit(uint64(WireBytes(p.Frame)), at)
	if loss < d.settings.Loss.Rate {
		return Verdict{Fate: Lost, Cause: Chance}
	}
	if !room {
		return Verdict{Fate: QueueFull}
	}
	shift := time.Duration(math.Round((2*jitter - 1) * float64(d.settings.Jitter.Spread)))
	d.last = max(d.last, sent+max(0, d.settings.Delay+shift))
	return Verdict{Fate: Passes, Queued: sent - at, Departs: d.last}
}

// transmit says when the last bit of a packet has left the sender, or that the
// queue has no room for it.
func (d *Direction) transmit(wire uint64, at time.Duration) (sent time.Duration, room bool) {
	rate := d.settings.Rate
	if rate == 0 {
		return at, true
	}
	for d.head < len(d.queue) && d.queue[d.head].sent <= at {
		d.backlog -= d.queue[d.head].wire
		d.head++
	}
	if d.backlog+wire > queueLimit(rate) {
		return 0, false
	}
	if at > d.free {
		d.free, d.rest = at, 0
	}
	// The remainder is carried, so that a rate is exact however short the packets.
	high, low := bits.Mul64(wire*8, uint64(time.Second))
	low, carry := bits.Add64(low, d.rest, 0)
	took, rest := bits.Div64(high+carry, low, rate)
	d.free, d.rest = d.free+time.Duration(took), rest
	d.push(waiting{d.free, wire})
	return d.free, true
}

// push appends to the queue, reusing the room of those that have left.
func (d *Direction) push(w waiting) {
	if d.head > 0 && len(d.queue) == cap(d.queue) {
		d.queue = d.queue[:copy(d.queue, d.queue[d.head:])]
		d.head = 0
	}
	d.queue = append(d.queue, w)
	d.backlog += w.wire
}

// draw is uniform in [0, 1).
func (d *Direction) draw() float64 { return float64(d.random.Uint64()>>11) / (1 << 53) }

// Asked is what was asked of the packets so far; before the first, the settings.
func (d *Direction) Asked() Asked {
	s := d.sums()
	if s.packets == 0 {
		return Asked{Delay: d.settings.Delay, Jitter: d.settings.Jitter.Spread, Loss: d.settings.Loss.Rate, Rate: d.settings.Rate}
	}
	n := float64(s.packets)
	a := Asked{Packets: s.packets, Delay: time.Duration(math.Round(s.delay / n)), Jitter: time.Duration(math.Round(s.jitter / n)), Loss: s.loss / n}
	if s.rated > 0 {
		a.Rate = uint64(math.Round(s.rate / float64(s.rated)))
	}
	return a
}

func (d *Direction) sums() sums {
	s, n := d.before, float64(d.met)
	s.packets += d.met
	s.delay += n * float64(d.settings.Delay)
	s.jitter += n * float64(d.settings.Jitter.Spread)
	s.loss += n * d.settings.Loss.Rate
	if d.settings.Rate > 0 {
		s.rated += d.met
		s.rate += n * float64(d.settings.Rate)
	}
	return s
}
