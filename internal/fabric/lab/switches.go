package lab

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// A labSwitch is a switch of the running lab: a bridge of the kernel in the
// supervisor's own network namespace, at which links end; or, with a packet buffer, a part of the link engine. It has no
// process.
type labSwitch struct {
	number int          // of the bridge
	bridge *link.Bridge // nil: the link engine has the switch
}

// switchOf returns the switch of that name; nil if there is none.
func (d *linkDriver) switchOf(name string) *labSwitch {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.switches[name]
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

// makeSwitch returns what makes the bridge of a switch. Its number is the lowest that is free: of those that are made one
// after the other, the first is the root of the spanning tree that it is in. In a lab over several hosts the head gives it, since no
// other host may have a bridge of that number, of which its address is made.
func (d *linkDriver) makeSwitch(topo *topology.Topology, spec *topology.Node) func() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	used := map[int]bool{}
	for _, sw := range d.switches {
		used[sw.number] = true
	}
	number := d.bridges[spec.Name]
	for used[number] {
		number++
	}
	first := len(d.switches) == 0
	sw := &labSwitch{number: number}
	d.switches[spec.Name] = sw
	if spec.Buffer != nil {
		return func() error { return nil }
	}
	var tree *link.Tree
	if spec.SpanningTree {
		tree = &link.Tree{ForwardDelay: forwardDelay(topo, spec)}
	}
	return func() error {
		if first {
			if err := link.QuietBridges(); err != nil {
				return control.Errorf(control.Unable, "keep the packet filter out of switches: %v", err)
			}
		}
		bridge, err := d.network.MakeBridge(number, tree)
		if err != nil {
			return fmt.Errorf("switch %s: %w", spec.Name, err)
		}
		sw.bridge = bridge // before any link ends at it
		return nil
	}
}

// removeSwitch removes the bridge of a switch.
func (d *linkDriver) removeSwitch(spec *topology.Node) error {
	if bridge := d.switchOf(spec.Name).bridge; bridge != nil {
		if err := d.network.RemoveBridge(bridge); err != nil {
			return fmt.Errorf("switch %s: %w", spec.Name, err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.switches, spec.Name)
	return nil
}

// forwardDelay returns the time for which the ports of a switch listen, and then learn. A
// switch passes on what it hears of the root within a second (IEEE 802.1D-1998, hold time).
// No port may forward before all switches have heard, with a second to spare, lest a
// loop is closed meanwhile. 2 s is the least that the kernel takes, 30 s the most.
func forwardDelay(topo *topology.Topology, of *topology.Node) time.Duration {
	hear := time.Duration(farthest(topo, of)+1) * time.Second
	return min(max(2*time.Second, (hear+time.Second)/2), 30*time.Second)
}

// farthest returns the number of links between a switch and that which is farthest from
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

// The time that a spanning tree may take beyond its own delays, and that between two looks
// at it.
const (
	treePoll = 20 * time.Millisecond
	treeTime = 10 * time.Second
)

// awaitTree waits until the ports of some links that are up forward, or are spares. Of all links of the lab it says so.
func (d *linkDriver) awaitTree(topo *topology.Topology, a core.AwaitSpanningTree) error {
	var slowest time.Duration
	for _, l := range a.Links {
		for _, e := range l.Endpoints {
			if spec := topo.FindNode(e.Node); spec != nil && spec.Kind == topology.Switch && spec.SpanningTree {
				slowest = max(slowest, forwardDelay(topo, spec))
			}
		}
	}
	if !a.All {
		return d.awaitPorts(a.Links, treeTime+2*slowest)
	}
	d.publish(event.Event{Kind: event.SpanningTree, Text: fmt.Sprintf("the switches look for loops, which takes %v at least", 2*slowest)})
	if err := d.awaitPorts(a.Links, treeTime+2*slowest); err != nil {
		return err
	}
	states, err := d.network.PortStates()
	if err != nil {
		return err
	}
	count := map[link.PortState]int{}
	for _, state := range states {
		count[state]++
	}
	d.publish(event.Event{Kind: event.SpanningTree, Text: fmt.Sprintf("the switches have found their spanning tree: forwarding ports: %d, blocking: %d", count[link.Forwarding], count[link.Blocking])})
	return nil
}

// awaitPorts waits until spanning trees know of the ports of links.
func (d *linkDriver) awaitPorts(links []*topology.Link, limit time.Duration) error {
	late := time.After(limit)
	tick := time.NewTicker(treePoll)
	defer tick.Stop()
	for {
		states, err := d.network.PortStates()
		if err != nil {
			return err
		}
		port, state := undecided(states, links)
		if port == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-late:
			return fmt.Errorf("port %s is still %s: after %v", port, state, limit)
		}
	}
}

// undecided is a port of those links of which the spanning tree does not know yet,
// or "".
func undecided(states map[[2]int]link.PortState, links []*topology.Link) (string, link.PortState) {
	for _, l := range links {
		for end, e := range l.Endpoints {
			if state := states[[2]int{l.Number, end}]; state == link.Listening || state == link.Learning {
				return e.String(), state
			}
		}
	}
	return "", 0
}

// inspectSwitch returns the state of a switch. ports are those of all switches.
func inspectSwitch(topo *topology.Topology, spec *topology.Node, status core.NodeStatus, ports map[[2]int]link.PortStatus) report.Node {
	r := report.Node{
		NodeState: stateOfNode(spec.Name, status), Kind: string(topology.Switch), Restarts: status.Restarts,
		Addresses: []string{}, Counters: map[string]uint64{}, Transport: map[string]uint64{}, Ports: []report.Port{},
	}
	for _, i := range spec.Interfaces {
		status := ports[[2]int{topo.Links[i.Link].Number, i.End}]
		r.Ports = append(r.Ports, report.Port{
			Name: i.Name, To: topo.Links[i.Link].Endpoints[1-i.End].String(), State: status.State.String(), MACs: status.MACs,
		})
	}
	return r
}
