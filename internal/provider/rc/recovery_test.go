package rc

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// TestRecovery is a table of how long it takes until a request is complete of
// whose packets, or of the answers to them, one is lost, at a peer that drops
// what comes early, as every foreign one does (roce.md 6.4, 6.5). Without a loss
// it is one round trip.
//
// A lost packet that others follow is missed at once, and costs one round trip
// more. One that none follow is missed by the timer: that takes a round trip and a quarter, or
// the least of 1 ms. Then a probe takes one round trip, and two if packets before the one
// that is lost have arrived and did not ask for an acknowledgement. Before the first
// acknowledgement the timer takes twice the handshake, and 5 ms at least.
func TestRecovery(t *testing.T) {
	const (
		us = time.Microsecond
		ms = time.Millisecond
	)
	rtts := [...]time.Duration{100 * us, ms, 50 * ms}
	none := func(*roce.Header) bool { return false }
	is := func(op roce.Opcode) func(*roce.Header) bool {
		return func(h *roce.Header) bool { return h.Opcode == op }
	}
	for _, loss := range []struct {
		name        string
		op          Op
		packets     int                      // of the message, or its response
		there, back func(*roce.Header) bool  // the first that matches is lost
		first       [len(rtts)]time.Duration // of the first request of all
		later       [len(rtts)]time.Duration // after many
	}{
		{"the only packet", OpWrite, 1, is(roce.WriteOnly), none,
			[...]time.Duration{5200 * us, 7 * ms, 200 * ms}, [...]time.Duration{1200 * us, 3250 * us, 162500 * us}},
		{"the first packet", OpWrite, 3, is(roce.WriteFirst), none,
			[...]time.Duration{200 * us, 2 * ms, 100 * ms}, [...]time.Duration{200 * us, 2 * ms, 100 * ms}},
		{"the last packet", OpWrite, 3, is(roce.WriteLast), none,
			[...]time.Duration{5300 * us, 8 * ms, 250 * ms}, [...]time.Duration{1300 * us, 4250 * us, 212500 * us}},
		{"the ACK", OpWrite, 3, none, is(roce.Acknowledge),
			[...]time.Duration{5100 * us, 6 * ms, 150 * ms}, [...]time.Duration{1100 * us, 2250 * us, 112500 * us}},
		{"the first packet, and the NAK", OpWrite, 3, is(roce.WriteFirst), is(roce.Acknowledge),
			[...]time.Duration{5200 * us, 7 * ms, 200 * ms}, [...]time.Duration{1200 * us, 3250 * us, 162500 * us}},
		{"a READ request", OpRead, 3, is(roce.ReadRequest), none,
			[...]time.Duration{5200 * us, 7 * ms, 200 * ms}, [...]time.Duration{1200 * us, 3250 * us, 162500 * us}},
		{"the first READ response", OpRead, 3, none, is(roce.ReadResponseFirst),
			[...]time.Duration{200 * us, 2 * ms, 100 * ms}, [...]time.Duration{200 * us, 2 * ms, 100 * ms}},
		{"a READ response in the middle", OpRead, 3, none, is(roce.ReadResponseMiddle),
			[...]time.Duration{200 * us, 2 * ms, 100 * ms}, [...]time.Duration{200 * us, 2 * ms, 100 * ms}},
		// The responses before the last have made a sample: its deviation is half of it.
		{"the last READ response", OpRead, 3, none, is(roce.ReadResponseLast),
			[...]time.Duration{1300 * us, 6 * ms, 300 * ms}, [...]time.Duration{1300 * us, 4250 * us, 212500 * us}},
	} {
		for i, rtt := range rtts {
			for warm, want := range map[int]time.Duration{0: loss.first[i], 30: loss.later[i]} {
				c := testConnection
				c.AckTimeout = 537 * ms
				p := newPair(t, testConfig, c, path{delay: rtt / 2}, 1)
				p.a.qp.ExpectRoundTrip(rtt)
				p.a.memory.add(1, 4096)
				p.b.memory.add(2, 4096)
				r := Request{Op: loss.op, SGL: []SGE{piece(1, 0, loss.packets*c.MTU)}, VA: 2 << 32, Token: 2}
				for i := range warm {
					p.a.post(r)
					p.await(t, p.a, i+1, time.Second)
				}
				p.a.out.drop, p.b.out.drop = once(loss.there), once(loss.back)
				start := p.clock.Now()
				p.a.post(r)
				p.await(t, p.a, warm+1, 10*time.Second)
				// The deviation dies away, but never quite.
				if took := (p.clock.Now() - start); took < want || took > want+want/1000 {
					t.Errorf("%s, round trip %v, after %d requests: took %v, %.1f round trips, want %v",
						loss.name, rtt, warm, took, float64(took)/float64(rtt), want)
				}
			}
		}
	}
}

// once is true for the first packet that matches.
func once(matches func(*roce.Header) bool) func(*roce.Header) bool {
	done := false
	return func(h *roce.Header) bool {
		lost := !done && matches(h)
		done = done || lost
		return lost
	}
}

// TestBackOff: the timeout doubles each time that it runs out for the same
// packet, and halves when the peer says itself what is missing: it answers, if
// only to what was sent again.
func TestBackOff(t *testing.T) {
	e := newReady(t, nil)
	e.qp.requester.timers.roundTrip.sample(time.Millisecond)
	e.queue(sends(1, 1), sends(2, 1), sends(3, 1))
	e.answers(0)
	now := time.Duration(0)
	expect := func(wait time.Duration) {
		t.Helper()
		if at, ok := e.qp.Deadline(); !ok || at != now+wait {
			t.Fatalf("waits for %v, not %v", at-now, wait)
		}
	}
	for _, wait := range []time.Duration{3, 6, 12} {
		expect(wait * time.Millisecond)
		now += wait * time.Millisecond
		e.qp.HandleTimeout(now)
		e.at(now, "write only 99 0@0 ask")
	}
	expect(24 * time.Millisecond)
	now += 10 * time.Millisecond
	h := ack(101, roce.SyndromePSNSequence)
	e.qp.Handle(now, &h, nil)
	e.at(now, "send only 101 (1) ask, send only 102 (1) ask")
	expect(12 * time.Millisecond)
}
