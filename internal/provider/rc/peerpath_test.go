package rc

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// TestWaitsForQueuedAnswer: what comes from the peer's address for other connections may be
// before the answer. While it comes a peer is waited for that says nothing itself, 90 s at most,
// but not when something else has been answered that was sent after the question.
func TestWaitsForQueuedAnswer(t *testing.T) {
	const (
		ms     = time.Millisecond
		always = time.Hour
		usual  = 700 * ms // of the AckTimeout and RetryCount below
		step   = 50 * ms
	)
	for _, test := range []struct {
		name        string
		heardUntil  time.Duration // since the request, that others hear of the peer
		answeredAt  time.Duration // when others have had an answer
		sentAt      time.Duration // to what they sent then
		slow        time.Duration // Path.Slow
		least, most time.Duration // until it is given up
	}{
		{"nothing comes", 0, always, 0, 0, usual, usual},
		{"for a time", 2000 * ms, always, 0, 0, 2000*ms + usual - step, 2000*ms + usual},
		{"for a time, on a slow path", 2000 * ms, always, 0, 1000 * ms, 7000 * ms, 7000 * ms},
		{"all the time", always, always, 0, 0, longestSilence, longestSilence},
		{"a later packet has been answered", always, 300 * ms, 250 * ms, 0, usual, usual},
		{"late", always, 5000 * ms, 4900 * ms, 0, 5000 * ms, 5100 * ms},
		{"an earlier packet has been answered", 5000 * ms, 3000 * ms, -1, 0, 5000*ms + usual - step, 5000*ms + usual},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := testConnection
			c.AckTimeout, c.RetryCount = 100*ms, 6
			p := newPair(t, testConfig, c, path{delay: ms}, 1)
			p.a.memory.add(1, 4096)
			p.b.memory.add(2, 4096)
			r := Request{Op: OpWrite, SGL: []SGE{piece(1, 0, 100)}, VA: 2 << 32, Token: 2}
			p.a.post(r)
			p.await(t, p.a, 1, time.Second)
			p.a.out.down = true
			start := p.clock.Now()
			p.a.post(r)
			known := Path{Heard: start, Slow: test.slow}
			for at := step; at < 2*longestSilence; at += step {
				p.clock.AfterFunc(at, func() {})
			}
			p.clock.RunUntil(func() bool {
				now := p.clock.Now()
				if now-start < test.heardUntil && now >= known.Heard+step {
					known.Heard = now
				}
				if now-start >= test.answeredAt {
					known.Answered = start + test.sentAt
				}
				p.a.qp.SetPath(known)
				return len(p.a.done) > 1
			}, time.Hour)
			took := p.clock.Now() - start
			if took < test.least || took > test.most || p.a.done[1].Status != RetryExceeded {
				t.Errorf("%v after %v, want it after %v to %v", describe(p.a.done[1]), took, test.least, test.most)
			}
		})
	}
}

// TestAsks: a QP that waits for nothing asks for the sake of others on the path, and they learn
// from the answer how long that took. It does not ask again before long.
func TestAsks(t *testing.T) {
	p := newPair(t, testConfig, testConnection, path{delay: time.Second}, 1)
	p.clock.Run(time.Second)
	ask := func() {
		p.a.qp.Probe(p.clock.Now())
		p.a.pump()
	}
	ask()
	p.clock.Run(time.Second)
	ask()
	p.clock.Run(time.Minute)
	if got := len(p.a.out.sent); got != 1 {
		t.Errorf("asked %d times", got)
	}
	if got := p.a.qp.PathEstimate().Answered; got != time.Second {
		t.Errorf("what was sent at %v has been answered", got)
	}
	if got := p.a.qp.Counters(); got.Spurious+got.Retransmitted+got.Timeouts != 0 {
		t.Errorf("%+v", got)
	}

	p.a.out.down = true // for one whose answer is lost another is sent in the end
	ask()
	p.clock.Run(longestUnmeasured + 1)
	p.a.out.down = false
	ask()
	p.clock.Run(time.Minute)
	if got := len(p.a.out.sent); got != 3 {
		t.Errorf("asked %d times", got)
	}
	p.a.memory.add(1, 4096)
	p.b.memory.add(2, 4096)
	p.a.qp.SetPath(Path{Slow: 4 * time.Second}) // or it gives up on the first
	p.a.post(Request{Op: OpWrite, SGL: []SGE{piece(1, 0, 100)}, VA: 2 << 32, Token: 2})
	p.await(t, p.a, 1, time.Minute)
	if got := p.a.qp.Counters(); p.a.done[0].Status != Success || got.Spurious+got.Retransmitted != 0 {
		t.Errorf("%v, %+v", describe(p.a.done[0]), got)
	}
}

// TestMayHoldAnswer: what came before the question was asked is not before the answer. Of
// two packets sent at once nobody knows which is answered first.
func TestMayHoldAnswer(t *testing.T) {
	for _, test := range []struct {
		heard, answered time.Duration // when the question is asked at 10
		want            bool
	}{
		{0, 0, false}, {9, 0, false}, {10, 0, false}, {11, 0, true}, {1000, 9, true}, {1000, 10, true}, {1000, 11, false}, {9, 11, false},
	} {
		if got := (Path{Heard: test.heard, Answered: test.answered}).AnswerMayBeUnderWay(10); got != test.want {
			t.Errorf("heard at %d, answered what was sent at %d: %v", test.heard, test.answered, got)
		}
	}
}

// TestAnswered: every kind of answer says what the peer has got to: when that was sent, or
// less. It does not make the QP forget what others on the path know, nor the other way round.
func TestAnswered(t *testing.T) {
	const ms = time.Millisecond
	e := newReady(t, nil)
	check := func(e *end, when string, want time.Duration) {
		t.Helper()
		if got := e.qp.PathEstimate().Answered; got != want {
			t.Errorf("%s: what was sent at %v has been answered, want %v", when, got, want)
		}
	}
	hear := func(e *end, now time.Duration, h roce.Header) { e.qp.Handle(now, &h, nil) }
	e.queue(sends(1, 1))
	e.at(5*ms, "send only 100 (1) ask")
	hear(e, 7*ms, ack(100, roce.SyndromeACK))
	check(e, "an acknowledgement", 5*ms)

	e.queue(sends(2, 1))
	e.at(10*ms, "send only 101 (1) ask")
	hear(e, 11*ms, ack(101, roce.SyndromeRNR|12))
	check(e, "the first RNR NAK", 5*ms) // of which packet nobody knows
	again := 11*ms + roce.RNRTimer(12)
	e.qp.HandleTimeout(again)
	e.at(again, "send only 101 (1) ask")
	hear(e, again+ms, ack(101, roce.SyndromeRNR|12))
	check(e, "another RNR NAK", again)

	e.qp.SetPath(Path{Answered: 8 * ms})
	check(e, "others know less", again)
	e.qp.SetPath(Path{Answered: time.Second})
	check(e, "others know more", time.Second)

	e = newReady(t, selectively)
	e.queue(sends(1, 1), sends(2, 1))
	e.say("send only 100 (1) ask")
	e.at(3*ms, "send only 101 (1) ask")
	hear(e, 4*ms, roce.Header{Opcode: roce.SelectiveAcknowledge, PSN: 100, MSN: 101})
	check(e, "what has arrived early", 3*ms)
}

// TestNeedsAnswerElsewhere: another connection is to ask when half of the time is over, as long as
// the answer may be on its way.
func TestNeedsAnswerElsewhere(t *testing.T) {
	const ms = time.Millisecond
	e := newReady(t, func(c *Connection) { c.AckTimeout, c.RetryCount = 100*ms, 6 })
	check := func(when string, now time.Duration, want bool) {
		t.Helper()
		if got := e.qp.WantsProbeElsewhere(now); got != want {
			t.Errorf("%s, at %v: %v", when, now, got)
		}
	}
	e.qp.SetPath(Path{Heard: time.Hour})
	check("nothing was asked", time.Second, false)
	e.queue(sends(1, 1), sends(2, 1))
	e.answers(10 * ms)
	check("the timer has yet to run", time.Second, false)
	e.qp.HandleTimeout(50 * ms)
	e.at(50*ms, "write only 99 0@0 ask")
	check("half of the time is not over", 360*ms-1, false)
	check("half of the time is over", 360*ms, true)
	e.qp.SetPath(Path{Heard: 50 * ms})
	check("nothing comes", 360*ms, false)
	e.qp.SetPath(Path{Heard: time.Hour})
	h := ack(100, roce.SyndromeACK)
	e.qp.Handle(400*ms, &h, nil)
	check("the peer has said something", 900*ms, false)
	e.qp.HandleTimeout(600 * ms)
	check("it has said something since", 750*ms-1, false)
	check("that was long ago", 750*ms, true)
	h = response(roce.ReadResponseMiddle, 99) // of another time
	e.qp.Handle(800*ms, &h, nil)
	e.qp.HandleTimeout(1100 * ms)
	check("nor anything else", 1150*ms-1, false)
	check("that was long ago, too", 1150*ms, true)
	e.qp.HandleTimeout(2 * longestSilence)
	check("it was given up", 2*longestSilence, false)
}

// TestAskNothing: a QP does not ask for others if it waits for an answer anyway, nor unless it
// is connected; and where none was asked for no answer is waited for.
func TestAskNothing(t *testing.T) {
	const ms = time.Millisecond
	e := newEnd(t, testConfig)
	e.qp.Probe(0)
	if err := e.qp.Connect(testConnection); err != nil {
		t.Fatal(err)
	}
	e.at(0, "")

	e = newReady(t, func(c *Connection) { c.AckTimeout, c.RetryCount = 100*ms, 0 })
	e.qp.requester.timers.roundTrip.sample(200 * ms)
	e.queue(sends(1, 1))
	e.at(0, "send only 100 (1) ask")
	e.qp.Probe(1)
	e.at(1, "")
	e.qp.SetPath(Path{Heard: time.Hour})
	at, _ := e.qp.Deadline()
	e.qp.HandleTimeout(at)
	e.completed("send retry-exceeded 1")
}
