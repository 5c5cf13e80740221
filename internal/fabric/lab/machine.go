package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/fabric/linkem"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/trunk"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/node/verbs"
	"github.com/ndklab/ndklab/topology"
)

// machines carry out the actions of a lab's core, and answer for the nodes and links that came of them: this machine alone
// (machine), or those of several hosts (head). Methods may be called from any goroutine.
type machines interface {
	// action returns how to carry out an action, which came of a topology.
	action(topo *topology.Topology, a core.Action) func() core.Done
	// foresee has hosts be ready for a change of the lab to another topology, or refuses that, before anything is changed. The
	// function over is to be called when the change is over.
	foresee(ctx context.Context, was, is *topology.Topology) (over func(), err error)
	// forgetNode and forgetLink forget what is in the lab no more.
	forgetNode(name string)
	forgetLink(spec *topology.Link)
	// life returns the present life of a node, or its last; nil if it has had none.
	life(name string) *life
	// pid returns the process id on its host of a process that a node's agent knows by another.
	pid(node string, pid int) (int, error)
	// ports returns the ports of the kernel's switches, by the number of the link and its end.
	ports() (map[[2]int]link.PortStatus, error)
	// carried returns what the kernel has carried, by the number of the link. A link that it never joined may be left out.
	carried(topo *topology.Topology) (map[int]carried, error)
	// engines returns the link engines that there are.
	engines() []*linkem.Engine
	// failedWith reports whether an engine has given that error since its host is lost, from a lab that goes on.
	failedWith(ctx context.Context, engine *linkem.Engine, err error) bool
	// report returns the hosts, and between those of a link from one to another. They are nil of this machine.
	report() []report.RunHost
	between(*topology.Link) *[2]string
	// inspectExternals returns the state of every external of the lab's topology, in the order of the links.
	inspectExternals(ctx context.Context, topo *topology.Topology) ([]report.External, error)
	// admit has a program that has the other end of a socket share the adapter of a node, or says where it is to ask.
	admit(ctx context.Context, l *life, f *os.File) (admission, error)
	// capture captures the interface at an end of a link until ctx ends, and gives the packets to who has asked for them under
	// that number (methodSocket).
	capture(ctx context.Context, to control.Caller, spec *topology.Link, end int, id uint64) error
	// remember has the last packets of links be kept at other hosts, of links there. It reports whether that is so of all.
	remember(ctx context.Context) (afar bool, err error)
	// recall writes what is kept so, as pcapng.
	recall(ctx context.Context, topo *topology.Topology, to *os.File) error
	// probe sends probes in both directions of a link, which are set to what asked says, and returns what became of them.
	probe(ctx context.Context, spec *topology.Link, asked [2]topology.Impairment, probes Probes) ([2]report.Probed, error)
}

// carried tells of the terms in which the kernel carried a link.
type carried struct {
	Counters [2]link.Counters
	Lossy    [2]bool // netem has been asked for loss
}

// A machine carries out actions on this machine. Those on nodes are in nodedriver.go and life.go, those on links in
// linkdriver.go and lablink.go, those on switches in switches.go.
type machine struct {
	nodes   *nodeDriver
	links   *linkDriver
	publish func(event.Event)
	lanes   lanes
	afar    bool // it is one of several, and those who ask are at another host
	host    string
	clock   atomic.Pointer[trunk.Difference] // of the host's, from that of the lab's time line; nil: there is one alone
	// The following fields are set before the first action.
	present    func() *topology.Topology
	beginLinks func() error // carries BeginLinks out
}

// lanes bound how many actions of a kind are carried out at once.
type lanes struct {
	start  chan struct{} // more than there are processors would only queue for the kernel's namespace lock
	make   chan struct{} // the kernel makes one interface at a time
	change chan struct{} // others do the work
}

func newLanes() lanes {
	return lanes{make(chan struct{}, runtime.GOMAXPROCS(0)), make(chan struct{}, 1), make(chan struct{}, requestsAtOnce)}
}

// of returns what bounds actions like that; nil: nothing does, since they wait for something or are over at once.
func (l *lanes) of(a core.Action) chan struct{} {
	switch a.(type) {
	case core.StartAgent:
		return l.start
	case core.MakeSwitch, core.MakeEnds:
		return l.make
	case core.Execute, core.CheckHealth, core.KillAgent, core.SignalAgent, core.AwaitIdle, core.AwaitSpanningTree, core.BeginLinks, core.RenewNames:
		return nil
	}
	return l.change
}

// action returns how to carry out an action, as soon as its lane has room.
func (m *machine) action(topo *topology.Topology, a core.Action) func() core.Done {
	act, lane := m.unbounded(topo, a), m.lanes.of(a)
	if lane == nil {
		return act
	}
	return func() core.Done {
		lane <- struct{}{}
		defer func() { <-lane }()
		return act()
	}
}

func (m *machine) unbounded(topo *topology.Topology, a core.Action) func() core.Done {
	failing := func(do func() error) func() core.Done { return func() core.Done { return core.Done{Err: do()} } }
	switch a := a.(type) {
	case core.BeginLinks:
		return failing(m.beginLinks)
	case core.RenewNames:
		return failing(func() error { return m.nodes.renewHosts(m.present) })
	case core.MakeSwitch:
		return failing(m.links.makeSwitch(topo, a.Spec))
	case core.RemoveSwitch:
		return failing(func() error { return m.links.removeSwitch(a.Spec) })
	case core.AwaitSpanningTree:
		return failing(func() error { return m.links.awaitTree(topo, a) })
	}
	if act := m.nodes.action(a); act != nil {
		return m.links.routing(a, act)
	}
	if act := m.links.action(a); act != nil {
		return m.nodes.followRates(a, act)
	}
	return func() core.Done { return core.Done{Err: fmt.Errorf("unknown action %T", a)} }
}

func (m *machine) foresee(_ context.Context, _, is *topology.Topology) (func(), error) {
	return func() {}, errors.Join(checkEngines(is), checkPorts(is))
}

func (m *machine) forgetNode(name string)         { m.nodes.forget(name) }
func (m *machine) forgetLink(spec *topology.Link) { m.links.forget(spec.Number) }
func (m *machine) life(name string) *life         { return m.nodes.life(name) }

func (m *machine) pid(_ string, pid int) (int, error) { return node.PIDIn(m.nodes.hostProc, pid) }

func (m *machine) ports() (map[[2]int]link.PortStatus, error) { return m.links.network.Ports() }

// carried asks the kernel only if it joins a link now: its counters take it some microseconds for each link, and of links
// that it does not join they say nothing (labLink.byKernel).
func (m *machine) carried(topo *topology.Topology) (map[int]carried, error) {
	var kernel map[int][2]link.Counters
	for i := range topo.Links {
		if l := m.links.known(topo.Links[i].Number); l != nil && l.isJoined() {
			var err error
			if kernel, err = m.links.network.Counters(); err != nil {
				return nil, err
			}
			break
		}
	}
	all := make(map[int]carried, len(topo.Links))
	for i := range topo.Links {
		number := topo.Links[i].Number
		if l := m.links.known(number); l != nil {
			all[number] = l.byKernel(kernel[number])
		}
	}
	return all, nil
}

// difference returns how the clock of this host differs from that of the lab's time line.
func (m *machine) difference() (d trunk.Difference) {
	if known := m.clock.Load(); known != nil {
		d = *known
	}
	return d
}

func (m *machine) engines() []*linkem.Engine {
	if engine := m.links.engine.current(); engine != nil {
		return []*linkem.Engine{engine}
	}
	return nil
}

func (m *machine) failedWith(context.Context, *linkem.Engine, error) bool { return false }

func (m *machine) report() []report.RunHost          { return nil }
func (m *machine) between(*topology.Link) *[2]string { return nil }

// A setting has all that a machine has to know before it carries anything out.
type setting struct {
	Lab        string
	Topology   *topology.Topology
	StateDir   string
	Privileged bool // the lab's user is root, outside as well
}

// prepare makes what nodes and links need. The process must have namespaces of its own.
func (m *machine) prepare(to setting) error {
	topo := to.Topology
	m.links.place, m.links.named, m.links.seed = place{dir: to.StateDir, name: to.Lab}, to.Privileged, topo.Seed
	m.links.engine.dilation = topo.DilationFactor()
	if folder, err := verbs.Folder(); err == nil { // else commands run without, and ndklab doctor says what is missing
		m.nodes.libraries = folder
	}
	if !m.afar {
		if err := m.links.openExternalDir(topo); err != nil {
			return err
		}
	}
	var err error
	if m.nodes.hostProc, err = enterNamespaces(to.Lab, to.StateDir); err != nil {
		return err
	}
	if m.afar {
		if m.links.root, err = rootOf(m.nodes.hostProc); err != nil {
			return err
		}
		if err := m.links.openExternalDir(topo); err != nil {
			return err
		}
	}
	if err := errors.Join(checkEngines(topo), checkPorts(topo)); err != nil {
		return err
	}
	if m.links.network, err = link.Open(); err != nil {
		return err
	}
	if err := m.nodes.writeHosts(to.StateDir, topo); err != nil {
		return err
	}
	if err := m.links.makeExternals(topo, m.nodes.hostProc); err != nil {
		return fmt.Errorf("make the externals: %w", err)
	}
	return nil
}

// begin does what has to be done once all nodes are configured, before links carry packets.
func (m *machine) begin(ctx context.Context, topo *topology.Topology) error {
	if err := m.links.configureExternals(ctx, topo); err != nil {
		return fmt.Errorf("configure the externals: %w", err)
	}
	if err := m.links.setFabric(ctx, topo); err != nil {
		return fmt.Errorf("switches with a buffer: %w", err)
	}
	return nil
}
