package trial

import (
	"encoding/binary"
	"fmt"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/provider"
)

// A Host is told of the packets of its device.
type Host interface {
	fmt.Stringer
	Arrives(p *roce.Received)               // before the device gets it
	Leaves(flow *roce.Flow, p *roce.Packet) // before the network gets it
	CheckMemory()                           // called after each event in which something has arrived
}

// A Port is a device's place on the network. It implements provider.Carrier.
type Port struct {
	*sim.Carrier
	trial    *Trial
	host     Host
	receiver provider.Receiver
	touched  bool // something has arrived in this event
}

// Wrap makes the port of a host's device of its carrier.
func (t *Trial) Wrap(c *sim.Carrier, host Host) *Port { return &Port{Carrier: c, trial: t, host: host} }

// Listen implements provider.Carrier.
func (p *Port) Listen(r provider.Receiver) {
	p.receiver = r
	p.Carrier.Listen(p)
}

// Receive implements provider.Receiver. A simulated network delivers packets one by one.
func (p *Port) Receive(packets []roce.Received) {
	t, packet := p.trial, &packets[0]
	// A packet without data may be the one that earlier ones with data wait for.
	if !p.touched {
		p.touched = true
		t.touched = append(t.touched, p)
	}
	h := &packet.Header
	t.Note(uint64(t.Clock.Now()), uint64(h.Opcode), uint64(h.DestQPN), uint64(h.PSN))
	if t.Journals() {
		t.Logf("%v < %v %v QP %#x PSN %#x, %d bytes%s", p.host, packet.Flow.Remote, h.Opcode, h.DestQPN, h.PSN, len(packet.Payload), details(h, packet.Payload))
	}
	p.host.Arrives(packet)
	if t.Tamper == nil || t.Tamper(packet) {
		p.receiver.Receive(packets)
	}
}

// Send implements provider.Carrier.
func (p *Port) Send(flow roce.Flow, packets []roce.Packet) error {
	t := p.trial
	for i := range packets {
		packet := &packets[i]
		h := &packet.Header
		if t.Journals() {
			t.Logf("%v > %v %v QP %#x PSN %#x, %d bytes%s", p.host, flow.Remote, h.Opcode, h.DestQPN, h.PSN, packet.PayloadLen(), details(h, packet.Payload...))
		}
		t.Coverage.Count("packets sent")
		p.host.Leaves(&flow, packet)
	}
	return p.Carrier.Send(flow, packets)
}

// details returns what else the journal tells of a packet.
func details(h *roce.Header, payload ...[]byte) string {
	switch {
	case h.DestQPN == mad.QPN && len(payload) > 0:
		if m, err := mad.DecodeHeader(payload[0]); err == nil {
			return fmt.Sprintf(", attribute %#x, transaction %#x, from %#x to %#x", uint16(m.Attribute), m.TransactionID,
				binary.BigEndian.Uint32(payload[0][24:]), binary.BigEndian.Uint32(payload[0][28:]))
		}
	case h.Opcode.HasAETH():
		return fmt.Sprintf(", syndrome %#x, MSN %#x", uint8(h.Syndrome), h.MSN)
	case h.Opcode.HasRETH():
		return fmt.Sprintf(", %d bytes at %#x under %#x", h.DMALength, h.VA, h.RKey)
	case h.Opcode.HasInvalidate():
		return fmt.Sprintf(", invalidate %#x", h.InvalidateKey)
	}
	return ""
}
