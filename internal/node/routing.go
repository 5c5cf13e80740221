package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
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
	}
	if cfg.Forwards || several || cfg.Reroutes && len(cfg.Routes) > 0 {
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

// SetRoutes has the routes of a node that is up be others. It is called by one at a time,
// after Up.
func (a *Agent) SetRoutes(routes []topology.Route) error {
	a.mu.Lock()
	before := a.configured
	a.mu.Unlock()
	to := *before
	to.Routes = routes
	var failed error
	inside := a.inNetwork(func() { failed = to.replaceRoutes(before) })
	if err := errors.Join(inside, failed); err != nil {
		return fmt.Errorf("node %s: %w", to.Name, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.configured = &to
	return nil
}

// replaceRoutes makes the routes in the thread's namespace those of cfg, where they are what
// before says. Each is replaced in one step, and what has no route by then loses its old
// one last: packets to where there is a route before and afterwards always find one.
func (cfg *Config) replaceRoutes(before *Config) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	for _, s := range cfg.routing() {
		if err := s.apply(); err != nil {
			return err
		}
	}
	was := make(map[netip.Prefix][]netip.Addr)
	for _, r := range before.Routes {
		was[r.To] = r.Via
	}
	others := *cfg
	others.Routes = slices.DeleteFunc(slices.Clone(cfg.Routes), func(r topology.Route) bool { return slices.Equal(was[r.To], r.Via) })
	if err := others.putRoutes(h, h.RouteReplace); err != nil {
		return err
	}
	return cfg.deleteRoutes(h, before)
}

// deleteRoutes deletes the routes that the node had before and is not to have any more.
func (cfg *Config) deleteRoutes(h *netlink.Handle, before *Config) error {
	stays := make(map[netip.Prefix]bool)
	for _, r := range cfg.Routes {
		stays[r.To] = true
	}
	for _, r := range before.Routes {
		if stays[r.To] {
			continue
		}
		err := h.RouteDel(&netlink.Route{Dst: ipNet(r.To), Protocol: unix.RTPROT_STATIC})
		if err != nil && !errors.Is(err, unix.ESRCH) { // the kernel has, with the interface
			return fmt.Errorf("route to %s: delete: %w", r.To, err)
		}
	}
	return nil
}

// behindOwn is the metric of a route to a subnet that an interface of the node is in, and
// whose link is down: the kernel's own route is taken first, whose metric is less.
const behindOwn = 1024

// putRoutes makes the routes of a node whose interfaces are up, each by put.
func (cfg *Config) putRoutes(h *netlink.Handle, put func(*netlink.Route) error) error {
	indices := make(map[string]int) // of interfaces, by name
	for _, r := range cfg.Routes {
		route := &netlink.Route{
			Dst:      ipNet(r.To),
			Protocol: unix.RTPROT_STATIC,
		}
		if cfg.isIn(r.To) {
			route.Priority = behindOwn
		}
		for _, via := range r.Via {
			name := cfg.toward(via)
			if name == "" {
				return fmt.Errorf("route to %s: next hop %s is in no interface's subnet", r.To, via)
			}
			if _, known := indices[name]; !known {
				link, err := h.LinkByName(name)
				if err != nil {
					return fmt.Errorf("route to %s: interface %s: %w", r.To, name, err)
				}
				indices[name] = link.Attrs().Index
			}
			route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{LinkIndex: indices[name], Gw: via.AsSlice()})
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

// toward returns the name of the interface in one of whose subnets an address is; "" if
// there is none.
func (cfg *Config) toward(via netip.Addr) string {
	for _, i := range cfg.Interfaces {
		if slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Contains(via) }) {
			return i.Name
		}
	}
	return ""
}

// isIn reports whether an interface of the node is in a subnet.
func (cfg *Config) isIn(subnet netip.Prefix) bool {
	return slices.ContainsFunc(cfg.Interfaces, func(i Interface) bool {
		return slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Masked() == subnet })
	})
}
