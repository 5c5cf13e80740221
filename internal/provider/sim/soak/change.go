package soak

import (
	"slices"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
	"github.com/ndklab/ndklab/provider"
)

// idle returns a window that nothing is bound to; fast says which kind. Nil if there
// is none.
func (l *instance) idle(fast bool) *window {
	for i, w := range l.windows {
		if w.useless && (w.mw != nil) != fast {
			l.replaceWindow(i)
			w = l.windows[i]
		}
		if w.current == nil && !w.useless && (w.mw != nil) != fast {
			return w
		}
	}
	return nil
}

// replaceWindow closes a window of which nobody knows what it grants and makes another.
func (l *instance) replaceWindow(i int) {
	old := l.windows[i]
	if old.current != nil {
		old.current.end()
	}
	w := &window{instance: l}
	if old.mw != nil {
		l.close(old.mw, nil)
		w.mw = keep(l, must(l.domain.CreateMW(nil, nil)))
	} else {
		l.close(old.mr, nil)
		w.mr = keep(l, must(l.domain.CreateMR(true, nil, nil)))
		must(w.mr, w.mr.InitializeFastRegister(uint32(len(l.lam.Pages)), true, nil, nil))
	}
	l.windows[i] = w
}

// bind posts a Bind.
func (q *request) bind() (provider.Status, bool) {
	e := q.end
	r, l := e.run, e.instance
	q.op = provider.OperationTypeBind
	w := l.idle(false)
	if w == nil {
		return 0, false
	}
	open := l.grants[0]
	from := open.from + r.Rand.IntN(open.to-open.from-1)
	to := from + 1 + r.Rand.IntN(open.to-from)
	g := &grant{instance: l, window: w, by: e, va: open.address(from), from: from, to: to, remote: true}
	flags := []provider.OpFlags{provider.OpAllowRemoteRead, provider.OpAllowRemoteWrite, provider.OpAllowRemoteRead | provider.OpAllowRemoteWrite}[r.Rand.IntN(3)]
	g.flags = rights(flags)
	q.grant = g
	q.flags |= flags
	return e.qp.Bind(q, l.bindable, w.mw, g.va, uint64(to-from), q.flags), true
}

// fastRegister posts a FastRegister.
func (q *request) fastRegister() (provider.Status, bool) {
	e := q.end
	r, l := e.run, e.instance
	q.op = provider.OperationTypeFastRegister
	w := l.idle(true)
	if w == nil {
		return 0, false
	}
	first := r.Rand.IntN(len(l.lam.Pages))
	count := 1 + r.Rand.IntN(len(l.lam.Pages)-first)
	fbo := r.Rand.IntN(provider.PageSize)
	length := 1 + r.Rand.IntN(count*provider.PageSize-fbo)
	from := l.mappedFrom + first*provider.PageSize + fbo
	g := &grant{instance: l, window: w, by: e, va: 0x12_3400_0000 + uint64(fbo), from: from, to: from + length, local: true, remote: true}
	var flags provider.OpFlags
	for _, f := range []provider.OpFlags{
		provider.OpAllowLocalWrite, provider.OpAllowRemoteRead, provider.OpAllowRemoteWrite, provider.OpReadSink,
	} {
		if r.Chance(0.6) {
			flags |= f
		}
	}
	g.flags = rights(flags)
	q.grant = g
	q.flags |= flags
	return e.qp.FastRegister(q, w.mr, l.lam.Pages[first:first+count], uint32(fbo), uint64(length), g.va, q.flags), true
}

// rights returns what the flags of a request ask for.
func rights(flags provider.OpFlags) (rights provider.MRFlags) {
	for op, mr := range map[provider.OpFlags]provider.MRFlags{
		provider.OpAllowLocalWrite:  provider.MRAllowLocalWrite,
		provider.OpAllowRemoteRead:  provider.MRAllowRemoteRead,
		provider.OpAllowRemoteWrite: provider.MRAllowRemoteWrite,
		provider.OpReadSink:         provider.MRReadSink,
	} {
		if flags&op == op {
			rights |= mr
		}
	}
	return rights
}

// inUse reports whether a request that is not over uses a grant.
func (l *instance) inUse(g *grant) bool {
	for _, e := range l.ends {
		uses := func(q *request) bool { return slices.Contains(q.uses, g) }
		if slices.ContainsFunc(e.pending, uses) || e.peer != nil && slices.ContainsFunc(e.peer.pending, uses) {
			return true
		}
	}
	return false
}

// invalidate posts an Invalidate of what is in effect, or will be by then.
func (q *request) invalidate() (provider.Status, bool) {
	e := q.end
	q.op = provider.OperationTypeInvalidate
	var fit []*window
	for _, w := range e.instance.windows {
		if g := w.current; g != nil && !w.useless && g.known(e) && (g.by == e || !e.instance.inUse(g) || e.run.mistake()) {
			fit = append(fit, w)
		}
	}
	w := trial.Pick(e.run.Rand, fit)
	if w == nil {
		return 0, false
	}
	q.grant = w.current
	return e.qp.Invalidate(q, w.object(), q.flags), true
}
