// Package simulate is a lab in virtual time, in one process: the adapters of a topology's
// hosts on a simulated network, whose links do to packets what the link engine does in a
// lab. It needs no privileges and no Linux, and minutes of a lab take milliseconds.
//
// Three parts are those of a lab: the adapters (package provider), made of the topology as
// a node's agent makes them; the model of links (package impair), with the same draws, so
// that the same packets in the same order meet the same fate as in a lab of the same seed;
// the workloads and the scenario, which run unchanged. The rest differs: nodes are no
// processes, and have neither processors that could be too slow nor programs. Packets
// take some 10 us from a wire to the adapter, which takes no time for anything else, and a
// link without a rate carries what a machine could (wire.go). Routers and switches
// forward in no time; a spanning tree is there at once; of equal paths, flows take others
// than the kernel would choose.
//
// A run depends on nothing but the topology and its seed. All of it happens on the
// goroutine that runs the clock, but for programs, and but for windows, in which parts of a large
// topology run on several processors and do the same (windows.go).
//
// Functions can run in nodes (program.go), on goroutines that take turns with the clock's.
//
// Start reading at Run. driver.go carries out what package core decides on nodes and links, network.go
// takes packets from one adapter to another, and stage.go does what a scenario asks for.
package simulate

import (
	"time"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/scenario"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A lab is a topology that is up in virtual time, and the stage of its scenario. Its time
// goes on when its clock is run, on whose goroutine all of it is but for shards in windows.
type lab struct {
	topo     *topology.Topology
	clock    *clock.Virtual // of all; with windows that of what is in no shard
	windows  *windows       // nil: there is one shard
	core     *core.Lab
	events   []core.Event           // that the core is to be given
	asked    map[uint64]func(error) // by the ID of the command: who waits for its answer
	lastAsk  uint64
	switched bool        // links or routes have changed, and ways were found before
	timer    clock.Timer // of the core's deadline; nil before the first
	network  *network
	watchers []*watcher
	follow   func(event.Event)   // is told of all that happens and that a scenario does; nil: nobody is
	reached  func(time.Duration) // is told now and then how far the clock is; nil: nobody is
}

var _ scenario.Stage = (*lab)(nil)

// newLab brings a topology up whose seed is known and drawn (Topology.Draw): every node is
// ready. The error says what no simulation can do (Refuse), or which adapter cannot be
// as the topology wants it. The lab is to be closed.
func newLab(t *topology.Topology, o Options, s sharding) (up *lab, err error) {
	if err := Refuse(t); err != nil {
		return nil, err
	}
	undilated := *t
	undilated.Dilation = 0 // which is a lab's
	t = &undilated
	l := &lab{topo: t, core: core.New(t), asked: map[uint64]func(error){}}
	clocks := l.setClocks(s.count)
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	programs, err := newPrograms(t, &o, l.clock)
	if err != nil {
		return nil, err
	}
	if l.network, err = newNetwork(t, programs, clocks, s.of, l.tellQPError); err != nil {
		return nil, err
	}
	l.network.tell = l.tell
	l.ask(core.Build{}, func(failed error) { err = failed })
	if err != nil {
		return nil, err
	}
	if l.windows != nil {
		l.windows.changes = l.network.changes
	}
	return l, nil
}
