package verbs_test

import (
	"slices"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/verbs"
	"github.com/ndklab/ndklab/provider"
)

// A classifier is a carrier that notes the traffic classes of the packets of queue pairs.
type classifier struct {
	provider.Carrier
	sent *[]uint8
}

func (c classifier) Send(flow roce.Flow, packets []roce.Packet) error {
	for i := range packets {
		if op := packets[i].Header.Opcode; packets[i].Header.DestQPN > 1 && !op.OnlyAcknowledges() {
			*c.sent = append(*c.sent, packets[i].Class)
		}
	}
	return c.Carrier.Send(flow, packets)
}

// TestTrafficClass: packets have the traffic class that the address of their queue pair or their address handle has, without its
// ECN field, or else 0, whatever was sent before; datagrams are received with it.
func TestTrafficClass(t *testing.T) {
	var sent []uint8
	w := newWorldOver(t, 1, func(c provider.Carrier) provider.Carrier { return classifier{c, &sent} })
	a, b := w.hosts[0], w.hosts[1]
	for _, kind := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
		for _, class := range []uint8{0x8B, 0} {
			a.class = class
			qps := w.pair(kind, nil)
			sent = nil
			r := a.request(rc.OpSend, 1, 1000, 10, 0)
			if kind == verbs.UD {
				ah, err := a.pd.CreateAH(verbs.Address{Remote: b.address, Port: 1, TrafficClass: class})
				check(t, err)
				r.AH, r.RemoteQPN, r.QKey = ah, qps[1].Number(), qkey
			}
			b.receive(qps[1], 100, 0, 2000)
			w.post(qps[0], r)
			a.completed("send 1")
			if want := []uint8{class &^ 3}; !slices.Equal(sent, want) {
				t.Errorf("queue pair of type %d, class %#x: packets of %#x", kind, class, sent)
			}
			if kind != verbs.UD {
				b.completed("receive 100 of 10")
				continue
			}
			b.completed("receive 100 of 50 grh IPv4")
			if got := b.memory[20+1]; got != class&^3 {
				t.Errorf("a datagram of class %#x is received with %#x", class, got)
			}
		}
	}
}

// TestRedirectedTrafficClass: a queue pair that is drained is given another class with its address.
func TestRedirectedTrafficClass(t *testing.T) {
	var sent []uint8
	w := newWorldOver(t, 1, func(c provider.Carrier) provider.Carrier { return classifier{c, &sent} })
	a, b := w.hosts[0], w.hosts[1]
	qps := w.pair(verbs.RC, nil)
	w.modify(qps[0], verbs.Attributes{State: verbs.SendQueueDrain}, 0)
	address := verbs.Address{Remote: b.address, Port: 1, TrafficClass: 0x28}
	w.modify(qps[0], verbs.Attributes{State: verbs.SendQueueDrain, Address: address}, verbs.MaskAddress)
	w.modify(qps[0], verbs.Attributes{State: verbs.ReadyToSend}, 0)
	w.post(qps[0], a.request(rc.OpWrite, 1, 0, 10, 0))
	a.completed("write 1")
	if !slices.Equal(sent, []uint8{0x28}) {
		t.Errorf("packets of %#x", sent)
	}
}
