package rc

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// newSharing joins two ends; the second takes its receives from shared.
func newSharing(t *testing.T, shared *ReceiveQueue) *pair {
	config, c := testConfig, testConnection
	config.SharedReceives = true
	c.RNRRetryCount = 7
	p := newPair(t, config, c, path{delay: time.Millisecond}, 1)
	p.b.receives = shared
	p.b.qp.config.Receives = shared
	p.b.memory.add(1, 4096)
	p.a.memory.add(1, 4096)
	return p
}

// TestEmptySharedReceives is NDK-SRQ-13: the peer tries again for as long as it
// takes, and the message arrives once a receive is there.
func TestEmptySharedReceives(t *testing.T) {
	shared := NewReceiveQueue(4, 1)
	p := newSharing(t, shared)
	p.a.post(sends(1, 2000))
	p.clock.Run(10 * time.Second) // long beyond the AckTimeouts
	p.a.check()
	p.b.check()
	if n := p.b.qp.Counters().RNRsSent; n < 1000 {
		t.Errorf("%d RNR NAKs in 10 s", n)
	}
	p.b.postReceive(Receive{Context: 2, SGL: []SGE{piece(1, 0, 4096)}})
	// The longest wait for the next try, and two round trips: the first packet
	// goes alone.
	p.clock.Run(roce.RNRTimer(testConnection.MinRNRTimer) + 4*time.Millisecond)
	p.a.check("send ok 1")
	p.b.check("receive ok 2 2000")
}

// TestSharedReceivesSurvive: receives go to whoever needs one first (NDK-SRQ-02).
// One that a broken message had taken is flushed with its QP; the others are not
// touched, now or later, and serve the QPs that are left.
func TestSharedReceivesSurvive(t *testing.T) {
	shared := NewReceiveQueue(4, 1)
	p, other := newSharing(t, shared), newSharing(t, shared)
	for i := range 4 {
		p.b.postReceive(Receive{Context: i, SGL: []SGE{piece(1, 0, 4096)}})
	}
	other.a.post(sends(1, 1))
	other.await(t, other.b, 1, time.Second)
	other.b.check("receive ok 0 1")

	// Of a message of two packets only the first arrives.
	p.a.out.drop = func(h *roce.Header) bool { return h.Opcode == roce.SendLast }
	p.a.post(sends(1, 2000))
	p.clock.Run(5 * time.Millisecond)
	if shared.Len() != 2 {
		t.Fatalf("%d receives left", shared.Len())
	}
	p.b.qp.Flush()
	p.b.pump()
	p.b.check("receive flushed 1")
	p.b.qp.Flush()
	p.b.pump()
	p.b.check("receive flushed 1")

	other.a.post(sends(2, 2))
	other.await(t, other.b, 2, time.Second)
	other.b.check("receive ok 0 1", "receive ok 2 2")

	// One that fails, rather than being flushed, takes no other along either.
	third := newSharing(t, shared)
	third.a.post(Request{Op: OpSendInvalidate, Token: 77})
	third.await(t, third.a, 1, time.Second)
	third.b.check("receive remote-invalid 3")
	if third.b.postReceive(Receive{Context: 4}); shared.Len() != 1 {
		t.Errorf("%d receives left", shared.Len())
	}
}
