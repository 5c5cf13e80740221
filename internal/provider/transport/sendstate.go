package transport

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/rc"
)

// A SendState says how a queue pair of a reliable connection may send now, and counts what bears on that since it was made or
// reset.
type SendState struct {
	Local, Remote netip.Addr
	QPN           uint32
	rc.Allowance
	CNPs          uint64 // that it was sent
	Retransmitted uint64 // packets
}

// SendStates returns those of the queue pairs that are connected, in the order of their numbers.
func (d *Device) SendStates() []SendState {
	var all []SendState
	now := d.Clock.Now()
	d.Each(func(p *Pair) {
		c, ok := p.Owner.(*Channel)
		if !ok {
			return
		}
		c.Lock()
		defer c.Unlock()
		if allowed, ok := c.QP.Allowance(now); ok {
			all = append(all, SendState{c.flow.Local, c.flow.Remote, c.number, allowed, uint64(c.cnps), c.QP.Counters().Retransmitted})
		}
	})
	return all
}
