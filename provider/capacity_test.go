package provider_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
)

var guestAddress = netip.MustParseAddr("10.0.0.3")

// startWith starts a third device, with a configuration of its own.
func (w *world) startWith(change func(*provider.Config)) *provider.Miniport {
	w.t.Helper()
	config := provider.Config{
		Carrier: w.network.Attach(mtu, guestAddress), Clock: w.clock, Rand: rand.New(rand.NewPCG(3, 7)),
		Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities(),
	}
	change(&config)
	m, err := provider.NewMiniport(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// endWith closes instances of a device, and it.
func (w *world) endWith(m *provider.Miniport, instances ...*provider.Adapter) {
	w.t.Helper()
	ended := false
	for _, a := range instances {
		a.BeginClose(func() {})
	}
	m.BeginClose(func() { ended = true })
	w.wait("the end of the device", func() bool { return ended })
}

// guest is a third host, on a device with a configuration of its own.
func (w *world) guest(change func(*provider.Config)) *host {
	w.t.Helper()
	h := w.equip(w.startWith(change), guestAddress)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			return
		}
		for len(*h.open) > 0 {
			h.close((*h.open)[0])
		}
		w.endWith(h.device, h.Adapter)
	})
	return h
}

// TestCapacity: the limits of all consumers together hold across the instances
// of a device, and what is closed makes room.
func TestCapacity(t *testing.T) {
	const limit = 3
	// An instance has the objects that a create needs.
	type instance struct {
		pd  *provider.PD
		cq  *provider.CQ
		srq *provider.SRQ
		*provider.Adapter
	}
	for name, c := range map[string]struct {
		set    func(*provider.Capabilities)
		taken  int // of the limit, by the two instances themselves
		create func(i *instance) (closer, provider.Status)
	}{
		"CQ": {func(c *provider.Capabilities) { c.MaxCqCount = 2 + limit }, 2,
			func(i *instance) (closer, provider.Status) { return i.CreateCQ(1, nil, nil, nil, nil, nil) }},
		"PD": {func(c *provider.Capabilities) { c.MaxPdCount = 2 + limit }, 2,
			func(i *instance) (closer, provider.Status) { return i.CreatePD(nil, nil) }},
		"MR": {func(c *provider.Capabilities) { c.MaxMrCount = limit }, 0,
			func(i *instance) (closer, provider.Status) { return i.pd.CreateMR(false, nil, nil) }},
		"SRQ": {func(c *provider.Capabilities) { c.MaxSrqCount = 2 + limit }, 2,
			func(i *instance) (closer, provider.Status) {
				return i.pd.CreateSRQ(1, 1, 0, nil, nil, nil, nil, nil)
			}},
		"QP": {func(c *provider.Capabilities) { c.MaxQpCount = limit }, 0,
			func(i *instance) (closer, provider.Status) {
				return i.pd.CreateQP(i.cq, i.cq, nil, 1, 1, 1, 1, 0, nil, nil)
			}},
		"QP with an SRQ": {func(c *provider.Capabilities) { c.MaxQpCount = limit }, 0,
			func(i *instance) (closer, provider.Status) {
				return i.pd.CreateQPWithSRQ(i.cq, i.cq, i.srq, nil, 1, 1, 0, nil, nil)
			}},
	} {
		t.Run("NDK-CAP-03 "+name, func(t *testing.T) {
			w := newWorld(t)
			m := w.startWith(func(config *provider.Config) { c.set(&config.Capabilities) })
			var instances [2]instance
			for i := range instances {
				a := must(m.OpenAdapter(anyVersion))
				pd := must(a.CreatePD(nil, nil))
				instances[i] = instance{pd, must(a.CreateCQ(1, nil, nil, nil, nil, nil)),
					must(pd.CreateSRQ(1, 1, 0, nil, nil, nil, nil, nil)), a}
			}
			var made []closer
			for n := range limit {
				made = append(made, must(c.create(&instances[n%2])))
			}
			for i := range instances {
				_, status := c.create(&instances[i])
				w.want(status, provider.StatusInsufficientResources)
			}
			w.want(made[0].Close(nil, nil), success) // of the first instance
			made[0] = must(c.create(&instances[1]))
			_, status := c.create(&instances[0])
			w.want(status, provider.StatusInsufficientResources)
			for _, o := range made {
				w.want(o.Close(nil, nil), success)
			}
			for _, i := range instances {
				for _, o := range []closer{i.srq, i.pd, i.cq} {
					w.want(o.Close(nil, nil), success)
				}
			}
			w.endWith(m, instances[0].Adapter, instances[1].Adapter)
		})
	}
}

// TestPendingQueues: on a device that pends, what is asked of queues is reported
// once, by callback.
func TestPendingQueues(t *testing.T) {
	w := newWorld(t)
	m := w.startWith(func(config *provider.Config) { config.Pend = true })
	a := must(m.OpenAdapter(anyVersion))
	var objects []closer
	// pends returns the object that a create delivers.
	pends := func(call func(provider.CreateCompletion, any) provider.Status) provider.Object {
		t.Helper()
		calls := 0
		var delivered provider.Object
		w.want(call(func(context any, status provider.Status, object provider.Object) {
			if context != &calls || status != success {
				t.Errorf("called back with %v, %v", context, status)
			}
			calls++
			delivered = object
		}, &calls), provider.StatusPending)
		if calls > 0 {
			t.Fatal("called back from within the call")
		}
		w.clock.Run(time.Second)
		if calls != 1 {
			t.Fatalf("called back %d times", calls)
		}
		objects = append(objects, delivered)
		return delivered
	}
	cq := pends(func(done provider.CreateCompletion, context any) provider.Status {
		cq, status := a.CreateCQ(4, nil, nil, nil, done, context)
		if cq != nil {
			t.Error("the object was returned, too (NDK-LIFE-02)")
		}
		return status
	}).(*provider.CQ)
	pd := must(a.CreatePD(nil, nil))
	objects = append(objects, pd)
	srq := pends(func(done provider.CreateCompletion, context any) provider.Status {
		srq, status := pd.CreateSRQ(4, 1, 0, nil, nil, nil, done, context)
		if srq != nil {
			t.Error("the object was returned, too (NDK-LIFE-02)")
		}
		return status
	}).(*provider.SRQ)
	pends(func(done provider.CreateCompletion, context any) provider.Status {
		qp, status := pd.CreateQPWithSRQ(cq, cq, srq, nil, 1, 1, 0, done, context)
		if qp != nil {
			t.Error("the object was returned, too (NDK-LIFE-02)")
		}
		return status
	})
	for name, request := range map[string]func(provider.RequestCompletion, any) provider.Status{
		"Resize": func(done provider.RequestCompletion, context any) provider.Status { return cq.Resize(8, done, context) },
		"Modify": func(done provider.RequestCompletion, context any) provider.Status {
			return srq.Modify(8, 0, done, context)
		},
	} {
		r := &async{}
		r.returned = request(r.done, r)
		w.want(r.returned, provider.StatusPending)
		if r.calls > 0 {
			t.Errorf("%s called back from within the call", name)
		}
		w.clock.Run(time.Second)
		if r.calls != 1 || r.status != success {
			t.Errorf("%s called back %d times, with %v", name, r.calls, r.status)
		}
		w.want(request(nil, nil), success)
	}
	// A request that cannot be fulfilled is refused at once.
	w.want(cq.Resize(0, func(any, provider.Status) { t.Error("called back") }, nil), provider.StatusInvalidParameter)
	w.want(srq.Modify(1<<31, 0, func(any, provider.Status) { t.Error("called back") }, nil), provider.StatusInvalidParameter)
	for i := range objects {
		w.want(objects[len(objects)-1-i].Close(nil, nil), success)
	}
	w.endWith(m, a)
}
