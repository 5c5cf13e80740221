package rc

import (
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// TestPrecedence is the order of roce.md 7.1: of two things that are wrong with a
// packet, the peer is told the one that is looked at first.
func TestPrecedence(t *testing.T) {
	const mtu = 256
	noReceives := func(*end) {}
	for _, test := range []struct {
		name    string
		change  func(*Connection)
		setup   func(*end)
		packet  roce.Header
		bytes   int
		want    string
		isError bool
	}{
		{name: "2 before 3: early, and out of sequence", packet: packet(roce.SendMiddle, 105), bytes: 1, want: "nak60 100 msn 0"},
		{name: "2 before 3: there before, and out of sequence", packet: packet(roce.SendMiddle, 95), bytes: 1, want: "ack 99 msn 0"},
		{name: "2 before 4: there before, and never allowed", packet: packet(roce.FetchAdd, 95), want: ""},
		{name: "2 before 7: there before, and of an unknown token", packet: to(packet(roce.WriteOnly, 95), 77, 0, 1), bytes: 1, want: "ack 99 msn 0"},
		{name: "3 before 5: no receive, and out of sequence", setup: noReceives, packet: packet(roce.SendLast, 100), bytes: 1, want: "nak61 100 msn 0", isError: true},
		{name: "4 before 7: an atomic of an unknown token", packet: to(packet(roce.CompareSwap, 100), 77, 3, 8), want: "nak61 100 msn 0", isError: true},
		{name: "5 before 6: no receive, and too long", setup: noReceives, packet: packet(roce.SendOnly, 100), bytes: mtu + 4, want: "nak2c 100 msn 0"},
		{name: "5 before 7: no receive, and an unknown token", setup: noReceives, packet: to(packet(roce.WriteOnlyImm, 100), 77, 0, 1), bytes: 1, want: "nak2c 100 msn 0"},
		{name: "5 before 7: no READs, and an unknown token", change: func(c *Connection) { c.ResponderResources = 0 },
			packet: to(packet(roce.ReadRequest, 100), 77, 0, 1), want: "nak61 100 msn 0", isError: true},
		{name: "6 before 7: too long, and an unknown token", packet: to(packet(roce.WriteOnly, 100), 77, 0, mtu+4), bytes: mtu + 4, want: "nak61 100 msn 0", isError: true},
		{name: "6 before 7: a RETH of too much, and an unknown token", packet: to(packet(roce.ReadRequest, 100), 77, 0, MaxMessage+1), want: "nak61 100 msn 0", isError: true},
		{name: "7: an unknown token, and less data than announced", packet: to(packet(roce.WriteOnly, 100), 77, 0, 8), bytes: 4, want: "nak62 100 msn 0", isError: true},
		{name: "7: memory that may not be written, and more data than announced",
			setup:  func(e *end) { e.memory[2].deny[RemoteWrite] = true },
			packet: to(packet(roce.WriteOnly, 100), 2, 0, 4), bytes: 8, want: "nak62 100 msn 0", isError: true},
		{name: "8: longer than the receive, and to an unknown token",
			setup:  func(e *end) { e.postReceive(Receive{SGL: []SGE{piece(77, 0, 4)}}) },
			packet: packet(roce.SendOnly, 100), bytes: 8, want: "nak61 100 msn 0", isError: true},
		{name: "8: to an unknown token, and invalidating another",
			setup:  func(e *end) { e.postReceive(Receive{SGL: []SGE{piece(77, 0, 4)}}) },
			packet: invalidating(packet(roce.SendOnlyInv, 100), 78), bytes: 4, want: "nak63 100 msn 0", isError: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newReady(t, test.change)
			if test.setup == nil {
				test.setup = receiving(1000)
			}
			test.setup(e)
			e.qp.Handle(0, &test.packet, make([]byte, test.bytes))
			e.at(0, test.want)
			if got := e.qp.State() == Error; got != test.isError {
				t.Errorf("state %v", e.qp.State())
			}
		})
	}
}

// TestPadding is roce.md 2.5 and 7.1: only the last packet of a message is padded,
// and the padding is not data. A packet in the middle whose padding makes it as
// long on the wire as the MTU is not as long.
func TestPadding(t *testing.T) {
	e := newReady(t, nil)
	receiving(1000)(e)
	wire := func(h roce.Header, n, pad int) {
		t.Helper()
		b := h.Append(nil, n+pad)
		b[1] = b[1]&^0x30 | byte(pad)<<4
		for range n + pad + 4 { // not zeros, and 4 bytes of ICRC
			b = append(b, 0xEE)
		}
		var got roce.Header
		payload, err := roce.Decode(b, &got)
		if err != nil {
			t.Fatal(err)
		}
		e.qp.Handle(0, &got, payload)
	}
	wire(packet(roce.SendFirst, 100), 256, 0)
	wire(packet(roce.SendLast, 101), 5, 3)
	e.say("ack 101 msn 1")
	e.completed("receive ok 0 261")
	if b := e.memory[1].bytes; b[260] != 0xEE || b[261] == 0xEE {
		t.Errorf("after 261 bytes come %x and %x", b[260], b[261])
	}
	wire(to(packet(roce.WriteOnly, 102), 2, 0, 5), 5, 3)
	e.say("ack 102 msn 2")
	wire(to(packet(roce.WriteFirst, 103), 2, 0, 300), 253, 3)
	e.say("nak61 103 msn 2")
}
