package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/node/rtnl"
)

// Reconfigure changes the network of a node that is up: its interfaces, which exist by
// now or have gone, their MTU, addresses and neighbours, and its routes. It leaves alone
// what stays, and what somebody else has added. The adapter goes on with the addresses
// that it was opened with, of which it loses those that are taken away.
// The rest of cfg must be as when the agent was started. Calls follow Up, one after the
// other.
func (a *Agent) Reconfigure(cfg Config) error {
	a.starting.Lock() // a process that begins has the addresses and neighbours that are configured
	defer a.starting.Unlock()
	a.mu.Lock()
	before, neighbours := a.configured, !cfg.entersLate() || a.proc != nil
	a.mu.Unlock()
	var failed error
	inside := a.inNetwork(func() { failed = cfg.replace(before, neighbours) })
	if err := errors.Join(inside, failed); err != nil {
		return a.named(err)
	}
	if err := a.keep(cfg.addresses()); err != nil {
		return a.named(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.configured = &cfg
	return nil
}

// replace makes the network of the thread's namespace what cfg says, where it was what
// before says, or is on the way from there. Its neighbours are among that if neighbours is true.
func (cfg *Config) replace(before *Config, neighbours bool) error {
	socket, err := rtnl.Open()
	if err != nil {
		return err
	}
	defer socket.Close()
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	indices, err := cfg.findInterfaces(socket)
	if err != nil {
		return err
	}
	for _, s := range cfg.routing() {
		if err := s.apply(); err != nil {
			return err
		}
	}
	// Routes by next hops that will not be there any more go first, and addresses
	// before those that take their subnet.
	if err := cfg.deleteRoutes(h, before); err != nil {
		return err
	}
	var b rtnl.Batch
	for i := range cfg.Interfaces {
		face := &cfg.Interfaces[i]
		if err := face.removeFormer(h, indices[i], before); err != nil {
			return fmt.Errorf("interface %s: %w", face.Name, err)
		}
		face.configure(&b, indices[i], unix.NLM_F_REPLACE)
		if neighbours {
			face.addNeighbours(&b, indices[i])
		}
	}
	if _, err := socket.Do(&b); err != nil {
		return err
	}
	if err := cfg.awaitLocal(context.Background(), socket, indices); err != nil {
		return err
	}
	return cfg.putRoutes(h, h.RouteReplace)
}

// removeFormer removes the addresses and neighbours that the interface had before and is
// not to have any more.
func (i *Interface) removeFormer(h *netlink.Handle, index int, before *Config) error {
	k := slices.IndexFunc(before.Interfaces, func(o Interface) bool { return o.Name == i.Name })
	if k < 0 {
		return nil
	}
	link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index, Name: i.Name}}
	for _, prefix := range before.Interfaces[k].Addresses {
		if slices.Contains(i.Addresses, prefix) {
			continue
		}
		err := h.AddrDel(link, &netlink.Addr{IPNet: ipNet(prefix)})
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) { // the interface is another one
			return fmt.Errorf("address %s: delete: %w", prefix, err)
		}
	}
	for _, n := range before.Interfaces[k].Neighbours {
		if slices.ContainsFunc(i.Neighbours, func(o Neighbour) bool { return o.Addr == n.Addr }) && !i.has(n.Addr) {
			continue
		}
		err := h.NeighDel(&netlink.Neigh{LinkIndex: index, IP: n.Addr.AsSlice()})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("neighbour %s: delete: %w", n.Addr, err)
		}
	}
	return nil
}
