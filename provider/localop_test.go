package provider_test

import (
	"slices"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

// A localOperation is one of the requests that change what a token grants, on an
// object of its own.
type localOperation struct {
	kind provider.OperationType
	// make returns a function that posts the request; with wrong, one that is to
	// be refused with StatusInvalidParameter on a QP that is connected.
	make     func(h *host, wrong bool) func(qp *provider.QP, context any, flags provider.OpFlags) provider.Status
	accepted provider.OpFlags // beside those of every request
}

var localOperations = map[string]localOperation{
	"FastRegister": {
		provider.OperationTypeFastRegister,
		func(h *host, wrong bool) func(*provider.QP, any, provider.OpFlags) provider.Status {
			mr, l := h.newFRMR(1, true), h.lend(0, h.memory[:100])
			if wrong {
				mr = nil
			}
			return func(qp *provider.QP, context any, flags provider.OpFlags) provider.Status {
				return qp.FastRegister(context, mr, l.Pages, 0, 100, 0, flags)
			}
		}, provider.OpAllowRemoteRead | provider.OpAllowRemoteWrite | provider.OpReadSink,
	},
	"Bind": {
		provider.OperationTypeBind,
		func(h *host, wrong bool) func(*provider.QP, any, provider.OpFlags) provider.Status {
			mw := track(h, must(h.pd.CreateMW(nil, nil)))
			if wrong {
				mw = nil
			}
			return func(qp *provider.QP, context any, flags provider.OpFlags) provider.Status {
				return qp.Bind(context, h.mr, mw, base, 100, flags)
			}
		}, provider.OpAllowRemoteRead | provider.OpAllowRemoteWrite,
	},
	"Invalidate": {
		provider.OperationTypeInvalidate,
		func(h *host, wrong bool) func(*provider.QP, any, provider.OpFlags) provider.Status {
			mw := track(h, must(h.pd.CreateMW(nil, nil)))
			if s := h.qp.Bind(nil, h.mr, mw, base, 100, 0); s == success {
				h.result(success)
			}
			return func(qp *provider.QP, context any, flags provider.OpFlags) provider.Status {
				if wrong {
					return qp.Invalidate(context, h.mr, flags)
				}
				return qp.Invalidate(context, mw, flags)
			}
		}, 0,
	},
}

// TestLocalOperations holds them to the rules of all initiator requests.
func TestLocalOperations(t *testing.T) {
	for name, op := range localOperations {
		t.Run("NDK-POST-04 not connected "+name, func(t *testing.T) {
			w := newWorld(t)
			h := w.hosts[0]
			for _, wrong := range []bool{false, true} {
				w.want(op.make(h, wrong)(h.qp, nil, 0), provider.StatusConnectionInvalid)
			}
			w.silent(h.cq)
		})
		t.Run("NDK-POST-01 NDK-POST-06 NDK-CQ-31 NDK-DEFER-06 a chain "+name, func(t *testing.T) {
			w := newWorld(t)
			h, _ := w.connect()
			var posts []func(*provider.QP, any, provider.OpFlags) provider.Status
			for range 4 {
				posts = append(posts, op.make(h, false))
			}
			w.want(posts[0](h.qp, 0, provider.OpDefer), success)
			w.want(posts[1](h.qp, 1, provider.OpDefer|provider.OpSilentSuccess), success)
			w.want(posts[2](h.qp, 2, provider.OpReadFence|provider.OpDefer), success)
			w.want(posts[3](h.qp, 3, 0), success)
			for _, want := range []any{0, 2, 3} {
				checkResult(t, h.result(success), op.kind, want, h)
			}
			w.silent(h.cq)
		})
		t.Run("NDK-POST-07 NDK-FLUSH-05 flushed "+name, func(t *testing.T) {
			w := newWorld(t)
			h, _ := w.connect()
			w.want(op.make(h, false)(h.qp, nil, provider.OpDefer|provider.OpSilentSuccess), success)
			h.qp.Flush()
			if r := h.result(provider.StatusCancelled); r.Type != op.kind {
				t.Fatalf("got %+v", r)
			}
			w.settle()
			w.want(op.make(h, true)(h.qp, nil, 0), provider.StatusConnectionInvalid)
		})
		t.Run("NDK-DEFER-03 NDK-DEFER-04 NDK-POST-02 refused behind what was deferred "+name, func(t *testing.T) {
			w := newWorld(t)
			h, _ := w.connect()
			wrong := op.make(h, true)
			// Without another in flight nothing but the refused request starts it.
			w.want(h.qp.Write("deferred", nil, 0, 0, provider.OpDefer), success)
			w.want(wrong(h.qp, nil, 0), provider.StatusInvalidParameter)
			if r := h.result(success); r.RequestContext != "deferred" {
				t.Fatalf("got %+v", r)
			}
			w.silent(h.cq)
			w.want(h.qp.Write("in flight", nil, 0, 0, 0), success)
			w.want(h.qp.Write("deferred", nil, 0, 0, provider.OpDefer), success)
			w.want(wrong(h.qp, nil, 0), provider.StatusInvalidParameter)
			for _, want := range []string{"in flight", "deferred"} {
				if r := h.result(success); r.RequestContext != want {
					t.Fatalf("got %+v for what was %s", r, want)
				}
			}
			w.silent(h.cq)
		})
		t.Run("NDK-POST-16 flags of other functions "+name, func(t *testing.T) {
			const every = provider.OpSilentSuccess | provider.OpReadFence | provider.OpDefer
			w := newWorld(t)
			h, _ := w.connect()
			for bit := provider.OpFlags(1); bit != 0; bit <<= 1 {
				flags := bit
				if bit == 0x20 && op.accepted&bit != 0 {
					flags = provider.OpAllowRemoteWrite
				}
				got := op.make(h, false)(h.qp, nil, flags)
				allowed := (every|op.accepted)&flags == flags
				if name == "Bind" && bit == provider.OpAllowLocalWrite {
					allowed = false // without remote write
				}
				if want := map[bool]provider.Status{true: success, false: provider.StatusInvalidParameter}[allowed]; got != want {
					t.Errorf("flag %#x: got %v, want %v", bit, got, want)
				}
			}
			w.settle()
		})
	}
	t.Run("NDK-CQ-37 NDK-POST-08 among other requests, in order", func(t *testing.T) {
		w := newWorld(t)
		h, server := w.connect()
		server.receive(2)
		register, bind, invalidate := localOperations["FastRegister"].make(h, false), localOperations["Bind"].make(h, false), localOperations["Invalidate"].make(h, false)
		const defers = provider.OpDefer
		w.want(h.qp.Read(1, h.at(0, 50_000), base, server.mr.RemoteToken(), defers), success)
		w.want(register(h.qp, 2, defers), success)
		w.want(h.qp.Send(3, nil, defers), success)
		w.want(bind(h.qp, 4, defers|provider.OpReadFence), success)
		w.want(invalidate(h.qp, 5, defers), success)
		w.want(h.qp.Send(6, nil, 0), success)
		var order []any
		for _, r := range h.results(6) {
			w.want(r.Status, success)
			order = append(order, r.RequestContext)
		}
		if !slices.Equal(order, []any{1, 2, 3, 4, 5, 6}) {
			t.Fatalf("got %v", order)
		}
	})
}

// TestMemoryPends: on a device that pends, everything that has a callback does.
func TestMemoryPends(t *testing.T) {
	w := newWorld(t)
	cfg := w.config(w.network.Attach(mtu, nowhere.Addr()))
	cfg.Pend = true
	m := w.start(cfg)
	a := must(m.OpenAdapter(anyVersion))
	pd := must(a.CreatePD(nil, nil))
	var made []provider.Object
	created := func(context any, s provider.Status, o provider.Object) {
		if context != "c" || s != success {
			t.Errorf("got %v, %v", context, s)
		}
		made = append(made, o)
	}
	for _, fastRegister := range []bool{false, true} {
		mr, s := pd.CreateMR(fastRegister, created, "c")
		if mr != nil || s != provider.StatusPending {
			t.Fatalf("got %v, %v", mr, s)
		}
	}
	mw, s := pd.CreateMW(created, "c")
	if mw != nil || s != provider.StatusPending {
		t.Fatalf("got %v, %v", mw, s)
	}
	w.settle()
	if len(made) != 3 || made[0].Type() != provider.ObjectTypeMR || made[2].Type() != provider.ObjectTypeMW {
		t.Fatalf("made %v", made)
	}
	call := &async{}
	call.returned = made[1].(*provider.MR).InitializeFastRegister(1, true, call.done, call)
	w.want(call.returned, provider.StatusPending)
	w.want(w.finish(call), success)
	w.want(made[1].(*provider.MR).InitializeFastRegister(1, true, nil, nil), success)
	for _, o := range made {
		w.want(o.Close(nil, nil), success)
	}
	w.want(pd.Close(nil, nil), success)
	ended := false
	a.BeginClose(func() { m.BeginClose(func() { ended = true }) })
	w.settle()
	if !ended || call.calls != 1 {
		t.Fatalf("ended %v after %d callbacks", ended, call.calls)
	}
}
