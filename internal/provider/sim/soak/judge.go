package soak

import (
	"slices"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
	"github.com/ndklab/ndklab/provider"
)

// judge takes the completion of a request.
func (e *end) judge(q *request, result *provider.ResultEx) {
	r := e.run
	status := result.Status
	r.Coverage.Count("completed " + opName(q.op) + " " + status.String())
	at := -1
	for i, p := range e.pending {
		if p == q {
			at = i
			break
		}
	}
	switch {
	case q.end != e, at < 0:
		r.Fail("each request completes once", "%v: %v completes with %v, and is not pending", e, q, status)
	case result.Type != q.op:
		r.Fail("completions are of their request's kind", "%v: %v completes as %v", e, q, result.Type)
	case status == provider.StatusSuccess && e.broken:
		r.Fail("nothing succeeds after a failure", "%v: %v", e, q)
	case status == provider.StatusSuccess && q.has(provider.OpSilentSuccess):
		r.Fail("silent requests succeed silently", "%v: %v", e, q)
	}
	if status == provider.StatusRemoteResources {
		e.peer.refused = true
	}
	// Those before it have had no completion, so they succeeded silently.
	before := e.pending[:at]
	e.pending = e.pending[at+1:]
	for _, earlier := range before {
		if !earlier.has(provider.OpSilentSuccess) {
			r.Fail("requests complete in order", "%v: %v before %v", e, q, earlier)
		}
		earlier.succeed()
	}
	if status == provider.StatusSuccess {
		q.succeed()
		return
	}
	if !q.mayFail(status) {
		r.Fail("requests end as they should", "%v: %v completes with %v", e, q, status)
	}
	e.broken = true
	e.cause = e.cause || status != provider.StatusCancelled
	q.fail()
}

// mayFail reports whether there is something that explains how a request ended.
func (q *request) mayFail(status provider.Status) bool {
	e := q.end
	switch status {
	case provider.StatusCancelled:
		return e.flushed(q)
	case provider.StatusIOTimeout:
		return !e.cause && e.mayBeSilent(e.run.Clock.Now()-silenceTime)
	}
	if e.cause {
		return false // one fails, and all others are flushed
	}
	switch status {
	case q.doom:
		return true
	case provider.StatusAccessViolation:
		return q.uncertain(e.instance)
	case provider.StatusRemoteResources:
		if q.uncertain(e.peer.instance) {
			return true
		}
		return q.op == provider.OperationTypeSend && e.peer.refuses(q)
	}
	return false
}

// uncertain reports whether the request uses a token of an instance's that may not be, or
// have been, in effect.
func (q *request) uncertain(l *instance) bool {
	for _, g := range q.uses {
		if g.instance == l && g != q.grant && (g.ending || !g.begun) {
			return true
		}
	}
	return q.grant != nil && q.op == provider.OperationTypeSend && q.grant.instance == l && q.grant.window.useless
}

// flushed reports whether something explains that requests of the end, beside
// except, are cancelled.
func (e *end) flushed(except any) bool {
	if e.tearing || e.broken || e.receivesOver || e.refused || e.instance.dead || e.instance.closing || e.peer != nil && e.peer.instance.closing {
		return true
	}
	if e.stage == accepting && e.abandoned() {
		return true
	}
	for _, q := range e.dooms {
		if q != except {
			return true
		}
	}
	// The peer may have used a token of ours whose end was near.
	if p := e.peer; p != nil {
		if slices.ContainsFunc(slices.Concat(p.pending, p.failed), func(q *request) bool { return q.uncertain(e.instance) }) {
			return true
		}
	}
	// The request or receive that has failed may be in the other queue.
	broken, over := e.broken, e.receivesOver
	e.requestQueue.poll()
	e.receiveQueue.poll()
	return e.broken != broken || e.receivesOver != over
}

// succeed checks that what a successful request was to do is done.
func (q *request) succeed() {
	e := q.end
	r := e.run
	q.over = true
	if q.doom != provider.StatusSuccess {
		r.Fail("no request succeeds that should not", "%v: %v", e, q)
	}
	switch q.op {
	case provider.OperationTypeSend:
		if !q.delivered {
			e.peer.receiveQueue.poll()
		}
		if !q.delivered {
			r.Fail("success means that the data is there", "%v: %v has not been received", e, q)
		}
	case provider.OperationTypeWrite:
		if q.closed && !q.present {
			r.Fail("success means that the data is there", "%v: %v had not arrived when its target was closed", e, q)
		}
		checkArrived(q.landing, q.data, q)
	case provider.OperationTypeRead:
		checkArrived(q.landing, q.data, q)
		if q.grant != nil {
			q.grant.end()
		}
	case provider.OperationTypeBind, provider.OperationTypeFastRegister:
		q.grant.begun = true
	case provider.OperationTypeInvalidate:
		q.grant.end()
	}
	trial.ReleaseAll(&q.reads)
	trial.ReleaseAll(&q.landing)
}

// fail follows the failure of a request.
func (q *request) fail() {
	q.over = true
	q.end.failed = append(q.end.failed, q)
	trial.ReleaseAll(&q.reads)
	switch q.op {
	case provider.OperationTypeRead:
		q.end.instance.memory.Check()
		trial.ReleaseAll(&q.landing) // nothing more is placed
	case provider.OperationTypeBind, provider.OperationTypeFastRegister, provider.OperationTypeInvalidate:
		q.grant.markUncertain()
		return
	}
	// The data of a WRITE may still be under way.
	if q.grant != nil {
		q.grant.markUncertain()
	}
}

// checkAllOver follows the close of the end's queue pair: everything that was
// posted has completed, and nothing comes to memory through it any more.
func (e *end) checkAllOver() {
	r := e.run
	e.requestQueue.poll()
	e.receiveQueue.poll()
	for _, q := range e.pending {
		if !q.has(provider.OpSilentSuccess) {
			r.Fail("each request completes once", "%v is closed, and %v has not", e, q)
		}
		q.succeed()
	}
	e.pending = nil
	if e.nextReceive < len(e.receives) {
		r.Fail("each request completes once", "%v is closed, and %v has not", e, e.receives[e.nextReceive])
	}
	e.instance.memory.Check()
	for _, q := range e.incoming {
		q.present = true
		for _, c := range q.landing {
			q.present = q.present && c.Holds(q.data)
		}
		q.closed = !q.over
		trial.ReleaseAll(&q.landing)
	}
	e.incoming = nil
}
