package await

import (
	"context"

	"github.com/ndklab/ndklab/provider"
)

// A QP is a queue pair with completion queues of its own, so that a goroutine can
// wait for what it posted, and another, or the same, for what the peer sends.
type QP struct {
	*provider.QP
	requests, receives *CQ
}

// NewQP makes a queue pair for up to depth receives and as many other requests at
// a time, each of up to sges pieces.
func NewQP(ctx context.Context, adapter *provider.Adapter, pd *provider.PD, depth, sges uint32) (*QP, error) {
	qp := &QP{}
	var err error
	if qp.requests, err = NewCQ(adapter, depth); err != nil {
		return nil, err
	}
	if qp.receives, err = NewCQ(adapter, depth); err != nil {
		qp.requests.Close(nil, nil)
		return nil, err
	}
	qp.QP, err = Create(ctx, func(completion provider.CreateCompletion, context any) (*provider.QP, provider.Status) {
		return pd.CreateQP(qp.receives.CQ, qp.requests.CQ, qp, depth, depth, sges, sges, 0, completion, context)
	})
	if err != nil {
		qp.requests.Close(nil, nil)
		qp.receives.Close(nil, nil)
		return nil, err
	}
	return qp, nil
}

// Done waits for the completion of a request. posted is what posting it returned:
//
//	_, err := qp.Done(ctx, qp.Write(nil, sgl, address, token, 0))
//
// If several are in progress it is that of the first. The error is the status
// with which the request could not be posted or failed, or one of CQ.Wait's.
func (qp *QP) Done(ctx context.Context, posted provider.Status) (provider.ResultEx, error) {
	if posted != provider.StatusSuccess {
		return provider.ResultEx{}, posted
	}
	return qp.requests.One(ctx)
}

// Received waits for the next receive's completion, and has Done's errors.
func (qp *QP) Received(ctx context.Context) (provider.ResultEx, error) {
	return qp.receives.One(ctx)
}

// Close begins to close the queue pair and its completion queues, and does not
// wait: Adapter.Close does. Pending requests complete without anybody being told.
func (qp *QP) Close() {
	for _, o := range []provider.Object{qp.QP, qp.requests.CQ, qp.receives.CQ} {
		o.Close(nil, nil)
	}
}
