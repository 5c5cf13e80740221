package provider

import (
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/transport"
)

// A deferredReceiver is the Miniport as the goroutines of a Poller see it.
type deferredReceiver struct{ m *Miniport }

func (d deferredReceiver) Receive(packets []roce.Received) {
	d.m.transport.Receive(packets, transport.Deferred)
}

// Delivered is called by the carrier's goroutines, which do what is put off when nobody polls any more.
func (d deferredReceiver) Delivered() bool {
	d.m.transport.SetPolled(false)
	return d.m.transport.Delivered()
}

// A pollReceiver is the Miniport as a consumer's goroutine sees it that polls. It may hold
// what its callbacks take, so that these run elsewhere.
type pollReceiver struct{ m *Miniport }

func (p pollReceiver) Receive(packets []roce.Received) {
	p.m.transport.Receive(packets, transport.ByConsumer)
}

// poll receives on a consumer's goroutine.
func (m *Miniport) poll() (arrived bool) {
	if m.poller == nil {
		return false
	}
	m.transport.SetPolled(true)
	m.transport.AcknowledgeIfDue()
	return m.poller.Poll(m.polled)
}

// pollBeside is poll for a consumer that may turn to something else at any time.
func (m *Miniport) pollBeside() (arrived bool) {
	if m.poller == nil {
		return false
	}
	m.transport.SetPolled(true)
	arrived, alone := m.poller.PollBeside(m.polled)
	if !arrived { // else what comes next is acknowledged, too, in the same packet
		m.transport.AcknowledgeIfDue()
	}
	switch {
	case arrived && alone:
		m.transport.AcknowledgeLater()
	case arrived:
		m.transport.AcknowledgeSoon()
	}
	return arrived
}

// stopPolling has the Poller's own goroutines receive again.
func (m *Miniport) stopPolling() {
	if m.poller != nil {
		m.transport.SetPolled(false)
		m.transport.Acknowledge()
		m.poller.Resume()
	}
}
