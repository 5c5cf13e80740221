package link

import (
	"errors"
	"fmt"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node/rtnl"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ErrNoRedirect means that this kernel cannot join the middles of a plain link.
var ErrNoRedirect error = control.Errorf(control.Unable, "this kernel lacks tc redirection (NET_SCH_INGRESS, NET_SCH_FIFO, NET_ACT_MIRRED, and NET_CLS_U32 or NET_CLS_MATCHALL)")

// addQdiscs asks for the queue disciplines of a new middle: the ingress one that Join hangs
// its filter on, and a root one that is there for its counters (see Counters).
// They stay for good, because adding or deleting one while the interface is up
// stops its transmission for a moment (net/sched/sch_api.c, qdisc_graft).
func addQdiscs(b *rtnl.Batch, link, end int) {
	for _, q := range []struct {
		kind           string
		parent, handle uint32
	}{{"pfifo", netlink.HANDLE_ROOT, netlink.MakeHandle(1, 0)}, {"ingress", netlink.HANDLE_INGRESS, ingressHandle}} {
		b.Add(Middle(link, end)+": "+q.kind, unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL,
			&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(MiddleIndex(link, end)), Parent: q.parent, Handle: q.handle},
			nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(q.kind)))
	}
}

// noRedirect is an error of what addEnd asks for, which is ErrNoRedirect if a queue discipline cannot be
// had.
func noRedirect(err error) error {
	failed := (*rtnl.Error)(nil)
	if errors.As(err, &failed) && failed.Request%perEnd != 0 {
		return fmt.Errorf("%w: %w", ErrNoRedirect, err)
	}
	return err
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
// is no error. Packet sockets see what enters a middle from then on. The kernel
// itself drops it, since it is addressed to another host and a middle has neither
// addresses nor IPv6 nor ARP.
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
