package chaos

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
)

// host returns the state of the host that a lab must not change: one line for each thing.
func host(t testing.TB) []string {
	t.Helper()
	var all []string
	add := func(kind string, what any) { all = append(all, fmt.Sprintf("%s %v", kind, what)) }
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	links, err := netlink.LinkList()
	check(err)
	for _, l := range links {
		a := l.Attrs()
		add("interface", fmt.Sprintf("%d %s %s %s mtu %d master %d qdisc %s %s", a.Index, a.Name, l.Type(), a.HardwareAddr, a.MTU, a.MasterIndex, qdiscs(l), a.Flags))
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	check(err)
	for _, a := range addresses {
		add("address", fmt.Sprintf("%d %s", a.LinkIndex, a.IPNet))
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{}, 0)
	check(err)
	for _, r := range routes {
		add("route", r)
	}
	rules, err := netlink.RuleList(netlink.FAMILY_ALL)
	check(err)
	for _, r := range rules {
		add("rule", r)
	}
	for _, file := range []string{"/proc/1/mounts", "/etc/hosts", "/proc/sys/kernel/hostname", "/proc/sysvipc/shm", "/proc/sysvipc/msg", "/proc/sysvipc/sem"} {
		data, err := os.ReadFile(file)
		if os.IsPermission(err) { // another user's
			data, err = os.ReadFile("/proc/thread-self/mounts")
		}
		check(err)
		add(file, string(data))
	}
	return append(all, settings()...)
}

// qdiscs are the queueing disciplines of an interface.
func qdiscs(l netlink.Link) string {
	all, err := netlink.QdiscList(l)
	if err != nil {
		return err.Error()
	}
	text := ""
	for _, q := range all {
		text += q.Type() + " "
	}
	return text
}

// settings are those of the network that are files.
func settings() []string {
	var all []string
	// A file that cannot be read, or is gone, is no setting.
	_ = filepath.WalkDir("/proc/sys/net", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "nf_conntrack_count" {
			return nil
		}
		if data, err := os.ReadFile(path); err == nil {
			all = append(all, path+" "+string(data))
		}
		return nil
	})
	return all
}
