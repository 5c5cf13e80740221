package trace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// The queue pairs of the link.
const (
	nearQPN = 17
	farQPN  = 34
)

// A conversation is packets between the two, a microsecond apart.
type conversation struct {
	t    *testing.T
	ring *Ring
	at   int64
}

func (c *conversation) add(from string, comment string, h roce.Header, payload int) {
	if h.DestQPN == 0 {
		h.DestQPN = farQPN
		if from == far {
			h.DestQPN = nearQPN
		}
	}
	c.at += 1000
	c.ring.Add(packet(c.t, from, c.at, comment, h, payload))
}

func newConversation(t *testing.T) *conversation {
	return &conversation{t: t, ring: NewRing(100)}
}

func ack(psn uint32, syndrome roce.Syndrome) roce.Header {
	return roce.Header{Opcode: roce.Acknowledge, PSN: psn, Syndrome: syndrome}
}

// wantPoints compares points, apart from times and texts.
func wantPoints(t *testing.T, s Sequence, want ...Point) {
	t.Helper()
	if diff := cmp.Diff(want, s.Points, cmpopts.IgnoreFields(Point{}, "At", "Text")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

var us = QueuePair{Endpoint: near, QPN: nearQPN}

// Packets before and after the PSN's wrap, one of which is lost and sent again, are told apart, with all that answers them.
func TestSequence(t *testing.T) {
	c := newConversation(t)
	data := func(psn uint32, comment string) {
		c.add(near, comment, roce.Header{Opcode: roce.WriteMiddle, PSN: psn}, 1024)
	}
	data(0xfffffe, "delayed 1ms")
	data(0xffffff, "dropped: loss")
	data(0, "delayed 1ms")
	c.add(far, "delayed 1ms", ack(0xfffffe, roce.SyndromeACK), 0)
	c.add(far, "delayed 1ms", ack(0xffffff, roce.SyndromePSNSequence), 0)
	c.add(far, "", roce.Header{Opcode: roce.CNP}, 0)
	data(0xffffff, "delayed 1ms")
	data(0, "delayed 1ms")
	data(1, "delayed 1ms")
	c.add(far, "dropped: cut", ack(0, roce.SyndromeACK), 0)
	c.add(far, "delayed 1ms", ack(1, roce.SyndromeRNR+1), 0)
	c.add(far, "delayed 1ms", roce.Header{Opcode: roce.SelectiveAcknowledge, PSN: 1, MSN: 4, Syndrome: roce.SyndromePSNSequence}, 0)
	c.add(far, "delayed 1ms", ack(0xfffffe, roce.SyndromeACK), 0) // once more
	const wrap = 1 << 24
	got := c.ring.Sequence(us, 1000)
	wantPoints(t, got,
		Point{Kind: Data, PSN: wrap - 2, Size: 1024},
		Point{Kind: Data, PSN: wrap - 1, Size: 1024, Lost: "loss"},
		Point{Kind: Data, PSN: wrap, Size: 1024},
		Point{Kind: Ack, PSN: wrap - 2, Acked: number[int64](wrap - 1)},
		Point{Kind: NAK, PSN: wrap - 1, Acked: number[int64](wrap - 1)},
		Point{Kind: CNP, PSN: wrap},
		Point{Kind: Resent, PSN: wrap - 1, Size: 1024},
		Point{Kind: Resent, PSN: wrap, Size: 1024},
		Point{Kind: Data, PSN: wrap + 1, Size: 1024},
		Point{Kind: Ack, PSN: wrap, Lost: "cut", Acked: number[int64](wrap - 1)},
		Point{Kind: RNR, PSN: wrap + 1, Acked: number[int64](wrap + 1)},
		Point{Kind: Selective, PSN: wrap + 1, To: wrap + 4, Acked: number[int64](wrap + 1)},
		Point{Kind: Ack, PSN: wrap - 2, Acked: number[int64](wrap + 1)},
	)
	if want := (Sequence{From: Peer{"10.0.0.1", nearQPN}, To: Peer{"10.0.0.2", farQPN}}); !cmp.Equal(want, got, cmpopts.IgnoreFields(Sequence{}, "Points")) {
		t.Errorf("%+v", got)
	}
	if p := got.Points[2]; p.At != 2e-6 || p.Text != "RC RDMA WRITE Middle: 1024 bytes" {
		t.Errorf("%+v", p)
	}
}

// A READ request takes a PSN for each packet of its response, and another for what has not come is no new one.
func TestSequenceOfReads(t *testing.T) {
	c := newConversation(t)
	read := func(psn, length uint32) {
		c.add(near, "", roce.Header{Opcode: roce.ReadRequest, PSN: psn, DMALength: length}, 0)
	}
	read(5, 3000)
	c.add(far, "", roce.Header{Opcode: roce.ReadResponseFirst, PSN: 5, Syndrome: roce.SyndromeACK}, 1024)
	c.add(far, "dropped: queue full", roce.Header{Opcode: roce.ReadResponseMiddle, PSN: 6}, 1024)
	c.add(near, "", roce.Header{Opcode: roce.CNP}, 0)
	read(6, 3000-1024)
	read(8, 100)
	wantPoints(t, c.ring.Sequence(us, 0),
		Point{Kind: Data, PSN: 5, To: 7},
		Point{Kind: Response, PSN: 5, Size: 1024, Acked: number[int64](6)},
		Point{Kind: Response, PSN: 6, Size: 1024, Acked: number[int64](6), Lost: "queue full"},
		Point{Kind: CNP, PSN: 6},
		Point{Kind: Resent, PSN: 6, To: 7},
		Point{Kind: Data, PSN: 8},
	)
}

// Of a queue pair that answers and asks nothing there is what its peer asks.
func TestReversedSequence(t *testing.T) {
	c := newConversation(t)
	c.add(near, "", roce.Header{Opcode: roce.SendOnly, PSN: 9}, 10)
	c.add(far, "", ack(9, roce.SyndromeACK), 0)
	got := c.ring.Sequence(QueuePair{Endpoint: far, QPN: farQPN}, 0)
	wantPoints(t, got, Point{Kind: Data, PSN: 9, Size: 10}, Point{Kind: Ack, PSN: 9, Acked: number[int64](10)})
	if !got.Reversed || got.From != (Peer{"10.0.0.1", nearQPN}) || got.To != (Peer{"10.0.0.2", farQPN}) {
		t.Errorf("%+v", got)
	}
}

// Other queue pairs of the same nodes, whose PSNs are near, are not mixed in, with or without their peer being named. Both queue
// pairs of a connection send requests here.
func TestSequenceAmongOthers(t *testing.T) {
	c := newConversation(t)
	for i := range uint32(5) {
		for j := range uint32(3) { // another's
			c.add(near, "", roce.Header{Opcode: roce.SendOnly, PSN: 100 + 3*i + j, DestQPN: 50}, 1)
		}
		c.add(near, "", roce.Header{Opcode: roce.SendOnly, PSN: 103 + i}, 2)
		c.add(far, "", roce.Header{Opcode: roce.SendOnly, PSN: 700 + i}, 3)
		c.add(near, "", ack(700+i, roce.SyndromeACK), 0)
		c.add(far, "", ack(103+i, roce.SyndromeACK), 0)
		c.add(far, "", roce.Header{Opcode: roce.Acknowledge, PSN: 100 + i, Syndrome: roce.SyndromeACK, DestQPN: 60}, 0)
	}
	var want []Point
	for i := range int64(5) {
		want = append(want, Point{Kind: Data, PSN: 103 + i, Size: 2}, Point{Kind: Ack, PSN: 103 + i, Acked: number(104 + i)})
	}
	for _, remote := range []uint32{0, farQPN} {
		got := c.ring.Sequence(QueuePair{Endpoint: near, QPN: nearQPN, RemoteQPN: remote}, 0)
		if wantPoints(t, got, want...); got.To.QPN != farQPN {
			t.Errorf("%+v", got.To)
		}
	}
}

// Of a queue pair whose peer answers nothing, the peer has to be named; a datagram names its sender.
func TestSequenceWithoutAnswers(t *testing.T) {
	c := newConversation(t)
	c.add(near, "", roce.Header{Opcode: roce.SendOnly.Unreliable(), PSN: 1}, 1)
	c.add(near, "dropped: loss", roce.Header{Opcode: roce.UDSendOnly, PSN: 70, DestQPN: 51, SourceQPN: 16}, 4)
	c.add(near, "", roce.Header{Opcode: roce.UDSendOnly, PSN: 71, DestQPN: 52, SourceQPN: 16}, 4)
	if got := c.ring.Sequence(us, 0); got.Points == nil || len(got.Points) > 0 || got.From != (Peer{}) || got.Reversed {
		t.Errorf("%+v", got)
	}
	wantPoints(t, c.ring.Sequence(QueuePair{Endpoint: near, QPN: nearQPN, RemoteQPN: farQPN}, 0), Point{Kind: Data, PSN: 1, Size: 1})
	got := c.ring.Sequence(QueuePair{Endpoint: near, QPN: 16}, 0)
	wantPoints(t, got, Point{Kind: Data, PSN: 70, Size: 4, Lost: "loss"}, Point{Kind: Data, PSN: 71, Size: 4})
	if got.From != (Peer{"10.0.0.1", 16}) || got.To != (Peer{}) {
		t.Errorf("%+v", got)
	}
}
