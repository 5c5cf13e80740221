package verbs

import (
	"sync"
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/token"
)

// A WindowType says how a memory window is bound, numbered as ibv_mw_type: of type 1 by a call of its own, each time
// under another token; of type 2 by a request, under a token whose key the consumer chooses, for one queue pair.
type WindowType uint8

// The types.
const (
	Window1 WindowType = 1
	Window2 WindowType = 2
)

// An MW is a memory window: a right of peers to a part of a region, which requests give and take.
type MW struct {
	pd   *PD
	kind WindowType

	mu    sync.Mutex // guards what follows
	token uint32
	gone  bool    // it has been deallocated
	bound *region // nil: it grants nothing
	of    *MR     // whose memory that is
}

// AllocMW makes a memory window.
func (pd *PD) AllocMW(kind WindowType) (*MW, error) {
	if kind != Window1 && kind != Window2 {
		return nil, syscall.EINVAL
	}
	c := pd.context
	if err := c.take(&c.inUse.mws, c.limits.MWs); err != nil {
		return nil, err
	}
	t, ok := c.regions.Take()
	if !ok {
		c.give(&c.inUse.mws)
		return nil, syscall.ENOMEM
	}
	pd.holds.Add(1)
	w := &MW{pd: pd, kind: kind, token: t}
	c.regions.Set(t, &region{})
	return w, nil
}

// Key returns the window's token, which binding may change.
func (w *MW) Key() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.token
}

// Dealloc ends the window, and what it grants. A request to bind it that is not performed yet fails.
func (w *MW) Dealloc() error {
	c := w.pd.context
	w.mu.Lock()
	w.unbind()
	w.gone = true
	c.regions.Give(w.token)
	w.mu.Unlock()
	w.pd.quiesce() // without w.mu, for which a queue pair may be waiting
	w.pd.holds.Add(-1)
	c.give(&c.inUse.mws)
	return nil
}

// unbind has the window grant nothing. w.mu is held.
func (w *MW) unbind() {
	if w.bound == nil {
		return
	}
	w.pd.context.regions.Set(w.token, &region{})
	w.bound = nil
	w.of.mu.Lock()
	w.of.windows--
	w.of.mu.Unlock()
	w.of = nil
}

// A Binding says what a window is to grant: length bytes of a region from an address on; none unbinds.
type Binding struct {
	MR              *MR
	Address, Length uint64
	Access          Access
}

// A bind is a request to bind a window. It implements rc.LocalOperation.
type bind struct {
	qp      *QP
	window  *MW
	binding Binding
	token   uint32
}

// Bind makes the request that binds a window, for SendRequest.Local, and the token by which peers will know it: that with the
// consumer's key. Of type 1 the library counts the keys, which knows of requests that were refused or flushed.
func (qp *QP) Bind(w *MW, key uint32, b Binding) (rc.LocalOperation, uint32, error) {
	if w == nil || w.pd != qp.pd || b.Length > 0 && (b.MR == nil || b.MR.pd != qp.pd) {
		return nil, 0, syscall.EINVAL
	}
	const keys = 1<<token.KeyBits - 1
	t := w.Key()&^keys | key&keys
	return &bind{qp, w, b, t}, t, nil
}

// Perform implements rc.LocalOperation. The queue pair's lock is held.
func (b *bind) Perform() rc.Status {
	w := b.window
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone || w.kind == Window2 && w.bound != nil {
		return rc.BadOperation // one of type 2 must be invalidated first
	}
	c := w.pd.context
	w.unbind()
	w.token = b.token
	if b.binding.Length == 0 {
		c.regions.Set(w.token, &region{})
		return rc.Success
	}
	mr := b.binding.MR
	mr.mu.Lock()
	defer mr.mu.Unlock()
	r := mr.region
	at := b.binding.Address - r.base
	if c.region(r.token) != r || r.access&AccessBindWindow == 0 || at > r.length || b.binding.Length > r.length-at ||
		b.binding.Access&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && r.access&AccessLocalWrite == 0 {
		return rc.BadOperation
	}
	bound := &region{
		token: w.token, pd: w.pd, base: b.binding.Address, length: b.binding.Length, offset: at, access: b.binding.Access,
		window: true, memory: r.memory, by: w,
	}
	if b.binding.Access&AccessZeroBased != 0 {
		bound.base = 0
	}
	if w.kind == Window2 {
		bound.qp = b.qp
	}
	mr.windows++
	w.bound, w.of = bound, mr
	c.regions.Set(w.token, bound)
	return rc.Success
}

// unbind ends what a window grants by its region; false if it has been ended.
func (c *Context) unbind(r *region) bool {
	w := r.by
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bound != r {
		return false
	}
	w.unbind()
	return true
}

// An invalidation is a request to end a type 2 window's token. It implements rc.LocalOperation.
type invalidation struct {
	qp    *QP
	token uint32
}

// Invalidate makes the request that ends a window's token, for SendRequest.Local.
func (qp *QP) Invalidate(token uint32) rc.LocalOperation { return &invalidation{qp, token} }

// Perform implements rc.LocalOperation. The queue pair's lock is held.
func (i *invalidation) Perform() rc.Status {
	if (view{i.qp}).Invalidate(i.token) {
		return rc.Success
	}
	return rc.BadOperation
}
