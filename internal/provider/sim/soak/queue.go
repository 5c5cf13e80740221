package soak

import (
	"time"

	"github.com/ndklab/ndklab/provider"
)

// A queue is a completion queue with its consumer, who polls it after each event
// or, armed, when notified and then a little later.
type queue struct {
	instance *instance
	cq       *provider.CQ
	notified bool
	taken    []provider.ResultEx // that have not been judged: to judge one may need others
}

// queueDepth is more than all of an instance's ends can have outstanding.
const queueDepth = 1024

func newQueue(l *instance) *queue {
	q := &queue{instance: l}
	q.cq = keep(l, must(l.adapter.CreateCQ(queueDepth, func(_ any, status provider.Status) { q.notify(status) }, nil, nil, nil, nil)))
	if !l.host.plan.eager {
		q.cq.Arm(provider.NotifyAny)
	}
	return q
}

func (q *queue) notify(status provider.Status) {
	if status != provider.StatusSuccess {
		q.instance.run.Fail("completion queues do not fail", "%v: %v", q.instance, status)
	}
	if q.notified {
		q.instance.run.Fail("one notification for each arm", "%v", q.instance)
	}
	q.notified = true
	// Completions that come after the last poll are for the next notification, also
	// if they come before the queue is armed.
	first := q.instance.run.Chance(0.5)
	if first {
		q.poll()
	}
	q.instance.run.Later(50*time.Microsecond, func() {
		q.notified = false
		q.cq.Arm(provider.NotifyAny)
		if !first {
			q.poll()
		}
	})
}

// pollEager polls the queues of a consumer who does that all the time.
func (l *instance) pollEager() {
	if l.host.plan.eager && !l.over {
		for _, q := range l.queues {
			q.poll()
		}
	}
}

// poll takes what the queue has.
func (q *queue) poll() {
	r := q.instance.run
	var results [8]provider.ResultEx
	for n := len(results); n == len(results) || len(q.taken) > 0; {
		n = q.cq.ResultsEx(results[:])
		q.taken = append(q.taken, results[:n]...)
		for len(q.taken) > 0 {
			result := &q.taken[0]
			q.taken = q.taken[1:]
			e := result.QPContext.(*end)
			r.Note(uint64(r.Clock.Now()), uint64(e.number), uint64(result.Type), uint64(result.Status), uint64(result.BytesTransferred))
			if r.Journals() {
				r.Logf("%v: %v %v, %d bytes", e, result.RequestContext, result.Status, result.BytesTransferred)
			}
			switch about := result.RequestContext.(type) {
			case *request:
				e.judge(about, result)
			case *receive:
				e.judgeReceive(about, result)
			}
		}
	}
}
