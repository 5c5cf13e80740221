package rc

import (
	"testing"
	"time"
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
		least, most time.Duration // until it is given up
	}{
		{"nothing comes", 0, always, 0, usual, usual},
		{"for a time", 2000 * ms, always, 0, 2000*ms + usual - step, 2000*ms + usual},
		{"all the time", always, always, 0, longestSilence, longestSilence},
		{"a later packet has been answered", always, 300 * ms, 250 * ms, usual, usual},
		{"late", always, 5000 * ms, 4900 * ms, 5000 * ms, 5100 * ms},
		{"an earlier packet has been answered", 5000 * ms, 3000 * ms, -1, 5000*ms + usual - step, 5000*ms + usual},
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
			known := Path{Heard: start}
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
		p.a.qp.Ask(p.clock.Now())
		p.a.pump()
	}
	ask()
	p.clock.Run(time.Second)
	ask()
	p.clock.Run(time.Minute)
	if got := len(p.a.out.sent); got != 1 {
		t.Errorf("asked %d times", got)
	}
	if got := p.a.qp.Answered(); got != time.Second {
		t.Errorf("what was sent at %v has been answered", got)
	}
	if got := p.a.qp.Counters(); got.Spurious+got.Retransmitted+got.Timeouts != 0 {
		t.Errorf("%+v", got)
	}

	p.a.out.down = true // for one whose answer is lost another is sent in the end
	ask()
	p.clock.Run(longestSupposed + 1)
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
