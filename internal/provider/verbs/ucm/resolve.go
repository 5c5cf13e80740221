package ucm

import (
	"net/netip"
	"syscall"

	"github.com/ndklab/ndklab/provider"
)

func (c *Channel) resolveIP(r request) error {
	cmd, err := decoded[resolveIP](r.body)
	if err != nil {
		return err
	}
	return c.resolve(cmd.ID, cmd.Source[:], cmd.Destination[:])
}

func (c *Channel) resolveAddr(r request) error {
	cmd, err := decoded[resolveAddr](r.body)
	if err != nil {
		return err
	}
	source, destination := cmd.Source[:], cmd.Destination[:]
	if cmd.Reserved != 0 || cmd.SourceSize != 0 && int(cmd.SourceSize) != sizeOf(source) ||
		cmd.DestinationSize == 0 || int(cmd.DestinationSize) != sizeOf(destination) {
		return syscall.EINVAL
	}
	if cmd.SourceSize == 0 {
		clear(source)
	}
	return c.resolve(cmd.ID, source, destination)
}

// resolve says where an id is to connect to, and binds it if it is not bound. Without a source it is bound to the
// address that the route to the destination begins at.
func (c *Channel) resolve(number uint32, source, destination []byte) error {
	i, err := c.find(number)
	if err != nil {
		return err
	}
	to, err := addressIn(destination)
	if err != nil {
		return err
	}
	s := c.service
	if i.state == idle {
		from := netip.AddrPortFrom(anyAddress(to.Addr()), 0)
		if family(source) != 0 {
			if from, err = addressIn(source); err != nil {
				return err
			}
		}
		if err := s.bindToward(i, from, to.Addr()); err != nil {
			return err
		}
	}
	if _, ok := i.state.after(doResolveAddress); !ok || i.local.Addr().Is4() != to.Addr().Is4() {
		return syscall.EINVAL
	}
	if to, err = s.route(i, to); err != nil {
		return err
	}
	i.remote = to
	s.emit(i, eventAddrResolved, 0, nil)
	return i.step(doResolveAddress)
}

// bindToward binds an id that is about to resolve a destination: from the wildcard address it needs a port of the
// address alone that it will use.
func (s *Service) bindToward(i *id, from netip.AddrPort, to netip.Addr) error {
	if isAny(from.Addr()) && from.Addr().Is4() == to.Is4() && !isAny(to) {
		local, err := s.source(to)
		if err != nil {
			return err
		}
		from = netip.AddrPortFrom(local, from.Port())
	}
	return s.bindTo(i, from)
}

// route finds the way from an id to a destination, which it returns, and settles an id on the wildcard address for the
// address that the way begins at. The wildcard as destination, or loopback, is the device itself.
func (s *Service) route(i *id, to netip.AddrPort) (netip.AddrPort, error) {
	local := i.local.Addr()
	if isAny(to.Addr()) {
		if isAny(local) {
			claimed := s.boundTo(i)
			if len(claimed) == 0 {
				return to, syscall.ENODEV
			}
			local = claimed[0]
		}
		to = netip.AddrPortFrom(local, to.Port())
	}
	if isAny(local) {
		var err error
		if local, err = s.source(to.Addr()); err != nil {
			return to, err
		}
	}
	if !s.manager.HasAddress(local) {
		return to, syscall.ENODEV
	}
	if err := s.reach(local, to.Addr()); err != nil {
		return to, err
	}
	i.local = netip.AddrPortFrom(local, i.local.Port())
	return to, nil
}

// reach returns nil if there is a route. A group is reached from any address.
func (s *Service) reach(local, to netip.Addr) error {
	if to.IsMulticast() {
		return nil
	}
	switch s.config.Device.Reach(local, to) {
	case provider.StatusSuccess:
		return nil
	case provider.StatusHostUnreachable:
		return syscall.EHOSTUNREACH
	}
	return syscall.ENETUNREACH
}

func (c *Channel) resolveRoute(r request) error {
	cmd, err := decoded[resolveRoute](r.body)
	if err != nil {
		return err
	}
	i, err := c.find(cmd.ID)
	if err != nil {
		return err
	}
	if _, ok := i.state.after(doResolveRoute); !ok || c.service.mtu(i) == 0 {
		return syscall.EINVAL
	}
	c.service.emit(i, eventRouteResolved, 0, nil)
	return i.step(doResolveRoute)
}
