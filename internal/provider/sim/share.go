package sim

import (
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/transport"
	"github.com/ndklab/ndklab/provider"
)

// Share makes a carrier of another process at the same addresses, for the queue
// pairs of share k: what is for them goes to it until it is closed. An earlier
// carrier of that share must have been closed.
func (c *Carrier) Share(k int) *Carrier {
	if c.shares[k] != nil {
		panic("sim: the share is in use")
	}
	s := &Carrier{network: c.network, addresses: c.addresses, mtu: c.mtu, owner: c, share: k}
	if c.shares == nil {
		c.shares = map[int]*Carrier{}
	}
	c.shares[k] = s
	return s
}

// receiverOf returns the receiver of a packet that has arrived; nil if there is none.
func (c *Carrier) receiverOf(p *roce.Received) provider.Receiver {
	if s := c.shares[int(p.Header.DestQPN>>transport.ShareShift)]; s != nil {
		return s.receiver
	}
	return c.receiver
}
