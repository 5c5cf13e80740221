package verbsoak

import (
	"errors"
	"slices"
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// A changingRegion is a region that is registered anew, or otherwise, under traffic: of the host's memory, too.
type changingRegion struct {
	host  *host
	mr    *verbs.MR // nil between registrations
	base  uint64
	open  bool // peers may write
	users []*request
}

func newChangingRegion(h *host) *changingRegion {
	f := &changingRegion{host: h}
	f.register()
	return f
}

func (f *changingRegion) register() {
	h := f.host
	f.base = h.run.Rand.Uint64() &^ 7
	if f.base > 1<<63 {
		f.base >>= 1
	}
	f.mr = made(h.pd.RegisterMR(verbs.Bytes(h.memory.Bytes), uint64(len(h.memory.Bytes)), f.base, everything))
	f.open = true
}

// change ends the region's token, or what it grants, or begins it again. When the call returns nothing comes by it any
// more.
func (f *changingRegion) change() {
	r := f.host.run
	switch {
	case f.mr == nil:
		f.register()
		return
	case !f.open:
		// Not by the same token: requests that were under way when it ended may come yet.
		must(f.mr.Deregister())
		f.host.dead = append(f.host.dead, f.mr.Key())
		f.register()
		return
	case r.Chance(0.5):
		r.Coverage.Count("region reregistered")
		access := verbs.AccessLocalWrite | verbs.AccessRemoteRead
		must(f.mr.Reregister(verbs.Registration{Access: &access}))
		f.open = false
	default:
		r.Coverage.Count("region deregistered")
		must(f.mr.Deregister())
		f.host.dead = append(f.host.dead, f.mr.Key())
		f.mr = nil
	}
	r.Logf("%v: the fleeting region ends", f.host)
	for _, q := range f.users {
		q.revoke()
	}
	f.users = nil
}

// revoke ends the right by which a request may write: what has not come by now does not come.
func (q *request) revoke() {
	if q.over || q.target == nil {
		return
	}
	q.may = append(q.may, verbs.RemoteAccessError)
	q.target.Check()
	q.end.expectErrors()
	q.partial = true
	q.target.release()
	q.target = nil
}

// An endedGrant describes what an end's window granted once.
type endedGrant struct {
	token uint32
	va    uint64
}

// A window is a memory window of a host's.
type window struct {
	host    *host
	mw      *verbs.MW
	kind    verbs.WindowType
	by      *end     // on whose queue it is bound
	binding *request // that is under way
	token   uint32
	slot    *claim // that it grants; nil if it grants nothing
	ending  bool
	user    *request
}

func newWindow(h *host, kind verbs.WindowType) *window {
	return &window{host: h, kind: kind, mw: made(h.pd.AllocMW(kind))}
}

// renew makes another window of one of which nobody knows what it grants.
func (w *window) renew() {
	must(w.mw.Dealloc())
	w.ended()
	w.mw, w.by, w.binding = made(w.host.pd.AllocMW(w.kind)), nil, nil
}

// close ends the window for good.
func (w *window) close() error {
	err := w.mw.Dealloc()
	w.ended()
	return err
}

// ended follows the end of what the window grants.
func (w *window) ended() {
	if w.token != 0 {
		w.host.dead = append(w.host.dead, w.token)
		if w.by != nil && w.slot != nil {
			w.by.ghosts = append(w.by.ghosts, endedGrant{w.token, w.host.base() + uint64(w.slot.From)})
		}
	}
	if w.user != nil {
		w.user.revoke()
	}
	w.slot.release()
	w.token, w.slot, w.user, w.ending, w.by = 0, nil, nil, false, nil
}

// bind makes q a request to bind a window.
func (q *request) bind() bool {
	e := q.end
	h := e.host
	i := slices.IndexFunc(h.windows, func(w *window) bool { return w.slot == nil && w.binding == nil })
	if i < 0 {
		return false
	}
	w := h.windows[i]
	slot := h.memory.claim("a window", h.memory.unit)
	if slot == nil {
		return false
	}
	q.op, q.window = rc.OpBind, w
	local, token, err := e.qp.Bind(w.mw, h.run.Rand.Uint32(), verbs.Binding{
		MR: h.mr, Address: h.base() + uint64(slot.From), Length: uint64(slot.To - slot.From),
		Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead,
	})
	must(err)
	q.request.Local = local
	w.binding, w.token, w.slot, w.by = q, token, slot, e
	return true
}

// invalidate makes q a request to invalidate one of the end's windows.
func (q *request) invalidate() bool {
	w := q.end.boundWindow(verbs.Window2)
	if w == nil || w.user != nil && !q.end.run.mistakes() {
		return false
	}
	q.op, q.window, w.ending = rc.OpInvalidate, w, true
	q.request.Local = q.end.qp.Invalidate(w.token)
	return true
}

// boundWindow returns a window that the end has bound, for its peer; of any kind if kind is 0.
func (e *end) boundWindow(kind verbs.WindowType) *window {
	for _, w := range e.host.windows {
		if w.slot != nil && w.binding == nil && !w.ending && w.by == e && (kind == 0 || w.kind == kind) {
			return w
		}
	}
	return nil
}

// checkDeregister checks that a region with windows cannot be deregistered.
func (h *host) checkDeregister() {
	if !slices.ContainsFunc(h.windows, func(w *window) bool { return w.slot != nil && w.binding == nil && !w.ending }) {
		return
	}
	if err := h.mr.Deregister(); !errors.Is(err, syscall.EBUSY) {
		h.run.Fail("what is in use stays", "%v: a region with windows: %v", h, err)
	}
	h.run.Coverage.Count("region with windows kept")
}
