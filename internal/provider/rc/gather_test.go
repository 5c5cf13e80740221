package rc

import (
	"fmt"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// newGathering returns two QPs that know their path and keep what arrives early, and a request of 8 bytes. Of the first QP as
// many packets are in flight as have others wait.
func newGathering(t *testing.T) (*loop, *Request) {
	c := bulkConnection
	c.Selective = true
	l := newLoop(t, c)
	l.a.config.SendDepth = 256
	l.receives = NewReceiveQueue(256, 1)
	l.b.config.Receives = l.receives
	r := loopRequests["small"]
	l.run(t, &r)
	l.post(t, &r, gatherFrom)
	if n := l.gather(); n != gatherFrom {
		t.Fatalf("%d packets with nothing in flight, want %d", n, gatherFrom)
	}
	return l, &r
}

func (l *loop) post(t *testing.T, r *Request, n int) {
	for range n {
		if err := l.a.Post(r); err != nil {
			t.Fatal(err)
		}
	}
}

// gather returns how many packets of new requests the first QP has to send after Gather.
func (l *loop) gather() int {
	before := l.a.requester.queue.max
	for l.a.Gather(); l.a.Next(l.now, &l.packet); {
	}
	return int(l.a.requester.queue.max - before)
}

// TestGather: short requests wait until half as many are posted as are in flight.
func TestGather(t *testing.T) {
	l, r := newGathering(t)
	for i := range gatherFrom/2 - 1 {
		l.post(t, r, 1)
		if n := l.gather(); n != 0 {
			t.Fatalf("%d packets of %d requests beside %d in flight", n, i+1, gatherFrom)
		}
	}
	l.post(t, r, 1)
	if n := l.gather(); n != gatherFrom/2 {
		t.Errorf("%d packets of half as many requests as are in flight, want %d", n, gatherFrom/2)
	}
}

// TestGatherMost: a super-packet waits for nothing more.
func TestGatherMost(t *testing.T) {
	l, r := newGathering(t)
	l.post(t, r, gatherFrom)
	l.gather()
	l.post(t, r, gatherPackets-1)
	if n := l.gather(); n != 0 {
		t.Fatalf("%d packets beside %d in flight", n, 2*gatherFrom)
	}
	l.post(t, r, 1)
	if n := l.gather(); n != gatherPackets {
		t.Errorf("%d packets, want %d", n, gatherPackets)
	}
}

// TestGatherEnds: what is acknowledged makes those in flight fewer, so that nothing waits for ever.
func TestGatherEnds(t *testing.T) {
	l, r := newGathering(t)
	l.post(t, r, 1)
	l.gather()
	una := l.a.requester.queue.una
	acknowledge(l, una)
	if n := l.gather(); n != 1 {
		t.Errorf("%d packets beside %d in flight, want 1", n, gatherFrom-1)
	}
}

// acknowledge has the peer acknowledge everything up to and with a sequence number.
func acknowledge(l *loop, sequence int64) {
	h := ack(psn(sequence), 0)
	l.a.Handle(l.now, &h, nil)
}

// TestGatherOnlyShort: nothing else waits.
func TestGatherOnlyShort(t *testing.T) {
	for name, test := range map[string]func(*loop, *Request){
		"a long message": func(_ *loop, r *Request) { r.SGL = []SGE{{Length: gatherBytes}} },
		"a READ":         func(_ *loop, r *Request) { *r = Request{Op: OpRead, SGL: r.SGL} },
		"a long path":    func(l *loop, _ *Request) { l.a.SetRoundTrip(hostDelay+1, false) },
		"a Pacer": func(l *loop, _ *Request) {
			l.a.requester.window.pacer = congestion.NewPacer(&fixedRate{rate: 100e9}, 0, 0, pacedOverhead)
		},
		"loss": func(l *loop, _ *Request) { hearEarly(l, l.a.requester.queue.una) },
	} {
		t.Run(name, func(t *testing.T) {
			l, r := newGathering(t)
			test(l, r)
			l.post(t, r, 1)
			if l.gather() == 0 {
				t.Error("waits")
			}
		})
	}
}

// hearEarly has the peer say that the packet behind that with a sequence number has arrived, and that not.
func hearEarly(l *loop, sequence int64) {
	h := packet(roce.SendOnly, psn(sequence+1))
	l.b.Handle(l.now, &h, make([]byte, 8))
	l.move(l.b, l.a)
}

// TestGatherMiddle: a message of which a part has been sent goes on, since that part asks for no acknowledgement.
func TestGatherMiddle(t *testing.T) {
	l, r := newGathering(t)
	r.SGL = []SGE{{Length: 2 * uint32(l.a.connection.MTU)}}
	l.post(t, r, 1)
	if !l.a.Next(l.now, &l.packet) {
		t.Fatal("no first packet without Gather")
	}
	if n := l.gather(); n != 1 {
		t.Errorf("%d packets of the rest, want 1", n)
	}
}

// TestGatherAgain: what is sent again waits for nothing.
func TestGatherAgain(t *testing.T) {
	l, r := newGathering(t)
	l.post(t, r, 1)
	l.a.requester.goBack(l.now)
	if l.a.Gather(); !l.a.Next(l.now, &l.packet) {
		t.Error("waits")
	}
}

// TestGatherNothing: the QP has to be told.
func TestGatherNothing(t *testing.T) {
	l, r := newGathering(t)
	l.post(t, r, 1)
	if !l.a.Next(l.now+time.Microsecond, &l.packet) {
		t.Error("waits")
	}
}

// TestGatherLossy: all requests complete of a consumer that posts one for each that is complete, whatever is lost.
func TestGatherLossy(t *testing.T) {
	for _, selective := range []bool{false, true} {
		for _, loss := range []float64{0, 0.01, 0.2} {
			t.Run(fmt.Sprint(selective, loss), func(t *testing.T) {
				const depth, all = 128, 1000
				config, c := testConfig, testConnection
				config.SendDepth, c.Selective = depth, selective
				p := newPair(t, config, c, path{delay: 20 * time.Microsecond, loss: loss, rate: 10e9}, 1)
				p.a.gathers = true
				p.b.memory.add(1, 64)
				r := Request{Op: OpWrite, SGL: []SGE{{Length: 0}}, VA: 1 << 32, Token: 1}
				posted := 0
				post := func(n int) {
					for ; n > 0 && posted < all; n-- {
						posted++
						if err := p.a.qp.Post(&r); err != nil {
							t.Fatal(err)
						}
					}
				}
				p.a.onDone = func() {
					post(len(p.a.done) + depth - posted)
					p.clock.AfterFunc(0, p.a.pump)
				}
				post(depth)
				p.a.pump()
				p.await(t, p.a, all, 20*time.Second)
				for i, done := range p.a.done {
					if done.Status != Success {
						t.Fatalf("request %d: %v", i, done.Status)
					}
				}
			})
		}
	}
}
