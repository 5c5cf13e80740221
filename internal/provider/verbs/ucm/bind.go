package ucm

import (
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/gsi"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/internal/provider/sharing"
)

// A portKey is a port in its space: spaces have nothing to do with each other.
type portKey struct {
	space  uint16
	number uint16
}

func (i *id) port() portKey { return portKey{i.space, i.local.Port()} }

func (r request) bindIP() error {
	cmd, err := decoded[bindIP](r.body)
	if err != nil {
		return err
	}
	i, err := r.channel.find(cmd.ID)
	if err != nil {
		return err
	}
	return i.bind(cmd.Address[:])
}

func (r request) bind() error {
	cmd, err := decoded[bind](r.body)
	if err != nil {
		return err
	}
	if cmd.Reserved != 0 || cmd.Size == 0 || int(cmd.Size) != sizeOf(cmd.Address[:]) {
		return syscall.EINVAL
	}
	i, err := r.channel.find(cmd.ID)
	if err != nil {
		return err
	}
	return i.bind(cmd.Address[:])
}

func (i *id) bind(sockaddr []byte) error {
	address, err := addressIn(sockaddr)
	if err != nil {
		return err
	}
	return i.bindTo(address)
}

// bindTo takes a port of an address, or of all for the wildcard, choosing one if it is 0.
func (i *id) bindTo(address netip.AddrPort) error {
	if _, ok := i.state.after(doBind); !ok {
		return syscall.EINVAL
	}
	if i.space == spaceIB {
		return syscall.EOPNOTSUPP
	}
	if err := i.service.isOurs(address.Addr()); err != nil {
		return err
	}
	if !i.options.familyOnlySet {
		i.options.familyOnly = address.Addr().Is4()
	}
	i.local = address
	if err := i.takePort(); err != nil {
		i.local = netip.AddrPort{}
		return err
	}
	i.service.ports[i.port()] = append(i.service.ports[i.port()], i)
	return i.step(doBind)
}

// isAny reports whether an address stands for all of the device's. Beside the wildcard, that of loopback does: there is
// no RDMA device to it (cma_any_addr of Linux).
func isAny(a netip.Addr) bool { return a.IsUnspecified() || a.IsLoopback() }

// isOurs returns nil for the device's addresses, and for those that stand for all of them.
func (s *Service) isOurs(address netip.Addr) error {
	if isAny(address) || s.manager.HasAddress(address) {
		return nil
	}
	return syscall.EADDRNOTAVAIL
}

// takePort takes the port that an id binds to, choosing one if it is 0.
func (i *id) takePort() error {
	if i.local.Port() != 0 {
		if err := i.mayUse(i.options.reuse); err != nil {
			return err
		}
		if !i.claim() {
			return syscall.EADDRINUSE
		}
		return nil
	}
	// The first address gives a port that it has free; the others may have it in use.
	const attempts = 64
	for range attempts {
		if i.claim() {
			return nil
		}
		i.local = netip.AddrPortFrom(i.local.Addr(), 0)
	}
	return syscall.EADDRNOTAVAIL
}

// mayUse returns an error if another id of this process on the same port excludes this one (cma_check_port of Linux).
// With reuse, ids that agree to it and do not listen exclude none.
func (i *id) mayUse(reuse bool) error {
	for _, other := range i.service.ports[i.port()] {
		here, there := i.local.Addr(), other.local.Addr()
		switch {
		case other == i, reuse && other.options.reuse && other.state != listening,
			i.options.familyOnly && other.options.familyOnly && here.Is4() != there.Is4():
		case isAny(here) || isAny(there):
			return syscall.EADDRNOTAVAIL
		case here == there:
			return syscall.EADDRINUSE
		}
	}
	return nil
}

// claim takes the port of every address that the id is bound to; false, and none taken, if one is in use. The local
// port is then known.
func (i *id) claim() bool {
	for _, a := range i.boundTo() {
		e := i.service.claimOne(i, netip.AddrPortFrom(a, i.local.Port()))
		if e == nil {
			i.releaseEndpoints()
			return false
		}
		i.endpoints = append(i.endpoints, e)
		i.local = netip.AddrPortFrom(i.local.Addr(), e.Address.Port())
	}
	return len(i.endpoints) > 0
}

// claimOne takes one port, or another reference to it if other ids of this process have it.
func (s *Service) claimOne(i *id, address netip.AddrPort) *gsi.Endpoint {
	if e := s.manager.EndpointAt(address); e != nil && e.Owner == any(s) {
		e.Refer()
		return e
	}
	e, ok := s.manager.Claim(address)
	if !ok {
		return nil
	}
	e.Owner = s
	return e
}

// boundTo returns the device's addresses that an id's stands for.
func (i *id) boundTo() []netip.Addr {
	if i.hasDevice() {
		return []netip.Addr{i.local.Addr()}
	}
	return slices.DeleteFunc(i.service.addresses(), func(a netip.Addr) bool {
		return i.options.familyOnly && a.Is4() != i.local.Addr().Is4() || a.Is6() && i.local.Addr().Is4()
	})
}

// releaseEndpoints gives up an id's references to its endpoints.
func (i *id) releaseEndpoints() {
	for _, e := range i.endpoints {
		if e.Listener == (listener{i}) || e.LookUps == (listener{i}) {
			i.depart(e)
		} else {
			i.service.manager.Release(e)
		}
	}
	i.endpoints = nil
}

// returnTime is for how long requests to a port are ignored after a program has stopped listening there. It may be about
// to listen again, as perftest does for its second connection, while its peer, which it has told so, has asked
// already: the peer repeats the request.
const returnTime = 5 * time.Second

// A departed has requests to a port ignored on which a program has stopped listening, in either space.
type departed struct{ endpoint *gsi.Endpoint }

// Refuses has requests ignored.
func (*departed) Refuses() mad.Reason { return cm.Ignored }

// RefusesLookUp has look-ups ignored.
func (*departed) RefusesLookUp() mad.SIDRStatus { return cm.LookUpIgnored }

// Deliver is never called.
func (*departed) Deliver(cm.ConnectRequest) {}

// DeliverLookUp is never called.
func (*departed) DeliverLookUp(cm.LookUpRequest) {}

// depart gives up an id's reference to an endpoint on which it has listened, after returnTime.
func (i *id) depart(e *gsi.Endpoint) {
	d := &departed{e}
	if _, live := e.Listener.(listener); !live || e.Listener == (listener{i}) {
		e.Listener = d
	}
	if _, live := e.LookUps.(listener); !live || e.LookUps == (listener{i}) {
		e.LookUps = d
	}
	s := i.service
	if e.Listener == d && e.LookUps == d {
		s.config.Device.UsePort(e.Address, sharing.PortOfConnection)
	}
	s.config.Device.Clock().AfterFunc(returnTime, func() {
		s.manager.Lock()
		defer s.manager.Unlock()
		if e.Listener == d {
			e.Listener = nil
		}
		if e.LookUps == d {
			e.LookUps = nil
		}
		s.manager.Release(e)
	})
}

// unbind gives up the port of an id.
func (i *id) unbind() {
	ports, port := i.service.ports, i.port()
	if !slices.Contains(ports[port], i) {
		return
	}
	i.releaseEndpoints()
	ports[port] = slices.DeleteFunc(ports[port], func(o *id) bool { return o == i })
	if len(ports[port]) == 0 {
		delete(ports, port)
	}
}
