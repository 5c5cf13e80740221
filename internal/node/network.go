package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/node/rtnl"
)

// This file sets up a node's network, from the supervisor's side. An agent would do it for
// the first time in its process, which takes longer.

// configure sets up the loopback interface and the node's, which exist, and its
// routes.
func (a *Agent) configure(ctx context.Context, network *rtnl.Socket) error {
	cfg := &a.cfg
	indices, err := cfg.findInterfaces(network)
	if err != nil {
		return err
	}
	if settings := cfg.routing(); len(settings) > 0 {
		inside := a.inNetwork(func() {
			for _, s := range settings {
				if err = s.apply(); err != nil {
					return
				}
			}
		})
		if err := errors.Join(inside, err); err != nil {
			return err
		}
	}
	var b rtnl.Batch
	for i := range cfg.Interfaces {
		cfg.Interfaces[i].configure(&b, indices[i], unix.NLM_F_EXCL)
		if !cfg.entersLate() {
			cfg.Interfaces[i].addNeighbours(&b, indices[i])
		}
	}
	if _, err := network.Do(&b); err != nil {
		return err
	}
	if err := cfg.awaitLocal(ctx, network, indices); err != nil || len(cfg.Routes) == 0 {
		return err
	}
	inside := a.inNetwork(func() {
		var h *netlink.Handle
		if h, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return
		}
		defer h.Close()
		err = cfg.putRoutes(h, h.RouteAdd)
	})
	return errors.Join(inside, err)
}

// loopback is the index of lo, which every namespace has from the beginning.
const loopback = 1

// findInterfaces sets the loopback interface up and finds the indices of the others.
func (cfg *Config) findInterfaces(s *rtnl.Socket) ([]int, error) {
	var b rtnl.Batch
	b.Add("interface lo", unix.RTM_NEWLINK, 0, setUp(loopback))
	for i := range cfg.Interfaces {
		cfg.Interfaces[i].find(&b)
	}
	answers, err := s.Do(&b)
	if err != nil {
		return nil, err
	}
	indices := make([]int, len(cfg.Interfaces))
	for i := range indices {
		if indices[i], err = cfg.Interfaces[i].index(answers[1+i]); err != nil {
			return nil, err
		}
	}
	return indices, nil
}

// find asks for the interface.
func (i *Interface) find(b *rtnl.Batch) {
	b.Add("interface "+i.Name, unix.RTM_GETLINK, 0, nl.NewIfInfomsg(unix.AF_UNSPEC),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(i.Name)), rtnl.SkipStatistics())
}

// index returns the interface's index, from the answer to find.
func (i *Interface) index(answer []byte) (int, error) {
	if len(answer) < unix.SizeofIfInfomsg {
		return 0, fmt.Errorf("interface %s: an answer of %d bytes", i.Name, len(answer))
	}
	return int(nl.DeserializeIfInfomsg(answer).Index), nil
}

// setUp returns the message that sets an interface up.
func setUp(index int) *nl.IfInfomsg {
	m := nl.NewIfInfomsg(unix.AF_UNSPEC)
	m.Index, m.Flags, m.Change = int32(index), unix.IFF_UP, unix.IFF_UP
	return m
}

// configure sets the interface up. An address that it has already is an error with
// NLM_F_EXCL, and none with NLM_F_REPLACE.
func (i *Interface) configure(b *rtnl.Batch, index, twice int) {
	// Up comes first. An interface that goes up with IPv6 addresses has the kernel
	// make their routes under a spin lock, for which per-CPU memory can run out
	// while hundreds of nodes start; it then drops the address without a word to us
	// (net/ipv6/addrconf.c, fixup_permanent_addr). And taking it down clears its
	// neighbours.
	link := []nl.NetlinkRequestData{setUp(index), nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(i.MTU)))}
	if i.Wire || !superPacketsCross() {
		link = append(link, nl.NewRtAttr(unix.IFLA_GSO_MAX_SEGS, nl.Uint32Attr(1))) // segmentation offload is off
	}
	b.Add(fmt.Sprintf("interface %s: up, MTU %d", i.Name, i.MTU), unix.RTM_NEWLINK, 0, link...)
	for _, prefix := range i.Addresses {
		b.Add(fmt.Sprintf("interface %s: address %s", i.Name, prefix), unix.RTM_NEWADDR, unix.NLM_F_CREATE|twice, address(index, prefix)...)
	}
}

// addNeighbours enters the interface's neighbours.
func (i *Interface) addNeighbours(b *rtnl.Batch, index int) {
	for _, n := range i.Neighbours {
		if i.has(n.Addr) {
			continue
		}
		b.Add(fmt.Sprintf("interface %s: neighbour %s at %s", i.Name, n.Addr, n.MAC), unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE,
			&netlink.Ndmsg{Family: family(n.Addr), Index: uint32(index), State: netlink.NUD_PERMANENT},
			nl.NewRtAttr(netlink.NDA_DST, n.Addr.AsSlice()), nl.NewRtAttr(netlink.NDA_LLADDR, n.MAC))
	}
}

// has reports whether an address is the interface's own.
func (i *Interface) has(a netip.Addr) bool {
	return slices.ContainsFunc(i.Addresses, func(own netip.Prefix) bool { return own.Addr() == a })
}

// entersLate reports whether the node's neighbours are entered when it gets its process, and not before. An entry takes the kernel
// some 600 bytes, and a third of the time in which 10,000 nodes come up goes into those of a hundred on each segment. An idle
// host's kernel asks for the MAC addresses of those whom it answers by itself, such as who pings it. A router's has to know them.
func (cfg *Config) entersLate() bool { return cfg.Idle && !cfg.Forwards }

// enterNeighbours enters the neighbours of a node that has just got its process, unless they are there.
func (a *Agent) enterNeighbours() error {
	a.mu.Lock()
	cfg := a.configured
	a.mu.Unlock()
	if !cfg.entersLate() {
		return nil
	}
	var failed error
	inside := a.inNetwork(func() { failed = cfg.enterNeighbours() })
	return errors.Join(inside, failed)
}

// enterNeighbours enters the neighbours in the network of the thread's namespace. An interface that is not there is about to leave the node.
func (cfg *Config) enterNeighbours() error {
	s, err := rtnl.Open()
	if err != nil {
		return err
	}
	defer s.Close()
	for k := range cfg.Interfaces {
		i := &cfg.Interfaces[k]
		if len(i.Neighbours) == 0 {
			continue
		}
		var found, entries rtnl.Batch
		i.find(&found)
		answers, err := s.Do(&found)
		if errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return err
		}
		index, err := i.index(answers[0])
		if err != nil {
			return err
		}
		i.addNeighbours(&entries, index)
		if _, err := s.Do(&entries); err != nil && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	return nil
}

// address returns the message that gives an interface an address.
func address(index int, prefix netip.Prefix) []nl.NetlinkRequestData {
	a := prefix.Addr()
	m := nl.NewIfAddrmsg(int(family(a)))
	m.Index, m.Prefixlen = uint32(index), uint8(prefix.Bits())
	data := []nl.NetlinkRequestData{m, nl.NewRtAttr(unix.IFA_LOCAL, a.AsSlice()), nl.NewRtAttr(unix.IFA_ADDRESS, a.AsSlice())}
	switch {
	case a.Is6():
		m.IfAddrmsg.Flags = unix.IFA_F_NODAD // usable as soon as awaitLocal says, whatever disableDiscovery could do
	case prefix.Bits() < 31: // smaller subnets have no broadcast (RFC 3021)
		all := a.As4()
		binary.BigEndian.PutUint32(all[:], binary.BigEndian.Uint32(all[:])|(1<<(32-prefix.Bits())-1))
		data = append(data, nl.NewRtAttr(unix.IFA_BROADCAST, net.IP(all[:])))
	}
	return data
}

// localTime bounds the time that the kernel takes to see to IPv6 addresses, and
// localPoll is the interval at which it is asked.
const (
	localPoll = time.Millisecond
	localTime = 5 * time.Second
)

// awaitLocal waits until the kernel takes the IPv6 addresses of the interfaces, of these
// indices, for the node's own. A kernel thread makes the routes that say so, also without
// duplicate address detection (addrconf_dad_start in net/ipv6/addrconf.c). Until then the
// node does not receive what comes for such an address.
func (cfg *Config) awaitLocal(ctx context.Context, s *rtnl.Socket, indices []int) error {
	var b rtnl.Batch
	for k, i := range cfg.Interfaces {
		for _, prefix := range i.Addresses {
			if a := prefix.Addr(); a.Is6() {
				b.Add(fmt.Sprintf("interface %s: address %s: route", i.Name, prefix), unix.RTM_GETROUTE, 0,
					&nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET6, Dst_len: 128}},
					nl.NewRtAttr(unix.RTA_DST, a.AsSlice()), nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(indices[k]))))
			}
		}
	}
	if b.Len() == 0 {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, localTime)
	defer cancel()
	for {
		over := waiting.Err() // before it looks, as this process may have slept
		answers, err := s.Do(&b)
		if err == nil && !slices.ContainsFunc(answers, isForeign) {
			return nil
		}
		if over != nil {
			return errors.Join(fmt.Errorf("IPv6 addresses have no local routes yet: %w", over), err)
		}
		select {
		case <-waiting.Done():
		case <-time.After(localPoll):
		}
	}
}

// isForeign reports whether an answer is anything but a route to this node.
func isForeign(route []byte) bool {
	return len(route) < unix.SizeofRtMsg || nl.DeserializeRtMsg(route).Type != unix.RTN_LOCAL
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// superPacketsCross reports whether packet sockets, by which the link engine and
// captures see an interface, can pass UDP super-packets. Before Linux 6.2 the
// header that tells of them had no word for UDP (VIRTIO_NET_HDR_GSO_UDP_L4), and
// the kernel dropped them at the socket. There the interfaces of nodes have the
// kernel split what an adapter sends, as it leaves: slower, but it arrives.
func superPacketsCross() bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return false
	}
	return atLeast(unix.ByteSliceToString(u.Release[:]), 6, 2)
}

// atLeast reports whether a kernel release, such as 6.1.0-56-amd64, is of that
// version or a later one; not if it cannot be read.
func atLeast(release string, major, minor int) bool {
	var x, y int
	if n, err := fmt.Sscanf(release, "%d.%d", &x, &y); n != 2 || err != nil {
		return false
	}
	return x > major || x == major && y >= minor
}
