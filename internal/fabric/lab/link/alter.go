package link

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// This file changes links and bridges that are there.

// SetMTU changes the MTU, in bytes of IP packet, of a link's middles and of its ports
// at bridges, which have the same as soon as all of their ports have. The nodes change
// their interfaces themselves.
func (n *Network) SetMTU(link, mtu int, ends [2]End) error {
	for end, e := range ends {
		if err := n.handle.LinkSetMTU(middle(link, end), mtu); err != nil && !errors.Is(err, unix.ENODEV) { // of a node that is down
			return fmt.Errorf("%s: MTU %d: %w", Middle(link, end), mtu, err)
		}
		if e.Bridge == nil {
			continue
		}
		port := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Index: portIndex(link, end), Name: Port(link, end)}}
		if err := n.handle.LinkSetMTU(port, mtu); err != nil {
			return fmt.Errorf("%s: MTU %d: %w", port.Name, mtu, err)
		}
	}
	return nil
}

// RemoveBridge deletes a bridge, at which no links end any more.
func (n *Network) RemoveBridge(b *Bridge) error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Index: b.index(), Name: b.name()}}
	if err := n.handle.LinkDel(bridge); err != nil {
		return fmt.Errorf("delete bridge %s: %w", b.name(), err)
	}
	return nil
}
