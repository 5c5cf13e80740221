package provider_test

import (
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/provider"
)

// A modelPD describes a protection domain as the model knows it.
type modelPD struct{ entity }

// A modelCQ describes a CQ as the model knows it. The order of the entries of
// several queue pairs depends on the network; those of one queue follow each other
// as they were posted.
type modelCQ struct {
	entity
	*provider.CQ
	depth   int
	entries []*cqEntry
	failure provider.Status // not StatusSuccess: it is unusable
	mixed   bool            // which entries it had room for depends on the network

	armed          bool
	arm            provider.NotifyType
	may            bool              // the arm may be satisfied by entries told of before
	wantTold, told []provider.Status // notifications
	failureTold    bool
}

// A cqEntry is a completion to come or in the queue.
type cqEntry struct {
	provider.ResultEx
	qp        *modelQP
	solicited bool
	fresh     bool // newer than the last notification
}

func (e *cqEntry) receive() bool { return e.Type&1 != 0 }

func (c *modelCQ) init(of *consumer, depth uint32, object *provider.CQ) {
	c.CQ, c.depth = object, int(depth)
	of.m.add(&c.entity, of, "CQ", c, object)
	of.cqs = append(of.cqs, c)
}

// push notes that a request has completed.
func (c *modelCQ) push(e *cqEntry) {
	switch {
	case c.failure != provider.StatusSuccess:
		return
	case len(c.entries) == c.depth:
		c.fail(provider.StatusBufferOverflow)
		return
	}
	e.fresh = true
	c.entries = append(c.entries, e)
	if c.armed && (c.arm == provider.NotifyAny || c.arm == provider.NotifySolicited && e.solicited) {
		c.notify(provider.StatusSuccess)
	}
}

// unsure reports whether entries depend on how a refused request ends.
func (c *modelCQ) unsure() bool {
	return slices.ContainsFunc(c.m.qps(), func(q *modelQP) bool {
		return q.unsure != nil && (q.initiatorCQ == c || q.receiveCQ == c)
	})
}

func (c *modelCQ) notify(status provider.Status) {
	c.armed, c.may = false, false
	c.wantTold = append(c.wantTold, status)
	c.failureTold = status != provider.StatusSuccess
}

// fail makes the queue unusable; its queue pairs follow (overruns).
func (c *modelCQ) fail(status provider.Status) {
	c.failure = status
	c.of.device.counters.CQError++
	if c.armed {
		c.notify(status)
	}
	c.m.overrun = append(c.m.overrun, c)
}

// overruns ends the queue pairs of CQs that have overrun, which may overrun
// others.
func (m *model) overruns() {
	for len(m.overrun) > 0 {
		c := m.overrun[0]
		m.overrun = m.overrun[1:]
		users := 0
		for _, q := range m.qps() {
			if q.receiveCQ == c || q.initiatorCQ == c {
				q.fail()
				users++
			}
		}
		c.mixed = c.mixed || users > 1
	}
}

// checkTold checks the notifications.
func (c *modelCQ) checkTold() {
	if len(c.told) > len(c.wantTold) && c.may {
		// NDK-CQ-06: of completions that were there before it is told at once or
		// not at all.
		c.notify(provider.StatusSuccess)
	}
	c.may = false
	if c.closing != nil { // none need be told of the queue any more
		c.wantTold = c.wantTold[:min(len(c.told), len(c.wantTold))]
	}
	if !slices.Equal(c.told, c.wantTold) {
		c.m.t.Fatalf("%s: told %v, want %v", c.name, c.told, c.wantTold)
	}
	if len(c.told) > 0 {
		// The consumer may have been told, too, of entries that arrived together with
		// those it was told of.
		for _, e := range c.entries {
			e.fresh = false
		}
	}
	c.told, c.wantTold = nil, nil
}

// notification is the consumer's callback.
func (c *modelCQ) notification(context any, status provider.Status) {
	if context != c {
		c.m.t.Fatal("wrong context")
	}
	c.alive("notification")
	c.told = append(c.told, status)
}

// actArm asks for a notification.
func (m *model) actArm(c *modelCQ) {
	m.settle()
	t := pick(m, "arm", []provider.NotifyType{provider.NotifyAny, provider.NotifySolicited, provider.NotifyErrors})
	m.logf("%s: arm %d", c.name, t)
	strength := map[provider.NotifyType]int{provider.NotifyErrors: 0, provider.NotifySolicited: 1, provider.NotifyAny: 2}
	if !c.armed || strength[t] > strength[c.arm] {
		c.arm = t
	}
	c.armed = true
	if c.failure != provider.StatusSuccess {
		if !c.failureTold {
			c.notify(c.failure)
		}
	} else {
		for _, e := range c.entries {
			if c.armed && (c.arm == provider.NotifyAny || c.arm == provider.NotifySolicited && e.solicited) {
				if c.may = true; e.fresh {
					c.notify(provider.StatusSuccess)
				}
			}
		}
	}
	c.Arm(t)
	m.settle()
}

// poll takes up to n completions.
func (m *model) poll(c *modelCQ, n int, ex bool) {
	m.logf("%s: poll %d of %d", c.name, n, len(c.entries))
	var got []provider.ResultEx
	if ex {
		got = make([]provider.ResultEx, n)
		got = got[:c.ResultsEx(got)]
	} else {
		plain := make([]provider.Result, n)
		for _, r := range plain[:c.Results(plain)] {
			got = append(got, provider.ResultEx{Result: r})
		}
	}
	c.take(got, n, ex)
}

// take takes the results of a poll for n out of the entries.
func (c *modelCQ) take(got []provider.ResultEx, n int, ex bool) {
	if want := min(n, len(c.entries)); len(got) < want || n > want && len(got) > want {
		c.m.t.Fatalf("%s: %d results, want %d", c.name, len(got), want)
	}
	if c.mixed { // which entries there are is not known
		c.entries = c.entries[len(got):]
		return
	}
	for _, r := range got {
		c.match(r, ex)
	}
}

// match takes a result out of the entries: it must be the oldest of its queue.
func (c *modelCQ) match(got provider.ResultEx, ex bool) {
	q, ok := got.QPContext.(*modelQP)
	if !ok {
		c.m.t.Fatalf("%s: QPContext is %v", c.name, got.QPContext)
	}
	_, receive := got.RequestContext.(*modelReceive)
	i := slices.IndexFunc(c.entries, func(e *cqEntry) bool { return e.qp == q && e.receive() == receive })
	if i < 0 {
		c.m.t.Fatalf("%s: %s: result %v of %v that should not be", c.name, q.name, got.Status, got.RequestContext)
	}
	want := c.entries[i].ResultEx
	c.entries = slices.Delete(c.entries, i, i+1)
	if (got.ProviderErrorCode == 0) != (want.Status == provider.StatusSuccess) && ex {
		c.m.t.Fatalf("%s: %s: ProviderErrorCode %d with %v", c.name, q.name, got.ProviderErrorCode, want.Status)
	}
	got.ProviderErrorCode = 0
	if !ex {
		got.Type, got.TypeSpecificCompletionOutput = want.Type, want.TypeSpecificCompletionOutput
	}
	if want.Status != provider.StatusSuccess { // not said of others
		want.BytesTransferred, got.BytesTransferred = 0, 0
		want.Type, got.Type = want.Type&^0x8000, got.Type&^0x8000
		want.TypeSpecificCompletionOutput, got.TypeSpecificCompletionOutput = 0, 0
	}
	if got != want {
		c.m.t.Fatalf("%s: %s: got %+v, want %+v", c.name, q.name, got, want)
	}
}

// actResize changes a CQ's depth.
func (m *model) actResize(c *modelCQ) {
	m.settle()
	depth := pick(m, "depth", []uint32{64, 17, 16, 8, 3, 0, 65})
	want := provider.StatusSuccess
	switch {
	case m.info.AdapterFlags&provider.AdapterCQResize == 0:
		want = provider.StatusNotSupported
	case depth == 0, depth > m.info.MaxCqDepth:
		want = provider.StatusInvalidParameter
	case c.failure != provider.StatusSuccess:
		want = provider.StatusInvalidDeviceState
	case len(c.entries) > int(depth):
		want = provider.StatusBufferOverflow
	}
	m.request(&c.entity, fmt.Sprintf("Resize(%d)", depth), want, func(done provider.RequestCompletion, context any) provider.Status {
		return c.Resize(depth, done, context)
	})
	if want == provider.StatusSuccess {
		c.depth = int(depth)
	}
	m.settle()
}

// A modelSRQ describes an SRQ as the model knows it.
type modelSRQ struct {
	entity
	*provider.SRQ
	pd             *modelPD
	depth          int
	receives       []*modelReceive
	armed          bool
	threshold      int
	silent         bool // it has no callback
	told, wantTold int
}

// A modelReceive is a receive that is queued.
type modelReceive struct {
	n   int
	sgl []provider.SGE
}

func (r *modelReceive) String() string { return fmt.Sprintf("receive %d", r.n) }

func (s *modelSRQ) init(pd *modelPD, depth, threshold uint32, silent bool, object *provider.SRQ) {
	s.SRQ, s.pd, s.depth, s.threshold, s.armed, s.silent = object, pd, int(depth), int(threshold), threshold > 0, silent
	pd.m.add(&s.entity, pd.of, "SRQ", s, object, &pd.entity)
	pd.of.srqs = append(pd.of.srqs, s)
}

// take takes the oldest receive.
func (s *modelSRQ) take() {
	s.receives = s.receives[1:]
	if s.armed && len(s.receives) == s.threshold-1 {
		s.notify()
	}
}

func (s *modelSRQ) notify() {
	s.armed = false
	if !s.silent {
		s.wantTold++
	}
}

func (s *modelSRQ) notification(context any, status provider.Status) {
	if context != s {
		s.m.t.Fatal("wrong context")
	}
	s.m.is(s.name+": notification", status, provider.StatusSuccess)
	s.alive("notification")
	s.told++
}

// actModify changes an SRQ's depth and threshold.
func (m *model) actModify(s *modelSRQ) {
	m.settle()
	depth, threshold := pick(m, "depth", []uint32{0, 2, 8, 9}), pick(m, "threshold", []uint32{0, 1, 3})
	want := provider.StatusSuccess
	switch {
	case depth > m.info.MaxSrqDepth:
		want = provider.StatusInvalidParameter
	case depth > 0 && len(s.receives) > int(depth):
		want = provider.StatusBufferOverflow
	}
	m.request(&s.entity, fmt.Sprintf("Modify(%d, %d)", depth, threshold), want, func(done provider.RequestCompletion, context any) provider.Status {
		return s.Modify(depth, threshold, done, context)
	})
	if want == provider.StatusSuccess {
		if depth > 0 {
			s.depth = int(depth)
		}
		if threshold > 0 {
			s.armed, s.threshold = true, int(threshold)
			if len(s.receives) < s.threshold {
				s.notify()
			}
		}
	}
	m.settle()
}

// actReceive posts receives to a queue pair or an SRQ. One may be what a peer's
// send has waited for.
func (m *model) actReceive(q *modelQP, s *modelSRQ) {
	for range 1 + m.below(3, "more receives") {
		m.settle()
		pd := s.domain(q)
		m.added++
		r := &modelReceive{m.added, m.modelSGL(pd, localWrite, m.oneIn(12, "bad receive"))}
		if m.oneIn(15, "long SGL") {
			r.sgl = append(r.sgl, make([]provider.SGE, modelSGE)...)
		}
		var queue *[]*modelReceive
		var refusals []provider.Status
		depth := modelDepth
		if s != nil {
			queue, depth = &s.receives, s.depth
		} else {
			queue = &q.receives
			if q.srq != nil {
				refusals = append(refusals, provider.StatusInvalidDeviceRequest)
			}
		}
		if len(r.sgl) > modelSGE {
			refusals = append(refusals, provider.StatusDataOverrun)
		}
		if lengthOf(r.sgl) > modelTransfer {
			refusals = append(refusals, provider.StatusBufferOverflow)
		}
		if len(*queue) == depth {
			refusals = append(refusals, provider.StatusNoMoreEntries)
		}
		for _, sender := range m.qps() {
			p := sender.peer()
			if len(sender.blocked) == 0 || p == nil || (s == nil || p.srq != s) && p != q {
				continue
			}
			if to, _ := p.gather(r.sgl, lengthOf(r.sgl), localWrite); m.waitedFrom(claimsOf(to, true)) {
				return
			}
			m.calmFor(sender)
			for _, w := range sender.blocked {
				if w.inv && m.blockedOn(p.of.device.tokens[w.token]) {
					return
				}
			}
		}
		var status provider.Status
		if s != nil {
			status = s.Receive(r, r.sgl)
			m.logf("%s: %v of %v: %v", s.name, r, modelPieces(r.sgl), status)
		} else {
			status = q.Receive(r, r.sgl)
			m.logf("%s: %v of %v: %v", q.name, r, modelPieces(r.sgl), status)
		}
		if len(refusals) > 0 {
			m.is("Receive", status, refusals...)
			continue
		}
		m.is("Receive", status, provider.StatusSuccess)
		*queue = append(*queue, r)
		switch {
		case s != nil:
			m.offer(s)
		case q.state == qpError:
			q.cancelReceives()
		default:
			m.resume(q.peer())
		}
		m.overruns()
		m.settle()
	}
}

// domain is that of a queue pair's receives.
func (s *modelSRQ) domain(q *modelQP) *modelPD {
	if s != nil {
		return s.pd
	}
	return q.pd
}
