package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ndklab/ndklab/fabric/lab/link"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
)

// SpanningTree is the kind of the events that tell of switches that look for loops.
const SpanningTree = "spanning-tree"

// A labSwitch is a switch of the running lab: a bridge of the kernel in the
// supervisor's own network namespace, at which links end. It has no process.
type labSwitch struct {
	spec   *topology.Node
	number int // of the bridge
	bridge *link.Bridge
}

// makeSwitches makes the bridges. The switch that the file lists first is the root
// of the spanning tree that it is in.
func (s *Supervisor) makeSwitches(context.Context) error {
	for i := range s.topo.Nodes {
		spec := &s.topo.Nodes[i]
		if spec.Kind != topology.Switch {
			continue
		}
		if err := s.makeSwitch(spec, i); err != nil {
			return err
		}
	}
	return nil
}

// checkPorts says, before anything is made or changed of the lab, if a switch has more
// links than a bridge takes.
func checkPorts(topo *topology.Topology) error {
	for i := range topo.Nodes {
		if n := &topo.Nodes[i]; n.Kind == topology.Switch && len(n.Interfaces) > link.MaxPorts {
			return control.Errorf(control.Usage, "switch %s has %d links, the kernel's bridges take %d: join several switches by a link", n.Name, len(n.Interfaces), link.MaxPorts)
		}
	}
	return nil
}

// makeSwitch makes a bridge of that number.
func (s *Supervisor) makeSwitch(spec *topology.Node, number int) error {
	if len(s.switches) == 0 {
		if err := link.QuietBridges(); err != nil {
			return control.Errorf(control.Unable, "keep the packet filter out of switches: %v", err)
		}
	}
	var tree *link.Tree
	if spec.SpanningTree {
		tree = &link.Tree{ForwardDelay: forwardDelay(s.topo, spec)}
	}
	bridge, err := s.network.MakeBridge(number, tree)
	if err != nil {
		return fmt.Errorf("switch %s: %w", spec.Name, err)
	}
	s.switches[spec.Name] = &labSwitch{spec: spec, number: number, bridge: bridge}
	return nil
}

// forwardDelay is how long the ports of a switch listen, and then learn. What a
// switch hears of the root it passes on within a second (IEEE 802.1D-1998, hold time).
// No port may forward before all switches have heard, with a second to spare, lest a
// loop is closed meanwhile. 2 s is the least that the kernel takes, 30 s the most.
func forwardDelay(topo *topology.Topology, of *topology.Node) time.Duration {
	hear := time.Duration(farthest(topo, of)+1) * time.Second
	return min(max(2*time.Second, (hear+time.Second)/2), 30*time.Second)
}

// farthest is how many links are between a switch and that which is farthest from
// it in its segment; none is farther from it, whichever of them is the root.
func farthest(topo *topology.Topology, of *topology.Node) int {
	reached := map[string]bool{of.Name: true}
	frontier := []*topology.Node{of}
	for hops := 0; ; hops++ {
		var next []*topology.Node
		for _, n := range frontier {
			for _, i := range n.Interfaces {
				far := topo.FindNode(topo.Links[i.Link].Endpoints[1-i.End].Node)
				if far != nil && far.Kind == topology.Switch && !reached[far.Name] {
					reached[far.Name] = true
					next = append(next, far)
				}
			}
		}
		if len(next) == 0 {
			return hops
		}
		frontier = next
	}
}

// openPorts sets the ends at switches of a link up that carries packets, or is down
// itself. Sooner, a
// spanning tree would begin to look for loops, and see none.
func (s *Supervisor) openPorts(ctx context.Context, l *labLink) error {
	ports := false
	for end, e := range l.spec.Endpoints {
		if s.switches[e.Node] == nil {
			continue
		}
		if err := s.network.OpenPort(l.spec.Number, end); err != nil {
			return err
		}
		ports = true
	}
	if !ports || l.down {
		return nil
	}
	return s.settle(ctx, l.spec.Number)
}

// How long a spanning tree may take beyond what it waits for anyway, and how often
// it is looked at.
const (
	treePoll = 20 * time.Millisecond
	treeTime = 10 * time.Second
)

// growTrees waits until the spanning trees of the lab, if there are any, stand.
func (s *Supervisor) growTrees(ctx context.Context) error {
	var all []int
	var slowest time.Duration
	for _, sw := range s.switches {
		if sw.spec.SpanningTree {
			slowest = max(slowest, forwardDelay(s.topo, sw.spec))
			for _, i := range sw.spec.Interfaces {
				all = append(all, i.Link)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	s.Publish(Event{Kind: SpanningTree, Text: fmt.Sprintf("the switches look for loops, which takes %v at least", 2*slowest)})
	if err := s.growTree(ctx, all...); err != nil {
		return err
	}
	states, err := s.network.PortStates()
	if err != nil {
		return err
	}
	count := map[link.PortState]int{}
	for _, state := range states {
		count[state]++
	}
	s.Publish(Event{Kind: SpanningTree, Text: fmt.Sprintf("the switches have found their spanning tree: forwarding ports: %d, blocking: %d", count[link.Forwarding], count[link.Blocking])})
	return nil
}

// growTree waits until the ports of some links that are up forward, or are spares.
// Those of switches without a spanning tree forward from the beginning.
func (s *Supervisor) growTree(ctx context.Context, links ...int) error {
	limit := treeTime
	links = slices.DeleteFunc(slices.Clone(links), func(index int) bool {
		tree := false
		for _, e := range s.links[index].spec.Endpoints {
			if sw := s.switches[e.Node]; sw != nil && sw.spec.SpanningTree {
				limit = max(limit, treeTime+2*forwardDelay(s.topo, sw.spec))
				tree = true
			}
		}
		return !tree
	})
	if len(links) == 0 {
		return nil // the kernel need not be asked, which tells of all ports there are
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("after %v", limit))
	defer cancel()
	tick := time.NewTicker(treePoll)
	defer tick.Stop()
	for {
		states, err := s.network.PortStates()
		if err != nil {
			return err
		}
		port, state := s.undecided(states, links)
		if port == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("port %s is still %s: %w", port, state, context.Cause(ctx))
		}
	}
}

// switched is the links of a node that end at a switch.
func (s *Supervisor) switched(n *labNode) (links []int) {
	for _, i := range n.spec.Interfaces {
		if s.switches[s.links[i.Link].spec.Endpoints[1-i.End].Node] != nil {
			links = append(links, i.Link)
		}
	}
	return links
}

// undecided is a port of those links of which the spanning tree does not know yet,
// or "".
func (s *Supervisor) undecided(states map[[2]int]link.PortState, links []int) (string, link.PortState) {
	for _, index := range links {
		for end := range 2 {
			if state := states[[2]int{s.links[index].spec.Number, end}]; state == link.Listening || state == link.Learning {
				return s.links[index].spec.Endpoints[end].String(), state
			}
		}
	}
	return "", 0
}

// inspectSwitch is the state of a switch. ports are those of all switches.
func (sw *labSwitch) inspect(topo *topology.Topology, ports map[[2]int]link.PortStatus) report.Node {
	r := report.Node{
		NodeState: report.NodeState{Name: sw.spec.Name, State: nodeReady}, Kind: string(topology.Switch),
		Addresses: []string{}, Counters: map[string]uint64{}, Transport: map[string]uint64{}, Ports: []report.Port{},
	}
	for _, i := range sw.spec.Interfaces {
		status := ports[[2]int{topo.Links[i.Link].Number, i.End}]
		r.Ports = append(r.Ports, report.Port{
			Name: i.Name, To: topo.Links[i.Link].Endpoints[1-i.End].String(), State: status.State.String(), MACs: status.MACs,
		})
	}
	return r
}
