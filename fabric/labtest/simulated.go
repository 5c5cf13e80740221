package labtest

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/simulate"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// A Simulated is a node of a simulation as a function of the test has it (Client, Server).
type Simulated struct {
	// Adapter is the node's adapter, opened for the call of the function. Objects that are left open on it when the
	// function returns stay open.
	Adapter *provider.Adapter

	topo *topology.Topology
	name string
}

// Name returns the node's name.
func (n *Simulated) Name() string { return n.name }

// PathTo returns the addresses by which the node and another one reach each other: its own and the other's. They are
// zero if no path leads there. await.Dial and await.Endpoint.Local are to be given the node's own.
func (n *Simulated) PathTo(other string) (from, to netip.Addr) {
	path, _ := n.topo.Path(n.name, other)
	return path.From.Address, path.To.Address
}

// Address returns the node's first address.
func (n *Simulated) Address() netip.Addr {
	for _, i := range n.topo.FindNode(n.name).Interfaces {
		for _, a := range i.Addresses {
			return a.Addr()
		}
	}
	return netip.Addr{}
}

// Client has Simulate run a function in a node of the simulation, with the node's adapter, and wait until it returns.
// The test fails if it returns an error. It is ordinary code: it may start goroutines, all of which are to end with
// it; time.Now, timers and the deadlines of contexts are of virtual time. Functions of several nodes and of one node
// may be given. When the node goes down, the adapter fails and ctx ends, and what the function returns then does not
// count; when the node is started again, the function is called again.
//
// A run depends on nothing but the seed as long as goroutines that go on at one instant of virtual time do not depend on
// which of them is first. Objects that block a function must be made by the functions themselves, or by package await: a
// channel of the test's from before Simulate holds the simulation up.
func Client(node string, f func(ctx context.Context, node *Simulated) error) Option {
	return func(s *settings) { s.programs = append(s.programs, program{node, false, f}) }
}

// Server is Client for a function that nobody waits for: its ctx ends when the scenario is over and all Clients have
// returned. An error that it returns for the end of ctx does not fail the test.
func Server(node string, f func(ctx context.Context, node *Simulated) error) Option {
	return func(s *settings) { s.programs = append(s.programs, program{node, true, f}) }
}

// A program is a Client or a Server.
type program struct {
	node   string
	server bool
	f      func(context.Context, *Simulated) error
}

// play simulates a topology with the programs of the settings.
func (s *settings) play(ctx context.Context, t testing.TB, topo *topology.Topology) (r *report.Run, err error) {
	t.Helper()
	if len(s.programs) == 0 {
		return simulate.Run(ctx, topo, simulate.Options{})
	}
	test, ok := t.(*testing.T)
	if !ok {
		t.Fatalf("simulation of %s: Client and Server are for a *testing.T, not for a %T", topo.Name, t)
	}
	o := simulate.Options{Settle: synctest.Wait}
	for _, p := range s.programs {
		o.Programs = append(o.Programs, simulate.Program{Node: p.node, Server: p.server, Run: func(ctx context.Context, adapter *provider.Adapter) error {
			return p.f(ctx, &Simulated{Adapter: adapter, topo: topo, name: p.node})
		}})
	}
	started := time.Now() // before time is virtual
	synctest.Test(test, func(*testing.T) { r, err = simulate.Run(ctx, topo, o) })
	if r != nil {
		r.Started = started.Format(time.RFC3339)
	}
	return r, err
}
