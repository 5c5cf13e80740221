package text

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/provider"
)

// WriteAdapters writes the adapters of a lab for people, a line for each node.
func WriteAdapters(w io.Writer, nodes []report.NodeAdapter) error {
	p := newPage(w)
	t := table{columns: []column{
		{title: "node", wraps: true}, {title: "adapter", wraps: true}, {title: "addresses", wraps: true},
		{title: "frame\nsize", right: true}, {title: "instances", right: true},
		{title: "QPs", right: true}, {title: "CQs", right: true}, {title: "MRs", right: true}, {title: "PDs", right: true},
		{title: "MWs", right: true}, {title: "SRQs", right: true},
	}}
	for _, n := range nodes {
		row := []string{n.Name, adapterState(n.Adapter, n.NodeState)}
		if a := n.Adapter; a != nil {
			var addresses, sizes []string
			for _, address := range a.Addresses {
				addresses = append(addresses, address.Address.String())
				sizes = append(sizes, strconv.Itoa(address.RoCEFrameSize))
			}
			row = append(row, strings.Join(addresses, "\n"), strings.Join(sizes, "\n"), strconv.Itoa(a.Instances))
			for _, used := range []uint32{a.InUse.Qps, a.InUse.Cqs, a.InUse.Mrs, a.InUse.Pds, a.InUse.Mws, a.InUse.Srqs} {
				row = append(row, words.Count(uint64(used)))
			}
		}
		t.add(row...)
	}
	p.table(&t)
	return p.flush()
}

// adapterState returns the state of a node's adapter in a few words.
func adapterState(a *adapter.State, n report.NodeState) string {
	switch {
	case n.State != report.NodeReady:
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
func WriteAdapter(w io.Writer, n report.NodeAdapter) error {
	p := newPage(w)
	p.section()
	a := n.Adapter
	if a == nil {
		p.line(p.paint.bold("node "+plain(n.Name)+", adapter: ") + plain(adapterState(a, n.NodeState)))
		return p.flush()
	}
	i := &a.Info
	lead := "node " + plain(n.Name) + ", adapter: "
	text := fmt.Sprintf("%s, %s, version %s, VendorId 0x%06X, DeviceId 0x%X, receive buffer: %s, open instances: %d",
		adapterState(a, n.NodeState), i.RdmaTechnology, i.Version, i.VendorID, i.DeviceID, receiveBuffer(a.ReceiveBuffer), a.Instances)
	p.hanging(p.paint, lead, text)
	p.addresses(a.Addresses)
	p.limits(a)
	p.flags(i.AdapterFlags)
	p.configuration(&a.Configuration)
	return p.flush()
}

func (p *page) addresses(addresses []adapter.Address) {
	t := table{columns: []column{
		{title: "address"}, {title: "interface"}, {title: "MTU", right: true}, {title: "RoCE frame size", right: true},
	}}
	for _, a := range addresses {
		t.add(a.Address.String(), a.Interface, strconv.Itoa(a.MTU), strconv.Itoa(a.RoCEFrameSize))
	}
	p.table(&t)
}

func (p *page) limits(a *adapter.State) {
	i := &a.Info
	each := table{columns: []column{{title: "limits of each consumer (NDK_ADAPTER_INFO)"}, {title: "", right: true}}}
	for _, l := range []struct {
		name  string
		value string
	}{
		{"MaxInitiatorQueueDepth", words.Count(uint64(i.MaxInitiatorQueueDepth))},
		{"MaxReceiveQueueDepth", words.Count(uint64(i.MaxReceiveQueueDepth))},
		{"MaxSrqDepth", words.Count(uint64(i.MaxSrqDepth))},
		{"MaxCqDepth", words.Count(uint64(i.MaxCqDepth))},
		{"MaxInitiatorRequestSge", words.Count(uint64(i.MaxInitiatorRequestSge))},
		{"MaxReceiveRequestSge", words.Count(uint64(i.MaxReceiveRequestSge))},
		{"MaxReadRequestSge", words.Count(uint64(i.MaxReadRequestSge))},
		{"MaxInboundReadLimit", words.Count(uint64(i.MaxInboundReadLimit))},
		{"MaxOutboundReadLimit", words.Count(uint64(i.MaxOutboundReadLimit))},
		{"MaxTransferLength", words.ExactSize(uint64(i.MaxTransferLength))},
		{"MaxInlineDataSize", words.ExactSize(uint64(i.MaxInlineDataSize))},
		{"LargeRequestThreshold", words.ExactSize(uint64(i.LargeRequestThreshold))},
		{"MaxRegistrationSize", words.ExactSize(i.MaxRegistrationSize)},
		{"MaxWindowSize", words.ExactSize(i.MaxWindowSize)},
		{"FRMRPageCount", words.Count(uint64(i.FRMRPageCount))},
		{"MaxCallerData", words.ExactSize(uint64(i.MaxCallerData))},
		{"MaxCalleeData", words.ExactSize(uint64(i.MaxCalleeData))},
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
		{"MaxQpCount", c.MaxQpCount, used.Qps}, {"MaxCqCount", c.MaxCqCount, used.Cqs}, {"MaxMrCount", c.MaxMrCount, used.Mrs},
		{"MaxPdCount", c.MaxPdCount, used.Pds}, {"MaxMwCount", c.MaxMwCount, used.Mws}, {"MaxSrqCount", c.MaxSrqCount, used.Srqs},
	} {
		all.add(l.name, words.Count(uint64(l.max)), words.Count(uint64(l.used)))
	}
	for _, l := range []struct {
		name      string
		max, used uint32
	}{
		{"MaxInboundReadLimit", c.MaxInboundReadLimit, used.InboundReads}, {"MaxOutboundReadLimit", c.MaxOutboundReadLimit, used.OutboundReads},
	} {
		limit := "none"
		if l.max > 0 {
			limit = words.Count(uint64(l.max))
		}
		all.add(l.name, limit, words.Count(uint64(l.used)))
	}
	all.add("MissingCounterMask", fmt.Sprintf("0x%X", c.MissingCounterMask))
	p.table(&all)
}

func (p *page) flags(set provider.AdapterFlags) {
	t := table{columns: []column{{title: "flags (NDK_ADAPTER_FLAG_)"}, {title: ""}}}
	for _, f := range provider.AdapterFlagNames {
		value := "no"
		if set&f.Flag != 0 {
			value = "yes"
		}
		t.add(strings.TrimPrefix(f.Name, "NDK_ADAPTER_FLAG_"), value)
	}
	p.table(&t)
}

func (p *page) configuration(c *provider.Configuration) {
	t := table{columns: []column{{title: "configuration"}, {title: ""}}}
	direct, size := "1 (may be enabled)", "the largest that fits"
	if c.NetworkDirect == 0 {
		direct = "0 (cannot be enabled)"
	}
	if c.NetworkDirectRoCEFrameSize != 0 {
		size = words.Count(uint64(c.NetworkDirectRoCEFrameSize))
	}
	t.add("*NetworkDirect", direct)
	t.add("*NetworkDirectTechnology", words.Count(uint64(c.NetworkDirectTechnology)))
	t.add("*NetworkDirectRoCEFrameSize", size)
	p.table(&t)
}

// receiveBuffer returns the size of a receive buffer.
func receiveBuffer(b provider.ReceiveBuffer) string {
	if b.Granted < b.Asked {
		return fmt.Sprintf("%s of %s asked for", words.ExactSize(uint64(b.Granted)), words.ExactSize(uint64(b.Asked)))
	}
	return words.ExactSize(uint64(b.Granted))
}
