package ucm

import (
	"net/netip"
	"syscall"

	"github.com/ndklab/ndklab/provider"
)

func (r request) resolveIP() error {
	cmd, err := decoded[resolveIP](r.body)
	if err != nil {
		return err
	}
	return r.resolve(cmd.ID, cmd.Source[:], cmd.Destination[:])
}

func (r request) resolveAddr() error {
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
	return r.resolve(cmd.ID, source, destination)
}

// resolve sets the address that an id is to connect to, and binds the id if it is not bound. Without a source it is bound
// to the local address of the route to the destination.
func (r request) resolve(number uint32, source, destination []byte) error {
	i, err := r.channel.find(number)
	if err != nil {
		return err
	}
	to, err := addressIn(destination)
	if err != nil {
		return err
	}
	s := r.channel.service
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
	i.emit(eventAddrResolved, 0, nil)
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
	return i.bindTo(from)
}

// route finds the path from an id to a destination, which it returns. An id on the wildcard address gets the local address
// of that path. The wildcard or loopback as destination is the device itself.
func (s *Service) route(i *id, to netip.AddrPort) (netip.AddrPort, error) {
	local := i.local.Addr()
	if isAny(to.Addr()) {
		if isAny(local) {
			claimed := i.boundTo()
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

func (r request) resolveRoute() error {
	cmd, err := decoded[resolveRoute](r.body)
	if err != nil {
		return err
	}
	i, err := r.channel.find(cmd.ID)
	if err != nil {
		return err
	}
	if _, ok := i.state.after(doResolveRoute); !ok || i.mtu() == 0 {
		return syscall.EINVAL
	}
	i.emit(eventRouteResolved, 0, nil)
	return i.step(doResolveRoute)
}
