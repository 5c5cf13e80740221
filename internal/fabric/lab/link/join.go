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
var ErrNoRedirect error = control.Errorf(control.Unable, "this kernel lacks tc redirection (NET_SCH_INGRESS, NET_SCH_FIFO, NET_ACT_MIRRED, and NET_CLS_U32 or NET_CLS_FLOWER)")

// addQdiscs asks for the queue disciplines of a new middle: the ingress one that Join hangs
// its filters on, and a root one that is there for its counters (see Counters).
// They stay for good, because adding or deleting one while the interface is up
// stops its transmission for a moment (net/sched/sch_api.c, qdisc_graft).
//
// The ingress ones of some links share a block of filters (block).
func addQdiscs(b *rtnl.Batch, link, end int) {
	add := func(kind string, parent, handle uint32, more ...nl.NetlinkRequestData) {
		b.Add(Middle(link, end)+": "+kind, unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, append([]nl.NetlinkRequestData{
			&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(MiddleIndex(link, end)), Parent: parent, Handle: handle},
			nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)),
		}, more...)...)
	}
	add("pfifo", netlink.HANDLE_ROOT, netlink.MakeHandle(1, 0))
	add("ingress", netlink.HANDLE_INGRESS, netlink.MakeHandle(0xffff, 0), nl.NewRtAttr(nl.TCA_INGRESS_BLOCK, nl.Uint32Attr(block(link))))
}

// sharing is the number of links that share a block of filters, each of which has one for either end. For each new
// block the kernel searches a list of all blocks on the machine, with the lock held that all changes of interfaces
// need (net/core/flow_offload.c, indir_dev_add), and finds one that is shared near its head. A packet is compared
// with up to 2*sharing interfaces.
const sharing = 4

// block is the number of a link's block of filters: not 0, which would be none.
func block(link int) uint32 { return uint32(link/sharing) + 1 }

// noRedirect is an error of what addEnd asks for, which is ErrNoRedirect if a queue discipline cannot be
// had.
func noRedirect(err error) error {
	failed := (*rtnl.Error)(nil)
	if errors.As(err, &failed) && failed.Request%perEnd != 0 {
		return fmt.Errorf("%w: %w", ErrNoRedirect, err)
	}
	return err
}

// A classifier is a kind of filter that can match all packets of one interface.
type classifier struct {
	kind     string
	inside   int    // the attribute that names the interface
	action   int    // the attribute of what is done with the packets
	selector []byte // u32's, without which it matches nothing: of no key, since one asks for 4 bytes behind the Ethernet header
}

// classifiers are tried in this order. u32 comes first because stripped-down
// kernels have it too, and asking for one that is missing makes the kernel run
// modprobe.
var classifiers = []classifier{
	{"u32", nl.TCA_U32_INDEV, nl.TCA_U32_ACT, (&nl.TcU32Sel{Flags: nl.TC_U32_TERMINAL}).Serialize()},
	{"flower", nl.TCA_FLOWER_INDEV, nl.TCA_FLOWER_ACT, nil},
}

// add asks for the filter that hands what enters the middle at end to the other one.
func (c classifier) add(b *rtnl.Batch, link, end int) error {
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	if c.selector != nil {
		options.AddRtAttr(nl.TCA_U32_SEL, c.selector)
	}
	options.AddRtAttr(c.inside, nl.ZeroTerminated(Middle(link, end)))
	actions := []netlink.Action{netlink.NewMirredAction(MiddleIndex(link, 1-end))}
	if err := netlink.EncodeActions(options.AddRtAttr(c.action, nil), actions); err != nil {
		return err
	}
	c.addRequest(b, "join", unix.RTM_NEWTFILTER, unix.NLM_F_CREATE, link, end, options)
	return nil
}

// addRequest adds a request about the filter of one end, in a link's block (linux/rtnetlink.h, TCM_IFINDEX_MAGIC_BLOCK).
func (c classifier) addRequest(b *rtnl.Batch, what string, kind, flags, link, end int, more ...nl.NetlinkRequestData) {
	const firstHandle = 0x80000001 // of u32's own table, which 0x800 stands for
	b.Add(what+" "+Middle(link, end), kind, flags, append([]nl.NetlinkRequestData{
		&nl.TcMsg{
			Family: nl.FAMILY_ALL, Ifindex: -1, Parent: block(link),
			Handle: firstHandle + uint32(2*(link%sharing)+end), Info: netlink.MakeHandle(1, nl.Swap16(unix.ETH_P_ALL)),
		},
		nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(c.kind)),
	}, more...)...)
}

// Join makes the kernel hand what enters either middle of a link to the other
// one: a tc filter at the ingress of each redirects to the egress of the other.
// Super-packets pass whole. It takes effect at once in each direction, and is
// cheaper some milliseconds after Make, when the kernel need not wait for an
// RCU grace period.
func (n *Network) Join(link int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.classifier != nil {
		return n.joinBy(*n.classifier, link)
	}
	var failures error
	for _, c := range classifiers {
		err := n.joinBy(c, link)
		if err == nil {
			n.classifier = &c
			return nil
		}
		failures = errors.Join(failures, fmt.Errorf("%s: %w", c.kind, err))
	}
	return fmt.Errorf("%w: %w", ErrNoRedirect, failures)
}

func (n *Network) joinBy(c classifier, link int) error {
	var b rtnl.Batch
	for end := range 2 {
		if err := c.add(&b, link, end); err != nil {
			return fmt.Errorf("join %s: %w", Middle(link, end), err)
		}
	}
	_, err := n.do(&b)
	return err
}

// Part ends what Join began, at once in each direction; a middle that has vanished
// is no error. Packet sockets see what enters a middle from then on. The kernel
// itself drops it, since it is addressed to another host and a middle has neither
// addresses nor IPv6 nor ARP.
func (n *Network) Part(link int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for end := range 2 {
		var b rtnl.Batch
		n.classifier.addRequest(&b, "part", unix.RTM_DELTFILTER, 0, link, end)
		_, err := n.do(&b)
		// A block goes with the last of its middles. There is none then, or another one.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}
