package text

import (
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/core"
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
	case n.State != core.NodeIsReady:
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
		p.line(p.paint.bold("node "+Plain(n.Name)+", adapter: ") + Plain(adapterState(a, n.NodeState)))
		return p.flush()
	}
	i := &a.Info
	lead := "node " + Plain(n.Name) + ", adapter: "
	text := fmt.Sprintf("%s, %s, version %s, VendorId 0x%06X, DeviceId 0x%X, receive buffer: %s, open instances: %d",
		adapterState(a, n.NodeState), i.RdmaTechnology, i.Version, i.VendorID, i.DeviceID, receiveBuffer(a.ReceiveBuffer), a.Instances)
	p.hanging(p.paint, lead, text)
	writeAddresses(p, a.Addresses)
	writeLimits(p, a)
	writeFlags(p, i.AdapterFlags)
	writeConfiguration(p, &a.Configuration)
	return p.flush()
}

func writeAddresses(p *page, addresses []adapter.Address) {
	t := table{columns: []column{
		{title: "address"}, {title: "interface"}, {title: "MTU", right: true}, {title: "RoCE frame size", right: true},
	}}
	for _, a := range addresses {
		t.add(a.Address.String(), a.Interface, strconv.Itoa(a.MTU), strconv.Itoa(a.RoCEFrameSize))
	}
	p.table(&t)
}

// writeLimits writes a row for each field of the provider's structures that is a limit.
func writeLimits(p *page, a *adapter.State) {
	each := table{columns: []column{{title: "limits of each consumer (NDK_ADAPTER_INFO)"}, {title: "", right: true}}}
	for limit, value := range reflect.ValueOf(a.Info).Fields() {
		switch limit.Tag.Get("unit") {
		case "": // no limit
		case "bytes":
			each.add(limit.Name, words.ExactSize(value.Uint()))
		default:
			each.add(limit.Name, words.Count(value.Uint()))
		}
	}
	p.table(&each)
	all := table{columns: []column{{title: "limits of all consumers (NDIS_NDK_CAPABILITIES)"}, {title: "", right: true}, {title: "in use", right: true}}}
	used := reflect.ValueOf(a.InUse)
	for limit, value := range reflect.ValueOf(a.Capabilities.Capabilities).Fields() {
		most := words.Count(value.Uint())
		what, isCount := strings.CutSuffix(strings.TrimPrefix(limit.Name, "Max"), "Count")
		if !isCount {
			what = strings.TrimSuffix(what, "Limit")
			if value.IsZero() {
				most = "none"
			}
		}
		all.add(limit.Name, most, words.Count(used.FieldByName(what+"s").Uint()))
	}
	all.add("MissingCounterMask", fmt.Sprintf("0x%X", a.Capabilities.MissingCounterMask))
	p.table(&all)
}

func writeFlags(p *page, set provider.AdapterFlags) {
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

func writeConfiguration(p *page, c *provider.Configuration) {
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
