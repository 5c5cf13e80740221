package lab

import (
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/internal/node/cgroup"
	"github.com/ndklab/ndklab/internal/node/pfc"
	"github.com/ndklab/ndklab/internal/node/reaper"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// A nodeDriver carries out actions on hosts and routers, and has what it found of them on this machine: their agents.
type nodeDriver struct {
	lab     string
	reaper  *reaper.Reaper
	shared  *node.Machine // of the nodes here; its reaper is that one
	publish func(event.Event)
	qpError func(node string, e provider.QPError)
	ended   func(l *life, reason string) // is told of the end of an agent
	began   func(of core.Of, pid int)    // is told the process id on this host of an agent, when it is started; nil: nobody is

	// The following fields are set before the first action.
	hostProc  *os.File // the host's /proc
	hosts     string   // the file that stands for /etc/hosts in nodes; "": the host's does
	libraries string   // the folder of the libraries for RDMA programs; "": there is none

	naming sync.Mutex // held while hosts is written
	short  sync.Once  // says that a receive buffer is less than the file asks for

	mu       sync.Mutex         // guards what follows
	lives    map[string]*life   // the present or the last one of each node
	of       *topology.Topology // whose segments are known
	segments [][]node.Neighbour // who is on the segment of each link
	groups   *cgroup.Tree       // where nodes with limits have their groups; nil if there are none
	limitsOf *topology.Topology // which was asked for limits last
	limited  cgroup.Limits      // what groups is ready for
}

// action returns how to carry out an action on a node; nil if it is none.
func (d *nodeDriver) action(a core.Action) func() core.Done {
	on := func(of core.Of, do func(*life) core.Done) func() core.Done {
		l := d.life(of.Node)
		return func() core.Done {
			done := do(l)
			if done.Err != nil && isClosed(l.agent.Done()) {
				done.Agent = true
			}
			return done
		}
	}
	failing := func(of core.Of, do func(*life) error) func() core.Done {
		return on(of, func(l *life) core.Done { return l.done(do(l)) })
	}
	switch a := a.(type) {
	case core.StartAgent:
		return func() core.Done { return core.Done{Err: d.start(a)} }
	case core.PlaceFiles:
		return failing(a.Of, (*life).placeFiles)
	case core.Execute:
		return on(a.Of, func(l *life) core.Done { return l.execute(a.Command) })
	case core.Configure:
		return failing(a.Of, func(l *life) error { return l.configure(d) })
	case core.Reconfigure:
		return failing(a.Of, func(l *life) error { return l.reconfigure(d, a) })
	case core.SetRoutes:
		return failing(a.Of, func(l *life) error { return l.setRoutes(a.Routes) })
	case core.CheckHealth:
		return on(a.Of, (*life).checkHealth)
	case core.PauseAgent:
		return failing(a.Of, (*life).pause)
	case core.ResumeAgent:
		return failing(a.Of, (*life).resume)
	case core.SignalAgent:
		return failing(a.Of, func(l *life) error { return l.send(syscall.Signal(a.Signal)) })
	case core.KillAgent:
		return on(a.Of, func(l *life) core.Done {
			l.agent.Kill()
			return core.Done{}
		})
	}
	return nil
}

// life returns the present life of a node, or its last; nil if it has had none.
func (d *nodeDriver) life(name string) *life {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lives[name]
}

// ending reports whether the agent of a node at an end of a link has ended, and the core is still to be told.
func (d *nodeDriver) ending(spec *topology.Link) bool {
	return slices.ContainsFunc(spec.Endpoints[:], func(e topology.Endpoint) bool {
		l := d.life(e.Node)
		return l != nil && isClosed(l.agent.Done()) && !isClosed(l.down)
	})
}

// forget forgets a node that is in the lab no more.
func (d *nodeDriver) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.lives, name)
}

// start starts the agent of a node.
func (d *nodeDriver) start(a core.StartAgent) error {
	spec := a.Topology.FindNode(a.Node)
	l := &life{Of: a.Of, spec: spec, told: d.config(a.Topology, spec, a.Routes, a.Restarts), unwatch: func() {}, down: make(chan struct{})}
	l.rates = maps.Clone(l.told.LineRates)
	if err := l.limit(d.lab, d.groupsOf(a.Topology)); err != nil {
		return fmt.Errorf("node %s: limits: %w", spec.Name, err)
	}
	cfg := l.told
	cfg.QPError = func(e provider.QPError) { d.qpError(spec.Name, e) }
	cfg.Machine, cfg.Idle = d.shared, mayBeIdle(a.Topology, spec)
	cfg.Began = func(agent int) {
		pid, err := node.PIDIn(d.hostProc, agent)
		if err != nil {
			log.Printf("node %s: %v", spec.Name, err) // it is only shown
		}
		l.hostPID.Store(int64(pid))
		if d.began != nil {
			d.began(l.Of, pid)
		}
	}
	agent, err := node.Start(cfg, l.group, os.Stderr)
	if err != nil {
		l.unwatch()
		return err
	}
	l.agent, l.client = agent, agent.Client
	d.mu.Lock()
	d.lives[a.Node] = l
	d.mu.Unlock()
	go func() {
		<-l.agent.Done()
		l.unwatch()
		d.ended(l, l.end())
	}()
	return nil
}

// agentsAtOnce is the number of nodes up to which a lab has all agents from the beginning, so that the first command in
// a node finds its agent there. Most of the time and memory that a larger lab takes would be for agents. Tests have
// another number.
var agentsAtOnce = 64

// mayBeIdle reports whether a node has no agent before something runs in it. An agent watches limits, hears pauses, has a
// receive buffer that may be less than was asked for, and is told the rates of lines: nodes with any of these have theirs at
// once, and so have those that run something anyway.
func mayBeIdle(topo *topology.Topology, spec *topology.Node) bool {
	return len(topo.Nodes) > agentsAtOnce && limitsOf(spec) == (cgroup.Limits{}) && spec.Adapter == (topology.Adapter{})
}

// config returns what a node is told when it is started for the start-th time after the first: routes, and its
// neighbours, since who is on each of its segments is known beforehand, unless it is outside the lab. A later start has
// other random numbers than the one before: what is still under way must not be taken for the new node's.
func (d *nodeDriver) config(topo *topology.Topology, spec *topology.Node, routes []topology.Route, start int) node.Config {
	seed := "node " + spec.Name
	if start > 0 {
		seed = fmt.Sprintf("node %s, start %d", spec.Name, start)
	}
	cfg := node.Config{
		Lab: d.lab, Name: spec.Name, Seed: topo.SeedOf(seed), Adapter: spec.Adapter, Dilation: topo.DilationFactor(),
		Forwards: spec.Kind == topology.Router, Routes: routes, Reroutes: topo.Convergence > 0, PIDLimit: spec.PIDs != 0,
		Env: spec.Setup.Env, Files: spec.Setup.Files, Hosts: d.hosts,
	}
	if !spec.NoVerbs {
		cfg.Libraries = d.libraries
	}
	if list := spec.Adapter.PFC; list != nil && len(*list) > 0 {
		cfg.PFC = &pfc.Config{Priorities: *list, Classes: mmu.ClassesOf(mmu.Beside(topo, spec))}
	}
	if spec.Adapter.Congestion != nil || cfg.PFC != nil {
		cfg.LineRates = adapter.LineRates(spec, topo.Links)
	}
	cfg.Buffered = mmu.Beside(topo, spec) != nil
	onSegments := d.segmentsOf(topo)
	for _, i := range spec.Interfaces {
		l := topo.Links[i.Link]
		face := node.Interface{Name: i.Name, MTU: l.MTU, Addresses: i.Addresses, Wire: !l.Offload || l.Endpoints[1-i.End].External()}
		if segment := onSegments[i.Link]; len(segment) <= maxNeighbours {
			face.Neighbours = segment
		}
		cfg.Interfaces = append(cfg.Interfaces, face)
	}
	return cfg
}

// segmentsOf returns who is on the segment of each link.
func (d *nodeDriver) segmentsOf(topo *topology.Topology) [][]node.Neighbour {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of != topo {
		d.of, d.segments = topo, segments(topo)
	}
	return d.segments
}

// madeInterface notes that a node has an interface that its agent has not set up.
func (d *nodeDriver) madeInterface(name string) {
	if l := d.life(name); l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.fresh = true
	}
}
