package provider_test

import (
	"slices"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

// A careless consumer's call is answered by a status, or does nothing. It never
// panics, and never does harm to others.

func TestForeignCQ(t *testing.T) {
	w := newWorld(t)
	h := w.hosts[0]
	srq := track(h, must(h.pd.CreateSRQ(1, 1, 0, nil, nil, nil, nil, nil)))
	for name, foreign := range map[string]*provider.CQ{
		"another device's": w.hosts[1].cq, "another instance's": w.another(h).cq,
	} {
		for _, cqs := range [][2]*provider.CQ{{foreign, h.cq}, {h.cq, foreign}} {
			_, status := h.pd.CreateQP(cqs[0], cqs[1], nil, 1, 1, 1, 1, 0, nil, nil)
			if status != provider.StatusInvalidParameter {
				t.Errorf("a QP with %s CQ: %v", name, status)
			}
			_, status = h.pd.CreateQPWithSRQ(cqs[0], cqs[1], srq, nil, 1, 1, 0, nil, nil)
			if status != provider.StatusInvalidParameter {
				t.Errorf("a QP with an SRQ and %s CQ: %v", name, status)
			}
		}
	}
}

func TestNilArguments(t *testing.T) {
	w := newWorld(t)
	client, server := w.connect()
	var info provider.AdapterInfo
	shared := client.share(client.ephemeral())
	var mr *provider.MR
	var mw *provider.MW
	mdl := &provider.MDL{VirtualAddress: 1, Bytes: make([]byte, 1)}
	unregistered := track(client, must(client.pd.CreateMR(false, nil, nil)))
	size, fbo, lam := uint32(0), uint32(0), provider.LAM{}
	idle := client.newConnector()
	for name, got := range map[string]provider.Status{
		"QueryAdapterInfo":          client.QueryAdapterInfo(&info, nil),
		"GetConnectionData":         client.conn.GetConnectionData(nil, nil, nil, nil),
		"Connector.GetLocalAddress": client.conn.GetLocalAddress(nil, nil),
		"Connector.GetPeerAddress":  client.conn.GetPeerAddress(nil, nil),
		"Listener.GetLocalAddress":  server.listener.GetLocalAddress(nil, nil),
		"SharedEndpoint":            shared.GetLocalAddress(nil, nil),
		"Register":                  unregistered.Register(nil, 1, 0, nil, nil),
		"Deregister":                client.mr.Deregister(nil, nil),
		"BuildLAM, no MDL":          client.BuildLAM(nil, 1, nil, nil, &lam, &size, &fbo),
		"BuildLAM, no size":         client.BuildLAM(mdl, 1, nil, nil, &lam, nil, &fbo),
		"BuildLAM, no place":        client.BuildLAM(mdl, 1, nil, nil, &lam, &size, nil),
		"FastRegister":              client.qp.FastRegister(nil, nil, nil, 0, 1, 0, 0),
		"Bind, no region":           client.qp.Bind(nil, nil, nil, 0, 1, 0),
		"Bind, no window":           client.qp.Bind(nil, client.mr, nil, base, 1, 0),
		"Invalidate":                client.qp.Invalidate(nil, nil, 0),
		"Invalidate, typed region":  client.qp.Invalidate(nil, mr, 0),
		"Invalidate, typed window":  client.qp.Invalidate(nil, mw, 0),
		"Invalidate, another kind":  client.qp.Invalidate(nil, client.pd, 0),
		"Disconnect":                client.conn.Disconnect(nil, nil),
		"Connect, no callback":      idle.Connect(client.newQP(), client.ephemeral(), server.service(), 1, 1, nil, nil, nil),
		"Connect, no QP":            client.dialFrom(idle, nil, client.ephemeral(), server.service()).returned,
		"Connect, no endpoint":      client.dialShared(idle, client.newQP(), nil, server.service()).returned,
	} {
		if got != provider.StatusInvalidParameter {
			t.Errorf("%s: %v", name, got)
		}
	}
	client.ReleaseLAM(nil)
	client.ReleaseLAM(&provider.LAM{})
	w.want(client.BuildLAM(mdl, 1, nil, nil, nil, &size, &fbo), provider.StatusBufferTooSmall)
	_, status := client.CreateListener(nil, nil, nil, nil)
	w.want(status, provider.StatusInvalidParameter)
	_, status = client.pd.CreateQP(nil, nil, nil, 1, 1, 1, 1, 0, nil, nil)
	w.want(status, provider.StatusInvalidParameter)
	_, status = client.pd.CreateQPWithSRQ(client.cq, client.cq, nil, nil, 1, 1, 0, nil, nil)
	w.want(status, provider.StatusInvalidParameter)
	w.want(client.qp.QueryExtension(provider.GUID{}, provider.Version{}, nil), provider.StatusNotSupported)
	w.want(client.qp.Write(nil, nil, base, server.mr.RemoteToken(), 0), success) // the connection is as it was
	client.result(success)
}

// A ring of MDLs has no end, but what it describes has.
func TestRingOfMDLs(t *testing.T) {
	w := newWorld(t)
	h := w.hosts[0]
	for name, bytes := range map[string][]byte{"empty": nil, "not empty": make([]byte, 4)} {
		ring := &provider.MDL{VirtualAddress: base, Bytes: bytes}
		ring.Next = &provider.MDL{VirtualAddress: base + uint64(len(bytes)), Bytes: bytes, Next: ring}
		way := ring // into the ring, past empty ranges
		for range 5 {
			way = &provider.MDL{VirtualAddress: base, Next: way}
		}
		mr := track(h, must(h.pd.CreateMR(false, nil, nil)))
		if got := mr.Register(way, 16, 0, nil, nil); got != provider.StatusInvalidParameter {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestCloseTwice: a second close finds nothing left to do, whether the first is
// over or not, and takes nothing that belongs to others by now.
func TestCloseTwice(t *testing.T) {
	for name, create := range creates {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			h := w.hosts[0]
			var c, other creation
			create(h, true, &c)
			w.want(c.returned.Close(nil, nil), success)
			create(h, true, &other)
			track(h, other.returned)
			held := h.device.InUse() + h.Queues()
			again := &async{}
			w.want(c.returned.Close(again.closed, again), success)
			w.settle()
			if now := h.device.InUse() + h.Queues(); again.calls > 0 || now != held {
				t.Errorf("called back %d times; %d entries in the tables, %d before", again.calls, now, held)
			}
		})
	}
	t.Run("while the first pends", func(t *testing.T) {
		w := newWorld(t)
		client, _ := w.connect()
		first, again := client.close(client.qp), &async{}
		w.want(first.returned, provider.StatusPending) // for the connector
		w.want(client.qp.Close(again.closed, again), success)
		w.finish(client.close(client.conn))
		w.settle()
		if first.calls != 1 || again.calls != 0 {
			t.Errorf("called back %d and %d times", first.calls, again.calls)
		}
	})
	t.Run("NDK-CAP-03 what is counted", func(t *testing.T) {
		w := newWorld(t)
		h := w.guest(func(c *provider.Config) { c.Capabilities.MaxPdCount = 2 }) // one is the host's
		for range 2 {
			pd := must(h.CreatePD(nil, nil))
			w.want(pd.Close(nil, nil), success)
			w.want(pd.Close(nil, nil), success)
		}
		track(h, must(h.CreatePD(nil, nil)))
		_, status := h.CreatePD(nil, nil)
		w.want(status, provider.StatusInsufficientResources)
	})
	t.Run("an instance and its device", func(t *testing.T) {
		w := newWorld(t)
		m := w.startWith(func(*provider.Config) {})
		a := must(m.OpenAdapter(anyVersion))
		ends := 0
		for range 2 {
			a.BeginClose(func() { ends++ })
		}
		for range 2 {
			m.BeginClose(func() { ends++ })
			w.settle()
		}
		m.Close() // does not block for ever
		if ends != 4 {
			t.Errorf("%d ends", ends)
		}
	})
}

// TestUseAfterClose: what a consumer does with an object that it has closed harms
// neither others nor the object's antecedents.
func TestUseAfterClose(t *testing.T) {
	closed := func(w *world, o closer) {
		w.t.Helper()
		w.finish(w.hosts[0].close(o))
	}
	for name, use := range map[string]struct {
		call func(w *world, h *host) provider.Status
		want provider.Status
	}{
		"connect from a shared endpoint": {func(w *world, h *host) provider.Status {
			s := h.share(h.ephemeral())
			closed(w, s)
			h.share(s.LocalAddress()) // it is another's now
			return h.dialShared(h.newConnector(), h.qp, s, nowhere).returned
		}, provider.StatusInvalidParameter},
		"connect a queue pair": {func(w *world, h *host) provider.Status {
			qp := h.newQP()
			closed(w, qp)
			return h.dialFrom(h.newConnector(), qp, h.ephemeral(), nowhere).returned
		}, provider.StatusInvalidParameter},
		"make a queue pair with a CQ": {func(w *world, h *host) provider.Status {
			cq, _ := h.newCQ(1)
			closed(w, cq)
			_, status := h.pd.CreateQP(cq, cq, nil, 1, 1, 1, 1, 0, nil, nil)
			return status
		}, provider.StatusInvalidParameter},
		"make a queue pair with an SRQ": {func(w *world, h *host) provider.Status {
			srq := track(h, must(h.pd.CreateSRQ(1, 1, 0, nil, nil, nil, nil, nil)))
			closed(w, srq)
			_, status := h.pd.CreateQPWithSRQ(h.cq, h.cq, srq, nil, 1, 1, 0, nil, nil)
			return status
		}, provider.StatusInvalidParameter},
		"listen": {func(w *world, h *host) provider.Status {
			l := track(h, must(h.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
			closed(w, l)
			return l.Listen(h.ephemeral(), nil, nil)
		}, provider.StatusInvalidDeviceState},
		"connect a connector": {func(w *world, h *host) provider.Status {
			c := h.newConnector()
			closed(w, c)
			return h.dialFrom(c, h.qp, h.ephemeral(), nowhere).returned
		}, provider.StatusInvalidDeviceState},
		"register": {func(w *world, h *host) provider.Status {
			mr := track(h, must(h.pd.CreateMR(false, nil, nil)))
			closed(w, mr)
			return mr.Register(&provider.MDL{Bytes: make([]byte, 1)}, 1, 0, nil, nil)
		}, provider.StatusInvalidDeviceState},
		"initialise": {func(w *world, h *host) provider.Status {
			mr := track(h, must(h.pd.CreateMR(true, nil, nil)))
			closed(w, mr)
			return mr.InitializeFastRegister(1, true, nil, nil)
		}, provider.StatusInvalidDeviceState},
		"bind a window": {func(w *world, h *host) provider.Status {
			mw := track(h, must(h.pd.CreateMW(nil, nil)))
			closed(w, mw)
			w.connect()
			return h.qp.Bind(nil, h.mr, mw, base, 1, 0)
		}, provider.StatusInvalidParameter},
		"bind a region": {func(w *world, h *host) provider.Status {
			first, second := track(h, must(h.pd.CreateMW(nil, nil))), track(h, must(h.pd.CreateMW(nil, nil)))
			w.connect()
			w.want(h.qp.Bind(nil, h.mr, first, base, 1, 0), success)
			h.result(success)
			h.close(h.mr) // pends for the first window
			return h.qp.Bind(nil, h.mr, second, base, 1, 0)
		}, provider.StatusInvalidParameter},
		"send": {func(w *world, h *host) provider.Status {
			qp := h.newQP()
			closed(w, qp)
			return qp.Send(nil, nil, 0)
		}, provider.StatusConnectionInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.want(use.call(w, w.hosts[0]), use.want)
		})
	}
}

// TestCreateOnClosed: nothing is made on an instance or a domain that is closed.
func TestCreateOnClosed(t *testing.T) {
	for name, create := range creates {
		t.Run(name, func(t *testing.T) {
			w := newWorldWith(t, addresses, pends)
			h := w.hosts[0]
			srq := track(h, must(h.pd.CreateSRQ(1, 1, 0, nil, nil, nil, nil, nil)))
			h.close(h.pd)
			if !slices.Contains([]string{"MR", "FRMR", "MW", "SRQ", "QP", "QP with an SRQ"}, name) { // of the instance
				h.BeginClose(func() {})
			}
			before := h.device.InUse() + h.Queues()
			c := creation{}
			if name == "QP with an SRQ" { // whose SRQ cannot be made any more
				_, c.status = h.pd.CreateQPWithSRQ(h.cq, h.cq, srq, nil, 1, 1, 0, c.done, &c)
			} else {
				create(h, true, &c)
			}
			w.want(c.status, provider.StatusInvalidDeviceState)
			w.settle()
			if now := h.device.InUse() + h.Queues(); c.returned != nil || c.calls > 0 || now != before {
				t.Errorf("got %+v; %d entries in the tables, %d before", c, now, before)
			}
		})
	}
	w := newWorld(t)
	h := w.hosts[0]
	h.BeginClose(func() {})
	size, fbo := uint32(100), uint32(0)
	w.want(h.BuildLAM(&provider.MDL{Bytes: make([]byte, 1)}, 1, nil, nil, &provider.LAM{}, &size, &fbo), provider.StatusInvalidDeviceState)
}
