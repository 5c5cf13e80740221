package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// This file is about multicast groups. The sockets of a local address receive nothing that is sent to a group
// (__udp_is_mcast_sock in net/ipv4/udp.c), so that a group has a socket of its own, in each process that
// joins it: the kernel gives each a copy.

// Join has the Receiver be given what is sent to a multicast group, at the interfaces that have addresses of its
// family, until Leave. The group is the local address of its packets' flows. Join is called after Listen, in the
// network namespace that Open was called in, and for a group that is not joined.
//
// A carrier that has joined a group also receives its own packets to that group.
func (c *Carrier) Join(group netip.Addr) error {
	c.sharing.Lock()
	defer c.sharing.Unlock()
	if c.groups == nil {
		return net.ErrClosed
	}
	fd, err := c.openMulticast(group)
	if err != nil {
		return fmt.Errorf("udp carrier: join %v: %w", group, err)
	}
	l, err := newListener(group, "", fd, &c.config, &c.counters)
	if err != nil {
		return fmt.Errorf("udp carrier: join %v: %w", group, err)
	}
	c.groups[group] = l
	go l.receive(c.receiver)
	return nil
}

// Leave ends what Join began, and returns when no call of the Receiver runs any more with what was sent to the group.
func (c *Carrier) Leave(group netip.Addr) {
	c.sharing.Lock()
	l := c.groups[group]
	delete(c.groups, group)
	c.sharing.Unlock()
	if l != nil {
		_ = l.close() // of a socket that receives it says nothing
	}
}

// openMulticast opens a socket that receives what is sent to a group.
func (c *Carrier) openMulticast(group netip.Addr) (_ int, err error) {
	fd, err := newSocket(group)
	if err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	for _, o := range []struct{ level, option int }{
		{unix.SOL_SOCKET, unix.SO_REUSEADDR}, // other processes may be members
		{unix.SOL_UDP, unix.UDP_GRO},
		{unix.SOL_UDP, unix.UDP_NO_CHECK6_RX}, // as openReceiver
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.option, 1); err != nil && o.option != unix.UDP_NO_CHECK6_RX {
			return -1, os.NewSyscallError("setsockopt", err)
		}
	}
	if err := setBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, c.config.ReceiveBuffer); err != nil {
		return -1, err
	}
	if err := bindSocket(fd, group, roce.Port); err != nil {
		return -1, err
	}
	for _, l := range c.listeners {
		if l.local.Is4() != group.Is4() {
			continue
		}
		// An interface may have several addresses.
		if err := addMembership(fd, group, l); err != nil && err != unix.EADDRINUSE {
			return -1, os.NewSyscallError("setsockopt add membership", err)
		}
	}
	return fd, nil
}

// addMembership makes the interface with a local address a member of a group.
func addMembership(fd int, group netip.Addr, at *listener) error {
	if group.Is4() {
		return unix.SetsockoptIPMreq(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreq{Multiaddr: group.As4(), Interface: at.local.As4()})
	}
	i, err := net.InterfaceByName(at.device)
	if err != nil {
		return err
	}
	return unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(i.Index)})
}
