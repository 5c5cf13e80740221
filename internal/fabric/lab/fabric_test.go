package lab

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/topology"
)

// A fabric is a topology in the making.
type fabric struct{ *topology.Topology }

func newFabric(name string) fabric {
	return fabric{&topology.Topology{Name: name, Seed: 42, HasSeed: true}}
}

// nodes adds nodes of a kind.
func (f fabric) nodes(kind topology.Kind, names string) {
	for name := range strings.FieldsSeq(names) {
		f.Nodes = append(f.Nodes, topology.Node{Name: name, Kind: kind})
	}
}

// link joins two ends, each written node:interface and the addresses there, and
// returns the link.
func (f fabric) link(a, b string) *topology.Link {
	l := topology.Link{Number: len(f.Links), MTU: 4200, Offload: true}
	for end, text := range []string{a, b} {
		fields := strings.Fields(text)
		node, iface, _ := strings.Cut(fields[0], ":")
		i := topology.Interface{Name: iface, Link: len(f.Links), End: end}
		for _, prefix := range fields[1:] {
			i.Addresses = append(i.Addresses, netip.MustParsePrefix(prefix))
		}
		l.Endpoints[end] = topology.Endpoint{Node: node, Interface: iface}
		n := f.FindNode(node)
		n.Interfaces = append(n.Interfaces, i)
	}
	f.Links = append(f.Links, l)
	return &f.Links[len(f.Links)-1]
}

// route gives nodes a route.
func (f fabric) route(nodes, to string, via ...string) {
	for name := range strings.FieldsSeq(nodes) {
		r := topology.Route{To: netip.MustParsePrefix(to)}
		for _, v := range via {
			r.Via = append(r.Via, netip.MustParseAddr(v))
		}
		n := f.FindNode(name)
		n.Routes = append(n.Routes, r)
	}
}

// write adds a workload of WRITEs that are compared byte for byte.
func (f fabric) write(name, from, to string, count uint64) {
	f.Workloads = append(f.Workloads, topology.Workload{
		Name: name, From: from, To: to, Operation: topology.Write, Size: 64 << 10, Depth: 8, Count: count, Verify: true,
	})
}

// star is hosts h0, h1 and so on at the switch sw.
func star(name string, hosts int) fabric {
	f := newFabric(name)
	f.nodes(topology.Switch, "sw")
	for i := range hosts {
		h := "h" + strconv.Itoa(i)
		f.nodes(topology.Host, h)
		f.link("sw:p"+strconv.Itoa(i), fmt.Sprintf("%s:eth0 10.7.%d.%d/16 fd00:7::%x/64", h, i/250, i%250+1, i+1))
	}
	return f
}
