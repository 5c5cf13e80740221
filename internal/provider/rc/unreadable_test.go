package rc

import (
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// next makes the next packet, which must be there.
func (e *end) next() *roce.Packet {
	e.t.Helper()
	if !e.qp.Next(e.clock.Now(), &e.packet) {
		e.t.Fatal("there is no packet")
	}
	return &e.packet
}

// TestUnreadableRequest: a request whose packet cannot be read fails behind those before it, and no packet of it is made any
// more.
func TestUnreadableRequest(t *testing.T) {
	e := newReady(t, nil)
	for i, length := range []int{4, 600, 4} {
		if err := e.qp.Post(&Request{Op: OpWrite, Context: i + 1, SGL: []SGE{piece(1, 0, length)}, VA: 1 << 32, Token: 1}); err != nil {
			t.Fatal(err)
		}
	}
	e.next() // of the first
	e.next()
	e.qp.Unreadable(&e.next().Header)
	e.completed()
	if e.qp.Next(0, &e.packet) {
		t.Error("a packet is made of a request that cannot go on")
	}
	e.qp.Handle(0, &roce.Header{Opcode: roce.Acknowledge, PSN: 100, Syndrome: roce.SyndromeACK}, nil)
	e.completed("write ok 1", "write local-protection 2", "write flushed 3")
}

// TestUnreadableResponse: a READ whose answer cannot be read is refused, which ends the connection unless it was answered
// before.
func TestUnreadableResponse(t *testing.T) {
	e := newReady(t, nil)
	request := to(packet(roce.ReadRequest, 100), 2, 0, 600)
	e.qp.Handle(0, &request, nil)
	e.next()
	e.next()
	e.next()
	e.qp.Handle(0, &request, nil)
	e.qp.Unreadable(&e.next().Header)
	e.at(0, "nak62 100 msn 1")
	if e.qp.State() != Ready {
		t.Fatal("a repeated READ ends the connection")
	}
	request.PSN = 103
	e.qp.Handle(0, &request, nil)
	e.next()
	e.qp.Unreadable(&e.next().Header)
	e.at(0, "nak62 103 msn 2")
	if e.qp.State() != Error || e.qp.Refusal() != RemoteAccess {
		t.Errorf("state %v, refusal %v", e.qp.State(), e.qp.Refusal())
	}
}

// Of selective replies a repeat is kept apart.
func TestUnreadableRepeat(t *testing.T) {
	e := newReady(t, func(c *Connection) { c.Selective = true })
	request := to(packet(roce.ReadRequest, 100), 2, 0, 4)
	for range 2 {
		e.qp.Handle(0, &request, nil)
		e.next()
	}
	e.qp.Unreadable(&e.packet.Header)
	e.at(0, "nak62 100 msn 1")
	if e.qp.State() != Ready {
		t.Error("a repeated READ ends the connection")
	}
}
