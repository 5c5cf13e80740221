package soak

import (
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/provider"
)

// A carrier is a device's place on the network, with an ear to what passes.
type carrier struct {
	*sim.Carrier
	instance *instance
	receiver provider.Receiver
	frames   uint64 // sent for queue pairs
}

// Listen implements provider.Carrier.
func (c *carrier) Listen(r provider.Receiver) {
	c.receiver = r
	c.Carrier.Listen(c)
}

// Receive implements provider.Receiver.
func (c *carrier) Receive(packets []roce.Received) {
	l := c.instance
	r := l.run
	for i := range packets {
		p := &packets[i]
		// A packet without data may be the one that earlier ones with data wait for.
		if !l.touched {
			l.touched = true
			r.touched = append(r.touched, l)
		}
		r.Note(uint64(r.Clock.Now()), uint64(p.Header.Opcode), uint64(p.Header.DestQPN), uint64(p.Header.PSN))
		if r.Journals() {
			r.Logf("%v < %v %v QP %#x PSN %#x, %d bytes%s", l, p.Flow.Remote, p.Header.Opcode, p.Header.DestQPN, p.Header.PSN,
				len(p.Payload), journalText(&p.Header, p.Payload))
		}
		if p.Header.DestQPN != mad.QPN {
			l.checkReceived(p)
		}
	}
	if r.tamper != nil && !r.tamper(&packets[0]) { // a simulated network delivers one by one
		return
	}
	c.receiver.Receive(packets)
}

// Send implements provider.Carrier.
func (c *carrier) Send(flow roce.Flow, packets []roce.Packet) error {
	l := c.instance
	for i := range packets {
		p := &packets[i]
		if l.run.Journals() {
			l.run.Logf("%v > %v %v QP %#x PSN %#x, %d bytes%s", l, flow.Remote, p.Header.Opcode, p.Header.DestQPN, p.Header.PSN,
				p.PayloadLen(), journalText(&p.Header, p.Payload...))
		}
		l.run.Coverage.Count("packets sent")
		if p.Header.DestQPN != mad.QPN {
			c.frames++
			if !l.dead {
				l.checkSent(&flow, p)
			}
		}
	}
	return c.Carrier.Send(flow, packets)
}
