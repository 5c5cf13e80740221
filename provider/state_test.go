package provider_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
)

const (
	enable  = provider.NetEventNDKEnable
	disable = provider.NetEventNDKDisable
)

// An audience notes the events of a device.
type audience struct {
	codes []provider.NetEventCode
	last  provider.NetEvent
	then  func() // called by the callback, if set
}

func (h *host) listenToEvents() *audience {
	a := &audience{}
	h.device.Subscribe(func(e provider.NetEvent) {
		a.codes = append(a.codes, e.Code)
		a.last = e
		if a.then != nil {
			a.then()
		}
	})
	return a
}

// heard fails the test unless the events are these.
func (a *audience) heard(t *testing.T, codes ...provider.NetEventCode) {
	t.Helper()
	if !slices.Equal(a.codes, codes) {
		t.Fatalf("events %v, want %v", a.codes, codes)
	}
}

// over reports whether the last event is.
func (a *audience) over() bool {
	select {
	case <-a.last.Done:
		return true
	default:
		return false
	}
}

// leave closes everything that the host has, and its instance.
func (h *host) leave() {
	for len(*h.open) > 0 {
		h.close((*h.open)[0])
	}
	h.BeginClose(func() {})
}

// set is OID_NDK_SET_STATE.
func (h *host) set(enabled byte) provider.Status {
	return h.device.SetOID(provider.OIDNDKSetState, []byte{enabled})
}

// comeBack gives the host a new instance of its device, so that the world has
// one to end.
func (w *world) comeBack(i int) {
	w.hosts[i] = w.equip(w.hosts[i].device, w.hosts[i].address)
}

func TestState(t *testing.T) {
	t.Run("NDK-EN-03 NDK-EN-04 NDK-EN-09 NDK-VER-06 disable", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		events := client.listenToEvents()
		w.want(client.set(0), success)
		if len(events.codes) > 0 {
			t.Fatal("raised from within the call (NDK-EN-05)")
		}
		w.settle()
		events.heard(t, disable)
		if client.device.Attributes().Enabled || events.over() {
			t.Fatal("NDK is enabled, or the event is over")
		}
		a, status := client.device.OpenAdapter(anyVersion)
		if status != provider.StatusAdapterNotReady || a != nil {
			t.Fatalf("got %v, %v", a, status)
		}
		// Those who are there go on.
		server.receive(1)
		w.want(client.qp.Send(nil, nil, 0), success)
		client.result(success)
		client.leave()
		w.settle()
		if !events.over() {
			t.Fatal("the event is not over, though all instances are closed")
		}
		if _, status := client.device.OpenAdapter(anyVersion); status != provider.StatusAdapterNotReady {
			t.Fatalf("got %v", status)
		}
		events.heard(t, disable)
		w.want(client.set(1), success)
		w.comeBack(0)
	})
	t.Run("NDK-EN-01 NDK-EN-08 enable again", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		events := h.listenToEvents()
		h.leave()
		w.settle()
		w.want(h.set(0), success)
		w.settle()
		events.heard(t, disable)
		if !events.over() {
			t.Fatal("with nothing open, the event is not over at once")
		}
		w.want(h.set(1), success)
		if !h.device.Attributes().Enabled {
			t.Fatal("not enabled")
		}
		w.settle()
		events.heard(t, disable, enable)
		if !events.over() {
			t.Fatal("an enable event that is not over")
		}
		w.comeBack(0)
		w.connect()
	})
	t.Run("who has cancelled hears nothing more", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		events, cancel := &audience{}, func() {}
		h.device.Subscribe(func(provider.NetEvent) { cancel() }) // called first
		h.device.Subscribe(nil)()
		cancel = h.device.Subscribe(func(e provider.NetEvent) { events.codes = append(events.codes, e.Code) })
		w.want(h.set(0), success)
		w.settle()
		events.heard(t)
		h.leave()
		w.settle()
		w.want(h.set(1), success)
		w.comeBack(0)
	})
	t.Run("NDK-EN-01 what is so already raises no event", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		events := h.listenToEvents()
		w.want(h.set(1), success)
		w.settle()
		events.heard(t)
		h.leave()
		w.want(h.set(0), success)
		w.want(h.set(0), success)
		w.settle()
		events.heard(t, disable)
		w.want(h.set(255), success) // any nonzero, T67
		w.comeBack(0)
	})
	t.Run("NDK-EN-08 NDK-EN-09 enabled before the disabling is over", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		events := h.listenToEvents()
		w.want(h.set(0), success)
		w.want(h.set(1), success)
		w.settle()
		events.heard(t, disable)
		if _, status := h.device.OpenAdapter(anyVersion); status != provider.StatusAdapterNotReady {
			t.Fatalf("got %v", status)
		}
		h.leave()
		w.settle()
		events.heard(t, disable, enable)
		w.comeBack(0)
	})
	t.Run("NDK-EN-05 a consumer that closes its instance in reaction", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		events := h.listenToEvents()
		events.then = func() {
			events.then = nil
			h.leave()
			w.settle()
			if !events.over() {
				t.Error("not over once all is closed")
			}
			w.want(h.set(1), success)
			if len(events.codes) > 1 {
				t.Error("called while another event is in progress")
			}
		}
		w.want(h.set(0), success)
		w.settle()
		events.heard(t, disable, enable)
		w.comeBack(0)
	})
	t.Run("NDK-EN-02 NDK-EN-07 NDK-VER-06 NetworkDirect is 0", func(t *testing.T) {
		w := newWorld(t)
		cfg := w.config(w.network.Attach(mtu, nowhere.Addr()))
		cfg.Configuration.NetworkDirect = 0
		m := w.start(cfg)
		events := (&host{device: m}).listenToEvents()
		for range 2 {
			attributes := m.Attributes()
			if attributes.Enabled || attributes.Header != (provider.NDISHeader{Type: 0xB3, Revision: 1, Size: 16}) {
				t.Errorf("got %+v", attributes)
			}
			if c := attributes.Capabilities; c.Capabilities != provider.DefaultCapabilities() || *c.NdkInfo != provider.DefaultAdapterInfo() {
				t.Errorf("got %+v", c)
			}
			if a, status := m.OpenAdapter(anyVersion); status != provider.StatusAdapterNotReady || a != nil {
				t.Errorf("got %v, %v", a, status)
			}
			w.want(m.SetOID(provider.OIDNDKSetState, []byte{1}), provider.StatusNotSupported)
			w.want(m.SetOID(provider.OIDNDKSetState, []byte{0}), success)
			w.settle()
			events.heard(t)
		}
		m.BeginClose(func() {})
	})
	t.Run("NDK-EN-03 all who subscribed and did not cancel", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		calls := 0
		cancel := h.device.Subscribe(func(provider.NetEvent) { calls++ })
		first, second := h.listenToEvents(), h.listenToEvents()
		cancel()
		w.want(h.set(0), success)
		h.leave()
		w.settle()
		first.heard(t, disable)
		second.heard(t, disable)
		if calls > 0 {
			t.Error("called after cancel")
		}
		w.want(h.set(1), success)
		w.comeBack(0)
	})
}

func TestFailure(t *testing.T) {
	t.Run("NDK-EN-06 a connected device fails and recovers", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		events := client.listenToEvents()
		idle, idleNotes := client.newCQ(1)
		late, lateNotes := client.newCQ(1)
		idle.Arm(provider.NotifyErrors)
		var ofSRQ []provider.Status
		track(client, must(client.pd.CreateSRQ(1, 1, 0, func(_ any, status provider.Status) { ofSRQ = append(ofSRQ, status) }, nil, nil, nil, nil)))
		client.cq.Arm(provider.NotifyErrors)
		w.want(client.qp.Receive(nil, nil), success)
		client.device.Fail()
		client.device.Fail() // once is enough
		if len(events.codes) > 0 {
			t.Fatal("raised from within the call")
		}
		w.settle()
		late.Arm(provider.NotifyErrors)
		w.settle()
		events.heard(t, disable)
		for i, n := range []*notes{client.notes, idleNotes, lateNotes} {
			if !slices.Equal(n.statuses, []provider.Status{provider.StatusInternalError}) {
				t.Errorf("CQ %d was told %v", i, n.statuses)
			}
		}
		if !slices.Equal(ofSRQ, []provider.Status{provider.StatusInternalError}) {
			t.Errorf("the SRQ was told %v", ofSRQ)
		}
		if client.disconnected != 1 || server.disconnected != 1 {
			t.Errorf("%d and %d disconnect events", client.disconnected, server.disconnected)
		}
		if c := client.device.Counters(); c.CQError != 3 || c.ConnectionError != 1 || c.ActiveConnection != 0 {
			t.Errorf("got %+v", c)
		}
		w.want(client.qp.Send(nil, nil, 0), provider.StatusConnectionInvalid)
		cq, status := client.CreateCQ(1, nil, nil, nil, nil, nil)
		if status != provider.StatusDeviceNotReady || cq != nil {
			t.Errorf("made %v on a device that has failed: %v", cq, status)
		}
		srq, status := client.pd.CreateSRQ(1, 1, 0, nil, nil, nil, nil, nil)
		if status != provider.StatusDeviceNotReady || srq != nil {
			t.Errorf("made %v on a device that has failed: %v", srq, status)
		}
		w.want(client.set(1), provider.StatusAdapterNotReady)

		client.device.Recover()
		w.settle()
		events.heard(t, disable)
		client.leave()
		w.settle()
		events.heard(t, disable, enable)
		server.leave()
		w.settle()
		w.comeBack(0)
		w.comeBack(1)
		client, server = w.connect()
		server.receive(1)
		w.want(client.qp.Send(nil, nil, 0), success)
		client.result(success)
	})
	t.Run("NDK-EN-06 with nothing open", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		h.leave()
		w.settle()
		events := h.listenToEvents()
		h.device.Fail()
		w.settle()
		if _, status := h.device.OpenAdapter(anyVersion); status != provider.StatusAdapterNotReady {
			t.Fatalf("got %v", status)
		}
		events.heard(t, disable)
		h.device.Recover()
		w.settle()
		events.heard(t, disable, enable)
		w.comeBack(0)
	})
	t.Run("what was switched off meanwhile stays off", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		h.leave()
		events := h.listenToEvents()
		h.device.Fail()
		w.want(h.set(0), success)
		h.device.Recover()
		w.settle()
		events.heard(t, disable)
		w.want(h.set(1), success)
		w.comeBack(0)
	})
	t.Run("attempts to connect, in order", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		var attempts []*async
		var order []int
		for i := range 20 {
			a := h.dialFrom(h.newConnector(), h.newQP(), h.ephemeral(), nowhere)
			a.then = func() { order = append(order, i) }
			attempts = append(attempts, a)
		}
		h.device.Fail()
		if !h.device.Failed() {
			t.Error("the device has not failed")
		}
		for _, a := range attempts {
			w.want(w.finish(a), provider.StatusConnectionAborted)
		}
		if !slices.IsSorted(order) || len(order) != 20 {
			t.Errorf("told in the order %v: a simulation would not repeat", order)
		}
		h.device.Recover()
		if h.device.Failed() {
			t.Error("the device has not recovered")
		}
	})
	t.Run("attempts to connect", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		var delivered *provider.Connector
		server.listen(func(c *provider.Connector) { delivered = c })
		c := client.newConnector()
		attempt := client.dial(c, server)
		w.settle()
		third := w.openAt(nowhere.Addr(), provider.DefaultAdapterInfo())
		from := w.equip(third, nowhere.Addr())
		silent := from.dial(from.newConnector(), client) // nobody listens there: refused
		w.want(w.finish(silent), provider.StatusConnectionRefused)
		server.device.Fail()
		w.want(w.finish(attempt), provider.StatusConnectionRefused)
		w.want(delivered.Reject(nil), provider.StatusConnectionAborted)
		w.want(delivered.Accept(server.qp, 1, 1, nil, nil, nil, (&async{}).done, nil), provider.StatusConnectionAborted)
		// A device that has failed takes no requests.
		retry := client.dial(c, server)
		w.want(w.finish(retry), provider.StatusConnectionRefused)
		if got := server.device.Counters().Accept; got != 0 {
			t.Errorf("%d accepted", got)
		}
		before := w.clock.Now()
		w.path.Down = true
		pending := from.dial(from.newConnector(), client)
		w.settle()
		third.Fail()
		w.want(w.finish(pending), provider.StatusConnectionAborted)
		if took := w.clock.Now() - before; took > 2*time.Second {
			t.Errorf("ended after %v", took)
		}
		w.path.Down = false
		w.finishAll([]*host{from})
	})
}
