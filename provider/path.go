package provider

import (
	"net/netip"
	"sync/atomic"
)

// A path is what the queue pairs of a device that are connected with one address find
// out together about the way there. Each for itself could not tell a long way from a
// queue that all of them make: only who is alone can.
type path struct {
	roundTrip atomic.Int64 // the shortest, in nanoseconds; 0: nobody knows yet
	slow      atomic.Int64 // rc.QP.SlowRoundTrip of who found out last that it has changed
}

// pathTo is the path to an address. There is one for each that the device has ever been
// connected with. m.cmMu is held.
func (m *Miniport) pathTo(remote netip.Addr) *path {
	p := m.paths[remote]
	if p == nil {
		p = new(path)
		m.paths[remote] = p
	}
	return p
}
