// Package netem has the kernel impair the packets that leave an interface, by its
// queue discipline of that name, where there is one: for links whose file says
// engine: netem.
//
// It does a delay, a jitter that keeps packets in order, loss, independent or in
// bursts, and a rate that counts Ethernet framing as impair.WireBytes does.
// topology.Engine's Check refuses all that netem cannot do as package impair means it:
// nothing here comes from the lab's seed, and nothing is measured but what a queue
// discipline counts.
//
// A super-packet is one packet to netem. Where that matters, for loss and rate,
// nodes must hand over wire packets (a link's offload: off).
//
// Start reading at Set.
package netem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/topology"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ErrMissing means that this kernel has no netem, built in or as a module.
var ErrMissing = errors.New("this kernel lacks NET_SCH_NETEM")

// An Interface is a network interface whose outgoing packets are impaired.
type Interface struct {
	Index int // in the caller's network namespace
	MTU   int // bytes of IP packet
	// Wire says that every packet is one on a wire, too, never many as one.
	Wire bool
}

// handle is the queue discipline's. It must not be that of the one in its place
// before, of which the kernel would think that it is to be changed
// (net/sched/sch_api.c, tc_modify_qdisc).
var handle = netlink.MakeHandle(2, 0)

// Set impairs the packets that leave an interface from now on. The settings have passed
// topology.Engine's Check.
// The first time it puts netem in the place of the interface's root queue
// discipline, for good, which loses packets if the interface is up; later, none.
func Set(i Interface, settings topology.Impairment) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(i.Index), Handle: handle, Parent: netlink.HANDLE_ROOT})
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("netem")))
	if i.Wire {
		req.AddData(i.sizes())
	}
	req.AddData(i.options(settings))
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%w (%w)", ErrMissing, err)
	case err != nil:
		return fmt.Errorf("netem: %w", err)
	}
	return nil
}

// Probe returns ErrMissing if this kernel has no netem. It tries it on an interface that has
// no queue discipline of its own, and has none afterwards.
func Probe(index int) error {
	i := Interface{Index: index, MTU: loopbackMTU}
	if err := Set(i, topology.Impairment{}); err != nil {
		return err
	}
	device := netlink.QdiscAttrs{LinkIndex: index, Handle: handle, Parent: netlink.HANDLE_ROOT}
	if err := netlink.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: device, QdiscType: "netem"}); err != nil {
		return fmt.Errorf("netem: %w", err)
	}
	return nil
}

const loopbackMTU = 65536

// Numbers of netem's options that the netlink package has no names or no layout for
// (linux/pkt_sched.h).
const (
	optLatency64 = 10 // TCA_NETEM_LATENCY64, ns
	optJitter64  = 11 // TCA_NETEM_JITTER64, ns

	lossGE = 2 // NETEM_LOSS_GE: struct tc_netem_gemodel

	stabBase = 1 // TCA_STAB_BASE: struct tc_sizespec
	stabData = 2 // TCA_STAB_DATA: sizes in 16 bits
)

// options returns TCA_OPTIONS. Every change has all of them: the kernel keeps what is left
// out.
func (i Interface) options(s topology.Impairment) *nl.RtAttr {
	queue := nl.TcNetemQopt{Limit: i.limit(s)}
	if s.Loss.Burst == 0 {
		queue.Loss = probability(s.Loss.Rate)
	}
	options := nl.NewRtAttr(nl.TCA_OPTIONS, queue.Serialize())
	if s.Loss.Burst > 0 { // without the attribute, losses are independent again
		options.AddRtAttr(nl.TCA_NETEM_LOSS, nil).AddRtAttr(lossGE, bursts(s.Loss))
	}
	options.AddRtAttr(optLatency64, nl.Uint64Attr(uint64(s.Delay)))
	options.AddRtAttr(optJitter64, nl.Uint64Attr(uint64(s.Jitter.Spread)))
	if s.Jitter.Spread > 0 {
		options.AddRtAttr(nl.TCA_NETEM_DELAY_DIST, table(s.Jitter.Distribution))
	}
	// The kernel takes the higher of the two.
	rate := bytesPerSecond(s)
	low := nl.TcNetemRate{Rate: uint32(min(rate, math.MaxUint32))}
	options.AddRtAttr(nl.TCA_NETEM_RATE64, nl.Uint64Attr(rate))
	options.AddRtAttr(nl.TCA_NETEM_RATE, low.Serialize())
	return options
}

// probability returns netem's form of a probability: a packet is lost if a random number of
// 32 bits is no higher; 0 is never.
func probability(p float64) uint32 { return uint32(math.Round(p * math.MaxUint32)) }

// bursts returns the option for losses by Gilbert and Elliott's model as package impair has it: of its
// good state nothing is lost, of the bad one all. The kernel begins in the good one
// with each change.
func bursts(l topology.Loss) []byte {
	b := make([]byte, 16)                                                    // struct tc_netem_gemodel: p, r, h, k1
	binary.NativeEndian.PutUint32(b, probability(l.Rate/(1-l.Rate)/l.Burst)) // to turn bad
	binary.NativeEndian.PutUint32(b[4:], probability(1/l.Burst))             // to turn good
	return b                                                                 // h, to arrive in the bad state, and k1, to be lost in the good one, are 0
}

// bytesPerSecond returns netem's rate. It has one even if none is asked for, so high
// that no packet takes time: with a rate, and only so, packets leave in the order
// in which they came, however their jitter (net/sched/sch_netem.c, netem_enqueue).
func bytesPerSecond(s topology.Impairment) uint64 {
	if s.Rate == 0 {
		return 1 << 60
	}
	return max(1, s.Rate/8)
}

// Memory that an interface's packets may hold, bytes, if they are of full length;
// and what the queue before a rate holds, which is that of package impair.
const (
	memory     = 256 << 20
	queueBytes = 4 << 20
	queueTime  = 50 * time.Millisecond
)

// limit returns how many packets may be on their way and wait, together.
func (i Interface) limit(s topology.Impairment) uint32 {
	most := memory / (i.MTU + ethernet)
	if s.Rate == 0 {
		return uint32(most)
	}
	if s.Queue.Packets > 0 { // there is no delay: see topology.Engine.Check
		return uint32(min(s.Queue.Packets, math.MaxInt32))
	}
	full := float64(impair.WireBytes(i.MTU + ethernet))
	perSecond := float64(s.Rate) / 8 / full
	waiting := max(queueBytes/full, perSecond*queueTime.Seconds())
	onTheWay := perSecond * (s.Delay + 4*s.Jitter.Spread).Seconds()
	return uint32(min(math.Ceil(waiting+onTheWay), float64(most)))
}

const ethernet = 14 // bytes of header

// tableLen is the number of values in a distribution, and tableScale stands for one
// spread: of 16 bits, the values reach four spreads either way, where iproute2's
// tables end, too. For a normal distribution that is all but one value in 16,000. Of
// Pareto's it cuts the last hundredth, whose standard deviation is 0.74 of the
// spread then.
const (
	tableLen   = 4096
	tableScale = 8192 // NETEM_DIST_SCALE
)

// table returns a distribution in units of the spread. Netem picks its values at random.
func table(d topology.Distribution) []byte {
	b := make([]byte, 2*tableLen)
	for n := range tableLen {
		u := (float64(n) + 0.5) / tableLen
		v := math.Round(tableScale * quantile(d, u))
		v = max(math.MinInt16, min(v, math.MaxInt16))
		binary.NativeEndian.PutUint16(b[2*n:], uint16(int16(v)))
	}
	return b
}

// quantile returns that of a distribution, for u above 0 and below 1, in units of the
// spread. Package impair has the same.
func quantile(d topology.Distribution, u float64) float64 {
	switch d {
	case topology.Normal:
		return math.Sqrt2 * math.Erfinv(2*u-1)
	case topology.Pareto: // of shape 3, less its mean, over its standard deviation
		return (1/math.Cbrt(1-u) - 3.0/2) / math.Sqrt(3.0/4)
	}
	return 2*u - 1
}

// sizesLen bounds the table of sizes: what an attribute of netlink can hold, with
// room to spare. A longer packet is looked up in parts (net/sched/sch_api.c,
// __qdisc_calculate_pkt_len), which is right to within 0.3 %.
const sizesLen = 32000

// sizes returns TCA_STAB, by which the kernel maps a packet's length with the Ethernet header
// to its length on a wire.
func (i Interface) sizes() *nl.RtAttr {
	n := min(i.MTU+ethernet+1, sizesLen)
	spec := make([]byte, 24) // struct tc_sizespec: cell_log, size_log, cell_align, overhead, linklayer, mpu, mtu, tsize
	binary.NativeEndian.PutUint32(spec[20:], uint32(n))
	data := make([]byte, 2*n)
	for length := range n {
		binary.NativeEndian.PutUint16(data[2*length:], uint16(impair.WireBytes(length)))
	}
	attr := nl.NewRtAttr(nl.TCA_STAB, nil)
	attr.AddRtAttr(stabBase, spec)
	attr.AddRtAttr(stabData, data)
	return attr
}
