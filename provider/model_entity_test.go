package provider_test

import (
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/provider"
)

// An entity describes an object as the model knows it: its place among antecedents
// and successors, and its end (ndkpi.md 1.2).
type entity struct {
	m           *model
	of          *consumer
	kind, name  string
	self        any // what it is part of
	object      closer
	antecedents []*entity
	holds       int   // successors that are not gone, and windows bound to it
	closing     *call // its close; nil while it is open
	gone        bool
	teardown    func() // what its close does at once
	leave       func() // and when nothing holds it any more
}

// add makes an entity of a new object.
func (m *model) add(e *entity, c *consumer, kind string, self any, object closer, antecedents ...*entity) {
	*e = entity{m: m, of: c, kind: kind, self: self, object: object, teardown: e.teardown, leave: e.leave}
	m.added++
	e.name = fmt.Sprintf("%s's %s %d", c.name, kind, m.added)
	for _, a := range append([]*entity{&c.entity}, antecedents...) {
		e.dependOn(a)
	}
	if _, limited := c.device.limits[kind]; limited {
		c.device.used[kind]++
	}
	m.entities = append(m.entities, e)
}

func (e *entity) dependOn(a *entity) {
	a.holds++
	e.antecedents = append(e.antecedents, a)
}

// leaveIfFree ends a close that nothing holds up any more, and so perhaps those
// of antecedents.
func (e *entity) leaveIfFree() {
	if e.gone || e.closing == nil || e.holds > 0 {
		return
	}
	e.gone = true
	e.closing.want = []provider.Status{provider.StatusSuccess}
	e.m.entities = slices.DeleteFunc(e.m.entities, func(o *entity) bool { return o == e })
	if _, limited := e.of.device.limits[e.kind]; limited {
		e.of.device.used[e.kind]--
	}
	if e.leave != nil {
		e.leave()
	}
	for _, a := range e.antecedents {
		a.holds--
		a.leaveIfFree()
	}
}

// close closes an object.
func (m *model) close(e *entity) {
	m.settle()
	m.logf("%s: close, held %d times", e.name, e.holds)
	if l, ok := e.self.(*modelLAM); ok {
		l.release()
		m.settle()
		return
	}
	c := m.call(e, "Close", provider.StatusSuccess)
	c.want = nil
	e.closing = c
	c.returned = e.object.Close(c.closed, &c.async)
	m.is(c.what, c.returned, provider.StatusSuccess, provider.StatusPending)
	if e.teardown != nil {
		e.teardown()
	}
	m.overruns()
	e.leaveIfFree()
	m.settle()
}

// alive is called by the callbacks of an object: none may run when its close has
// completed (NDK-LIFE-19).
func (e *entity) alive(what string) {
	if c := e.closing; c != nil && (c.calls > 0 || c.returned == provider.StatusSuccess) {
		e.m.t.Fatalf("%s: %s after the close completed", e.name, what)
	}
}

// A call is one that may pend, and how it ought to end: not yet while want is
// nil.
type call struct {
	async
	what string
	want []provider.Status
}

func (m *model) call(e *entity, what string, want ...provider.Status) *call {
	c := &call{what: e.name + ": " + what, want: want}
	c.then = func() {
		if c.calls > 1 {
			m.t.Fatalf("%s called back twice", c.what)
		}
		if what != "Close" && what != "BeginClose" {
			e.alive(what)
		}
	}
	m.calls = append(m.calls, c)
	return c
}

// checkCalls checks the calls that have ended, and that no other has.
func (m *model) checkCalls() {
	for _, c := range m.calls {
		switch {
		case c.returned != provider.StatusPending && c.calls > 0:
			m.t.Fatalf("%s returned %v and called back", c.what, c.returned)
		case !c.over():
		case c.want == nil:
			m.t.Fatalf("%s has ended and should pend", c.what)
		case c.returned != provider.StatusPending:
			m.is(c.what, c.returned, c.want...)
		default:
			m.is(c.what, c.status, c.want...)
		}
	}
	// They are still the context of their callbacks, should those run again.
	m.calls = slices.DeleteFunc(m.calls, (*call).over)
}

// request makes a call that is done when it has returned or soon after.
func (m *model) request(e *entity, what string, want provider.Status, f func(provider.RequestCompletion, any) provider.Status) {
	m.settle()
	m.logf("%s: %s, want %v", e.name, what, want)
	c := m.call(e, what, want)
	if m.oneIn(4, "no completion") {
		c.returned = f(nil, nil)
		m.is(c.what, c.returned, want)
	} else {
		c.returned = f(c.done, &c.async)
		if pends := c.returned == provider.StatusPending; pends != (m.pend && want == provider.StatusSuccess) {
			m.t.Fatalf("%s returned %v", c.what, c.returned)
		}
	}
}

// create makes an object; false if it ought not to be made, and is not.
func create[T provider.Object](m *model, c *consumer, kind string, want provider.Status,
	f func(provider.CreateCompletion, any) (T, provider.Status)) (object T, ok bool) {
	m.settle()
	if limit, limited := c.device.limits[kind]; limited && want == provider.StatusSuccess && c.device.used[kind] == limit {
		want = provider.StatusInsufficientResources
	}
	m.logf("%s: create %s, want %v", c.name, kind, want)
	if m.oneIn(4, "no completion") {
		object, status := f(nil, nil)
		m.is("create "+kind, status, want)
		return object, status == provider.StatusSuccess
	}
	calls, context := 0, new(int)
	object, status := f(func(got any, s provider.Status, o provider.Object) {
		calls++
		m.is("create "+kind, s, want)
		if got != context {
			m.t.Fatal("wrong context")
		}
		object = o.(T)
	}, context)
	if m.pend && want == provider.StatusSuccess {
		m.is("create "+kind, status, provider.StatusPending)
		m.w.clock.Run(0)
		if calls != 1 {
			m.t.Fatalf("create %s called back %d times", kind, calls)
		}
		return object, true
	}
	m.is("create "+kind, status, want)
	m.w.clock.Run(0)
	if calls != 0 {
		m.t.Fatalf("create %s called back", kind)
	}
	return object, status == provider.StatusSuccess
}
