package provider_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// TestAntecedents: the close of an object that others were made from waits for
// theirs, and for the callbacks that report them.
func TestAntecedents(t *testing.T) {
	connected := func(w *world) { w.connect() }
	for _, c := range []struct {
		name    string
		prepare func(*world)
		// pair are the two objects on a host.
		pair func(*host) (antecedent, successor closer)
		on   int // that host
	}{
		{name: "NDK-LIFE-23 CQ of a QP", pair: func(h *host) (closer, closer) {
			cq, _ := h.newCQ(8)
			return cq, h.newQPOn(cq, h.cq, nil)
		}},
		{name: "NDK-LIFE-23 other CQ of a QP", pair: func(h *host) (closer, closer) {
			cq, _ := h.newCQ(8)
			return cq, h.newQPOn(h.cq, cq, nil)
		}},
		{name: "NDK-LIFE-30 CQ of a QP twice", pair: func(h *host) (closer, closer) {
			cq, _ := h.newCQ(8)
			return cq, h.newQPOn(cq, cq, nil)
		}},
		{name: "NDK-LIFE-25 PD of a QP", pair: func(h *host) (closer, closer) {
			pd := track(h, must(h.CreatePD(nil, nil)))
			return pd, track(h, must(pd.CreateQP(h.cq, h.cq, nil, 1, 1, 1, 1, 0, nil, nil)))
		}},
		{name: "NDK-LIFE-25 PD of an MR", pair: func(h *host) (closer, closer) {
			pd := track(h, must(h.CreatePD(nil, nil)))
			return pd, track(h, must(pd.CreateMR(false, nil, nil)))
		}},
		{name: "NDK-LIFE-26 QP of an active connector", prepare: connected, pair: func(h *host) (closer, closer) {
			return h.qp, h.conn
		}},
		{name: "NDK-LIFE-26 QP of a passive connector", prepare: connected, on: 1, pair: func(h *host) (closer, closer) {
			return h.qp, h.conn
		}},
		{name: "NDK-LIFE-26 QP of a connector that was refused", pair: func(h *host) (closer, closer) {
			c := h.newConnector()
			h.world.want(h.world.finish(h.dial(c, h.world.hosts[1])), provider.StatusConnectionRefused)
			return h.qp, c
		}},
		{name: "NDK-LIFE-27 shared endpoint of a connector", pair: func(h *host) (closer, closer) {
			s, c := h.share(h.ephemeral()), h.newConnector()
			h.dialShared(c, h.qp, s, nowhere)
			return s, c
		}},
		{name: "NDK-LIFE-27 shared endpoint of a connected connector", pair: func(h *host) (closer, closer) {
			s := h.share(h.ephemeral())
			a, _ := h.world.joinShared(s, 7000)
			return s, a.conn
		}},
		{name: "NDK-LIFE-28 listener of a connector", on: 1, pair: func(h *host) (closer, closer) {
			var delivered *provider.Connector
			l := h.listen(func(c *provider.Connector) { delivered = c })
			from := h.world.hosts[0]
			from.dial(from.newConnector(), h)
			h.world.settle()
			return l, delivered
		}},
	} {
		t.Run(c.name+" NDK-LIFE-11 NDK-LIFE-12 NDK-LIFE-13", func(t *testing.T) {
			w := newWorld(t)
			if c.prepare != nil {
				c.prepare(w)
			}
			h := w.hosts[c.on]
			antecedent, successor := c.pair(h)
			first := h.close(antecedent)
			w.want(first.returned, provider.StatusPending)
			w.settle()
			if first.calls > 0 {
				t.Fatal("closed before its successor")
			}
			second := h.close(successor)
			if first.calls > 0 {
				t.Fatal("called back from within another object's close")
			}
			second.then = func() {
				w.settle()
				if first.calls > 0 {
					t.Error("closed while its successor's completion is in progress")
				}
			}
			w.settle()
			if !second.over() || first.calls != 1 {
				t.Fatalf("successor closed: %v; antecedent's close called back %d times", second.over(), first.calls)
			}
		})
	}
}

func TestCreate(t *testing.T) {
	t.Run("NDK-LIFE-04 a create that fails holds nothing", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		pd := track(h, must(h.CreatePD(nil, nil)))
		cq, _ := h.newCQ(8)
		if qp, status := pd.CreateQP(cq, cq, nil, 1<<30, 1, 1, 1, 0, nil, nil); status != provider.StatusInvalidParameter || qp != nil {
			t.Fatalf("got %v, %v", qp, status)
		}
		if qp, status := pd.CreateQP(nil, cq, nil, 1, 1, 1, 1, 0, nil, nil); status != provider.StatusInvalidParameter || qp != nil {
			t.Fatalf("got %v, %v", qp, status)
		}
		w.want(h.close(cq).returned, success)
		w.want(h.close(pd).returned, success)
	})
	t.Run("type and version", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		c, l := h.newConnector(), h.listen(nil)
		for _, o := range []struct {
			object interface {
				Type() provider.ObjectType
				Version() provider.Version
			}
			want provider.ObjectType
		}{
			{h.Adapter, provider.ObjectTypeAdapter}, {h.qp, provider.ObjectTypeQP}, {h.cq, provider.ObjectTypeCQ},
			{h.mr, provider.ObjectTypeMR}, {h.pd, provider.ObjectTypePD}, {c, provider.ObjectTypeConnector},
			{l, provider.ObjectTypeListener},
		} {
			if o.object.Type() != o.want || o.object.Version() != provider.InterfaceVersion {
				t.Errorf("got type %v, version %v", o.object.Type(), o.object.Version())
			}
		}
	})
}

// TestCallbacksInProgress: an object's close waits for its callbacks, each of
// which may close it.
func TestCallbacksInProgress(t *testing.T) {
	// in returns a callback's body that closes an object, lets the world go on
	// for a second and checks that the close has not come to its end.
	in := func(h *host, o func() closer, closing **async) func() {
		return func() {
			*closing = h.close(o())
			h.world.want((*closing).returned, provider.StatusPending)
			h.world.settle()
			if (*closing).calls > 0 {
				h.world.t.Error("closed while a callback of its own is in progress")
			}
		}
	}
	for name, test := range map[string]func(w *world, client, server *host, closing **async){
		"NDK-LIFE-14 NDK-LIFE-17 Connect": func(w *world, client, server *host, closing **async) {
			c := client.newConnector()
			client.dial(c, server).then = in(client, func() closer { return c }, closing)
		},
		"NDK-LIFE-14 NDK-LIFE-17 Accept": func(w *world, client, server *host, closing **async) {
			server.listen(func(c *provider.Connector) {
				server.accept(c).then = in(server, func() closer { return c }, closing)
			})
			client.conn = client.newConnector()
			w.want(w.finish(client.dial(client.conn, server)), success)
			w.want(client.complete(), success)
		},
		"NDK-LIFE-14 NDK-LIFE-17 Disconnect": func(w *world, client, server *host, closing **async) {
			w.connect()
			a := &async{then: in(client, func() closer { return client.conn }, closing)}
			w.want(client.conn.Disconnect(a.done, a), provider.StatusPending)
		},
		"NDK-LIFE-14 NDK-LIFE-17 Deregister": func(w *world, client, server *host, closing **async) {
			a := &async{then: in(client, func() closer { return client.mr }, closing)}
			w.want(client.mr.Deregister(a.done, a), provider.StatusPending)
		},
		"NDK-LIFE-15 NDK-LIFE-16 notification": func(w *world, client, server *host, closing **async) {
			cq, n := client.newCQ(8)
			qp := client.newQPOn(cq, cq, nil)
			w.want(qp.Receive(nil, nil), success)
			cq.Arm(provider.NotifyAny)
			client.close(qp)
			n.then = in(client, func() closer { return cq }, closing)
		},
		"NDK-LIFE-15 NDK-LIFE-16 SRQ notification": func(w *world, client, server *host, closing **async) {
			srq, n := client.newSRQ(0)
			n.then = in(client, func() closer { return srq }, closing)
			w.want(srq.Modify(0, 1, nil, nil), success) // none is queued
		},
		"NDK-LIFE-15 NDK-LIFE-16 connect event": func(w *world, client, server *host, closing **async) {
			var l *provider.Listener
			l = server.listen(func(c *provider.Connector) {
				server.close(c)
				in(server, func() closer { return l }, closing)()
			})
			client.dial(client.newConnector(), server)
		},
		"NDK-LIFE-15 NDK-LIFE-16 disconnect event": func(w *world, client, server *host, closing **async) {
			client.conn = client.newConnector()
			server.listen(func(c *provider.Connector) { server.accept(c) })
			w.want(w.finish(client.dial(client.conn, server)), success)
			w.want(client.conn.CompleteConnect(func(any) {
				in(client, func() closer { return client.conn }, closing)()
			}, nil, nil, nil), success)
			w.settle()
			server.close(server.conn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var closing *async
			test(w, w.hosts[0], w.hosts[1], &closing)
			w.clock.Run(10 * time.Second)
			if closing == nil || closing.calls != 1 {
				t.Fatalf("the close's end: %+v", closing)
			}
		})
	}
}

func TestClose(t *testing.T) {
	t.Run("NDK-LIFE-20 a Connect to a silent peer is cancelled at once", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		c := h.newConnector()
		a := &async{}
		w.want(c.Connect(h.qp, h.ephemeral(), nowhere, 1, 1, nil, a.done, a), provider.StatusPending)
		w.settle()
		closing := h.close(c)
		a.then = func() {
			if closing.calls > 0 {
				t.Error("closed before its Connect has completed")
			}
		}
		w.clock.Run(0)
		w.want(a.status, provider.StatusCancelled)
		if a.calls != 1 || closing.calls != 1 {
			t.Fatalf("Connect called back %d times, the close %d", a.calls, closing.calls)
		}
		w.clock.Run(2 * time.Minute)
		if a.calls != 1 {
			t.Fatal("Connect called back again")
		}
	})
	t.Run("NDK-LIFE-19 nothing is called after the close has completed", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		server.receive(2)
		server.cq.Arm(provider.NotifyAny)
		for _, o := range []closer{server.conn, server.qp, server.cq} {
			w.finish(server.close(o))
		}
		w.settle()
		told := len(server.notes.statuses)
		client.qp.Send(nil, nil, 0)
		client.close(client.conn)
		w.clock.Run(time.Minute)
		if server.disconnected > 0 || len(server.notes.statuses) != told {
			t.Fatal("called back after the close")
		}
	})
	t.Run("NDK-LIFE-32 NDK-LSN-09 what an antecedent's pending close leaves alone", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		for _, o := range []closer{server.pd, server.cq, server.listener} {
			w.want(server.close(o).returned, provider.StatusPending)
		}
		server.cq.Arm(provider.NotifyErrors)
		w.want(server.qp.Receive(nil, server.at(0, 8)), success)
		w.want(client.qp.Send(nil, client.at(0, 8), 0), success)
		server.result(success)
		client.result(success)
		for _, d := range []struct{ from, to *host }{{client, server}, {server, client}} { // what is lost is sent again
			d.to.receive(1)
			w.path.Down = true
			w.want(d.from.qp.Send(nil, nil, 0), success)
			w.path.Down = false
			d.to.result(success)
			d.from.result(success)
		}
	})
	for name, request := range map[string]func(h *host, a *async) provider.Status{
		"Register": func(h *host, a *async) provider.Status {
			mr := track(h, must(h.pd.CreateMR(false, nil, nil)))
			return mr.Register(&provider.MDL{Bytes: h.memory}, 1, 0, a.done, a)
		},
		"Deregister": func(h *host, a *async) provider.Status { return h.mr.Deregister(a.done, a) },
		"InitializeFastRegister": func(h *host, a *async) provider.Status {
			return track(h, must(h.pd.CreateMR(true, nil, nil))).InitializeFastRegister(1, true, a.done, a)
		},
		"Modify": func(h *host, a *async) provider.Status {
			srq, _ := h.newSRQ(0)
			return srq.Modify(2, 0, a.done, a)
		},
		"Resize": func(h *host, a *async) provider.Status { return h.cq.Resize(cqDepth+1, a.done, a) },
		"Listen": func(h *host, a *async) provider.Status {
			l := track(h, must(h.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
			return l.Listen(h.ephemeral(), a.done, a)
		},
		"Connect": func(h *host, a *async) provider.Status {
			return h.newConnector().Connect(h.qp, h.ephemeral(), nowhere, 1, 1, nil, a.done, a)
		},
	} {
		t.Run("NDK-LIFE-21 NDK-LIFE-22 the adapter waits for the callback of "+name, func(t *testing.T) {
			w := newWorldWith(t, addresses, pends)
			h := w.hosts[0]
			ended, call := false, &async{}
			call.then = func() {
				w.settle()
				if ended {
					t.Error("closed while a callback is in progress")
				}
			}
			w.want(request(h, call), provider.StatusPending)
			h.BeginClose(func() { ended = true })
			for len(*h.open) > 0 {
				h.close((*h.open)[0])
			}
			w.settle()
			if !ended || call.calls != 1 {
				t.Errorf("closed: %v, with %d callbacks", ended, call.calls)
			}
			h.Adapter = must(h.device.OpenAdapter(anyVersion)) // so that the world has an adapter to end
		})
	}
	t.Run("NDK-LIFE-21 NDK-LIFE-22 the adapter waits for all", func(t *testing.T) {
		w := newWorld(t)
		client, _ := w.connect()
		ended := false
		pd := must(client.CreatePD(nil, nil))
		var inProgress bool
		client.BeginClose(func() {
			ended = true
			if inProgress {
				t.Error("closed while a callback is in progress")
			}
		})
		for len(*client.open) > 0 {
			client.close((*client.open)[0])
		}
		w.settle()
		mr := must(pd.CreateMR(false, nil, nil))
		pd.Close(func(any) {
			inProgress = true
			w.settle()
			inProgress = false
		}, nil)
		w.settle()
		if ended {
			t.Fatal("closed before the last of its objects")
		}
		mr.Close(nil, nil)
		w.settle()
		if !ended {
			t.Fatal("not closed")
		}
		client.Adapter = must(client.device.OpenAdapter(anyVersion)) // so that the world has an adapter to end
	})
	t.Run("NDK-LIFE-21 a peer that is gone holds the adapter up for half a second", func(t *testing.T) {
		w := newWorld(t)
		client, _ := w.connect()
		w.path.Down = true
		ended := time.Duration(0)
		client.endAll(func() { ended = w.clock.Now() })
		start := w.clock.Now()
		for len(*client.open) > 0 {
			client.close((*client.open)[0])
		}
		w.settle()
		if got := ended - start; got != 500*time.Millisecond {
			t.Fatalf("closed after %v", got)
		}
		w.path.Down = false
		w.reopen(client)
	})
	t.Run("the close of a region waits for those who may be using its bytes", func(t *testing.T) {
		w := newWorld(t)
		w.want(w.hosts[0].close(w.hosts[0].mr).returned, provider.StatusPending)
	})
	t.Run("a close may have nobody to tell", func(t *testing.T) {
		w := newWorld(t)
		pd := must(w.hosts[0].CreatePD(nil, nil))
		mr := must(pd.CreateMR(false, nil, nil))
		w.want(pd.Close(nil, nil), provider.StatusPending)
		w.want(mr.Close(nil, nil), success)
	})
}

func TestRequests(t *testing.T) {
	t.Run("NDK-LIFE-05 a call that fails at once does not call back", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		c := h.newConnector()
		a := &async{}
		w.want(c.Connect(h.qp, nowhere, nowhere, 1, 1, nil, a.done, a), provider.StatusInvalidAddress)
		w.want(c.Disconnect(a.done, a), provider.StatusConnectionInvalid)
		w.want(track(h, must(h.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil))).Listen(nowhere, a.done, a), provider.StatusInvalidAddress)
		mr := track(h, must(h.pd.CreateMR(false, nil, nil)))
		w.want(mr.Deregister(a.done, a), provider.StatusInvalidDeviceState)
		w.want(mr.Register(nil, 1, 0, a.done, a), provider.StatusInvalidParameter)
		w.clock.Run(2 * time.Minute)
		if a.calls > 0 {
			t.Fatal("called back")
		}
	})
	t.Run("NDK-LIFE-06 NDK-LIFE-07 a call that pends calls back once", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		disconnect, deregister := &async{}, &async{}
		w.want(client.conn.Disconnect(disconnect.done, disconnect), provider.StatusPending)
		w.want(server.mr.Deregister(deregister.done, deregister), provider.StatusPending)
		if disconnect.calls+deregister.calls > 0 {
			t.Fatal("called back from within the call (NDK-LIFE-18)")
		}
		w.clock.Run(time.Minute)
		if disconnect.calls != 1 || deregister.calls != 1 {
			t.Fatalf("called back %d and %d times", disconnect.calls, deregister.calls)
		}
	})
	t.Run("a call that would pend and has nobody to tell", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		c := client.newConnector()
		qp := client.newQP()
		w.want(c.Connect(qp, client.ephemeral(), server.service(), 1, 1, nil, nil, nil), provider.StatusInvalidParameter)
		w.want(client.conn.Disconnect(nil, nil), provider.StatusInvalidParameter)
		w.want(client.mr.Deregister(nil, nil), provider.StatusInvalidParameter)
		w.want(client.qp.Send(nil, nil, 0), success)
	})
	t.Run("NDK-CB-04 contexts of nil", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		calls := 0
		check := func(context any) {
			calls++
			if context != nil {
				t.Errorf("context %v, want nil", context)
			}
		}
		cq := must(client.CreateCQ(2, func(context any, _ provider.Status) { check(context) }, nil, nil, nil, nil))
		qp := must(client.pd.CreateQP(cq, cq, nil, 1, 1, 1, 1, 0, nil, nil))
		cq.Arm(provider.NotifyAny)
		w.want(qp.Receive(nil, nil), success)
		l := must(server.CreateListener(func(context any, c *provider.Connector) { check(context); c.Close(nil, nil) }, nil, nil, nil))
		w.want(l.Listen(netip.AddrPortFrom(server.address, 7001), nil, nil), success)
		c := must(client.CreateConnector(nil, nil))
		w.want(c.Connect(qp, client.ephemeral(), netip.AddrPortFrom(server.address, 7001), 1, 1, nil,
			func(context any, _ provider.Status) { check(context) }, nil), provider.StatusPending)
		qp.Flush()
		w.settle()
		cq.Close(func(context any) { check(context) }, nil)
		qp.Close(func(context any) { check(context) }, nil)
		c.Close(nil, nil)
		l.Close(nil, nil)
		w.settle()
		if calls != 5 {
			t.Errorf("%d calls, want 5", calls)
		}
	})
}

// TestCallbacksCallBack: callbacks may call anything but Adapter.Close, and a slow
// one holds nobody else up.
func TestCallbacksCallBack(t *testing.T) {
	w := newWorld(t)
	client, server := w.hosts[0], w.hosts[1]
	order := ""
	server.listen(func(c *provider.Connector) { // NDK-CB-02 NDK-LSN-10
		c.PeerAddress()
		length := uint32(0)
		w.want(c.GetConnectionData(nil, nil, nil, &length), success)
		server.receive(1)
		server.cq.Arm(provider.NotifyAny)
		server.accept(c).then = func() { order += "accepted " }
		w.settle() // NDK-CB-03: the connection is made while this callback is slow
		order += "event "
	})
	server.notes.then = func() {
		server.cq.Results(make([]provider.Result, 1))
		server.cq.Arm(provider.NotifyAny)
		server.close(server.qp)
		server.close(server.conn)
		order += "notified "
	}
	client.conn = client.newConnector()
	client.dial(client.conn, server).then = func() {
		w.want(client.complete(), success)
		w.want(client.qp.Send(nil, nil, 0), success)
		order += "connected "
	}
	w.settle()
	if order != "connected accepted notified event " {
		t.Fatalf("got %q", order)
	}
}
