package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Counters is what the kernel has counted in one direction of a link: what it
// carried itself while the middles were joined, and what others sent from a
// middle, unless they went around its queue.
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

// Sub is what was counted since earlier: nothing if that was read later.
func (c Counters) Sub(earlier Counters) Counters {
	return Counters{
		Packets: c.Packets - min(c.Packets, earlier.Packets),
		Bytes:   c.Bytes - min(c.Bytes, earlier.Bytes),
		Lost:    c.Lost - min(c.Lost, earlier.Lost),
		Queue:   c.Queue - min(c.Queue, earlier.Queue),
	}
}

// Latest is what was read later of two: counters only grow, until their interface
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

// qdiscStats is what a queue discipline counts. Packets are wire packets: the
// kernel adds the number of segments of a super-packet (net/sched/sch_generic.h,
// _bstats_update).
type qdiscStats struct {
	packets, bytes, drops uint64
	sized                 bool // bytes are what a table of sizes says (package netem), of packets that are none but wire packets
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
	links, err := n.list()
	if err != nil {
		return nil, err
	}
	totals := make(map[int][2]Counters)
	for _, l := range links {
		attrs := l.Attrs()
		// This middle transmits what entered at the other one.
		link, end := numbers(l)
		fifo := qdiscs[qdiscKey{attrs.Index, netlink.HANDLE_ROOT}]
		entered := qdiscs[qdiscKey{MiddleIndex(link, 1-end), netlink.HANDLE_INGRESS}]
		lost := entered.drops + fifo.drops
		c := Counters{Packets: fifo.packets + lost, Bytes: fifo.bytes, Lost: lost, Queue: fifo.drops}
		if attrs.Statistics != nil {
			c.Lost += attrs.Statistics.TxDropped
			if fifo.sized {
				c.Bytes = attrs.Statistics.TxBytes
			}
		}
		both := totals[link]
		both[1-end] = c
		totals[link] = both
	}
	return totals, nil
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
		msg := nl.DeserializeTcMsg(m)
		attrs, err := nl.ParseRouteAttr(m[msg.Len():])
		if err != nil {
			return nil, err
		}
		for _, a := range attrs {
			key := qdiscKey{int(msg.Ifindex), msg.Parent}
			s := stats[key]
			switch a.Attr.Type {
			case nl.TCA_STAB:
				s.sized = true
			case nl.TCA_STATS2:
				if err := s.parse(a); err != nil {
					return nil, err
				}
			}
			stats[key] = s
		}
	}
	return stats, nil
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
