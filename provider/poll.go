package provider

import (
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/transport"
)

// receiving is the receive side of a device: what the carrier delivers goes to the transport. It is fixed by listen.
type receiving struct {
	transport *transport.Device
	poller    Poller   // the carrier, if it is one
	polled    Receiver // for poller's Poll
	late      Receiver // for poller's CatchUp
}

// listen has the carrier deliver.
func (r *receiving) listen(c Carrier) {
	var ok bool
	if r.poller, ok = c.(Poller); !ok {
		c.Listen(receiver{r.transport, transport.AtOnce})
		return
	}
	r.polled, r.late = receiver{r.transport, transport.ByConsumer}, receiver{r.transport, transport.AtOnce}
	c.Listen(deferredReceiver{receiver{r.transport, transport.Deferred}})
}

// A receiver gives packets to the transport: the carrier's goroutines do, or, ByConsumer, that of a consumer that polls.
// A consumer may hold what its callbacks take, so that these run elsewhere then.
type receiver struct {
	transport *transport.Device
	mode      transport.Mode
}

// Receive implements Receiver.
func (r receiver) Receive(packets []roce.Received) { r.transport.Receive(packets, r.mode) }

// A deferredReceiver is the receiver for the goroutines of a Poller.
type deferredReceiver struct{ receiver }

// Delivered implements Deferrer: the carrier's goroutines do what is put off when nobody polls any more.
func (d deferredReceiver) Delivered() bool {
	d.transport.SetPolled(false)
	return d.transport.Delivered()
}

// pollAlone receives on the goroutine of a consumer that polls all the time.
func (r *receiving) pollAlone() (arrived bool) {
	if r.poller == nil {
		return false
	}
	r.transport.SetPolled(true)
	r.transport.AcknowledgeIfDue()
	arrived = r.poller.Poll(r.polled)
	r.transport.Advance() // behind what has arrived: an acknowledgement puts off a timeout
	return arrived
}

// Poll receives what has arrived, on the calling goroutine, and reports whether that was anything. The carrier's own
// goroutines go on receiving, unless the caller polls all the time. It does nothing where the carrier is no Poller.
func (r *receiving) Poll() (arrived bool) {
	if r.poller == nil {
		return false
	}
	r.transport.SetPolled(true)
	arrived, alone := r.poller.PollBeside(r.polled)
	r.transport.Advance() // likewise
	if !arrived {         // else what comes next is acknowledged, too, in the same packet
		r.transport.AcknowledgeIfDue()
	}
	switch {
	case arrived && alone:
		r.transport.AcknowledgeLater()
	case arrived:
		r.transport.AcknowledgeSoon()
	}
	return arrived
}

// HandIn takes a management datagram, which is lent, from the owner of the device, which forwarded it. It comes after the
// packets that arrived before it did, which waited in sockets of this process's own: a peer that ends the connection has
// acknowledged everything before.
func (m *Miniport) HandIn(flow roce.Flow, datagram []byte) {
	if m.poller != nil {
		m.poller.CatchUp(m.late)
	}
	m.manager.HandIn(flow, datagram)
}

// StopPolling lets the carrier's own goroutines receive again.
func (r *receiving) StopPolling() {
	if r.poller != nil {
		r.transport.SetPolled(false)
		r.transport.Acknowledge()
		r.poller.Resume()
	}
}
