package verbs

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/uc"
	"github.com/ndklab/ndklab/internal/provider/ud"
)

// An AH is an address handle: where datagrams go.
type AH struct {
	pd      *PD
	address Address
	local   netip.Addr
}

// CreateAH makes an address handle: EINVAL if the address is not of the kind of that with the GID index.
func (pd *PD) CreateAH(a Address) (*AH, error) {
	c := pd.context
	gids := c.GIDs()
	if a.GIDIndex < 0 || a.GIDIndex >= len(gids) || a.Port != 1 || !a.Remote.IsValid() || gids[a.GIDIndex].Address.Is4() != a.Remote.Is4() {
		return nil, syscall.EINVAL
	}
	if err := c.take(&c.inUse.ahs, c.limits.AHs); err != nil {
		return nil, err
	}
	pd.holds.Add(1)
	return &AH{pd: pd, address: a, local: gids[a.GIDIndex].Address}, nil
}

// Destroy ends the handle. Datagrams that were posted with it are sent all the same.
func (ah *AH) Destroy() error {
	ah.pd.holds.Add(-1)
	ah.pd.context.give(&ah.pd.context.inUse.ahs)
	return nil
}

// A SendRequest is a request to be posted to a send queue (ibv_send_wr). Nothing of it is kept but the memory that it
// names, until it is complete.
type SendRequest struct {
	ID uint64
	// Request says what is to be done. Of Context, Silent and Local, nothing is the caller's; nor is Operand, of an
	// atomic write, whose 8 bytes are those of SGL or Inline.
	rc.Request
	Signaled bool // it makes a completion, even without error

	// Of datagrams.
	AH        *AH
	RemoteQPN uint32
	QKey      uint32
}

// Post queues requests, in order. failed is the index of the first that was refused, and why; those before it are
// posted.
func (qp *QP) Post(requests []SendRequest) (failed int, err error) {
	qp.lock.Lock()
	defer qp.lock.Unlock()
	qp.written.takeSends()
	for i := range requests {
		if err = qp.post(&requests[i]); err != nil {
			failed = i
			break
		}
	}
	if qp.config.Type == RC {
		qp.channel.ProgressSoon()
	} else {
		qp.unreliable.Progress()
	}
	qp.written.renewRoom()
	return failed, err
}

// post queues a request. The lock is held.
func (qp *QP) post(r *SendRequest) error {
	switch qp.state {
	case Reset, Init, ReadyToReceive:
		return syscall.EINVAL
	}
	t := qp.tags.take(r.ID)
	r.Request.Context, r.Request.Silent = t, !r.Signaled && !qp.config.SignalAll
	if qp.state == Error || qp.state == SendQueueError {
		qp.complete(&rc.Completion{Op: r.Op, Status: rc.Flushed, Context: t, Solicited: true}, 0, 0)
		return nil
	}
	var err error
	switch qp.config.Type {
	case RC:
		if r.Op == rc.OpAtomicWrite && !(view{qp}).takeOperand(&r.Request) {
			err = rc.ErrAtomic
			break
		}
		err = qp.channel.QP.Post(&r.Request)
	case UC:
		err = qp.uc.Post(&r.Request)
	case UD:
		err = qp.postDatagram(r)
	}
	if err == nil {
		return nil
	}
	qp.tags.give(t)
	if errors.Is(err, rc.ErrFull) {
		return syscall.ENOMEM
	}
	return syscall.EINVAL
}

func (qp *QP) postDatagram(r *SendRequest) error {
	if r.AH == nil || r.AH.pd != qp.pd || r.Op != rc.OpSend && r.Op != rc.OpSendImmediate {
		return rc.ErrOperation
	}
	carrier := qp.pd.context.transport.Carrier
	flow := roce.Flow{Local: r.AH.local, Remote: r.AH.address.Remote}
	flow.SourcePort = carrier.SourcePort(flow.Local, roce.FlowLabel(qp.Number(), r.RemoteQPN))
	return qp.ud.Post(&ud.Request{
		Context: r.Context, SGL: r.SGL, Inline: r.Inline, Flow: flow, Class: roce.RequestedClass(r.AH.address.TrafficClass), QPN: r.RemoteQPN, QKey: r.QKey,
		Immediate: r.Immediate, HasImmediate: r.Op == rc.OpSendImmediate, Silent: r.Silent, Solicited: r.Solicited,
	})
}

// Receive posts receives, in order, as Post does requests.
func (qp *QP) Receive(receives []ReceiveRequest) (failed int, err error) {
	if qp.config.SRQ != nil {
		return 0, syscall.EINVAL
	}
	qp.lock.Lock()
	defer qp.lock.Unlock()
	qp.written.takeReceives()
	for i := range receives {
		if err = qp.postReceive(&receives[i]); err != nil {
			failed = i
			break
		}
	}
	qp.written.watchReceives()
	if qp.state == Error {
		qp.flush()
	}
	return failed, err
}

// postReceive queues a receive. The lock is held.
func (qp *QP) postReceive(r *ReceiveRequest) error {
	if qp.state == Reset || len(r.SGL) > qp.config.Capacity.ReceiveSGEs {
		return syscall.EINVAL
	}
	t := qp.tags.take(r.ID)
	if qp.receives.Post(&rc.Receive{Context: t, SGL: r.SGL}) != nil {
		qp.tags.give(t)
		return syscall.ENOMEM
	}
	return nil
}

// connectionOf returns the attributes of an unreliable connection.
func connectionOf(a *Attributes) uc.Connection {
	return uc.Connection{RemoteQPN: a.DestQPN, MTU: a.PathMTU, ReceivePSN: a.ReceivePSN, Rights: rights(a.Access)}
}
