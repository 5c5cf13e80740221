package ucm

import (
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// A conversation takes the events of an id's connection (gsi.Conversation). The manager's lock is held.
type conversation struct{ id *id }

// HandleEvent tells the program of an event of its connection (cma_ib_handler of Linux).
func (v conversation) HandleEvent(e cm.Event) {
	i := v.id
	s := i.service
	switch e := e.(type) {
	case cm.ConnectReply:
		i.enter(replied)
		i.agree(&e)
		v.emitConnection(eventConnectResponse, receivedReply(&e), e.ECE)
	case cm.Rejected:
		v.refused(e.Reason, e.PrivateData)
	case cm.ConnectFailed:
		v.failed(e.Failure)
	case cm.AcceptFailed:
		v.failed(e.Failure)
	case cm.Established:
		i.enter(established)
		s.forgetQPN(i)
		i.emit(eventEstablished, 0, &connParam{})
	case cm.Disconnected:
		v.ended(0)
	case cm.DisconnectDone:
		var status uint32
		if e.TimedOut {
			status = failure(syscall.ETIMEDOUT)
		}
		v.ended(status)
	case cm.LookUpAnswered:
		v.lookedUp(&e)
	case cm.LookUpFailed:
		i.enter(over)
		i.emit(eventUnreachable, failure(syscall.ETIMEDOUT), &udParam{})
	case cm.TimewaitOver:
		s.manager.Leave(i.connection)
		i.connection = 0 // which another one may get
		if i.state == disconnected {
			i.emit(eventTimewaitExit, 0, &connParam{})
		}
	}
}

// agree keeps what a reply says about the queue pair. Its responder resources bound our initiator depth, and its initiator
// depth our responder resources.
func (i *id) agree(e *cm.ConnectReply) {
	a := &i.agreed
	a.remoteQPN, a.sendPSN, a.rnrRetryCount = e.QPN, e.StartingPSN, e.RNRRetryCount
	a.initiatorDepth, a.responderResources = e.ResponderResources, e.InitiatorDepth
	a.ackTimeout = ackTimeout(e.TargetAckDelay, i.agreed.ackTimeout-1)
}

// receivedReply returns a reply as its receiver is to use it.
func receivedReply(e *cm.ConnectReply) *connParam {
	p := &connParam{
		QPN: e.QPN, PrivateDataLength: mad.REPPrivateData, SRQ: flag(e.SRQ),
		ResponderResources: e.InitiatorDepth, InitiatorDepth: e.ResponderResources, RNRRetryCount: e.RNRRetryCount,
	}
	copy(p.PrivateData[:], e.PrivateData[:])
	return p
}

// receivedRequest returns a request as its receiver is to use it.
func receivedRequest(e *cm.ConnectRequest) *connParam {
	p := &connParam{
		QPN: e.QPN, PrivateDataLength: mad.ConsumerPrivateData, SRQ: flag(e.SRQ),
		ResponderResources: e.InitiatorDepth, InitiatorDepth: e.ResponderResources,
		RetryCount: e.RetryCount, RNRRetryCount: e.RNRRetryCount,
	}
	copy(p.PrivateData[:], e.PrivateData[:])
	return p
}

func flag(v bool) uint8 {
	if v {
		return 1
	}
	return 0
}

// emitConnection queues an event with an ECE.
func (v conversation) emitConnection(kind int, p *connParam, e mad.ECE) {
	i := v.id
	if i.uid == 0 {
		return
	}
	told := newEvent(i, i.uid, i.number, kind, 0, p)
	told.response.ECE = ece{e.Vendor, e.Options}
	i.channel.push(told)
}

// refused ends an attempt that the peer has refused.
func (v conversation) refused(reason mad.Reason, data [mad.REJPrivateData]byte) {
	i, s := v.id, v.id.service
	s.config.Device.CountConnectFailure()
	i.enter(over)
	s.forgetQPN(i)
	p := &connParam{PrivateDataLength: mad.REJPrivateData}
	copy(p.PrivateData[:], data[:])
	i.emit(eventRejected, uint32(reason), p)
}

// failed ends an attempt that the peer has not answered, or has given up.
func (v conversation) failed(f cm.Failure) {
	i, s := v.id, v.id.service
	switch f {
	case cm.Aborted:
		v.refused(mad.ReasonConsumer, [mad.REJPrivateData]byte{})
		return
	case cm.Ended: // whose last word of establishing it was lost
		s.forgetQPN(i)
		v.ended(0)
		return
	}
	s.config.Device.CountConnectFailure()
	i.enter(over)
	s.forgetQPN(i)
	i.emit(eventUnreachable, failure(syscall.ETIMEDOUT), &connParam{})
}

// ended tells the program, once, that a connection is over.
func (v conversation) ended(status uint32) {
	i := v.id
	i.enter(over)
	if i.step(doDisconnect) == nil {
		i.emit(eventDisconnected, status, &connParam{})
	}
}

// A listener takes requests for an id that listens (gsi.Listener). The manager's lock is held.
type listener struct{ id *id }

// Refuses has requests ignored that there is no room for: the peer repeats them.
func (l listener) Refuses() mad.Reason {
	if l.id.backlog == 0 {
		return cm.Ignored
	}
	return 0
}

// Deliver makes an id of a request, and tells the program of it.
func (l listener) Deliver(e cm.ConnectRequest) {
	i := l.request()
	i.local, i.remote = e.Local, e.Remote
	i.agreed = agreement{
		remoteQPN: e.QPN, sendPSN: e.StartingPSN, mtu: e.MTU,
		responderResources: e.InitiatorDepth, initiatorDepth: e.ResponderResources,
		retryCount: e.RetryCount, rnrRetryCount: e.RNRRetryCount, ackTimeout: e.AckTimeout,
	}
	l.id.service.join(i, e.ID, requested)
	told := newEvent(l.id, l.id.uid, i.number, eventConnectRequest, 0, receivedRequest(&e))
	told.request, told.response.ECE = i, ece{e.ECE.Vendor, e.ECE.Options}
	i.channel.push(told)
}

// request returns a new id for a request, which is delivered next.
func (l listener) request() *id {
	l.id.backlog--
	i := l.id.channel.newID(0, l.id.space)
	i.state = connecting
	i.options.service = l.id.options.service
	return i
}
