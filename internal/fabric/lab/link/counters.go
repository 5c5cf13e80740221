package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/ndklab/ndklab/internal/node/rtnl"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Counters has the kernel's counts of one direction of a link: of packets that it
// carried itself while the middles were joined, and of those that others sent from
// a middle, unless they went around its queue.
type Counters struct {
	Packets uint64 // wire packets that entered the link
	Bytes   uint64 // of those, from the Ethernet header on
	// Lost are packets that were dropped on the way: the other middle was down
	// or the receiver's backlog full. A lost super-packet counts as one.
	Lost uint64
	// Queue are those, of Lost, that the queue discipline of the other middle
	// dropped.
	Queue uint64
}

// Sub returns what was counted since earlier: nothing if that was read later.
func (c Counters) Sub(earlier Counters) Counters {
	return Counters{
		Packets: c.Packets - min(c.Packets, earlier.Packets),
		Bytes:   c.Bytes - min(c.Bytes, earlier.Bytes),
		Lost:    c.Lost - min(c.Lost, earlier.Lost),
		Queue:   c.Queue - min(c.Queue, earlier.Queue),
	}
}

// Latest returns the later reading of two: counters only grow, until their interface
// vanishes and nothing is read of it any more.
func (c Counters) Latest(other Counters) Counters {
	return Counters{
		Packets: max(c.Packets, other.Packets), Bytes: max(c.Bytes, other.Bytes), Lost: max(c.Lost, other.Lost), Queue: max(c.Queue, other.Queue),
	}
}

// Add is both together.
func (c Counters) Add(other Counters) Counters {
	return Counters{Packets: c.Packets + other.Packets, Bytes: c.Bytes + other.Bytes, Lost: c.Lost + other.Lost, Queue: c.Queue + other.Queue}
}

// qdiscStats has the counts of a queue discipline. Packets are wire packets: the
// kernel adds the number of segments of a super-packet (net/sched/sch_generic.h,
// _bstats_update).
type qdiscStats struct {
	packets, bytes, drops uint64
	sized                 bool // bytes come from a table of sizes (package netem), and all packets are wire packets
}

// Counters reads the counters of every link, by its number; [0] is the direction from end 0 to end 1.
//
// Interface statistics count a super-packet as one packet and its headers once,
// and so does the ingress queue discipline with headers. Only on the way out
// does the kernel work out the bytes on a wire (net/core/dev.c,
// qdisc_pkt_len_init): hence the pfifo on every middle.
func (n *Network) Counters() (map[int][2]Counters, error) {
	qdiscs, err := n.readQdiscs()
	if err != nil {
		return nil, fmt.Errorf("read queue disciplines: %w", err)
	}
	sent, err := n.readSent()
	if err != nil {
		return nil, fmt.Errorf("read interfaces: %w", err)
	}
	totals := make(map[int][2]Counters)
	for index, s := range sent {
		// This middle transmits what entered at the other one.
		link, end := numbers(index)
		both := totals[link]
		both[1-end] = counted(link, end, s, qdiscs)
		totals[link] = both
	}
	return totals, nil
}

// CountersOf is Counters of one link: what it costs does not depend on how many others
// there are. Nothing is counted of what has vanished.
func (n *Network) CountersOf(link int) (both [2]Counters, err error) {
	var b rtnl.Batch
	for end := range 2 {
		msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
		msg.Index = int32(MiddleIndex(link, end))
		b.Add("read "+Middle(link, end), unix.RTM_GETLINK, 0, msg)
		for _, parent := range []uint32{netlink.HANDLE_ROOT, netlink.HANDLE_INGRESS} {
			// Without the flag only those hear the answer who listen to all changes
			// (net/sched/sch_api.c, qdisc_get_notify).
			b.Add("read the queue disciplines of "+Middle(link, end), unix.RTM_GETQDISC, unix.NLM_F_ECHO, &nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: msg.Index, Parent: parent})
		}
	}
	answers, err := n.do(&b)
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return both, err
	}
	qdiscs := make(map[qdiscKey]qdiscStats)
	for end := range 2 {
		for _, m := range answers[3*end+1 : 3*end+3] {
			if m == nil {
				continue // it has vanished
			}
			if err := addStats(qdiscs, m); err != nil {
				return both, err
			}
		}
	}
	for end := range 2 {
		if m := answers[3*end]; m != nil {
			l, err := netlink.LinkDeserialize(nil, m)
			if err != nil {
				return both, fmt.Errorf("read %s: %w", Middle(link, end), err)
			}
			both[1-end] = counted(link, end, sentBy(l), qdiscs)
		}
	}
	return both, nil
}

// sent has what an interface has transmitted, as its statistics have it.
type sent struct{ bytes, dropped uint64 }

// sentBy returns that of a middle that was read by itself.
func sentBy(middle netlink.Link) sent {
	if s := middle.Attrs().Statistics; s != nil {
		return sent{s.TxBytes, s.TxDropped}
	}
	return sent{}
}

// counted returns what a middle has transmitted, and what was lost on the path to it.
func counted(link, end int, s sent, qdiscs map[qdiscKey]qdiscStats) Counters {
	fifo := qdiscs[qdiscKey{MiddleIndex(link, end), netlink.HANDLE_ROOT}]
	entered := qdiscs[qdiscKey{MiddleIndex(link, 1-end), netlink.HANDLE_INGRESS}]
	lost := entered.drops + fifo.drops
	c := Counters{Packets: fifo.packets + lost, Bytes: fifo.bytes, Lost: lost + s.dropped, Queue: fifo.drops}
	if fifo.sized {
		c.Bytes = s.bytes
	}
	return c
}

// readSent reads what all middles have transmitted, by their interface index. These statistics alone are read in a fraction of the
// time that all takes which the kernel knows of interfaces (RTM_GETLINK), of which a lab has thousands.
func (n *Network) readSent() (map[int]sent, error) {
	const (
		all       = 1 // IFLA_STATS_LINK_64, and its bit in the mask (include/uapi/linux/if_link.h)
		header    = 12
		txBytes   = 3 * 8 // offsets in struct rtnl_link_stats64
		txDropped = 7 * 8
	)
	req := n.request(unix.RTM_GETSTATS, unix.NLM_F_DUMP)
	mask := make([]byte, header) // struct if_stats_msg: family, padding, index, mask
	binary.NativeEndian.PutUint32(mask[8:], all)
	req.AddRawData(mask)
	messages, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWSTATS)
	// A dump is interrupted when some interface changes; what it says is right of
	// each interface, which suffices.
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
		return nil, err
	}
	found := make(map[int]sent, len(messages))
	for _, m := range messages {
		if len(m) < header {
			return nil, fmt.Errorf("an answer of %d bytes about statistics", len(m))
		}
		index := int(binary.NativeEndian.Uint32(m[4:]))
		if index < firstIndex || index >= firstPort { // the loopback interface, ports, bridges
			continue
		}
		attrs, err := nl.ParseRouteAttr(m[header:])
		if err != nil {
			return nil, err
		}
		for _, a := range attrs {
			if v := a.Value; a.Attr.Type == all && len(v) >= txDropped+8 {
				found[index] = sent{binary.NativeEndian.Uint64(v[txBytes:]), binary.NativeEndian.Uint64(v[txDropped:])}
			}
		}
	}
	return found, nil
}

type qdiscKey struct {
	index  int
	parent uint32
}

// readQdiscs reads the statistics of every queue discipline in the namespace.
// netlink.QdiscList would do but for packet counts, of which it keeps 32 bits.
func (n *Network) readQdiscs() (map[qdiscKey]qdiscStats, error) {
	req := n.request(unix.RTM_GETQDISC, unix.NLM_F_DUMP)
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL})
	messages, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
	// An interrupted dump is one during which a link was added or removed.
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
		return nil, err
	}
	stats := make(map[qdiscKey]qdiscStats, len(messages))
	for _, m := range messages {
		if err := addStats(stats, m); err != nil {
			return nil, err
		}
	}
	return stats, nil
}

// addStats adds what the kernel says of a queue discipline.
func addStats(stats map[qdiscKey]qdiscStats, message []byte) error {
	if len(message) < nl.SizeofTcMsg {
		return fmt.Errorf("an answer of %d bytes about a queue discipline", len(message))
	}
	msg := nl.DeserializeTcMsg(message)
	attrs, err := nl.ParseRouteAttr(message[msg.Len():])
	if err != nil {
		return err
	}
	key := qdiscKey{int(msg.Ifindex), msg.Parent}
	s := stats[key]
	for _, a := range attrs {
		switch a.Attr.Type {
		case nl.TCA_STAB:
			s.sized = true
		case nl.TCA_STATS2:
			if err := s.parse(a); err != nil {
				return err
			}
		}
	}
	stats[key] = s
	return nil
}

// parse reads TCA_STATS2 (include/uapi/linux/gen_stats.h).
func (s *qdiscStats) parse(nest syscall.NetlinkRouteAttr) error {
	const (
		basic     = 1 // struct gnet_stats_basic: bytes, then the low 32 bits of packets
		queue     = 3 // struct gnet_stats_queue: the third word is drops
		packets64 = 8 // all 64 bits, if there are more than 32
	)
	attrs, err := nl.ParseRouteAttr(nest.Value)
	if err != nil {
		return err
	}
	for _, a := range attrs {
		switch {
		case a.Attr.Type == basic && len(a.Value) >= 12:
			s.bytes = binary.NativeEndian.Uint64(a.Value)
			s.packets = uint64(binary.NativeEndian.Uint32(a.Value[8:]))
		case a.Attr.Type == queue && len(a.Value) >= 12:
			s.drops = uint64(binary.NativeEndian.Uint32(a.Value[8:]))
		}
	}
	for _, a := range attrs {
		if a.Attr.Type == packets64 && len(a.Value) >= 8 {
			s.packets = binary.NativeEndian.Uint64(a.Value)
		}
	}
	return nil
}
