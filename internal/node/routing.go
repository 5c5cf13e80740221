package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
)

// A setting is a file below /proc/sys/net and what to write to it.
type setting struct{ file, value string }

// routing returns the settings for packets that cross routers, on their way through the node
// or from it. A node without routers keeps the kernel's settings.
func (cfg *Config) routing() []setting {
	var list []setting
	set := func(file, value string) { list = append(list, setting{file, value}) }
	several := false // equally near paths to one subnet
	for _, r := range cfg.Routes {
		several = several || len(r.Via) > 1
	}
	if cfg.Forwards {
		// First, because it resets others (Documentation/networking/ip-sysctl.rst).
		set("ipv4/ip_forward", "1")
		set("ipv6/conf/all/forwarding", "1")
	}
	if cfg.Forwards || len(cfg.Routes) > 0 {
		// Packets may come by one of equal paths and leave by another.
		cfg.each(set, "ipv4", "rp_filter", "0")
		// The topology alone says where to send packets.
		cfg.each(set, "ipv4", "accept_redirects", "0")
		cfg.each(set, "ipv4", "send_redirects", "0")
		cfg.each(set, "ipv6", "accept_redirects", "0")
	}
	if cfg.Forwards || several {
		// Ports count, so that the queue pairs between two hosts take different paths. The
		// hash of each node has a seed of its own: routers one behind the other that all
		// chose alike would leave half of the paths behind them unused. Seeds came with
		// Linux 6.11.
		set("ipv4/fib_multipath_hash_seed", strconv.FormatUint(uint64(max(1, uint32(cfg.Seed))), 10)) // 0 is a random one
		set("ipv4/fib_multipath_hash_policy", "1")
		set("ipv6/fib_multipath_hash_policy", "1")
		// A path whose first link has no carrier is not taken.
		cfg.each(set, "ipv4", "ignore_routes_with_linkdown", "1")
		cfg.each(set, "ipv6", "ignore_routes_with_linkdown", "1")
	}
	return list
}

// each makes a setting for all interfaces and for each one: some the kernel takes
// from the one, some from the other, and most from both.
func (cfg *Config) each(set func(file, value string), family, name, value string) {
	set(family+"/conf/all/"+name, value)
	for _, i := range cfg.Interfaces {
		set(family+"/conf/"+i.Name+"/"+name, value)
	}
}

// apply has the kernel take the setting, if it knows it: it may have no IPv6.
func (s setting) apply() error {
	err := os.WriteFile("/proc/sys/net/"+s.file, []byte(s.value), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return control.Errorf(control.Unable, "set up routing: %v", err)
	}
	return nil
}

// putRoutes makes the routes of a node whose interfaces are up, each by put.
func (cfg *Config) putRoutes(h *netlink.Handle, put func(*netlink.Route) error) error {
	for _, r := range cfg.Routes {
		route := &netlink.Route{
			Dst:      ipNet(r.To),
			Protocol: unix.RTPROT_STATIC,
		}
		for _, via := range r.Via {
			index, err := cfg.toward(h, via)
			if err != nil {
				return fmt.Errorf("route to %s: %w", r.To, err)
			}
			route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{LinkIndex: index, Gw: via.AsSlice()})
		}
		if len(route.MultiPath) == 1 {
			route.LinkIndex, route.Gw, route.MultiPath = route.MultiPath[0].LinkIndex, route.MultiPath[0].Gw, nil
		}
		if err := put(route); err != nil {
			if len(r.Via) > 1 && errors.Is(err, unix.EINVAL) {
				return control.Errorf(control.Unable, "route to %s by %d ways: %v: this kernel may lack CONFIG_IP_ROUTE_MULTIPATH", r.To, len(r.Via), err)
			}
			return fmt.Errorf("route to %s: %w", r.To, err)
		}
	}
	return nil
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}

// toward returns the index of the interface in one of whose subnets an address is.
func (cfg *Config) toward(h *netlink.Handle, via netip.Addr) (int, error) {
	for _, i := range cfg.Interfaces {
		for _, prefix := range i.Addresses {
			if prefix.Contains(via) {
				link, err := h.LinkByName(i.Name)
				if err != nil {
					return 0, fmt.Errorf("interface %s: %w", i.Name, err)
				}
				return link.Attrs().Index, nil
			}
		}
	}
	return 0, fmt.Errorf("next hop %s is in no interface's subnet", via)
}
