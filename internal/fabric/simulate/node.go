package simulate

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// A node is a host, a router or a switch of the lab.
type node struct {
	network   *network
	shard     *shard
	spec      *topology.Node
	seed      uint64
	addresses []netip.Addr // of its adapter
	routes    []topology.Route

	paused   bool
	restarts int   // of the last start
	life     *life // of a host that is up and has an address; else nil
}

// buffer returns that of the node; nil: packets wait at the beginning of each wire.
func (n *node) buffer() *dataplane.Buffer[*frame] { return n.network.plane.Buffer(n.spec.Name) }

// A life is a host's from when it is started until it ends.
type life struct {
	clock  *lifeClock
	port   *port
	device *provider.Miniport
	host   *workload.Host
	owed   []*answer // in the order in which they were asked for

	activities []*activity // its programs
}

// An answer is one that somebody waits for who is to be told if the life ends before.
type answer struct {
	life   *life
	fail   func(error) // nil once it was given
	client client      // whose result it is; zero if it is no client's
}

// A client is the end of a workload's flow that runs on a host.
type client struct {
	name string
	flow int
}

// owes has fail called if the life ends before the answer is given.
func (l *life) owes(fail func(error)) *answer {
	a := &answer{life: l, fail: fail}
	l.owed = append(l.owed, a)
	return a
}

// give reports whether the answer is still waited for, which it is once at most.
func (a *answer) give() bool {
	if a.fail == nil {
		return false
	}
	a.fail = nil
	a.life.owed = slices.DeleteFunc(a.life.owed, func(o *answer) bool { return o == a })
	return true
}

// addresses are those of a host that its adapter can have.
func addresses(spec *topology.Node) (list []netip.Addr) {
	if spec.Kind != topology.Host {
		return nil
	}
	for _, i := range spec.Interfaces {
		for _, a := range i.Addresses {
			if adapter.Takes(a.Addr()) {
				list = append(list, a.Addr())
			}
		}
	}
	return list
}

// start begins a life of the node, which is down or has not been up as yet, after some restarts. The adapter
// is the one that a node's agent makes of the same topology.
func (n *node) start(restarts int) error {
	n.paused, n.restarts = false, restarts
	if len(n.addresses) == 0 {
		return nil
	}
	c := &lifeClock{Virtual: n.shard.clock}
	config := adapter.Config(&n.spec.Adapter)
	config.Congestion.LineRates = adapter.LineRates(n.spec, n.network.topo.Links)
	p := &port{
		network: n.network, shard: n.shard, node: n, clock: c, rand: rand.New(rand.NewPCG(n.lifeSeed(), portStream)),
		buffer: int(config.ReceiveBuffer), class: config.Congestion.DSCP << 2,
	}
	l := &life{clock: c, port: p}
	config.Carrier, config.Clock = p, c
	config.Rand = adapter.Rand(n.lifeSeed())
	config.QPError = func(e provider.QPError) { n.network.qpError(n.spec.Name, e) }
	programs := n.network.programs
	if l.activities = programs.activities(n.spec.Name); l.activities != nil {
		config.Carrier, config.Clock = programPort{p, programs}, programClock{c, programs}
		config.QPError = func(e provider.QPError) {
			programs.lock()
			defer programs.unlock()
			if n.life == l {
				n.network.qpError(n.spec.Name, e)
			}
		}
		c.AfterFunc(0, func() { programs.start(l) })
	}
	device, err := provider.NewMiniport(config)
	if err != nil {
		return fmt.Errorf("node %s: adapter: %w", n.spec.Name, err)
	}
	l.device, l.host = device, workload.NewHost(device, c)
	l.host.Payloads = &n.shard.payloads
	n.life = l
	return nil
}

// portStream keeps the random numbers of a port apart from others of the same seed.
const portStream = 0x706F7274 // "port"

// lifeSeed is the seed of a life of the node. A later one has other random numbers than
// the one before: what is still under way must not be taken for the new node's.
func (n *node) lifeSeed() uint64 {
	if n.restarts == 0 {
		return n.seed
	}
	return n.network.topo.SeedOf(fmt.Sprintf("node %s, start %d", n.spec.Name, n.restarts))
}

// end ends the life of the node as a crash does: its adapter is gone and says nothing.
func (n *node) end() {
	n.paused = false
	l := n.life
	if l == nil {
		return
	}
	n.life = nil
	// A port always closes well.
	_ = l.port.Close()
	if l.activities == nil {
		l.clock.end()
	} else { // which still calls back
		n.network.clock.Go(func() { n.network.programs.kill(l, fmt.Errorf("node %s went down", n.spec.Name)) })
	}
	for _, a := range l.owed {
		fail := a.fail
		a.fail = nil
		n.network.clock.Go(func() { fail(fmt.Errorf("node %s went down", n.spec.Name)) })
	}
	l.owed = nil
}

// pause stops the node where it is. Its kernel goes on: a router forwards, and packets
// for its adapter wait as long as there is room.
func (n *node) pause() {
	n.paused = true
	if n.life != nil {
		n.life.clock.paused = true
	}
}

// resume has the node go on.
func (n *node) resume() {
	n.paused = false
	if n.life != nil {
		n.life.clock.resume()
	}
}

// tellRates has the adapters at the ends of a link begin new queue pairs at its present rates.
func (l *link) tellRates() {
	for end, n := range l.nodes {
		if n == nil || n.life == nil {
			continue
		}
		for i := range n.spec.Interfaces {
			if face := &n.spec.Interfaces[i]; face.Link == l.wires[end].Link && face.End == end {
				for _, a := range face.Addresses {
					n.life.device.SetLineRate(a.Addr(), l.wires[end].Settings().Rate)
				}
			}
		}
	}
}
