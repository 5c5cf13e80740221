package ucm

import (
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// A conversation is an id as the manager sees it (gsi.Conversation).
type conversation struct{ id *id }

// HandleEvent tells the program what became of a connection (cma_ib_handler of Linux).
func (v conversation) HandleEvent(e cm.Event) {
	i := v.id
	s := i.service
	switch e := e.(type) {
	case cm.ConnectReply:
		s.enter(i, replied)
		i.agree(&e)
		s.emitConnection(i, eventConnectResponse, replyParam(&e), e.ECE)
	case cm.Rejected:
		s.refused(i, e.Reason, e.PrivateData)
	case cm.ConnectFailed:
		s.failed(i, e.Failure)
	case cm.AcceptFailed:
		s.failed(i, e.Failure)
	case cm.Established:
		s.enter(i, established)
		s.forgetQPN(i)
		s.emit(i, eventEstablished, 0, &connParam{})
	case cm.Disconnected:
		s.ended(i, 0)
	case cm.DisconnectDone:
		var status uint32
		if e.TimedOut {
			status = failure(syscall.ETIMEDOUT)
		}
		s.ended(i, status)
	case cm.LookUpAnswered:
		s.lookedUp(i, &e)
	case cm.LookUpFailed:
		s.enter(i, over)
		s.emit(i, eventUnreachable, failure(syscall.ETIMEDOUT), &udParam{})
	case cm.TimewaitOver:
		s.manager.Leave(i.connection)
		i.connection = 0 // which another one may get
		if i.state == disconnected {
			s.emit(i, eventTimewaitExit, 0, &connParam{})
		}
	}
}

// agree keeps what a reply says for the queue pair. Its resources are the peer's, whose depth is our answer.
func (i *id) agree(e *cm.ConnectReply) {
	a := &i.agreed
	a.remoteQPN, a.sendPSN, a.rnrRetryCount = e.QPN, e.StartingPSN, e.RNRRetryCount
	a.initiatorDepth, a.responderResources = e.ResponderResources, e.InitiatorDepth
	a.ackTimeout = ackTimeout(e.TargetAckDelay, i.agreed.ackTimeout-1)
}

// replyParam returns a reply as its receiver is to use it.
func replyParam(e *cm.ConnectReply) *connParam {
	p := &connParam{
		QPN: e.QPN, PrivateDataLength: mad.REPPrivateData, SRQ: flag(e.SRQ),
		ResponderResources: e.InitiatorDepth, InitiatorDepth: e.ResponderResources, RNRRetryCount: e.RNRRetryCount,
	}
	copy(p.PrivateData[:], e.PrivateData[:])
	return p
}

// requestParam returns a request as its receiver is to use it.
func requestParam(e *cm.ConnectRequest) *connParam {
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

// emitConnection is emit of an event with an ECE.
func (s *Service) emitConnection(i *id, kind int, p *connParam, e mad.ECE) {
	if i.uid == 0 {
		return
	}
	told := newEvent(i, i.uid, i.number, kind, 0, p)
	told.response.ECE = ece{e.Vendor, e.Options}
	i.channel.push(told)
}

// refused ends an attempt that the peer wants nothing of.
func (s *Service) refused(i *id, reason mad.Reason, data [mad.REJPrivateData]byte) {
	s.config.Device.CountConnectFailure()
	s.enter(i, over)
	s.forgetQPN(i)
	p := &connParam{PrivateDataLength: mad.REJPrivateData}
	copy(p.PrivateData[:], data[:])
	s.emit(i, eventRejected, uint32(reason), p)
}

// failed ends an attempt that the peer did not answer, or gave up.
func (s *Service) failed(i *id, f cm.Failure) {
	switch f {
	case cm.Aborted:
		s.refused(i, mad.ReasonConsumer, [mad.REJPrivateData]byte{})
		return
	case cm.Ended: // whose last word of establishing it was lost
		s.forgetQPN(i)
		s.ended(i, 0)
		return
	}
	s.config.Device.CountConnectFailure()
	s.enter(i, over)
	s.forgetQPN(i)
	s.emit(i, eventUnreachable, failure(syscall.ETIMEDOUT), &connParam{})
}

// ended tells once that a connection is over, whoever has ended it.
func (s *Service) ended(i *id, status uint32) {
	s.enter(i, over)
	if i.step(doDisconnect) == nil {
		s.emit(i, eventDisconnected, status, &connParam{})
	}
}

// A listener is an id as the manager sees it that listens (gsi.Listener).
type listener struct{ id *id }

// Refuses leaves requests alone that there is no room for: the peer repeats them.
func (l listener) Refuses() mad.Reason {
	if l.id.backlog == 0 {
		return cm.Ignored
	}
	return 0
}

// Deliver makes an id of a request, which the program learns of with the event.
func (l listener) Deliver(e cm.ConnectRequest) {
	i := l.request()
	i.local, i.remote = e.Local, e.Remote
	i.agreed = agreement{
		remoteQPN: e.QPN, sendPSN: e.StartingPSN, mtu: e.MTU,
		responderResources: e.InitiatorDepth, initiatorDepth: e.ResponderResources,
		retryCount: e.RetryCount, rnrRetryCount: e.RNRRetryCount, ackTimeout: e.AckTimeout,
	}
	l.id.service.join(i, e.ID, requested)
	told := newEvent(l.id, l.id.uid, i.number, eventConnectRequest, 0, requestParam(&e))
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
