package await

import (
	"context"

	"github.com/ndklab/ndklab/provider"
)

// A CQ is a completion queue that can be waited on, by one goroutine at a time.
type CQ struct {
	*provider.CQ
	notified chan provider.Status
}

// NewCQ makes a completion queue for depth entries.
func NewCQ(adapter *provider.Adapter, depth uint32) (*CQ, error) {
	cq := &CQ{notified: make(chan provider.Status, 1)}
	var status provider.Status
	cq.CQ, status = adapter.CreateCQ(depth, cq.notify, nil, nil, nil, nil)
	return cq, errorOf(status)
}

// notify leaves the newest notification for Wait, in place of one that a Wait
// which was given up did not take. It is the only sender, and does not overlap
// with itself, so that there is room and it does not block.
func (cq *CQ) notify(_ any, status provider.Status) {
	select {
	case <-cq.notified:
	default:
	}
	cq.notified <- status
}

// Wait removes up to len(results) completions, at least one, which it waits for.
// The error is the cause of ctx's end, or the status with which the queue itself
// failed; completions that are there come first.
func (cq *CQ) Wait(ctx context.Context, results []provider.ResultEx) (int, error) {
	for {
		if n := cq.ResultsEx(results); n > 0 || len(results) == 0 {
			return n, nil
		}
		cq.Arm(provider.NotifyAny)
		select {
		case status := <-cq.notified:
			if status != provider.StatusSuccess {
				return 0, status
			}
		case <-ctx.Done():
			// Completions may have come before the event that ended ctx, such as a disconnect.
			if n := cq.ResultsEx(results); n > 0 {
				return n, nil
			}
			return 0, context.Cause(ctx)
		}
	}
}

// One waits for one completion. The error is the status with which the request
// failed, or one of Wait's.
func (cq *CQ) One(ctx context.Context) (provider.ResultEx, error) {
	var results [1]provider.ResultEx
	if _, err := cq.Wait(ctx, results[:]); err != nil {
		return provider.ResultEx{}, err
	}
	return results[0], errorOf(results[0].Status)
}
