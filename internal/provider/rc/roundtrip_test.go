package rc

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

func TestRoundTrip(t *testing.T) {
	const ms = time.Millisecond
	r := newRoundTrip(&Connection{AckTimeout: 100 * ms})
	check := func(want time.Duration) {
		t.Helper()
		if got := r.timeout(); got != want {
			t.Errorf("timeout %v, want %v", got, want)
		}
	}
	check(firstTimeout)
	r.sample(8 * ms) // deviation 4 ms
	check(24 * ms)
	r.backOff()
	check(48 * ms)
	r.backOff()
	check(96 * ms)
	r.backOff()
	r.backOff()
	check(100 * ms) // the AckTimeout
	r.reduceBackOff()
	r.reduceBackOff()
	check(48 * ms)
	for range 100 { // and a sample forgets it all
		r.sample(8 * ms)
	}
	if got := r.timeout(); got < 10*ms || got > 10*ms+10*time.Microsecond {
		t.Errorf("timeout %v on a path of exactly 8 ms", got)
	}
	for range 100 {
		r.sample(ms / 10)
	}
	check(shortestTimeout)
	r.reduceBackOff()
	check(shortestTimeout)

	// A path slower than the AckTimeout.
	r = newRoundTrip(&Connection{AckTimeout: ms})
	r.sample(10 * ms)
	check(30 * ms)
	r.backOff()
	check(30 * ms)

	// A peer that may take its time, as Linux rxe announces.
	r = newRoundTrip(&Connection{AckTimeout: 537 * ms, AckDelay: 134 * ms})
	check(134 * ms)
	r.backOff()
	check(268 * ms)
	for range 100 {
		r.sample(ms) // it is quicker
	}
	check(8 * ms)
	r.sample(5 * ms) // for once it is not
	for range 100 {
		r.sample(ms)
	}
	check(40 * ms)
	r.sample(100 * ms)
	for range 100 {
		r.sample(ms)
	}
	check(134 * ms)
	r.sample(200 * ms)
	if r.timeout() <= 200*ms {
		t.Errorf("timeout %v after 200 ms", r.timeout())
	}
	r = newRoundTrip(&Connection{AckTimeout: 67 * ms, AckDelay: 134 * ms})
	check(67 * ms)

	// The first timeout follows from how long the handshake took, within limits.
	for took, want := range map[time.Duration]time.Duration{
		ms / 10: shortestFirst, 5 * ms: 10 * ms, 50 * ms: 100 * ms, time.Minute: longestFirst,
	} {
		r = newRoundTrip(&Connection{AckTimeout: 537 * ms})
		r.setFirstTimeout(took)
		check(want)
		r.sample(ms)
		check(3 * ms)
		r = newRoundTrip(&Connection{AckTimeout: 537 * ms, AckDelay: 134 * ms})
		r.setFirstTimeout(took)
		check(max(want, 134*ms))
		r = newRoundTrip(&Connection{AckTimeout: 67 * ms})
		r.setFirstTimeout(took)
		check(min(want, 67*ms))
	}

	r = newRoundTrip(&Connection{})
	for range 100 {
		r.backOff()
	}
	check(longestTimeout)
}

// TestAbsent: what waited while nobody was there to hear it says nothing of the path. Packets
// that are sent from then on are timed again.
func TestAbsent(t *testing.T) {
	const ms, away = time.Millisecond, time.Minute
	e := newReady(t, nil)
	acknowledge := func(now time.Duration, psn uint32) {
		h := ack(psn, roce.SyndromeACK)
		e.qp.Handle(now, &h, nil)
	}
	e.queue(sends(1, 1))
	e.at(0, "send only 100 (1) ask")
	e.qp.PostponeGivingUp(away)
	acknowledge(away, 100)
	if got := e.qp.PathEstimate(); got != (PathEstimate{}) {
		t.Errorf("something is known of the path: %+v", got)
	}
	e.queue(sends(2, 1))
	e.at(away, "send only 101 (1) ask")
	acknowledge(away+ms, 101)
	if got := e.qp.PathEstimate().RoundTrip; got != ms {
		t.Errorf("a round trip takes %v, want %v", got, ms)
	}
	e.completed("send ok 1", "send ok 2")
}

// TestGivesUpAfterAbsence: the peer is given up later by as much as nobody was there, whatever
// the time counts from.
func TestGivesUpAfterAbsence(t *testing.T) {
	const ms, away = time.Millisecond, time.Minute
	for _, test := range []struct {
		name    string
		retries int
		before  func(e *end)
		want    time.Duration // since the request
	}{
		{"the request", 6, func(*end) {}, 700 * ms},
		{"what the peer said last", 6, func(e *end) {
			h := ack(99, roce.SyndromeACK) // of another time
			e.qp.Handle(300*ms, &h, nil)
		}, 1000 * ms},
		{"progress, since a retry did not help", 0, func(e *end) {
			h := ack(100, roce.SyndromePSNSequence)
			e.qp.Handle(50*ms, &h, nil)
			e.at(50*ms, "send only 100 (1) ask")
		}, 100 * ms},
		{"progress, though the peer's address is heard", 0, func(e *end) {
			h := ack(100, roce.SyndromePSNSequence)
			e.qp.Handle(10*ms, &h, nil)
			e.at(10*ms, "send only 100 (1) ask")
			e.qp.HandleTimeout(50 * ms)
			e.qp.SetPath(Path{Heard: 90 * ms})
		}, 100 * ms},
		{"when the peer's address was heard last", 6, func(e *end) {
			e.qp.HandleTimeout(500 * ms)
			e.qp.SetPath(Path{Heard: 600 * ms})
		}, 1300 * ms},
	} {
		for _, absent := range []time.Duration{0, away} {
			e := newReady(t, func(c *Connection) { c.AckTimeout, c.RetryCount = 100*ms, test.retries })
			e.queue(sends(1, 1))
			e.at(0, "send only 100 (1) ask")
			test.before(e)
			e.qp.PostponeGivingUp(absent)
			e.qp.HandleTimeout(test.want + absent - 1)
			early := e.qp.State() == Error
			e.qp.HandleTimeout(test.want + absent)
			if early || e.qp.State() != Error {
				t.Errorf("it counts from %s, absent for %v: given up before %v: %v, then: %v", test.name, absent, test.want+absent, early, e.qp.State() == Error)
			}
		}
	}
}
