package workload

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/histogram"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// An initiator is the end of a flow that connects. It is part of every client: an endpoint, where its connections are from
// and to, and the account that its report is made of.
type initiator struct {
	endpoint
	from netip.Addr
	to   netip.AddrPort
	done func(Result)

	account // guarded by endpoint.mu
}

// newInitiator returns an initiator that has nothing open yet.
func newInitiator(m *provider.Miniport, c clock.Clock, spec *Spec, from netip.Addr, to netip.AddrPort, done func(Result)) initiator {
	return initiator{endpoint: newEndpoint(m, c, spec), from: from, to: to, done: done}
}

// Progress implements client.
func (i *initiator) Progress() Progress {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.progress()
}

// Latency implements client.
func (i *initiator) Latency(bounds []int64) histogram.Bars {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.latency(bounds)
}
