// Package simulate is a lab in virtual time, in one process: the adapters of a topology's
// hosts on a simulated network, whose links do to packets what the link engine does in a
// lab. It needs no privileges and no Linux, and minutes of a lab take milliseconds.
//
// What is real in it: the adapters (package provider), made of the topology as a node's
// agent makes them; the model of links (package impair), with the same draws, so that
// the same packets in the same order meet the same fate as in a lab of the same seed;
// the workloads and the scenario, which run unchanged. What is not: nodes are no
// processes, and have neither processors that could be too slow nor programs. Packets
// take some 10 us from a wire to the adapter, which takes no time for anything else, and a
// link without a rate carries what a machine could (wire.go). Routers and switches
// forward in no time; a spanning tree is there at once; of equal ways, flows take others
// than the kernel would choose.
//
// A run depends on nothing but the topology and its seed. All of it happens on the
// goroutine that runs the clock.
//
// Start reading at Lab; network.go is how packets get from one adapter to another,
// stage.go what a scenario does with all that.
package simulate

import (
	"github.com/ndklab/ndklab/fabric/scenario"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A Lab is a topology that is up in virtual time. Its time goes on when its clock is run.
// It is as little safe for concurrent use as that. It implements scenario.Stage.
type Lab struct {
	topo     *topology.Topology
	clock    *clock.Virtual
	network  *network
	watchers []*watcher
	follow   func(scenario.Event) // is told of all that happens and that a scenario does; nil: nobody is
}

var _ scenario.Stage = (*Lab)(nil)

// New brings a topology up whose seed is known and drawn (Topology.Draw): every node is
// ready. The error says what no simulation can do (Refuse), or which adapter cannot be
// as the topology wants it.
func New(t *topology.Topology) (*Lab, error) {
	if err := Refuse(t); err != nil {
		return nil, err
	}
	l := &Lab{topo: t, clock: clock.NewVirtual()}
	l.network = newNetwork(t, l.clock)
	for _, n := range l.network.nodes {
		if err := n.start(); err != nil {
			return nil, err
		}
	}
	l.network.changed()
	return l, nil
}

// Time is the lab's clock, whose Run makes what is to happen happen.
func (l *Lab) Time() *clock.Virtual { return l.clock }

// Device is the adapter of a host; nil if there is none, or it is down.
func (l *Lab) Device(name string) *provider.Miniport {
	if n := l.network.byName[name]; n != nil && n.life != nil {
		return n.life.device
	}
	return nil
}
