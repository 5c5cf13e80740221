package transport

import (
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// multicastQPN is the destination of datagrams to multicast groups (IBTA Vol. 1, 10.5).
const multicastQPN = 0xFFFFFF

// A Joiner is a Carrier that can receive what is sent to multicast groups.
type Joiner interface {
	Carrier
	// Join has packets to a group be received, whose flows have the group for their local address, until Leave. That
	// returns when no call of the Receiver runs any more with such packets.
	Join(group netip.Addr) error
	Leave(group netip.Addr)
	// Addresses are the local addresses.
	Addresses() []netip.Addr
}

// groups are the queue pairs that are attached to multicast groups.
type groups struct {
	changing sync.Mutex // held while members change and the carrier follows; locked before mu

	mu      sync.RWMutex // guards members, but not the elements, which are replaced
	members map[netip.Addr][]*Pair
}

// of returns the queue pairs that are attached to a group.
func (g *groups) of(group netip.Addr) []*Pair {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.members[group]
}

// set changes which they are.
func (g *groups) set(group netip.Addr, members []*Pair) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.members == nil {
		g.members = map[netip.Addr][]*Pair{}
	}
	if g.members[group] = members; len(members) == 0 {
		delete(g.members, group)
	}
}

// Attach has a queue pair be given what is sent to a multicast group. It is not attached to it. The caller holds no
// lock of a queue pair's.
func (d *Device) Attach(group netip.Addr, p *Pair) error {
	carrier, ok := d.Carrier.(Joiner)
	if !ok {
		return syscall.EOPNOTSUPP
	}
	g := &d.groups
	g.changing.Lock()
	defer g.changing.Unlock()
	members := g.of(group)
	if len(members) == 0 {
		if err := carrier.Join(group); err != nil {
			return err
		}
	}
	g.set(group, append(slices.Clip(members), p))
	return nil
}

// Detach ends what Attach began, likewise.
func (d *Device) Detach(group netip.Addr, p *Pair) {
	g := &d.groups
	g.changing.Lock()
	defer g.changing.Unlock()
	rest := slices.DeleteFunc(slices.Clone(g.of(group)), func(o *Pair) bool { return o == p })
	g.set(group, rest)
	if len(rest) == 0 {
		d.Carrier.(Joiner).Leave(group)
	}
}

// receiveMulticast gives each packet to the queue pairs of its group, but for the one that sent it.
func (d *Device) receiveMulticast(packets []roce.Received, how Mode) {
	for i := range packets {
		p := &packets[i]
		members := d.groups.of(p.Flow.Local)
		if len(members) == 0 {
			d.UnknownQP.Add(1)
		}
		for _, m := range members {
			if m.number != p.Header.SourceQPN || !slices.Contains(d.Carrier.(Joiner).Addresses(), p.Flow.Remote) {
				m.Owner.Receive(packets[i:i+1], how)
			}
		}
	}
}
