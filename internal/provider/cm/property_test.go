package cm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// A world is two hosts on a bad network whose consumers do as they please. It
// knows what each may be told next and objects to anything else.
type world struct {
	*network
	whim    *rand.Rand // what the consumers want
	parties map[*host]map[ID]*party
	all     []*party // in order of appearance
	nextQPN uint32
	cut     bool // nothing gets through
	trace   []string
}

// A party is one end of a connection as its consumer sees it.
type party struct {
	w      *world
	h      *host
	id     ID
	active bool
	peer   ID // if known

	belief          belief
	replied         bool // active: ConnectReply has come
	accepted        bool // passive: Accept was called
	completed       bool // active: CompleteConnect was called
	disconnectAsked bool
	abandoned       bool
	rejected        bool // Reject was called
	timedOut        bool // something of it failed for want of an answer
	told            map[string]int
}

type belief uint8

const (
	pending belief = iota
	connected
	over
)

func newWorld(t failer, seed uint64) *world {
	w := &world{
		network: newNetwork(t, seed),
		whim:    rand.New(rand.NewPCG(seed, 2)),
		parties: map[*host]map[ID]*party{},
		nextQPN: 0x11,
	}
	w.drop = func(mad.Attribute) bool { return w.cut }
	for _, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		h := w.add(addr)
		w.parties[h] = map[ID]*party{}
		h.onEvent = func(ev Event) { w.observe(h, ev) }
	}
	return w
}

func (w *world) qpn() uint32 {
	w.nextQPN++
	return w.nextQPN
}

func (w *world) meet(h *host, id ID, active bool) *party {
	if w.parties[h][id] != nil {
		w.t.Fatalf("%v: ID %d is in use and was given out", h.addr, id)
	}
	p := &party{w: w, h: h, id: id, active: active, told: map[string]int{}}
	w.parties[h][id] = p
	w.all = append(w.all, p)
	return p
}

// chance is true in one of n cases.
func (w *world) chance(n int) bool { return w.whim.IntN(n) == 0 }

// within has something done at some instant of the next d. Consumers act from
// outside the Endpoint, not from its events, except sometimes.
func (w *world) within(d time.Duration, f func()) {
	w.clock.AfterFunc(time.Duration(w.whim.Int64N(int64(d))), f)
}

// patience returns the time that a consumer takes: usually moments, at times far too long.
func (w *world) patience() time.Duration {
	if w.chance(4) {
		return 20 * time.Second
	}
	return 50 * time.Millisecond
}

func (w *world) connect() {
	from, to := w.hosts[0], w.hosts[1]
	if w.chance(3) {
		from, to = to, from
	}
	id := from.connect(to, w.qpn())
	p := w.meet(from, id, true)
	if w.chance(8) {
		w.within(w.patience(), p.abandon)
	}
}

// observe is the consumer's event handler: it checks that the event is due, and
// decides what to do about it.
func (w *world) observe(h *host, ev Event) {
	id := ev.Of()
	w.checkTimers(h)
	w.trace = append(w.trace, fmt.Sprintf("%v %v %T", w.now(), h.addr, ev))
	p := w.parties[h][id]
	if request, ok := ev.(ConnectRequest); ok {
		p = w.meet(h, id, false)
		p.peer = ID(h.connections.byID[id].peerID)
		if request.ID != id {
			w.t.Fatalf("ID %d in the event of %d", request.ID, id)
		}
	}
	if p == nil {
		w.t.Fatalf("%v: %T of unknown connection %d", h.addr, ev, id)
	}
	name := fmt.Sprintf("%T", ev)
	p.told[name]++
	due := p.told[name] == 1 && p.told["cm.TimewaitOver"] <= 1
	if p.abandoned {
		_, last := ev.(TimewaitOver)
		due = due && last
	}
	switch ev := ev.(type) {
	case ConnectRequest:
		w.within(w.patience(), p.decideRequest)
	case ConnectReply:
		due = due && p.active && p.belief == pending
		p.replied = true
		p.peer = ID(h.connections.byID[id].peerID)
		w.within(w.patience(), p.decideReply)
	case Rejected:
		due = due && p.active && p.belief == pending && !p.replied
		p.belief = over
	case ConnectFailed:
		due = due && p.active && p.belief == pending && p.replied == (ev.Failure == Aborted)
		p.belief = over
		p.timedOut = ev.Failure == TimedOut
	case Established:
		due = due && !p.active && p.belief == pending && p.accepted
		p.belief = connected
		peer := w.parties[w.other(h)][p.peer]
		if peer == nil || !peer.completed || peer.peer != p.id {
			w.t.Fatalf("%v: established, but the peer's consumer has not completed", h.addr)
		}
		p.live()
	case AcceptFailed:
		due = due && !p.active && p.belief == pending && (p.accepted || ev.Failure == Aborted)
		p.belief = over
		p.timedOut = ev.Failure == TimedOut
	case Disconnected:
		due = due && p.belief == connected && !p.disconnectAsked
		p.belief = over
		if w.chance(2) {
			w.within(w.patience(), p.disconnect)
		}
	case DisconnectDone:
		due = due && p.disconnectAsked
		p.belief = over
		p.timedOut = ev.TimedOut
	case TimewaitOver:
		due = due && (p.belief == over || p.abandoned)
		delete(w.parties[h], id)
	}
	if !due {
		w.t.Fatalf("%v: unexpected %#v at %v for %+v", h.addr, ev, w.now(), *p)
	}
}

// checkTimers says that Deadline is the earliest of all connections'.
func (w *world) checkTimers(h *host) {
	at, ok := h.Deadline()
	for _, c := range h.connections.byID {
		if c.timer.Queued() && (!ok || c.deadline < at) {
			w.t.Fatalf("%v: deadline %v, but connection %d waits for %v", h.addr, at, c.id, c.deadline)
		}
	}
}

func (w *world) other(h *host) *host {
	if h == w.hosts[0] {
		return w.hosts[1]
	}
	return w.hosts[0]
}

// fits checks that a call failed if and only if the consumer should have known.
func (p *party) fits(call string, err error, possible bool) bool {
	if (err == nil) != possible {
		p.w.t.Fatalf("%v: %s at %v for %+v: %v", p.h.addr, call, p.w.now(), *p, err)
	}
	return possible
}

func (p *party) decideRequest() {
	possible := p.belief == pending && !p.abandoned
	switch p.w.whim.IntN(8) {
	case 0:
		if p.fits("Reject", p.h.Reject(p.w.now(), p.id, mad.ReasonConsumer, nil), possible) {
			p.belief, p.rejected = over, true
		}
	case 1:
		p.abandon()
		return
	default:
		// The call may establish at once what waits for it: note it before.
		p.accepted = p.accepted || possible
		p.fits("Accept", p.h.Accept(p.w.now(), p.id, acceptParams(p.w.qpn())), possible)
	}
	p.h.settle()
	if p.w.chance(8) {
		p.w.within(p.w.patience(), p.abandon)
	}
}

func (p *party) decideReply() {
	possible := p.belief == pending && !p.abandoned
	switch p.w.whim.IntN(8) {
	case 0:
		if p.fits("Reject", p.h.Reject(p.w.now(), p.id, mad.ReasonConsumer, nil), possible) {
			p.belief, p.rejected = over, true
		}
	case 1:
		p.abandon()
		return
	default:
		if p.fits("CompleteConnect", p.h.CompleteConnect(p.w.now(), p.id), possible) {
			p.belief, p.completed = connected, true
			p.live()
			if p.w.chance(3) {
				p.w.within(time.Second, p.traffic)
			}
		}
	}
	p.h.settle()
}

// live has a consumer keep its connection or end it.
func (p *party) live() {
	switch p.w.whim.IntN(5) {
	case 0, 1:
		p.w.within(p.w.patience(), p.disconnect)
	case 2:
		p.w.within(p.w.patience(), p.abandon)
	}
}

// traffic has the peer's QP receive a request of ours.
func (p *party) traffic() {
	if p.belief == connected && !p.abandoned && !p.disconnectAsked {
		p.w.other(p.h).noteTraffic(p.peer)
	}
}

func (p *party) disconnect() {
	// A connection that the peer has ended can be disconnected until it is
	// forgotten.
	wasConnected := p.completed || p.told["cm.Established"] > 0
	possible := wasConnected && !p.disconnectAsked && !p.abandoned && p.told["cm.TimewaitOver"] == 0
	err := p.h.Disconnect(p.w.now(), p.id)
	if p.fits("Disconnect", err, possible) {
		p.disconnectAsked = true
	}
	p.h.settle()
}

func (p *party) abandon() {
	if p.told["cm.TimewaitOver"] == 0 {
		p.abandoned = true
	}
	p.h.abandon(p.id)
}

// run lives through one world and checks what is left at the end.
func (w *world) run(connects int, cutFor time.Duration) {
	for range connects {
		w.within(10*time.Second, w.connect)
	}
	if cutFor > 0 {
		w.within(10*time.Second, func() {
			w.cut = true
			w.clock.AfterFunc(cutFor, func() { w.cut = false })
		})
	}
	w.clock.Run(10 * time.Minute)
	faultless := w.loss == 0 && cutFor == 0

	// Nothing hangs: everybody believes in a connection or has been told why not.
	var left []*party
	for _, p := range w.all {
		switch {
		case p.belief == pending && !p.abandoned:
			w.t.Fatalf("%v: connection %d is still pending: %+v", p.h.addr, p.id, *p)
		case p.belief == connected && !p.abandoned:
			left = append(left, p)
		}
		if faultless && p.timedOut {
			w.t.Fatalf("%v: connection %d timed out although nothing was lost: %+v", p.h.addr, p.id, *p)
		}
	}

	// With nothing lost for good, both ends agree. The connections that remain can be
	// ended, whether the other end knows of them or not.
	w.loss = 0
	for _, p := range left {
		peer := w.parties[w.other(p.h)][p.peer]
		if agree := peer != nil && peer.belief == connected && !peer.abandoned; faultless && !agree {
			w.t.Fatalf("%v believes in connection %d, its peer does not", p.h.addr, p.id)
		}
	}
	for _, p := range left {
		if p.belief != connected {
			continue // its peer was first
		}
		p.disconnect()
		w.clock.Run(10 * time.Second)
		if p.told["cm.DisconnectDone"] != 1 || p.timedOut {
			w.t.Fatalf("%v: connection %d cannot be disconnected", p.h.addr, p.id)
		}
	}
	w.empty()
	for _, p := range w.all {
		if p.told["cm.TimewaitOver"] != 1 {
			w.t.Fatalf("%v: connection %d ended without TimewaitOver", p.h.addr, p.id)
		}
	}
}

// TestWhims is the property of the whole package: whatever the consumers do and
// the network loses, doubles and reorders, each consumer is told what happened,
// in an order that makes sense and once, and nothing is left in the end.
func TestWhims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.Uint64().Draw(t, "seed"))
		w.loss = rapid.SampledFrom([]float64{0, 0.05, 0.2, 0.4}).Draw(t, "loss")
		w.duplicate = rapid.SampledFrom([]float64{0, 0.1, 0.5}).Draw(t, "duplicate")
		w.jitter = rapid.SampledFrom([]time.Duration{0, 10 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second}).Draw(t, "jitter")
		cut := rapid.SampledFrom([]time.Duration{0, 0, time.Second, time.Minute}).Draw(t, "cut")
		w.run(rapid.IntRange(1, 12).Draw(t, "connects"), cut)
	})
}

// TestRepeatable says that a seed repeats a run exactly.
func TestRepeatable(t *testing.T) {
	var traces [2][]string
	for i := range traces {
		w := newWorld(t, 42)
		w.loss, w.duplicate, w.jitter = 0.3, 0.3, 300*time.Millisecond
		w.run(20, time.Second)
		for _, h := range w.hosts {
			for _, d := range h.sent {
				w.trace = append(w.trace, fmt.Sprintf("%v %x", h.addr, d.MAD))
			}
		}
		traces[i] = w.trace
	}
	if len(traces[0]) < 100 {
		t.Fatalf("only %d things happened", len(traces[0]))
	}
	if d := cmp.Diff(traces[0], traces[1]); d != "" {
		t.Errorf("two runs of one seed differ:\n%s", d)
	}
}
