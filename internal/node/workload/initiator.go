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

	// Guarded by endpoint.mu.
	account
	isEnding   bool
	whenEnding func() // of WhenEnding; nil before
}

// newInitiator returns an initiator that has nothing open yet.
func newInitiator(m *provider.Miniport, c clock.Clock, spec *Spec, from netip.Addr, to netip.AddrPort, done func(Result)) initiator {
	return initiator{endpoint: newEndpoint(m, c, spec), from: from, to: to, done: done}
}

// WhenEnding implements client.
func (i *initiator) WhenEnding(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.whenEnding = f; i.isEnding {
		f()
	}
}

// setEnding notes that the result may come soon. i.mu is held.
func (i *initiator) setEnding() {
	if i.isEnding {
		return
	}
	i.isEnding = true
	if i.whenEnding != nil {
		i.whenEnding()
	}
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
