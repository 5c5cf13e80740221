package verbs

import (
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/internal/provider/transport"
)

// Modify changes the attributes that mask names, and the state if it is among them, as ibv_modify_qp(3) has it:
// EINVAL for what the state or the kind does not allow, or what makes no sense. Then nothing has changed.
func (qp *QP) Modify(to *Attributes, mask AttributeMask) error {
	qp.lock.Lock()
	defer qp.lock.Unlock()
	if mask&MaskCurrentState != 0 && to.CurrentState != qp.state {
		return syscall.EINVAL
	}
	next := qp.state
	if mask&MaskState != 0 {
		next = to.State
	}
	if qp.pd.context.failed() && next != Error && next != Reset {
		return syscall.EIO
	}
	if err := qp.config.Type.allowed(qp.state, next, mask); err != nil {
		return err
	}
	changed := qp.attributes
	changed.take(to, mask)
	m := modification{qp, next, &changed, mask}
	if err := m.check(); err != nil {
		return err
	}
	return m.carryOut()
}

// A modification is a call of Modify, with the state and the attributes that the queue pair is to have. The queue pair's
// lock is held.
type modification struct {
	qp   *QP
	next QPState
	to   *Attributes
	mask AttributeMask
}

// take takes the attributes that mask names.
func (a *Attributes) take(from *Attributes, mask AttributeMask) {
	for _, of := range []struct {
		bit  AttributeMask
		copy func()
	}{
		{MaskAccess, func() { a.Access = from.Access }},
		{MaskPKeyIndex, func() { a.PKeyIndex = from.PKeyIndex }},
		{MaskPort, func() { a.Port = from.Port }},
		{MaskQKey, func() { a.QKey = from.QKey }},
		{MaskAddress, func() { a.Address = from.Address }},
		{MaskPathMTU, func() { a.PathMTU = from.PathMTU }},
		{MaskTimeout, func() { a.Timeout = from.Timeout }},
		{MaskRetryCount, func() { a.RetryCount = from.RetryCount }},
		{MaskRNRRetry, func() { a.RNRRetry = from.RNRRetry }},
		{MaskReceivePSN, func() { a.ReceivePSN = from.ReceivePSN & roce.PSNMask }},
		{MaskSendPSN, func() { a.SendPSN = from.SendPSN & roce.PSNMask }},
		{MaskMaxReads, func() { a.MaxReads = from.MaxReads }},
		{MaskMaxDestReads, func() { a.MaxDestReads = from.MaxDestReads }},
		{MaskMinRNRTimer, func() { a.MinRNRTimer = from.MinRNRTimer }},
		{MaskDestQPN, func() { a.DestQPN = from.DestQPN }},
		{MaskDrainNotify, func() { a.DrainNotify = from.DrainNotify }},
	} {
		if mask&of.bit != 0 {
			of.copy()
		}
	}
}

// whenDrained names the attributes that change in SQD only when nothing is under way any more (IBTA Vol. 1, 10.3.1.5).
const whenDrained = MaskAddress | MaskMaxReads | MaskMaxDestReads

// check returns EINVAL for attributes among those of mask that cannot be.
func (m *modification) check() error {
	qp, a, mask := m.qp, m.to, m.mask
	const mostRetries, mostTimeout, lastQPN = 7, 31, 0xFFFFFF
	limits := &qp.pd.context.limits
	gids := qp.pd.context.GIDs()
	for _, wrong := range []bool{
		mask&MaskPort != 0 && a.Port != 1,
		mask&MaskPKeyIndex != 0 && a.PKeyIndex != 0,
		mask&MaskRetryCount != 0 && a.RetryCount > mostRetries,
		mask&MaskRNRRetry != 0 && a.RNRRetry > mostRetries,
		mask&MaskTimeout != 0 && a.Timeout > mostTimeout,
		mask&MaskMinRNRTimer != 0 && a.MinRNRTimer > mostTimeout,
		mask&MaskDestQPN != 0 && a.DestQPN > lastQPN,
		mask&MaskMaxReads != 0 && uint32(a.MaxReads) > limits.Reads,
		mask&MaskMaxDestReads != 0 && uint32(a.MaxDestReads) > limits.Reads,
		mask&MaskPathMTU != 0 && (roce.MTUCode(a.PathMTU) == 0 || a.PathMTU > qp.pd.context.mtu()),
		mask&(MaskAlternatePath|MaskPathMigration) != 0,
		qp.state == SendQueueDrain && mask&whenDrained != 0 && !qp.drained(),
	} {
		if wrong {
			return syscall.EINVAL
		}
	}
	if mask&MaskAddress != 0 {
		if i := a.Address.GIDIndex; i < 0 || i >= len(gids) || gids[i].Address.Is4() != a.Address.Remote.Is4() || !a.Address.Remote.IsValid() {
			return syscall.EINVAL
		}
	}
	return nil
}

// carryOut takes the queue pair to its next state and attributes.
func (m *modification) carryOut() error {
	qp, a, next := m.qp, m.to, m.next
	qp.written.watchSends(false)
	defer qp.written.watchReceives()
	switch {
	case next == Reset:
		qp.reset()
		return nil
	case next == Error:
		if qp.state != Error {
			qp.state = Error
			qp.flush()
		}
		return nil
	case qp.state == Init && next == ReadyToReceive:
		if err := m.connect(); err != nil {
			return err
		}
	case qp.state == ReadyToReceive && next == ReadyToSend:
		if err := m.connectToSend(); err != nil {
			return err
		}
	case qp.state == SendQueueError && next == ReadyToSend:
		qp.reason = ""
		if qp.config.Type == UC {
			qp.uc.SendAgain()
		} else {
			qp.ud.SendAgain()
		}
	}
	qp.attributes = *a
	m.apply()
	drain := next == SendQueueDrain
	if !drain || qp.state != SendQueueDrain {
		qp.notifying = drain && a.DrainNotify
	}
	qp.state = next
	if qp.config.Type == RC {
		qp.channel.QP.Modify(rc.Modification{Draining: &drain})
		qp.channel.Progress(qp.pd.context.clock.Now())
	} else {
		qp.unreliable.Progress()
	}
	return nil
}

// reset forgets everything but what the queue pair was made with, its entries on the CQs too, as Linux's drivers
// of hardware have it (mlx5_ib_cq_clean): they would be taken for those of what is posted next. The lock is held.
func (qp *QP) reset() {
	if qp.config.Type == RC {
		qp.destroyed = true // nobody is told
		qp.channel.Reset(qp.machineConfig())
		qp.destroyed = false
	} else {
		qp.resetUnreliable()
	}
	qp.config.SendCQ.drop(qp.Number())
	qp.config.ReceiveCQ.drop(qp.Number())
	qp.state, qp.attributes, qp.notifying, qp.lastWQE, qp.reason = Reset, Attributes{}, false, false, ""
}

// rights returns the rights of the peer, by the access flags.
func rights(a Access) (r rc.Rights) {
	for _, of := range []struct {
		access Access
		right  rc.Rights
	}{{AccessRemoteRead, rc.AllowRead}, {AccessRemoteWrite, rc.AllowWrite | rc.AllowAtomicWrite}, {AccessRemoteAtomic, rc.AllowAtomic}} {
		if a&of.access != 0 {
			r |= of.right
		}
	}
	return r
}

// foreignAckDelay bounds the time that a peer of an unknown kind may take to acknowledge: 134 ms, as Linux says (roce.md
// 13).
const foreignAckDelay mad.Timeout = 15

// connect has the queue pair receive.
func (m *modification) connect() error {
	qp, a := m.qp, m.to
	gids := qp.pd.context.GIDs()
	switch qp.config.Type {
	case RC:
		qp.local = gids[a.Address.GIDIndex].Address
		peer := transport.Peer{Local: qp.local, Remote: a.Address.Remote, Class: a.Address.TrafficClass, Announce: true}
		return qp.channel.Connect(peer, rc.Connection{
			RemoteQPN: a.DestQPN, MTU: a.PathMTU, ReceivePSN: a.ReceivePSN, ResponderResources: int(a.MaxDestReads),
			Rights: rights(a.Access), MinRNRTimer: a.MinRNRTimer, AckDelay: foreignAckDelay.Ack(),
			ReceiveOnly: true,
		})
	case UC:
		qp.local = gids[a.Address.GIDIndex].Address
		return qp.uc.Connect(connectionOf(a))
	}
	return qp.ud.Connect()
}

// connectToSend has the queue pair send.
func (m *modification) connectToSend() error {
	qp, a := m.qp, m.to
	switch qp.config.Type {
	case RC:
		return qp.channel.QP.ConnectToSend(rc.Sending{
			SendPSN: a.SendPSN, InitiatorDepth: int(a.MaxReads),
			AckTimeout: mad.Timeout(a.Timeout).Ack(), RetryCount: int(a.RetryCount), RNRRetryCount: int(a.RNRRetry),
		})
	case UC:
		return qp.uc.ConnectToSend(a.SendPSN)
	}
	return qp.ud.ConnectToSend(a.SendPSN)
}

// apply tells the state machine of attributes that may change at any time.
func (m *modification) apply() {
	qp, a, mask := m.qp, m.to, m.mask
	redirected := qp.state == SendQueueDrain && mask&MaskAddress != 0
	if redirected {
		qp.local = qp.pd.context.GIDs()[a.Address.GIDIndex].Address
	}
	switch qp.config.Type {
	case RC:
		var m rc.Modification
		if mask&MaskAccess != 0 {
			m.Rights = new(rights(a.Access))
		}
		if mask&MaskMinRNRTimer != 0 {
			m.MinRNRTimer = &a.MinRNRTimer
		}
		if qp.state == SendQueueDrain && mask&(MaskTimeout|MaskRetryCount|MaskRNRRetry) != 0 {
			m.Retries = &rc.Retries{
				AckTimeout: mad.Timeout(a.Timeout).Ack(), RetryCount: int(a.RetryCount), RNRRetryCount: int(a.RNRRetry),
			}
		}
		if qp.state == SendQueueDrain && mask&(MaskMaxReads|MaskMaxDestReads) != 0 {
			m.Reads = &rc.Reads{InitiatorDepth: int(a.MaxReads), ResponderResources: int(a.MaxDestReads)}
		}
		qp.channel.QP.Modify(m)
		if redirected {
			qp.channel.Redirect(transport.Peer{Local: qp.local, Remote: a.Address.Remote, Class: a.Address.TrafficClass}, a.DestQPN)
		}
	case UC:
		if mask&MaskAccess != 0 {
			qp.uc.SetRights(rights(a.Access))
		}
	case UD:
		if mask&MaskQKey != 0 {
			qp.ud.SetQKey(a.QKey)
		}
	}
}
