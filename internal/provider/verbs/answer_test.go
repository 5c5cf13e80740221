package verbs_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/verbs"
	"github.com/ndklab/ndklab/provider"
)

// A slow carrier's goroutine comes to what was put off only when the consumer has had time to answer.
type slow struct {
	provider.Carrier
	receiver provider.Deferrer
	answer   func()
	polls    int
	holds    bool            // keeps what arrives for PollBeside
	held     []roce.Received // then
	resumed  int
	resume   func() // nil, or what Resume does besides
}

func (c *slow) Listen(r provider.Receiver) {
	c.receiver = r.(provider.Deferrer)
	c.Carrier.Listen(c)
}

func (c *slow) Receive(packets []roce.Received) {
	if c.holds {
		for _, p := range packets {
			p.Payload = bytes.Clone(p.Payload)
			c.held = append(c.held, p)
		}
		return
	}
	c.receiver.Receive(packets)
	if c.answer != nil {
		c.answer()
	}
	for c.receiver.Delivered() {
	}
}

func (c *slow) Poll(provider.Receiver) bool { return false }

func (c *slow) CatchUp(provider.Receiver) {}

func (c *slow) Resume() {
	c.resumed++
	if c.resume != nil {
		c.resume()
	}
}

func (c *slow) PollBeside(r provider.Receiver) (arrived, alone bool) {
	c.polls++
	if len(c.held) == 0 {
		return false, false
	}
	r.Receive(c.held)
	c.held = nil
	return true, true
}

// newSlowWorld has such carriers.
func newSlowWorld(t *testing.T) (*world, []*slow) {
	var carriers []*slow
	w := newWorldOver(t, 1, func(c provider.Carrier) provider.Carrier {
		s := &slow{Carrier: c}
		carriers = append(carriers, s)
		return s
	})
	return w, carriers
}

// TestAnswerAfterAcknowledgement: the answer of a consumer that waits for events, if not for one of just this message, follows the acknowledgement, so that its
// peer, which may be notified too, has its completions in order. That of a consumer which polls goes first.
func TestAnswerAfterAcknowledgement(t *testing.T) {
	for name, test := range map[string]struct{ armed, before, polls, awaits bool }{
		"notified":                   {armed: true, awaits: true},
		"notified of the one before": {armed: true, before: true, awaits: true},
		"polling":                    {polls: true},
		"polling again":              {armed: true, before: true, polls: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, carriers := newSlowWorld(t)
			qps := w.pair(verbs.RC, nil)
			a, b := w.hosts[0], w.hosts[1]
			a.receive(qps[0], 10, 0, 100)
			b.receive(qps[1], 20, 0, 100)
			b.receive(qps[1], 21, 0, 100)
			if test.armed {
				b.cq.Arm(false)
			}
			if test.before {
				w.post(qps[0], a.request(rc.OpSend, 0, 0, 100, 0))
				a.completed("send 0")
			}
			for i := 0; test.polls && i < 3; i++ {
				b.cq.Poll(make([]verbs.Completion, 1))
			}
			carriers[1].answer = func() {
				carriers[1].answer = nil
				w.post(qps[1], b.request(rc.OpSend, 2, 0, 100, 0))
			}
			w.post(qps[0], a.request(rc.OpSend, 1, 0, 100, 0))
			if test.awaits {
				a.completed("send 1", "receive 10 of 100")
			} else {
				a.completed("receive 10 of 100", "send 1")
			}
		})
	}
}

// TestWhoPollsReceives: each poll that finds nothing receives what has arrived. After the CQ was armed, it takes two of
// them: the first may be of a consumer that makes sure before it waits. A consumer that is to be notified of any entry
// does not receive.
func TestWhoPollsReceives(t *testing.T) {
	w, carriers := newSlowWorld(t)
	qps := w.pair(verbs.RC, nil)
	a, b, at := w.hosts[0], w.hosts[1], carriers[1]
	wantPolls := func(what string, want ...int) {
		t.Helper()
		for i, n := range want {
			before := at.polls
			if b.cq.Poll(make([]verbs.Completion, 1)); at.polls-before != n {
				t.Errorf("%s, poll %d: received %d times, want %d", what, i, at.polls-before, n)
			}
		}
	}
	send := func() {
		b.receive(qps[1], 20, 0, 100)
		w.post(qps[0], a.request(rc.OpSend, 0, 0, 100, 0))
		w.run()
	}
	wantPolls("new", 1, 1)
	send()
	wantPolls("with an entry", 0, 1)
	b.cq.Arm(true)
	wantPolls("armed for solicited entries", 0, 1, 1)
	if at.resumed > 0 {
		t.Error("the carrier has resumed while the consumer polls")
	}
	b.cq.Arm(false)
	wantPolls("armed", 0, 0)
	if at.resumed != 1 {
		t.Errorf("the carrier has resumed %d times, want once", at.resumed)
	}
	send()
	wantPolls("notified", 0, 0, 1)
	b.cq.Arm(false)
	b.cq.Arm(false)
	if at.resumed != 2 {
		t.Errorf("the carrier has resumed %d times, want twice", at.resumed)
	}
}

// TestArmSendsWhatWaits: to arm a CQ ends polling, and sends what was put off for the next poll. Others may use the CQ
// meanwhile: what is sent and received then makes entries.
func TestArmSendsWhatWaits(t *testing.T) {
	w, carriers := newSlowWorld(t)
	qps := w.pair(verbs.RC, nil)
	a := w.hosts[0]
	a.cq.Poll(make([]verbs.Completion, 1))
	for range 9 {
		w.post(qps[0], a.request(rc.OpWrite, 0, 0, 100, 0))
	}
	a.wantSent(8)
	carriers[0].resume = func() { check(t, a.cq.Resize(1000)) }
	a.cq.Arm(false)
	a.wantSent(9)
}

// wantSent compares how many packets were sent.
func (h *host) wantSent(want uint64) {
	h.world.t.Helper()
	if n := h.device.Transport().Counters().Sent; n != want {
		h.world.t.Errorf("%d packets sent, want %d", n, want)
	}
}

// TestBurst: a consumer that posts a lot between two polls has what it posts sent together by the next poll, but for the
// first when nothing is in flight: it may look at its memory for the answer, and not poll again. One that posts little has
// it sent at once.
func TestBurst(t *testing.T) {
	w, _ := newSlowWorld(t)
	qps := w.pair(verbs.RC, nil)
	a := w.hosts[0]
	poll := func() { // until nothing is there
		for a.cq.Poll(make([]verbs.Completion, 100)) > 0 {
		}
	}
	post := func(n int) {
		for range n {
			w.post(qps[0], a.request(rc.OpWrite, 0, 0, 100, 0))
		}
	}
	poll()
	post(8)
	a.wantSent(8)
	w.run()
	poll()
	post(8)
	a.wantSent(8 + 1)
	w.run() // the first is acknowledged
	a.wantSent(8 + 8)
	poll()
	post(5)
	a.wantSent(16 + 1)
	poll()
	a.wantSent(16 + 5)
	w.run()
	poll()
	post(2)
	a.wantSent(21 + 2)
}

// TestAcknowledgesBetweenArrivals: a consumer acknowledges when a poll has found nothing more, or all that has come
// before what comes next.
func TestAcknowledgesBetweenArrivals(t *testing.T) {
	w, carriers := newSlowWorld(t)
	qps := w.pair(verbs.RC, nil)
	a, b := w.hosts[0], w.hosts[1]
	carriers[1].holds = true
	poll := func() { b.cq.Poll(make([]verbs.Completion, 1)) }
	send := func() {
		w.post(qps[0], a.request(rc.OpWrite, 0, 0, 100, 0))
		w.clock.Run(20 * time.Microsecond)
	}
	send()
	poll()
	b.wantSent(0)
	poll()
	b.wantSent(1)
	send()
	poll()
	b.wantSent(1)
	send()
	poll()
	b.wantSent(2)
	poll()
	b.wantSent(2)
}
