package node

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/provider"
)

// This file answers monitors, which ask all nodes of a lab again and again: all that they want of
// a node is one answer, and lists are counted where they are.

// methodObserve has bounds of latencies as its parameters, in nanoseconds.
var methodObserve = control.NewMethod[[]int64, Observation]("observe")

// An Observation describes a node to a monitor.
type Observation struct {
	Counters
	InUse       *provider.Usage           // nil: the node has no adapter
	Connections []adapter.ConnectionCount // in the order of their fields; without listeners, whose list is all ports of the ledger
	Workloads   []workload.Observed       // whose clients run in the node
}

// Observe describes the node to a monitor, with latencies by bounds in
// nanoseconds, which ascend.
func (a *Agent) Observe(ctx context.Context, bounds []int64) (Observation, error) {
	return call(ctx, &a.client, methodObserve, bounds)
}

func (a *agent) observe(ctx context.Context, _ *control.Request, bounds []int64) (o Observation, err error) {
	shared := a.sharedAdapter()
	if shared == nil {
		return o, nil
	}
	if o.Counters, err = a.counters(ctx, nil, nil); err != nil {
		return o, err
	}
	o.InUse = new(shared.Device().Usage())
	counts := map[adapter.ConnectionKind]int{}
	connections, pairs := connectionsOf(ctx, shared)
	for _, c := range connections {
		kind := adapter.ConnectionKind{Type: adapter.ActiveConnection, State: c.State}
		if c.pair != nil {
			kind.Transport = c.pair.Transport
		}
		counts[kind]++
	}
	for _, p := range pairs {
		counts[adapter.ConnectionKind{Type: adapter.QueuePair, State: p.State, Transport: p.Transport}]++
	}
	for _, kind := range slices.SortedFunc(maps.Keys(counts), func(a, b adapter.ConnectionKind) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Transport, b.Transport), cmp.Compare(a.State, b.State))
	}) {
		o.Connections = append(o.Connections, adapter.ConnectionCount{ConnectionKind: kind, Count: counts[kind]})
	}
	o.Workloads = a.traffic.host.Observe(bounds)
	return o, nil
}
