// Package sim is a simulated network: carriers in one process that exchange
// whole RoCEv2 packets in virtual time over paths that delay, lose, duplicate,
// reorder and corrupt them.
//
// It takes the place of package udp, so that adapters run in it unchanged. A Path
// says what happens to a packet between two carriers; the same calls on the same
// seed give the same run, packet for packet. It is as little safe for concurrent
// use as the virtual clock that drives it.
//
// Start reading at Network; Impaired is a ready-made Path.
package sim

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A Path decides what happens to a packet sent now from one address to another.
// packet is the whole IP packet, which the path may alter. It returns how long
// each copy takes to arrive: one for an ordinary packet, none for a lost one.
type Path interface {
	Carry(now time.Duration, from, to netip.Addr, packet []byte) []time.Duration
}

// A Network joins carriers.
type Network struct {
	clock    *clock.Virtual
	path     Path
	carriers map[netip.Addr]*Carrier
	tap      func(now time.Duration, packet []byte)
	routes   map[netip.Prefix]provider.Status
	groups   map[netip.Addr][]*Carrier // members of multicast groups, in the order of joining
}

// NewNetwork makes a network whose packets go over path.
func NewNetwork(c *clock.Virtual, path Path) *Network {
	return &Network{clock: c, path: path, carriers: map[netip.Addr]*Carrier{}, routes: map[netip.Prefix]provider.Status{}, groups: map[netip.Addr][]*Carrier{}}
}

// Tap has f see every packet as it is sent, before the path does. The packet is
// lent.
func (n *Network) Tap(f func(now time.Duration, packet []byte)) { n.tap = f }

// Route sets what Reach says of the addresses in to, in place of what it said
// before. Where nothing is set, every address has a route; where prefixes
// overlap, the longest decides. Packets go their way whatever is set.
func (n *Network) Route(to netip.Prefix, status provider.Status) { n.routes[to.Masked()] = status }

// Attach makes a carrier with the given addresses. mtu is in bytes of IP packet.
func (n *Network) Attach(mtu int, addresses ...netip.Addr) *Carrier {
	c := &Carrier{network: n, addresses: addresses, mtu: mtu}
	for _, a := range addresses {
		n.carriers[a] = c
	}
	return c
}

// at returns the carriers that have an address, which may be a group's.
func (n *Network) at(a netip.Addr) []*Carrier {
	if c := n.carriers[a]; c != nil {
		return []*Carrier{c}
	}
	return n.groups[a]
}

// A Carrier is one adapter's place on the network. It implements
// provider.Carrier.
type Carrier struct {
	network   *Network
	addresses []netip.Addr
	mtu       int
	receiver  provider.Receiver
	closed    bool
	sealer    roce.Sealer
	verifier  roce.Verifier
	rejected  uint64 // packets whose ICRC or form was wrong

	shares map[int]*Carrier // of other processes, which have part of the queue pairs
	owner  *Carrier         // whose share this is, nil if nobody's
	share  int
}

// Listen implements provider.Carrier.
func (c *Carrier) Listen(r provider.Receiver) { c.receiver = r }

// Send implements provider.Carrier.
func (c *Carrier) Send(flow roce.Flow, packets []roce.Packet) error {
	if c.closed {
		return errors.New("sim: carrier is closed")
	}
	n := c.network
	for i := range packets {
		packet := c.sealer.AppendIP(nil, &flow, 0, &packets[i])
		if n.tap != nil {
			n.tap(n.clock.Now(), packet)
		}
		for _, delay := range n.path.Carry(n.clock.Now(), flow.Local, flow.Remote, packet) {
			n.clock.AfterFunc(delay, func() {
				for _, to := range n.at(flow.Remote) {
					to.deliver(packet)
				}
			})
		}
	}
	return nil
}

func (c *Carrier) deliver(packet []byte) {
	if c.closed {
		return
	}
	var received [1]roce.Received
	if err := c.verifier.DecodeIP(packet, &received[0]); err != nil {
		c.rejected++
		return
	}
	if r := c.receiverOf(&received[0]); r != nil {
		r.Receive(received[:])
	}
}

// Join has what is sent to a multicast group be received, until Leave. All copies of a packet take the same path.
func (c *Carrier) Join(group netip.Addr) error {
	c.network.groups[group] = append(slices.Clip(c.network.groups[group]), c)
	return nil
}

// Leave ends what Join began.
func (c *Carrier) Leave(group netip.Addr) {
	c.network.groups[group] = slices.DeleteFunc(slices.Clone(c.network.groups[group]), func(o *Carrier) bool { return o == c })
}

// SourcePort implements provider.Carrier.
func (c *Carrier) SourcePort(_ netip.Addr, hash uint32) uint16 { return 0xC000 | uint16(hash) }

// Addresses implements provider.Carrier.
func (c *Carrier) Addresses() []netip.Addr { return c.addresses }

// MTU implements provider.Carrier.
func (c *Carrier) MTU(netip.Addr) int { return c.mtu }

// Reach implements provider.Carrier.
func (c *Carrier) Reach(_, remote netip.Addr) provider.Status {
	status, bits := provider.StatusSuccess, -1
	for to, s := range c.network.routes {
		if to.Contains(remote) && to.Bits() > bits {
			status, bits = s, to.Bits()
		}
	}
	return status
}

// ReceiveBuffer implements provider.Carrier. Nothing overflows here; the figure
// is that of a socket on a stock Linux.
func (c *Carrier) ReceiveBuffer() int { return 208 << 10 }

// Counters implements provider.Carrier.
func (c *Carrier) Counters() map[string]uint64 {
	return map[string]uint64{"rejected": c.rejected}
}

// Close implements provider.Carrier.
func (c *Carrier) Close() error {
	c.closed = true
	if c.owner != nil && c.owner.shares[c.share] == c {
		delete(c.owner.shares, c.share)
	}
	for _, a := range c.addresses {
		if c.network.carriers[a] == c {
			delete(c.network.carriers, a)
		}
	}
	return nil
}
