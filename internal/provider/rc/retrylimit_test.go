package rc

import (
	"fmt"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// TestGivesUp: a peer that says nothing any more is given up after RetryCount+1
// AckTimeouts, both of which the connection's handshake says (roce.md 6.4), and
// the number of packets spent on it in that time is small. The time counts from
// when the peer was last heard of; an AckTimeout of 0 is for ever.
func TestGivesUp(t *testing.T) {
	for _, timeout := range []mad.Timeout{0, 8, 14, 17, 19, 21} {
		for retries := range 8 {
			for _, op := range []Op{OpSend, OpWrite, OpRead} {
				c := testConnection
				c.AckTimeout, c.RetryCount = timeout.Ack(), retries
				p := newPair(t, testConfig, c, path{delay: 50 * time.Microsecond}, 1)
				p.a.memory.add(1, 4096)
				p.b.memory.add(2, 4096)
				p.b.postReceive(Receive{SGL: []SGE{piece(2, 0, 4096)}})
				r := Request{Op: op, Context: 1, SGL: []SGE{piece(1, 0, 4096)}, VA: 2 << 32, Token: 2}
				p.a.post(r)
				p.await(t, p.a, 1, time.Minute)
				p.a.out.down = true
				heard := p.clock.Now()
				p.clock.Run(time.Second) // to have nothing to say counts for nothing
				if timeout > 0 {
					heard = p.clock.Now()
				}
				r.Context = 2
				p.a.post(r)
				sent := len(p.a.out.sent)
				name := fmt.Sprintf("timeout %d, %d retries, %v", timeout, retries, describe(p.a.done[0]))
				if timeout == 0 {
					p.clock.Run(time.Hour)
					if len(p.a.done) > 1 {
						t.Errorf("%s: gave up", name)
					}
					continue
				}
				p.await(t, p.a, 2, time.Hour)
				if took, want := p.clock.Now()-heard, time.Duration(retries+1)*4096*time.Nanosecond<<timeout; took != want {
					t.Errorf("%s: gave up after %v, want %v", name, took, want)
				}
				if last := p.a.done[1]; last.Status != RetryExceeded || last.Context != 2 {
					t.Errorf("%s: %v", name, describe(last))
				}
				if again, most := len(p.a.out.sent)-sent, 13+retries; again > most {
					t.Errorf("%s: %d packets sent to nobody", name, again)
				}
			}
		}
	}
}

// TestRNRTries: an RNR retry count of 0 to 6 is the number of tries after the
// first (roce.md 6.3, 7), whatever code the peer's NAKs bear, and each is made
// when the timer of the code has run out, not before.
func TestRNRTries(t *testing.T) {
	for retries := range 7 {
		for _, code := range []uint8{1, 12, 31, 0} {
			e := newReady(t, func(c *Connection) { c.RNRRetryCount = retries; c.AckTimeout = time.Millisecond })
			e.queue(sends(1, 1))
			now := time.Duration(0)
			for try := range retries + 1 {
				e.at(now, "send only 100 (1) ask")
				h := ack(100, roce.SyndromeRNR|roce.Syndrome(code))
				e.qp.Handle(now, &h, nil)
				if try == retries {
					break
				}
				e.at(now+roce.RNRTimer(code)-1, "")
				now += roce.RNRTimer(code)
				e.qp.HandleTimeout(now)
			}
			e.at(now, "")
			e.completed("send rnr-retry-exceeded 1")
		}
	}
}

// TestGivesUpOnSlowPath: what is acknowledged while a probe is out is no sample, but says
// that the path is slow at most. From then on a peer is waited for as long as the path
// may take, others on the path know it, and a peer that is dead is given up at last.
func TestGivesUpOnSlowPath(t *testing.T) {
	for _, test := range []struct{ delay, want time.Duration }{
		{50 * time.Millisecond, 7 * 537 * time.Millisecond},
		{time.Second, 7 * 2 * time.Second},
		{3 * time.Second, longestUnmeasured},
	} {
		c := testConnection
		c.AckTimeout, c.RetryCount = 537*time.Millisecond, 6
		p := newPair(t, testConfig, c, path{delay: test.delay}, 1)
		p.a.memory.add(1, 4096)
		p.b.memory.add(2, 4096)
		r := Request{Op: OpWrite, SGL: []SGE{piece(1, 0, 100)}, VA: 2 << 32, Token: 2}
		p.a.qp.SetPath(Path{Slow: 30 * time.Second}) // or it gives up on the first
		p.a.post(r)
		p.await(t, p.a, 1, time.Minute)
		p.a.qp.SetPath(Path{})
		if got, least := p.a.qp.PathEstimate().Slow, 2*test.delay; got < least || got > 2*least {
			t.Errorf("%v there and back: tells others of %v", least, got)
		}
		if mean := p.a.qp.requester.timers.roundTrip.srtt; mean != 0 {
			t.Errorf("took a sample of %v", mean)
		}
		p.clock.Run(time.Minute) // for the answers to probes
		p.a.out.down = true
		start := p.clock.Now()
		p.a.post(r)
		p.await(t, p.a, 2, time.Hour)
		if took := p.clock.Now() - start; took != test.want || p.a.done[1].Status != RetryExceeded {
			t.Errorf("%v there and back: %v after %v, want %v", 2*test.delay, describe(p.a.done[1]), took, test.want)
		}
	}
}

// TestGivesUpAfterSlowHandshake: nor is anything else known of the path at first.
func TestGivesUpAfterSlowHandshake(t *testing.T) {
	c := testConnection
	c.AckTimeout, c.RetryCount = 537*time.Millisecond, 6
	p := newPair(t, testConfig, c, path{delay: 4 * time.Second}, 1)
	p.a.memory.add(1, 4096)
	p.b.memory.add(2, 4096)
	p.a.qp.ExpectRoundTrip(8 * time.Second)
	p.a.post(Request{Op: OpWrite, SGL: []SGE{piece(1, 0, 100)}, VA: 2 << 32, Token: 2})
	p.await(t, p.a, 1, time.Minute)
	if got := p.a.done[0]; got.Status != Success {
		t.Errorf("%v after %v", describe(got), p.clock.Now())
	}
}
