package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ndklab/ndklab/fabric/lab/link"
	"github.com/ndklab/ndklab/fabric/lab/revive"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/node"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A labNode is a host or a router of the running lab, in a roster.
type labNode struct {
	spec *topology.Node
	*nodeState
}

// A nodeState is what a node does at present. It stays for as long as the node is in
// the lab; its agent is another one each time that the node is started (life.go).
type nodeState struct {
	gone chan struct{} // closed, by who has changing, when the node is in the lab no more

	// changing holds a token while a command or the restart policy changes the state
	// of the node, which takes several steps. Who has it may wait for labLink.changing,
	// never the other way round.
	changing chan struct{}

	reviver revive.Reviver

	mu   sync.Mutex // guards what follows
	life *life      // the present one, or the last; never nil once the lab is built
	// restarts is how often the node was started again, whether or not it came up.
	restarts int
	paused   bool // its processes are stopped
	lasting  nodeRequest
	due      due // what an Apply has still to do with it
}

func newLabNode(spec *topology.Node) *labNode {
	return &labNode{spec, &nodeState{gone: make(chan struct{}), changing: make(chan struct{}, 1), reviver: revive.Reviver{Clock: clock.Real()}}}
}

// current is the node's present life, or its last.
func (n *labNode) current() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life
}

// alive is the life of a node that is up, else an error that says why it is not.
func (n *labNode) alive() (*life, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case isClosed(n.life.down):
		return nil, control.Errorf(control.Usage, "node %s is down: %s", n.spec.Name, n.life.reason)
	case n.paused:
		return nil, control.Errorf(control.Usage, "node %s is paused", n.spec.Name)
	}
	return n.life, nil
}

// status is the node's state, as far as the supervisor knows it by itself.
func (n *labNode) status() report.NodeState {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case isClosed(n.life.down):
		return report.NodeState{Name: n.spec.Name, State: nodeDown, Reason: n.life.reason}
	case n.paused:
		return report.NodeState{Name: n.spec.Name, State: nodePaused}
	}
	return report.NodeState{Name: n.spec.Name, State: nodeReady}
}

// startNodes starts the agent of every host and router. More of them at once than there are
// processors would only queue for the kernel's namespace lock.
func (s *Supervisor) startNodes(ctx context.Context) error {
	var specs []*topology.Node
	for i := range s.topo.Nodes {
		if spec := &s.topo.Nodes[i]; spec.Kind != topology.Switch {
			specs = append(specs, spec)
		}
	}
	s.nodes = make([]*labNode, len(specs))
	s.groups = s.openGroups()
	err := parallel(ctx, runtime.GOMAXPROCS(0), len(s.nodes), func(ctx context.Context, i int) error {
		n := newLabNode(specs[i])
		var err error
		n.life, err = s.begin(n.spec, 0)
		s.nodes[i] = n
		return err
	})
	if err != nil {
		return err
	}
	for _, n := range s.nodes {
		s.byName[n.spec.Name] = n
	}
	for _, n := range s.nodes { // by now, as those that watch read byName
		go s.watchNode(n, n.life)
	}
	return nil
}

// nodeConfig gives a node its routes, and its neighbours: who is on each of its
// segments is known beforehand, unless it is outside the lab.
func (s *Supervisor) nodeConfig(spec *topology.Node) node.Config {
	cfg := node.Config{
		Lab: s.name, Name: spec.Name, Seed: s.topo.SeedOf("node " + spec.Name), Adapter: spec.Adapter,
		Forwards: spec.Kind == topology.Router, Routes: spec.Routes, PIDLimit: spec.PIDs != 0,
		Env: spec.Setup.Env, Files: spec.Setup.Files, Hosts: s.hosts,
	}
	if !spec.NoVerbs {
		cfg.Libraries = s.libraries
	}
	for _, i := range spec.Interfaces {
		l := s.topo.Links[i.Link]
		face := node.Interface{Name: i.Name, MTU: l.MTU, Addresses: i.Addresses, Wire: !l.Offload || l.Endpoints[1-i.End].External()}
		if segment := s.segments[i.Link]; len(segment) <= maxNeighbours {
			own := link.MAC(l.Number, i.End)
			for _, n := range segment {
				if !bytes.Equal(n.MAC, own) {
					face.Neighbours = append(face.Neighbours, n)
				}
			}
		}
		cfg.Interfaces = append(cfg.Interfaces, face)
	}
	return cfg
}

// linkNodes makes every link and, as soon as a node has all of its own, configures its
// interfaces and has its agent open the adapter: that keeps the processors busy which
// making links does not, since the kernel makes one at a time.
func (s *Supervisor) linkNodes(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	linked := make(chan *labNode, len(s.nodes))
	done := make(chan struct{})
	defer close(done)
	go s.tellUntil(done)
	var making sync.WaitGroup
	making.Go(func() {
		defer close(linked)
		if err := s.makeLinks(ctx, linked); err != nil {
			stop(err) // the first cause is kept
		}
	})
	err := parallel(ctx, requestsAtOnce, len(s.nodes), func(ctx context.Context, _ int) error {
		n, ok := <-linked
		if !ok {
			return nil // a link could not be made
		}
		if err := s.furnish(ctx, n, n.current()); err != nil {
			return err
		}
		return s.up(ctx, n, n.current())
	})
	if err != nil {
		stop(err)
	}
	making.Wait()
	return context.Cause(ctx)
}

// Node is the agent of a running host or router by its name.
func (s *Supervisor) Node(name string) (*node.Agent, error) {
	n, err := s.labNode(name)
	if err != nil {
		return nil, err
	}
	l, err := n.alive()
	if err != nil && n.awayByHand() != "" {
		return nil, control.Errorf(control.Usage, "%v: `%s` brings it back", err, s.bringBack(n))
	}
	if err != nil {
		return nil, err
	}
	return l.agent, nil
}

// host is the host of that name, which must be running. Only hosts have adapters.
func (s *Supervisor) host(name string) (*labNode, error) {
	if spec := s.topo.FindNode(name); spec != nil && (spec.Kind == topology.Switch || spec.Kind == topology.Router) {
		return nil, control.Errorf(control.Usage, "%s is a %s: it has no adapter", name, spec.Kind)
	}
	if _, err := s.Node(name); err != nil {
		return nil, err
	}
	return s.byName[name], nil
}

// pick is the host of that name; all hosts for "".
func (s *Supervisor) pick(name string) ([]*labNode, error) {
	if name == "" {
		return slices.DeleteFunc(slices.Clone(s.nodes), func(n *labNode) bool { return n.spec.Kind == topology.Router }), nil
	}
	n, err := s.host(name)
	return []*labNode{n}, err
}

// answerTime is how long an agent may take to answer what takes it no time. One
// that is stopped never does. Tests have other times.
var answerTime = time.Second

// The states of a node.
const (
	nodeReady  = report.NodeReady
	nodeStarts = report.NodeStarting
	nodeDown   = report.NodeDown
	nodePaused = report.NodePaused
	nodeMute   = report.NodeUnresponsive
)

// ask makes a request of each of some nodes, all of which is answered soon, and
// says in what state the node was found, and why if that is not ready.
func ask(ctx context.Context, nodes []*labNode, request func(ctx context.Context, i int, agent *node.Agent) error) []report.NodeState {
	states := make([]report.NodeState, len(nodes))
	// The states tell of errors.
	_ = parallel(ctx, 16, len(nodes), func(ctx context.Context, i int) error {
		l, err := nodes[i].alive()
		if states[i] = nodes[i].status(); err != nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		err = request(ctx, i, l.agent)
		switch {
		case err == nil:
			states[i].State = nodeReady
		case errors.Is(err, control.ErrClosed):
			<-l.down // which says why, and is not far behind
			states[i].State, states[i].Reason = nodeDown, l.reason
		case errors.Is(err, context.DeadlineExceeded):
			if states[i] = nodes[i].status(); states[i].State != nodeReady { // it was paused meanwhile
				return nil
			}
			states[i].State, states[i].Reason = nodeMute, fmt.Sprintf("its agent does not answer within %v", answerTime)
		default:
			states[i].State, states[i].Reason = nodeReady, err.Error()
		}
		return nil
	})
	return states
}

// InspectNodes is the state of every node, in the order of the topology.
func (s *Supervisor) InspectNodes(ctx context.Context) []report.Node {
	agents := inspect(ctx, s.nodes)
	ports, err := s.network.Ports()
	starting := s.checkReady() != nil
	nodes := make([]report.Node, 0, len(s.topo.Nodes))
	for i := range s.topo.Nodes {
		sw := s.switches[s.topo.Nodes[i].Name]
		if sw == nil {
			nodes = append(nodes, agents[0])
			agents = agents[1:]
			if n := s.byName[nodes[i].Name]; starting && nodes[i].State == nodeReady {
				if doing := n.current().progress.at(); doing != "" {
					nodes[i].State, nodes[i].Reason = nodeStarts, doing
				}
			}
			continue
		}
		nodes = append(nodes, sw.inspect(s.topo, ports))
		if err != nil {
			nodes[i].Reason = err.Error()
		}
	}
	return nodes
}

// inspect is the state of hosts and routers.
func inspect(ctx context.Context, nodes []*labNode) []report.Node {
	counters := make([]node.Counters, len(nodes))
	states := ask(ctx, nodes, func(ctx context.Context, i int, agent *node.Agent) (err error) {
		counters[i], err = agent.Counters(ctx)
		return err
	})
	inspected := make([]report.Node, len(nodes))
	for i, n := range nodes {
		r := &inspected[i]
		*r = report.Node{NodeState: states[i], Kind: n.kind(), Addresses: []string{}, Counters: map[string]uint64{}, Transport: map[string]uint64{}}
		for _, face := range n.spec.Interfaces {
			for _, a := range face.Addresses {
				r.Addresses = append(r.Addresses, a.String())
			}
		}
		n.mu.Lock()
		r.Restarts = n.restarts
		n.mu.Unlock()
		if r.State != nodeDown {
			r.PID = n.current().hostPID
			r.Health = n.current().progress.report()
		}
		r.Limits, r.Usage = n.current().usage()
		if counters[i].NDK != nil {
			r.Counters, r.Transport = counters[i].NDK, counters[i].Transport
		}
	}
	return inspected
}

// kind is what the node is, for reports.
func (n *labNode) kind() string {
	if n.spec.Kind == topology.Router {
		return string(topology.Router)
	}
	return string(topology.Host)
}

// requestsAtOnce bounds the requests under way of those that are made to many nodes or
// of many links: others do the work.
const requestsAtOnce = 16

// parallel calls f for 0 to n-1, several at once, and returns the first error,
// upon which no more calls begin and those under way have their ctx cancelled.
func parallel(ctx context.Context, width, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(width, n) {
		workers.Go(func() {
			for i := range next {
				if err := f(ctx, i); err != nil {
					cancel(err) // the first cause is kept
				}
			}
		})
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}
