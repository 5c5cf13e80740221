package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A NodeAdapter is a node and its adapter.
type NodeAdapter struct {
	NodeState
	Adapter *Adapter `json:"adapter"` // null if the node has none, or is not ready
}

// An Adapter is what an adapter is and can do, and how much of it is in use. What
// NDK has a name for has that name.
type Adapter struct {
	Enabled       bool             `json:"enabled"`
	Instances     int              `json:"instances"` // of the adapter that consumers have open
	Addresses     []AdapterAddress `json:"addresses"`
	Info          AdapterInfo      `json:"info"`
	Capabilities  Capabilities     `json:"capabilities"`
	InUse         InUse            `json:"in_use"`
	Configuration Configuration    `json:"configuration"`
	ReceiveBuffer ReceiveBuffer    `json:"receive_buffer"`
}

// A ReceiveBuffer holds the bytes of packets that may wait at each address of an adapter: as
// many as its topology asks for, and as many as this machine has room for.
type ReceiveBuffer struct {
	Asked   uint32 `json:"asked"`
	Granted uint32 `json:"granted"`
}

// text is the receive buffer for people.
func (b ReceiveBuffer) text() string {
	if b.Granted < b.Asked {
		return fmt.Sprintf("%s of %s asked for", exactSize(uint64(b.Granted)), exactSize(uint64(b.Asked)))
	}
	return exactSize(uint64(b.Granted))
}

// An AdapterAddress is an address of an adapter, and what is in force there.
type AdapterAddress struct {
	Address       string `json:"address"`
	Interface     string `json:"interface"`
	MTU           int    `json:"mtu"`             // bytes of IP packet
	RoCEFrameSize int    `json:"roce_frame_size"` // bytes of payload in a RoCE packet
}

// AdapterInfo holds what an adapter allows each consumer and object
// (NDK_ADAPTER_INFO). Lengths and sizes are in bytes.
type AdapterInfo struct {
	Version                string   `json:"Version"`
	VendorID               uint32   `json:"VendorId"`
	DeviceID               uint32   `json:"DeviceId"`
	MaxRegistrationSize    uint64   `json:"MaxRegistrationSize"`
	MaxWindowSize          uint64   `json:"MaxWindowSize"`
	FRMRPageCount          uint32   `json:"FRMRPageCount"`
	MaxInitiatorRequestSge uint32   `json:"MaxInitiatorRequestSge"`
	MaxReceiveRequestSge   uint32   `json:"MaxReceiveRequestSge"`
	MaxReadRequestSge      uint32   `json:"MaxReadRequestSge"`
	MaxTransferLength      uint32   `json:"MaxTransferLength"`
	MaxInlineDataSize      uint32   `json:"MaxInlineDataSize"`
	MaxInboundReadLimit    uint32   `json:"MaxInboundReadLimit"`
	MaxOutboundReadLimit   uint32   `json:"MaxOutboundReadLimit"`
	MaxReceiveQueueDepth   uint32   `json:"MaxReceiveQueueDepth"`
	MaxInitiatorQueueDepth uint32   `json:"MaxInitiatorQueueDepth"`
	MaxSrqDepth            uint32   `json:"MaxSrqDepth"`
	MaxCqDepth             uint32   `json:"MaxCqDepth"`
	LargeRequestThreshold  uint32   `json:"LargeRequestThreshold"`
	MaxCallerData          uint32   `json:"MaxCallerData"`
	MaxCalleeData          uint32   `json:"MaxCalleeData"`
	AdapterFlags           []string `json:"AdapterFlags"` // those that are set
	RdmaTechnology         string   `json:"RdmaTechnology"`
}

// AdapterFlags are the names of all flags (ndkpi.md 2.7), by ascending value.
var AdapterFlags = []string{
	"NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED",
	"NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED",
	"NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED",
	"NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED",
	"NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED",
	"NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED",
	"NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED",
}

// Capabilities holds what an adapter allows all consumers together
// (NDIS_NDK_CAPABILITIES).
type Capabilities struct {
	MaxQpCount           uint32 `json:"MaxQpCount"`
	MaxCqCount           uint32 `json:"MaxCqCount"`
	MaxMrCount           uint32 `json:"MaxMrCount"`
	MaxPdCount           uint32 `json:"MaxPdCount"`
	MaxInboundReadLimit  uint32 `json:"MaxInboundReadLimit"`  // 0: no such limit
	MaxOutboundReadLimit uint32 `json:"MaxOutboundReadLimit"` // 0: no such limit
	MaxMwCount           uint32 `json:"MaxMwCount"`
	MaxSrqCount          uint32 `json:"MaxSrqCount"`
	MissingCounterMask   uint64 `json:"MissingCounterMask"`
}

// InUse counts the objects on an adapter, of all consumers, and the READs that their
// connections may have in progress.
type InUse struct {
	Qp           uint32 `json:"Qp"`
	Cq           uint32 `json:"Cq"`
	Mr           uint32 `json:"Mr"`
	Pd           uint32 `json:"Pd"`
	InboundRead  uint32 `json:"InboundRead"`
	OutboundRead uint32 `json:"OutboundRead"`
	Mw           uint32 `json:"Mw"`
	Srq          uint32 `json:"Srq"`
}

// Configuration is an adapter's keywords (ndkpi.md 2.11), without the asterisk
// that their names begin with.
type Configuration struct {
	NetworkDirect              uint32 `json:"NetworkDirect"`
	NetworkDirectTechnology    uint32 `json:"NetworkDirectTechnology"`
	NetworkDirectRoCEFrameSize uint32 `json:"NetworkDirectRoCEFrameSize"` // 0: the largest that fits
}

// WriteAdapters writes the adapters of a lab for people, a line for each node.
func WriteAdapters(w io.Writer, nodes []NodeAdapter) error {
	p := newPage(w)
	t := table{columns: []column{
		{title: "node", wraps: true}, {title: "adapter", wraps: true}, {title: "addresses", wraps: true},
		{title: "frame\nsize", right: true}, {title: "instances", right: true},
		{title: "QPs", right: true}, {title: "CQs", right: true}, {title: "MRs", right: true}, {title: "PDs", right: true},
		{title: "MWs", right: true}, {title: "SRQs", right: true},
	}}
	for _, n := range nodes {
		row := []string{n.Name, n.Adapter.state(n.NodeState)}
		if a := n.Adapter; a != nil {
			var addresses, sizes []string
			for _, address := range a.Addresses {
				addresses = append(addresses, address.Address)
				sizes = append(sizes, strconv.Itoa(address.RoCEFrameSize))
			}
			row = append(row, strings.Join(addresses, "\n"), strings.Join(sizes, "\n"), strconv.Itoa(a.Instances))
			for _, used := range []uint32{a.InUse.Qp, a.InUse.Cq, a.InUse.Mr, a.InUse.Pd, a.InUse.Mw, a.InUse.Srq} {
				row = append(row, count(uint64(used)))
			}
		}
		t.add(row...)
	}
	p.table(&t)
	return p.flush()
}

// state is the adapter's state in a few words.
func (a *Adapter) state(n NodeState) string {
	switch {
	case n.State != NodeReady:
		return "unknown: the node is " + n.State
	case n.Reason != "":
		return "unknown: " + n.Reason
	case a == nil:
		return "none"
	case a.Enabled:
		return "enabled"
	case a.Instances > 0:
		return "disabled, still in use"
	default:
		return "disabled"
	}
}

// WriteAdapter writes all about a node's adapter for people.
func WriteAdapter(w io.Writer, n NodeAdapter) error {
	p := newPage(w)
	p.section()
	a := n.Adapter
	if a == nil {
		p.line(p.paint.bold("node "+plain(n.Name)+", adapter: ") + plain(a.state(n.NodeState)))
		return p.flush()
	}
	i := &a.Info
	lead := "node " + plain(n.Name) + ", adapter: "
	text := fmt.Sprintf("%s, %s, version %s, VendorId 0x%06X, DeviceId 0x%X, receive buffer: %s, open instances: %d",
		a.state(n.NodeState), i.RdmaTechnology, i.Version, i.VendorID, i.DeviceID, a.ReceiveBuffer.text(), a.Instances)
	p.hanging(p.paint, lead, text)
	p.addresses(a.Addresses)
	p.limits(a)
	p.flags(i.AdapterFlags)
	p.configuration(&a.Configuration)
	return p.flush()
}

func (p *page) addresses(addresses []AdapterAddress) {
	t := table{columns: []column{
		{title: "address"}, {title: "interface"}, {title: "MTU", right: true}, {title: "RoCE frame size", right: true},
	}}
	for _, a := range addresses {
		t.add(a.Address, a.Interface, strconv.Itoa(a.MTU), strconv.Itoa(a.RoCEFrameSize))
	}
	p.table(&t)
}

func (p *page) limits(a *Adapter) {
	i := &a.Info
	each := table{columns: []column{{title: "limits of each consumer (NDK_ADAPTER_INFO)"}, {title: "", right: true}}}
	for _, l := range []struct {
		name  string
		value string
	}{
		{"MaxInitiatorQueueDepth", count(uint64(i.MaxInitiatorQueueDepth))},
		{"MaxReceiveQueueDepth", count(uint64(i.MaxReceiveQueueDepth))},
		{"MaxSrqDepth", count(uint64(i.MaxSrqDepth))},
		{"MaxCqDepth", count(uint64(i.MaxCqDepth))},
		{"MaxInitiatorRequestSge", count(uint64(i.MaxInitiatorRequestSge))},
		{"MaxReceiveRequestSge", count(uint64(i.MaxReceiveRequestSge))},
		{"MaxReadRequestSge", count(uint64(i.MaxReadRequestSge))},
		{"MaxInboundReadLimit", count(uint64(i.MaxInboundReadLimit))},
		{"MaxOutboundReadLimit", count(uint64(i.MaxOutboundReadLimit))},
		{"MaxTransferLength", exactSize(uint64(i.MaxTransferLength))},
		{"MaxInlineDataSize", exactSize(uint64(i.MaxInlineDataSize))},
		{"LargeRequestThreshold", exactSize(uint64(i.LargeRequestThreshold))},
		{"MaxRegistrationSize", exactSize(i.MaxRegistrationSize)},
		{"MaxWindowSize", exactSize(i.MaxWindowSize)},
		{"FRMRPageCount", count(uint64(i.FRMRPageCount))},
		{"MaxCallerData", exactSize(uint64(i.MaxCallerData))},
		{"MaxCalleeData", exactSize(uint64(i.MaxCalleeData))},
	} {
		each.add(l.name, l.value)
	}
	p.table(&each)
	c, used := &a.Capabilities, &a.InUse
	all := table{columns: []column{{title: "limits of all consumers (NDIS_NDK_CAPABILITIES)"}, {title: "", right: true}, {title: "in use", right: true}}}
	for _, l := range []struct {
		name      string
		max, used uint32
	}{
		{"MaxQpCount", c.MaxQpCount, used.Qp}, {"MaxCqCount", c.MaxCqCount, used.Cq}, {"MaxMrCount", c.MaxMrCount, used.Mr},
		{"MaxPdCount", c.MaxPdCount, used.Pd}, {"MaxMwCount", c.MaxMwCount, used.Mw}, {"MaxSrqCount", c.MaxSrqCount, used.Srq},
	} {
		all.add(l.name, count(uint64(l.max)), count(uint64(l.used)))
	}
	for _, l := range []struct {
		name      string
		max, used uint32
	}{
		{"MaxInboundReadLimit", c.MaxInboundReadLimit, used.InboundRead}, {"MaxOutboundReadLimit", c.MaxOutboundReadLimit, used.OutboundRead},
	} {
		limit := "none"
		if l.max > 0 {
			limit = count(uint64(l.max))
		}
		all.add(l.name, limit, count(uint64(l.used)))
	}
	all.add("MissingCounterMask", fmt.Sprintf("0x%X", c.MissingCounterMask))
	p.table(&all)
}

func (p *page) flags(set []string) {
	t := table{columns: []column{{title: "flags (NDK_ADAPTER_FLAG_)"}, {title: ""}}}
	for _, name := range AdapterFlags {
		value := "no"
		for _, s := range set {
			if s == name {
				value = "yes"
			}
		}
		t.add(strings.TrimPrefix(name, "NDK_ADAPTER_FLAG_"), value)
	}
	p.table(&t)
}

func (p *page) configuration(c *Configuration) {
	t := table{columns: []column{{title: "configuration"}, {title: ""}}}
	direct, size := "1 (may be enabled)", "the largest that fits"
	if c.NetworkDirect == 0 {
		direct = "0 (cannot be enabled)"
	}
	if c.NetworkDirectRoCEFrameSize != 0 {
		size = count(uint64(c.NetworkDirectRoCEFrameSize))
	}
	t.add("*NetworkDirect", direct)
	t.add("*NetworkDirectTechnology", count(uint64(c.NetworkDirectTechnology)))
	t.add("*NetworkDirectRoCEFrameSize", size)
	p.table(&t)
}

// exactSize is a number of bytes in the largest unit that it is a whole number
// of.
func exactSize(bytes uint64) string {
	unit, of := "B", uint64(1)
	for _, u := range sizes[1:] {
		if n := uint64(u.of); bytes >= n && bytes%n == 0 {
			unit, of = u.name, n
		}
	}
	return count(bytes/of) + " " + unit
}
