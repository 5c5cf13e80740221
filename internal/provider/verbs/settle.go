package verbs

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/ud"
	"github.com/ndklab/ndklab/provider"
)

// A model implements transport.Model for a queue pair of a reliable connection.
type model struct{ qp *QP }

// Sent implements transport.Model.
func (m model) Sent() {}

// Settle implements transport.Model.
func (m model) Settle(completions []rc.Completion) {
	for i := range completions {
		m.qp.complete(&completions[i], 0, 0)
	}
	m.qp.settle(m.qp.channel.QP.State(), false)
}

// Watch implements transport.Model.
func (m model) Watch(watch bool) bool { return m.qp.written.watchSends(watch) }

// Requested implements transport.Model.
func (m model) Requested() {
	if m.qp.state == ReadyToReceive && !m.qp.destroyed { // of one that is, nobody is left to be told
		m.qp.raise(EventCommunicationEstablished)
	}
}

// A machine implements transport.Machine for a queue pair of an unreliable connection or of datagrams.
type machine struct{ qp *QP }

// Handle implements transport.Machine.
func (m machine) Handle(p *roce.Received) bool {
	qp, flow, h := m.qp, &p.Flow, &p.Header
	if qp.config.Type == UD {
		if h.Opcode != roce.UDSendOnly && h.Opcode != roce.UDSendOnlyImm {
			return false
		}
		qp.ud.Handle(flow, p.Class, h, p.Payload)
		return true
	}
	if !h.Opcode.IsUC() || flow.Remote != qp.attributes.Address.Remote || flow.Local != qp.local {
		return false
	}
	qp.uc.Handle(h, p.Payload)
	return true
}

// Destination implements transport.Machine.
func (m machine) Destination() (remote netip.Addr, qpn uint32, ok bool) {
	qp := m.qp
	switch {
	case qp.state == SendQueueDrain && qp.drained():
		return remote, 0, false
	case qp.config.Type == UD:
		return qp.ud.Destination()
	}
	return qp.attributes.Address.Remote, qp.attributes.DestQPN, qp.uc.Pending()
}

// Next implements transport.Machine. A queue pair that drains makes the rest of a message that has begun.
func (m machine) Next(p *roce.Packet) (flow roce.Flow, ok bool) {
	qp := m.qp
	if qp.config.Type == UD {
		return qp.ud.Next(p)
	}
	p.Class = roce.RequestedClass(qp.attributes.Address.TrafficClass)
	return m.flow(), qp.uc.Next(p)
}

// flow returns the flow of an unreliable connection.
func (m machine) flow() roce.Flow {
	qp := m.qp
	f := roce.Flow{Local: qp.local, Remote: qp.attributes.Address.Remote}
	f.SourcePort = qp.pd.context.transport.Carrier.SourcePort(f.Local, roce.FlowLabel(qp.Number(), qp.attributes.DestQPN))
	return f
}

// Settle implements transport.Machine.
func (m machine) Settle() {
	qp := m.qp
	if qp.config.Type == UD {
		qp.datagrams = qp.ud.Completions(qp.datagrams[:0])
		for i := range qp.datagrams {
			d := &qp.datagrams[i]
			qp.complete(&d.Completion, d.SourceQPN, networkOf(d))
		}
		clear(qp.datagrams)
		qp.settle(qp.ud.State(), qp.ud.SendFailed())
		return
	}
	qp.messages = qp.uc.Completions(qp.messages[:0])
	for i := range qp.messages {
		qp.complete(&qp.messages[i], 0, 0)
	}
	clear(qp.messages)
	qp.settle(qp.uc.State(), qp.uc.SendFailed())
}

// peerRefused is the reason of an error that no completion explains.
const peerRefused = "a request of the peer was refused"

// settle follows a change of the state machine's state, or the failure of a request of an unreliable queue pair.
// The lock is held.
func (qp *QP) settle(state rc.State, sendFailed bool) {
	if qp.destroyed {
		return
	}
	if qp.notifying && qp.drained() {
		qp.notifying = false
		qp.raise(EventSendQueueDrained)
	}
	if sendFailed && (qp.state == ReadyToSend || qp.state == SendQueueDrain) {
		qp.state = SendQueueError
		qp.reportError(peerRefused)
	}
	if state != rc.Error {
		return
	}
	defer qp.written.flush()
	if qp.state != Error {
		qp.state = Error
		qp.reportError(peerRefused)
		if qp.config.Type == RC {
			switch qp.channel.QP.Refusal() {
			case rc.RemoteAccess:
				qp.raise(EventQPAccessError)
			case rc.RemoteInvalidRequest, rc.LocalLength:
				qp.raise(EventQPRequestError)
			}
		}
	}
	if qp.config.SRQ != nil && !qp.lastWQE {
		qp.lastWQE = true
		qp.raise(EventLastWQEReached)
	}
}

// drained reports whether nothing is under way that was begun. The lock is held.
func (qp *QP) drained() bool {
	switch qp.config.Type {
	case RC:
		return qp.channel.QP.SendQueue().Drained
	case UC:
		return !qp.uc.Begun()
	}
	return true
}

// raise reports an asynchronous event of the queue pair. The lock is held.
func (qp *QP) raise(t EventType) { qp.pd.context.events(Event{Type: t, QP: qp}) }

// networkOf returns the protocol by which a datagram has come; 0 if none has.
func networkOf(c *ud.Completion) Network {
	switch {
	case !c.Op.IsReceive() || c.Status != rc.Success:
		return 0
	case c.IPv4:
		return NetworkIPv4
	}
	return NetworkIPv6
}

// complete moves a completion to its CQ, with what a datagram's has besides. The lock is held.
func (qp *QP) complete(c *rc.Completion, source uint32, network Network) {
	receive := c.Op.IsReceive()
	done := Completion{
		Status: statuses[c.Status], Opcode: opcodes[c.Op], VendorError: uint32(c.Status), Bytes: c.Bytes,
		QPN: qp.pair.Number(), SourceQPN: source, Network: network, At: qp.pd.context.clock.Now(),
	}
	t := c.Context.(*tag)
	if receive && qp.config.SRQ != nil {
		done.ID = qp.config.SRQ.give(t)
	} else {
		done.ID = qp.tags.give(t)
	}
	switch c.Op {
	case rc.OpReceiveImmediate, rc.OpReceiveWrite:
		done.Flags, done.Immediate = HasImmediate, c.Immediate
	case rc.OpReceiveInvalidate:
		done.Flags, done.Invalidated = HasInvalidated, c.Token
	}
	if network != 0 {
		done.Flags |= HasGRH
	}
	if qp.destroyed {
		return
	}
	if c.Status != rc.Success && c.Status != rc.Flushed && qp.state != Error {
		// Before the program knows: it may end with the next instruction.
		qp.reportError(provider.ReasonOf(c.Status, receive))
	}
	cq := qp.config.SendCQ
	if receive {
		cq = qp.config.ReceiveCQ
	}
	awaited, ok := cq.push(&done, c.Solicited)
	if !ok {
		qp.pd.context.handleOverrun(cq)
	}
	if receive {
		// A peer that is woken by each completion expects that of its request before that of the answer: adapters
		// acknowledge before anybody can answer. One that polls looks again.
		qp.channel.Prompt = awaited
	}
}

// handleOverrun raises the event of a CQ that has overrun, and ends its queue pairs.
func (c *Context) handleOverrun(cq *CQ) {
	c.events(Event{Type: EventCQError, CQ: cq})
	c.clock.Go(func() {
		c.end(c.openQPs(func(qp *QP) bool { return qp.config.SendCQ == cq || qp.config.ReceiveCQ == cq }))
	})
}
