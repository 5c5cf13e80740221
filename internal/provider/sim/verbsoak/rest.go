package verbsoak

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/verbs"
	"github.com/ndklab/ndklab/provider"
)

// rest ends the faults and looks whether everything comes to its end.
func (r *run) rest() {
	r.Calm()
	r.RunFor(25 * time.Millisecond) // whoever connects or drains is done
	for _, e := range r.ends {
		if e.gone {
			continue
		}
		if e.busy && e.cause {
			e.busy = false
		}
		if e.cause || e.peer != nil && (e.peer.cause || e.peer.gone) {
			e.toError()
		} else {
			e.undrain()
		}
	}
	r.feed()
	for _, e := range r.ends {
		e.ask()
	}
	r.RunUntil("requests complete", 200*time.Second, func() bool {
		return !slices.ContainsFunc(r.ends, func(e *end) bool { return !e.gone && !e.lossy && !e.failed && slices.ContainsFunc(e.pending, loud) })
	})
	r.fed = true
	r.RunFor(time.Second)
	for _, e := range r.ends {
		e.conclude()
	}
	r.closeAll()
}

// loud reports whether a request completes even if it succeeds.
func loud(q *request) bool { return !q.silent }

// unfinished tells what has not come to its end.
func (r *run) unfinished() (s string) {
	for _, e := range r.ends {
		if !e.gone && slices.ContainsFunc(e.pending, loud) {
			a, _ := e.qp.Query()
			s += fmt.Sprintf("\n  %v, state %d (really %d), peer %v, pending %v", e, e.state, a.State, e.peer, e.pending)
		}
	}
	return s
}

// feed has receives where messages come, again and again.
func (r *run) feed() {
	if r.fed {
		return
	}
	for _, e := range r.ends {
		if !e.gone && !e.cause && e.state >= verbs.Init {
			e.receives.post(4)
		}
	}
	r.Clock.AfterFunc(5*time.Millisecond, r.feed)
}

// ask posts a request that completes when all before it are over.
func (e *end) ask() {
	if !e.usable() || e.kind == verbs.UD || e.peer.access&verbs.AccessRemoteWrite == 0 || len(e.pending) == 0 && e.run.Chance(0.5) {
		return
	}
	q := &request{end: e, op: rc.OpWrite, partial: true}
	q.request.Token = 1 // which nobody looks at
	if len(e.pending) < e.depth {
		q.post()
	}
}

// conclude looks at an end when all is quiet.
func (e *end) conclude() {
	r := e.run
	if e.gone || e.lossy || e.failed {
		return
	}
	e.pollAll()
	if !e.cause {
		if a, _ := e.qp.Query(); a.State != e.state {
			r.Fail("nothing fails without a cause", "%v is in state %d, expected %d", e, a.State, e.state)
		}
		e.delivered()
	}
	for _, a := range e.arrivals {
		r.Fail("what arrives is received", "%v: %v", e, a)
	}
	if r.plan.faultless() {
		if i := slices.IndexFunc(e.sends, func(q *request) bool { return !q.received }); i >= 0 {
			r.Fail("without faults nothing is lost", "%v", e.sends[i])
		}
	}
}

// closeAll destroys everything in a random order as far as it is not in use, and looks for what is left.
func (r *run) closeAll() {
	for _, h := range r.hosts {
		h.close()
	}
	r.RunFor(time.Second)
	for _, h := range r.hosts {
		h.memory.check()
		if c := h.device.Transport().Counters(); r.plan.faultless() && c.Retransmitted > 0 {
			r.Fail("without faults nothing is sent again", "%v: %d packets", h, c.Retransmitted)
		}
		h.count()
		must(h.context.Close())
		closed := false
		h.device.BeginClose(func() {
			closed = true
			if u := h.device.Usage(); u != (provider.Usage{}) {
				r.Fail("nothing is left", "%v: %+v", h, u)
			}
			if u := h.device.Transport().Usage(); u.Numbers != 0 || u.Peers != 0 || u.Waiting != 0 || u.Credit != u.Unneeded {
				r.Fail("nothing is left", "%v: %+v", h, u)
			}
		})
		r.RunUntil("the device closes", time.Minute, func() bool { return closed })
	}
	r.Drain(time.Minute)
}

// A thing is an object, how it is destroyed and whether it is in use.
type thing struct {
	name    string
	destroy func() error
	busy    func() bool
}

// close destroys all objects. Those in use refuse, and are destroyed later.
func (h *host) close() {
	r := h.run
	for _, w := range h.windows {
		if w.binding != nil || w.ending {
			w.renew()
		}
	}
	never := func() bool { return false }
	things := []thing{
		{"the region", h.mr.Deregister, func() bool { return slices.ContainsFunc(h.windows, func(w *window) bool { return w.slot != nil }) }},
		{"the stranger's region", h.foreign.Deregister, never},
	}
	if h.fleeting.mr != nil {
		things = append(things, thing{"the fleeting region", h.fleeting.mr.Deregister, never})
	}
	for _, w := range h.windows {
		things = append(things, thing{"a window", w.close, never})
	}
	for _, e := range h.ends {
		if !e.gone {
			things = append(things, thing{e.String(), func() error { e.destroy(); return nil }, never})
		}
	}
	users := func(of func(*end) bool) func() bool {
		return func() bool { return slices.ContainsFunc(h.ends, func(e *end) bool { return !e.gone && of(e) }) }
	}
	for _, q := range h.queues {
		things = append(things, thing{"a CQ", q.cq.Destroy, users(func(e *end) bool { return e.sendQueue == q || e.receiveQueue == q })})
	}
	for _, kind := range []verbs.QPType{verbs.RC, verbs.UD} {
		if s := h.srqs[kind]; s != nil {
			things = append(things, thing{"an SRQ", s.srq.Destroy, users(func(e *end) bool { return e.receives == s })})
		}
	}
	for len(things) > 0 {
		i := r.Rand.IntN(len(things))
		t := things[i]
		if !h.tryToDestroy(t) {
			continue
		}
		things = slices.Delete(things, i, i+1)
		if len(things) > 0 {
			if err := h.pd.Dealloc(); err == nil && !slices.ContainsFunc(things, func(t thing) bool { return t.name != "a CQ" && t.name != "the stranger's region" }) {
				h.pd = made(h.context.AllocPD())
			} else if !errors.Is(err, syscall.EBUSY) {
				r.Fail("what is in use stays", "%v: a domain with %d things: %v", h, len(things), err)
			}
		}
	}
	must(h.pd.Dealloc())
	must(h.stranger.Dealloc())
}

// tryToDestroy reports whether it has been destroyed, which must be so unless it is in use.
func (h *host) tryToDestroy(t thing) bool {
	busy := t.busy()
	err := t.destroy()
	if busy && errors.Is(err, syscall.EBUSY) {
		return false
	}
	if busy || err != nil {
		h.run.Fail("what is in use stays", "%v: %s, in use %v: %v", h, t.name, busy, err)
	}
	return true
}

// count makes as many objects as at first: what is left of others would count.
func (h *host) count() {
	c := h.context
	var ends []func() error
	full := func(what string, most uint32, make func() (func() error, error)) {
		for i := range most + 1 {
			end, err := make()
			if i < most && err != nil || i == most && !errors.Is(err, syscall.ENOMEM) {
				h.run.Fail("nothing is left", "%v: making %s %d of %d: %v", h, what, i+1, most, err)
			}
			if err == nil {
				ends = append(ends, end)
			}
		}
	}
	var pd *verbs.PD
	full("PD", few.PDs, func() (func() error, error) {
		p, err := c.AllocPD()
		if err == nil {
			pd = p
		}
		return p.Dealloc, err
	})
	var cq *verbs.CQ
	full("CQ", few.CQs, func() (func() error, error) {
		q, err := c.CreateCQ(1, nil)
		if err == nil {
			cq = q
		}
		return q.Destroy, err
	})
	full("MR", few.MRs, func() (func() error, error) {
		m, err := pd.RegisterMR(verbs.Bytes(h.memory.Bytes), 8, 0, 0)
		return m.Deregister, err
	})
	full("MW", few.MWs, func() (func() error, error) {
		w, err := pd.AllocMW(verbs.Window1)
		return w.Dealloc, err
	})
	full("SRQ", few.SRQs, func() (func() error, error) {
		s, err := pd.CreateSRQ(1, 1, 0)
		return s.Destroy, err
	})
	full("AH", few.AHs, func() (func() error, error) {
		a, err := pd.CreateAH(verbs.Address{Remote: h.address, Port: 1})
		return a.Destroy, err
	})
	full("QP", few.QPs, func() (func() error, error) {
		q, err := pd.CreateQP(verbs.QPConfig{Type: verbs.UC, SendCQ: cq, ReceiveCQ: cq})
		return q.Destroy, err
	})
	slices.Reverse(ends)
	for _, end := range ends {
		must(end())
	}
}
