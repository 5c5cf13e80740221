package scenario

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// evidence is what checks look at that no report has: how their programs ended, by the
// check's index in the topology.
type evidence map[int]ran

// A ran is how the program of a check has ended.
type ran struct {
	Exit
	err error // why it could not be run
}

// How long what programs had that have ended may take to be gone, and the time between two looks.
const (
	goneTime  = 2 * time.Second
	gonePause = 20 * time.Millisecond
)

// rest gathers when nothing is left over, if a check is about that. A node's agent notes the end of a program when it gets a
// processor; until then what the program had on the adapter seems to be left over. What stays is left over.
func (p *Play) rest() {
	isLeft := func(c topology.Check) bool { return c.Left }
	isProgram := func(w topology.Workload) bool { return w.Operation == topology.Program }
	if !p.interrupted && slices.ContainsFunc(p.topo.Checks, isLeft) && slices.ContainsFunc(p.topo.Workloads, isProgram) {
		p.awaitGone(p.now() + goneTime)
		return
	}
	p.gather()
}

// awaitGone gathers when no adapter has anything in use, at a time at the latest.
func (p *Play) awaitGone(latest time.Duration) {
	p.then = p.gather
	adapters := p.awaited()
	p.stage.Adapters(nil, func(all []report.NodeAdapter) {
		adapters(func() {
			inUse := func(a report.NodeAdapter) bool {
				if a.Adapter == nil {
					return false
				}
				sum, _, _ := remains(&report.Node{InUse: &a.Adapter.InUse}, topology.Leftovers)
				return sum > 0
			}
			if p.interrupted || p.now() >= latest || !slices.ContainsFunc(all, inUse) {
				return
			}
			p.clock.AfterFunc(gonePause, p.expect(func() { p.awaitGone(latest) }))
		})
	})
}

// gather looks at the lab when it rests.
func (p *Play) gather() {
	p.then = func() { p.runCheck(0) }
	nodes := p.awaited()
	p.stage.Nodes(nil, func(all []report.Node) {
		nodes(func() {
			for i := range all {
				all[i].PID = 0 // it says nothing any more when the report is read
			}
			p.result.Nodes = all
		})
	})
	links := p.awaited()
	p.stage.Links(func(all []report.Link, err error) {
		links(func() {
			p.result.Links = all
			if err != nil {
				p.problem("%v", err)
			}
		})
	})
	if p.interrupted { // and nothing is judged
		p.then = p.conclude
		return
	}
	if !slices.ContainsFunc(p.topo.Checks, func(c topology.Check) bool { return c.Left }) {
		return
	}
	adapters := p.awaited()
	p.stage.Adapters(nil, func(all []report.NodeAdapter) {
		adapters(func() {
			p.left = map[string]provider.Usage{}
			for _, a := range all {
				if a.Adapter != nil {
					p.left[a.Name] = a.Adapter.InUse
				}
			}
		})
	})
}

// runCheck runs the programs of checks from that index on, one after the other.
func (p *Play) runCheck(i int) {
	for ; i < len(p.topo.Checks); i++ {
		c := &p.topo.Checks[i]
		if len(c.Command) == 0 {
			continue
		}
		p.then = func() { p.runCheck(i + 1) }
		p.exec(c.Node, Command{Args: c.Command, Env: p.environment(c.Node), Timeout: c.Timeout}, func(e Exit, err error) {
			p.evidence[i] = ran{e, err}
		})
		return
	}
	p.conclude()
}

// conclude adds what is wrong with nodes and links, and the verdict.
func (p *Play) conclude() {
	for i := range p.result.Nodes {
		n := &p.result.Nodes[i]
		if used, ok := p.left[n.Name]; ok {
			n.InUse = &used
		}
		if n.State != core.NodeIsReady && !p.meant[n.Name] {
			p.problem("node %s is %s", n.Name, n.InWords())
		}
	}
	for i := range p.result.Links {
		l := &p.result.Links[i]
		for d := range l.Directions {
			for _, o := range l.Directions[d].Overruns {
				if !o.Allowed {
					text := fmt.Sprintf("overrun of link %s to %s: %s: tolerated %s, got %s", l.Endpoints[d], l.Endpoints[1-d], o.Figure, o.Tolerated, o.Got)
					p.problem("%s: %s: %s", text, o.Reason, o.Remedy)
					p.publish(event.Event{Kind: event.LinkOverrun, Link: l.Endpoints[d], Text: text})
				}
			}
		}
	}
	if text := spurious(p.topo, p.result); text != "" {
		p.problem("%s", text)
	}
	p.leave()
}

// leave is the end.
func (p *Play) leave() {
	p.then = nil
	p.unwatch()
	r := p.result
	r.Workloads = make([]report.Workload, len(p.works))
	for i, w := range p.works {
		r.Workloads[i] = w.report()
	}
	var err error
	if p.interrupted {
		err = ErrInterrupted
		p.problem("%v", err)
	} else {
		r.Checks = judge(p.topo, r, p.evidence)
	}
	r.Problems = p.problems
	r.Passed = passed(p.topo, r)
	p.finish = func() { p.done(r, err) }
}

// environment is what the scenario's programs in a node find in their environment.
func (p *Play) environment(node string) []string {
	return p.surroundings(node, without(p.topo.Hosts(), node))
}

// environment is what the workload's program in a node finds there: its peers are the
// workload's other nodes.
func (w *work) environment(node string) []string {
	return w.surroundings(node, without(w.spec.Nodes, node))
}

// without is the nodes but one.
func without(nodes []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == one })
}

// surroundings are the lab, the node and its peers: the address of each peer is one that
// the node reaches, and of the node the one from which it reaches the first of them.
func (p *Play) surroundings(node string, peers []string) []string {
	var own netip.Addr
	var addresses []string
	for _, peer := range peers {
		address := "-" // out of reach
		if path, ok := p.topo.Path(node, peer); ok {
			address = path.To.Address.String()
			if !own.IsValid() {
				own = path.From.Address
			}
		}
		addresses = append(addresses, address)
	}
	if n := p.topo.FindNode(node); n != nil && !own.IsValid() && len(n.Interfaces) > 0 && len(n.Interfaces[0].Addresses) > 0 {
		own = n.Interfaces[0].Addresses[0].Addr()
	}
	environment := []string{
		"NDKLAB_LAB=" + p.topo.Name,
		"NDKLAB_NODE=" + node,
		fmt.Sprintf("NDKLAB_SEED=%d", p.topo.Seed),
		"NDKLAB_PEERS=" + strings.Join(peers, " "),
		"NDKLAB_PEER_ADDRESSES=" + strings.Join(addresses, " "),
	}
	if own.IsValid() {
		environment = append(environment, "NDKLAB_ADDRESS="+own.String())
	}
	return environment
}

// problem is why a program of a check has not ended as it was to; nil if it has. What it
// was to print is another matter.
func (v *ran) problem(c *topology.Check) error {
	switch {
	case v.err != nil:
		return v.err
	case v.TimedOut:
		return v.Exit.problem(c.Timeout)
	case v.Status != c.Status && v.Status == 0:
		return errors.New("exit status 0")
	case v.Status != c.Status:
		return v.Exit.problem(c.Timeout)
	}
	return nil
}
