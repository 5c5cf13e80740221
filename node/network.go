package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// configure sets up the loopback interface and the node's, which exist, in the
// process's network namespace, and its routes.
func (cfg *Config) configure() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err == nil {
		err = h.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("interface lo: %w", err)
	}
	for _, s := range cfg.routing() {
		if err := s.apply(); err != nil {
			return err
		}
	}
	for _, i := range cfg.Interfaces {
		if err := i.configure(h); err != nil {
			return fmt.Errorf("interface %s: %w", i.Name, err)
		}
	}
	return cfg.addRoutes(h)
}

func (i *Interface) configure(h *netlink.Handle) error {
	link, err := h.LinkByName(i.Name)
	if err != nil {
		return err
	}
	if link.Attrs().MTU != i.MTU {
		if err := h.LinkSetMTU(link, i.MTU); err != nil {
			return fmt.Errorf("MTU %d: %w", i.MTU, err)
		}
	}
	if i.Wire || !superPacketsCross() {
		if err := h.LinkSetGSOMaxSegs(link, 1); err != nil {
			return fmt.Errorf("turn segmentation offload off: %w", err)
		}
	}
	if err := i.quieten(); err != nil {
		return err
	}
	// Up comes first. An interface that goes up with IPv6 addresses has the kernel
	// make their routes under a spin lock, for which per-CPU memory can run out
	// while hundreds of nodes start; it then drops the address without a word to us
	// (net/ipv6/addrconf.c, fixup_permanent_addr). And taking it down clears its
	// neighbours.
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	for _, prefix := range i.Addresses {
		bits := prefix.Addr().BitLen()
		addr := &netlink.Addr{IPNet: &net.IPNet{
			IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), bits)}}
		if prefix.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD // usable at once, whatever quieten could do
		}
		if err := h.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("address %s: %w", prefix, err)
		}
	}
	for _, n := range i.Neighbours {
		if err := h.NeighSet(&netlink.Neigh{
			LinkIndex:    link.Attrs().Index,
			State:        netlink.NUD_PERMANENT,
			IP:           n.Addr.AsSlice(),
			HardwareAddr: n.MAC,
		}); err != nil {
			return fmt.Errorf("neighbour %s at %s: %w", n.Addr, n.MAC, err)
		}
	}
	return nil
}

// quieten keeps the kernel from sending what no lab needs: duplicate address
// detection for the link-local address and router solicitations. Both are only
// noise on the link, so a kernel without IPv6 and a read-only /proc/sys, as
// containers have it, are no errors.
func (i *Interface) quieten() error {
	for _, setting := range []string{"accept_dad", "accept_ra"} {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/"+i.Name+"/"+setting, []byte("0"), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EROFS) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}
