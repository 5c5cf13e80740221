package labtest

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// A Node is a node of a lab.
type Node struct {
	lab  *Lab
	name string
	spec *topology.Node
}

// Node is the node of that name.
func (l *Lab) Node(name string) *Node {
	l.t.Helper()
	spec := l.topo.FindNode(name)
	if spec == nil {
		names := lab.NamesOf(l.topo)
		l.t.Fatalf("lab %s has no node %q, but %s", l.topo.Name, name, strings.Join(append(names.Nodes, names.Switches...), ", "))
	}
	return &Node{l, name, spec}
}

// Nodes are all hosts, in the order of the topology.
func (l *Lab) Nodes() []*Node {
	var nodes []*Node
	for i := range l.topo.Nodes {
		if n := &l.topo.Nodes[i]; n.Kind == topology.Host {
			nodes = append(nodes, &Node{l, n.Name, n})
		}
	}
	return nodes
}

// Name is the node's name.
func (n *Node) Name() string { return n.name }

// Address is the first address of the node, which is one of IPv4 unless the topology has
// it otherwise.
func (n *Node) Address() netip.Addr {
	n.lab.t.Helper()
	all := n.Addresses()
	if len(all) == 0 {
		n.lab.t.Fatalf("lab %s: node %s has no address", n.lab.topo.Name, n.name)
	}
	return all[0]
}

// Addresses are all addresses of the node's interfaces.
func (n *Node) Addresses() []netip.Addr {
	var all []netip.Addr
	for _, i := range n.spec.Interfaces {
		for _, p := range i.Addresses {
			all = append(all, p.Addr())
		}
	}
	return all
}

// Report is the node's state and what its adapter has counted.
func (n *Node) Report() report.Node {
	n.lab.t.Helper()
	all, err := n.lab.lab.Inspect(n.lab.ctx) // which, unlike Nodes, has those that are down or paused
	n.lab.must(err)
	i := slices.IndexFunc(all.Nodes, func(r report.Node) bool { return r.Name == n.name })
	return all.Nodes[i]
}

// Counters returns the counts of the adapter since the node was started, for all programs
// together: those of NDIS_NDK_PERFORMANCE_COUNTERS, such as Connect and RDMAOutOctets,
// and those of the transport, such as retransmitted and timeouts.
func (n *Node) Counters() map[string]uint64 {
	n.lab.t.Helper()
	r := n.Report()
	if r.Counters == nil {
		n.lab.t.Fatalf("lab %s: node %s has no counters: it is %s", n.lab.topo.Name, n.name, r.InWords())
	}
	all := maps.Clone(r.Counters)
	maps.Copy(all, r.Transport)
	return all
}

// Stop switches the node off: what runs there ends at once, and its peers lose the
// carrier. It is down when Stop returns.
func (n *Node) Stop() {
	n.lab.t.Helper()
	n.change(lab.StopNode)
}

// Start switches the node on again. It is ready when Start returns.
func (n *Node) Start() {
	n.lab.t.Helper()
	n.change(lab.StartNode)
}

// Restart is Stop and Start.
func (n *Node) Restart() {
	n.lab.t.Helper()
	n.change(lab.RestartNode)
}

// Pause stops all processes of the node where they are, until Resume.
func (n *Node) Pause() {
	n.lab.t.Helper()
	n.change(lab.PauseNode)
}

// Resume has the processes of the node go on.
func (n *Node) Resume() {
	n.lab.t.Helper()
	n.change(lab.ResumeNode)
}

func (n *Node) change(action lab.Action) {
	n.lab.t.Helper()
	_, err := n.lab.lab.Nodes.Change(n.lab.ctx, n.name, action)
	n.lab.must(err)
}

// Kill has the node crash. It is down when Kill returns, and started again if the
// topology says so (restart: always).
func (n *Node) Kill() {
	n.lab.t.Helper()
	_, err := n.lab.lab.Nodes.Kill(n.lab.ctx, n.name, syscall.SIGKILL)
	n.lab.must(err)
}

// PathTo is by which addresses the node and another one reach each other: its own and the
// other's.
func (n *Node) PathTo(other *Node) (from, to netip.Addr) {
	n.lab.t.Helper()
	path, ok := n.lab.topo.Path(n.name, other.name)
	if !ok {
		n.lab.t.Fatalf("lab %s: %s does not reach %s", n.lab.topo.Name, n.name, other.name)
	}
	return path.From.Address, path.To.Address
}
