package trunk

import (
	"encoding/binary"
	"time"
)

// PingInterval is the time between two pings: 64 of them are in the window of an Offset.
const PingInterval = window / 64

// window is the age from which on a measurement counts no more.
const window = 2 * time.Second

// drift bounds how fast the clocks of two hosts go apart, parts in a million: those of machines that are kept by NTP
// do so by less than 20.
const drift = 20

// A Ping asks for the time, or answers. Instants are of the clock of who put them in.
type Ping struct {
	Answer   bool
	Sent     time.Duration // when it was asked
	Received time.Duration // when the question came
	Answered time.Duration // when the answer left
	// Knows says that Ahead is known: by how much the receiver's clock is ahead of the sender's, as the sender has it (Agreed).
	Knows bool
	Ahead time.Duration
}

// PingLen is the length of a ping, bytes.
const PingLen = 40

// An Asked has the last pings that were sent, and not answered yet: nobody else's answers are believed.
type Asked struct {
	sent [64]time.Duration // 0: answered; those of a window, but for the first ones, which are answered at once
	next int
}

// Ask notes a ping that is sent at a positive instant.
func (a *Asked) Ask(sent time.Duration) {
	a.sent[a.next] = sent
	a.next = (a.next + 1) % len(a.sent)
}

// Answered takes an answer to a ping, and reports whether it is the first one.
func (a *Asked) Answered(sent time.Duration) bool {
	for i := range a.sent {
		if a.sent[i] == sent && sent > 0 {
			a.sent[i] = 0
			return true
		}
	}
	return false
}

// The bits of a ping's second word.
const (
	isAnswer = 1 << iota
	knows
)

// magic begins a ping, so that a datagram which is none is told.
const magic = 0x6b646e70

// Append appends a ping.
func (p *Ping) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, magic)
	kind := uint32(0)
	if p.Answer {
		kind = isAnswer
	}
	if p.Knows {
		kind |= knows
	}
	b = binary.LittleEndian.AppendUint32(b, kind)
	for _, t := range []time.Duration{p.Sent, p.Received, p.Answered, p.Ahead} {
		b = binary.LittleEndian.AppendUint64(b, uint64(t))
	}
	return b
}

// ParsePing reads a ping. ok is false if the datagram is none.
func ParsePing(b []byte) (p Ping, ok bool) {
	if len(b) != PingLen || binary.LittleEndian.Uint32(b) != magic {
		return p, false
	}
	at := func(i int) time.Duration { return time.Duration(binary.LittleEndian.Uint64(b[i:])) }
	return Ping{Answer: b[4]&isAnswer != 0, Sent: at(8), Received: at(16), Answered: at(24), Knows: b[4]&knows != 0, Ahead: at(32)}, true
}

// An Offset estimates by how much the peer's clock is ahead of one's own, from answers to pings. Of a ping that took long
// nobody knows where it was when the peer read its clock; so that measurement counts which can be wrong by least. One that
// contradicts those before it comes of a clock that was set, and these count no more. It is for one goroutine at a time.
type Offset struct {
	measured [64]measurement // of which the oldest is the next to go
	next     int
	best     measurement
}

// A measurement is made by one ping.
type measurement struct {
	at     time.Duration // of one's own clock; 0: there is none
	offset time.Duration
	trip   time.Duration // there and back
}

// wrong returns by how much a measurement can be wrong at an instant: half of the trip, and what clocks may have drifted since.
func (m *measurement) wrong(now time.Duration) time.Duration {
	return m.trip/2 + (now-m.at)*drift/1e6
}

// Add takes an answer that came at an instant of one's own clock, which is positive.
func (o *Offset) Add(p Ping, now time.Duration) {
	m := measurement{at: now, offset: ((p.Received - p.Sent) + (p.Answered - now)) / 2, trip: (now - p.Sent) - (p.Answered - p.Received)}
	if m.trip < 0 { // no such answer can be
		return
	}
	if o.Known() && (m.offset-o.best.offset).Abs() > m.wrong(now)+o.best.wrong(now) { // one of the clocks was set
		clear(o.measured[:])
	}
	o.measured[o.next] = m
	o.next = (o.next + 1) % len(o.measured)
	o.best = m
	for i := range o.measured {
		old := &o.measured[i]
		if old.at > 0 && now-old.at <= window && old.wrong(now) < o.best.wrong(now) {
			o.best = *old
		}
	}
}

// Known reports whether anything has been measured.
func (o *Offset) Known() bool { return o.best.at > 0 }

// Ahead returns by how much the peer's clock is ahead.
func (o *Offset) Ahead() time.Duration { return o.best.offset }

// Wrong returns by how much Ahead can be wrong at an instant of one's own clock, either way.
func (o *Offset) Wrong(now time.Duration) time.Duration { return o.best.wrong(now) }

// Trip returns the time that a datagram takes there and back: the least of the last 2 s or so.
func (o *Offset) Trip() time.Duration { return o.best.trip }

// A Difference of two clocks says by how much the other one is ahead, and by how much that may be wrong, either way.
type Difference struct{ Ahead, Wrong time.Duration }

// An Agreed is the difference of clocks by which two hosts turn each other's instants into their own. Each estimate is wrong by some
// microseconds. If each host went by its own, packets could be early both there and back, and a round trip shorter than what was
// asked for. So both go by the mean of the two, which they tell each other in every ping: the one is early by as much as the
// other is late. And neither changes its estimate while that can be right. It is for one goroutine at a time.
type Agreed struct {
	own, told    time.Duration // by how much the peer's clock is ahead; and one's own, as the peer has it
	knows, heard bool
}

// Take takes what was measured until an instant. As long as more is soon to be known, the best measurement counts.
func (a *Agreed) Take(o *Offset, now time.Duration, soon bool) {
	if soon || !a.knows {
		a.own, a.knows = o.Ahead(), o.Known()
		return
	}
	a.own = max(o.Ahead()-o.Wrong(now), min(a.own, o.Ahead()+o.Wrong(now)))
}

// Hear takes what the peer has, of any ping of its.
func (a *Agreed) Hear(p *Ping) {
	if p.Knows {
		a.told, a.heard = p.Ahead, true
	}
}

// Tell adds to a ping what is to be told.
func (a *Agreed) Tell(p *Ping) { p.Knows, p.Ahead = a.knows, a.own }

// Ahead returns by how much the peer's clock is ahead.
func (a *Agreed) Ahead() time.Duration {
	if !a.heard {
		return a.own
	}
	return (a.own - a.told) / 2
}
