package node

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/lease"
)

// This file answers monitors, which ask all nodes of a lab again and again: all that they want of
// a node is one answer, and lists are counted where they are.

// methodObserve has bounds of latencies as its parameters, in nanoseconds.
var methodObserve = control.NewMethod[[]int64, Observation](observeName)

const observeName = "observe"

// An Observation describes a node to a monitor.
type Observation struct {
	Number uint64 `json:",omitempty"` // see changes; 0: the next may differ
	Counters
	InUse       *provider.Usage           // nil: the node has no adapter
	Connections []adapter.ConnectionCount // in the order of their fields; without listeners, whose list is all ports of the ledger
	Workloads   []workload.Observed       // whose clients run in the node
	Sending     []adapter.SendState       // by number, mostSending at most
	Pauses      []adapter.Pause           // that the adapter has obeyed
}

// mostSending bounds the queue pairs whose state a monitor is told: of a node with thousands they would be most of what it is told.
const mostSending = 256

// Observe describes the node to a monitor, with latencies by bounds in
// nanoseconds, which ascend. The answer shares memory with others, and is not to be changed.
func (c *Client) Observe(ctx context.Context, bounds []int64) (Observation, error) {
	asked := time.Now()
	if last, ok := c.Observed(asked); ok {
		return last, nil
	}
	o, err := call(ctx, c, methodObserve, bounds)
	if err == nil && c.observer != nil {
		c.observer.remember(&o, asked)
	}
	return o, err
}

// Observed returns what Observe would return at a time without asking the node, which is the last answer for as long as nothing
// happens there. It has a Number then. Of an agent somewhere else it is not known.
func (c *Client) Observed(now time.Time) (last Observation, ok bool) {
	if idle := c.answerWithout(); idle != nil {
		return *idle, true
	}
	if c.observer == nil {
		return last, false
	}
	return c.observer.unchanged(now)
}

func (a *agent) observe(ctx context.Context, _ *control.Request, bounds []int64) (o Observation, err error) {
	number := a.activity.observe() // before anything is looked at
	quiet := a.activity.requests.Load() == 0
	shared := a.sharedAdapter()
	if shared == nil {
		if quiet {
			o.Number = number
		}
		return o, nil
	}
	quiet = quiet && !shared.Shared() && a.obeysNone()
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
	o.Sending, o.Pauses = sendStatesOf(shared), a.obeyed()
	if quiet && *o.InUse == (provider.Usage{}) && o.Connections == nil && o.Workloads == nil {
		o.Number = number
	}
	return o, nil
}

// sendStatesOf returns those of the queue pairs that the node's workloads have.
func sendStatesOf(s *lease.Server) []adapter.SendState {
	var all []adapter.SendState
	for _, now := range s.Device().SendStates() {
		if len(all) == mostSending {
			break
		}
		all = append(all, adapter.SendState{
			QPN: now.QPN, Remote: now.Remote, BPS: uint64(now.Rate), TargetBPS: uint64(now.Target), Window: uint64(now.Window), CNPs: now.CNPs, Retransmitted: now.Retransmitted,
		})
	}
	return all
}

// obeyed returns the pauses that the adapter has obeyed.
func (a *agent) obeyed() []adapter.Pause {
	a.mu.Lock()
	obeys := a.pauses
	a.mu.Unlock()
	if obeys == nil {
		return nil
	}
	return obeys.Pauses()
}

// obeysNone reports whether the adapter obeys no pauses, whose counters may grow with time.
func (a *agent) obeysNone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pauses == nil
}
