package link

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrNoRedirect means that this kernel cannot join the middles of a plain link.
var ErrNoRedirect = errors.New("this kernel lacks tc redirection (NET_SCH_INGRESS, NET_SCH_FIFO, NET_ACT_MIRRED, and NET_CLS_U32 or NET_CLS_MATCHALL)")

// addQdiscs gives a new middle the ingress queue discipline that Join hangs its
// filter on, and a root one that is there for its counters (see Counters).
// They stay for good, because adding or deleting one while the interface is up
// stops its transmission for a moment (net/sched/sch_api.c, qdisc_graft).
func (n *Network) addQdiscs(link, end int) error {
	attrs := netlink.QdiscAttrs{LinkIndex: MiddleIndex(link, end), Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)}
	if err := n.handle.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "pfifo"}); err != nil {
		return fmt.Errorf("%w: pfifo: %w", ErrNoRedirect, err)
	}
	attrs.Parent, attrs.Handle = netlink.HANDLE_INGRESS, ingressHandle
	if err := n.handle.QdiscAdd(&netlink.Ingress{QdiscAttrs: attrs}); err != nil {
		return fmt.Errorf("%w: ingress: %w", ErrNoRedirect, err)
	}
	return nil
}

var ingressHandle = netlink.MakeHandle(0xffff, 0)

// A classifier makes a filter that matches every packet.
type classifier func(netlink.FilterAttrs, []netlink.Action) netlink.Filter

// classifiers are tried in this order. u32 comes first because stripped-down
// kernels have it too, and asking for one that is missing makes the kernel run
// modprobe.
var classifiers = []classifier{
	func(attrs netlink.FilterAttrs, actions []netlink.Action) netlink.Filter {
		return &netlink.U32{FilterAttrs: attrs, Actions: actions} // no selector: all packets
	},
	func(attrs netlink.FilterAttrs, actions []netlink.Action) netlink.Filter {
		return &netlink.MatchAll{FilterAttrs: attrs, Actions: actions}
	},
}

// Join makes the kernel hand what enters either middle of a link to the other
// one: a tc filter at the ingress of each redirects to the egress of the other.
// Super-packets pass whole. It takes effect at once in each direction, and is
// cheaper some milliseconds after Make, when the kernel need not wait for an
// RCU grace period.
func (n *Network) Join(link int) error {
	for end := range 2 {
		actions := []netlink.Action{netlink.NewMirredAction(MiddleIndex(link, 1-end))}
		if err := n.addFilter(filterAttrs(link, end), actions); err != nil {
			return fmt.Errorf("join %s: %w", Middle(link, end), err)
		}
	}
	return nil
}

// addFilter uses the classifier that worked before, or finds one that does.
func (n *Network) addFilter(attrs netlink.FilterAttrs, actions []netlink.Action) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.classifier != nil {
		return n.handle.FilterAdd(n.classifier(attrs, actions))
	}
	var failures error
	for _, c := range classifiers {
		filter := c(attrs, actions)
		err := n.handle.FilterAdd(filter)
		if err == nil {
			n.classifier = c
			return nil
		}
		failures = errors.Join(failures, fmt.Errorf("%s: %w", filter.Type(), err))
	}
	return fmt.Errorf("%w: %w", ErrNoRedirect, failures)
}

// Part ends what Join began, at once in each direction; a middle that has vanished
// is no error. What then enters a
// middle is left to packet sockets; the kernel itself drops it, since it is
// addressed to another host and a middle has neither addresses nor IPv6 nor ARP.
func (n *Network) Part(link int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for end := range 2 {
		err := n.handle.FilterDel(n.classifier(filterAttrs(link, end), nil))
		if err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("part %s: %w", Middle(link, end), err)
		}
	}
	return nil
}

func filterAttrs(link, end int) netlink.FilterAttrs {
	return netlink.FilterAttrs{LinkIndex: MiddleIndex(link, end), Parent: ingressHandle, Priority: 1, Protocol: unix.ETH_P_ALL}
}
