package provider_test

import (
	"slices"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

func TestFailedCQ(t *testing.T) {
	for _, arm := range []provider.NotifyType{provider.NotifyErrors, provider.NotifyAny, provider.NotifySolicited} {
		t.Run("NDK-CQ-25 NDK-CQ-24 NDK-CNT-08 armed", func(t *testing.T) {
			w := newWorld(t)
			client, server := w.connect()
			server.receive(1)
			server.cq.Arm(arm)
			server.cq.Fail()
			server.cq.Fail()
			w.settle()
			server.notes.notified(t, provider.StatusInternalError)
			server.cq.Arm(arm)
			w.silent(server.cq) // the receive is not flushed to a CQ that has failed
			server.notes.notified(t, provider.StatusInternalError)
			w.want(server.qp.Send(nil, nil, 0), provider.StatusConnectionInvalid)
			if client.disconnected != 1 || server.disconnected != 1 {
				t.Errorf("disconnect events: %d, %d", client.disconnected, server.disconnected)
			}
			if got := server.device.Counters().CQError; got != 1 {
				t.Errorf("CQError is %d, want 1", got)
			}
		})
	}
	t.Run("NDK-CNT-08 every CQ of a device that fails, once", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		other := w.another(h)
		overrun, _ := other.newCQ(1)
		qp := other.newQPOn(overrun, overrun, nil)
		for range 2 {
			w.want(qp.Receive(nil, nil), success)
		}
		qp.Flush()
		closed, _ := h.newCQ(1)
		w.want(h.close(closed).returned, success)
		w.settle()
		if got := h.device.Counters().CQError; got != 1 {
			t.Fatalf("CQError is %d with one that has overrun", got)
		}
		for range 2 {
			h.device.Fail()
			w.settle()
			if got := h.device.Counters().CQError; got != 3 { // the two instances' own
				t.Errorf("CQError is %d, want 3", got)
			}
		}
		if got := w.hosts[1].device.Counters().CQError; got != 0 {
			t.Errorf("another device's CQError is %d", got)
		}
	})
	t.Run("NDK-CQ-25 NDK-CQ-22 armed later", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		h.cq.Fail()
		w.settle()
		h.notes.notified(t)
		h.cq.Arm(provider.NotifyErrors)
		w.clock.Run(0)
		h.notes.notified(t, provider.StatusInternalError)
	})
	t.Run("NDK-CQ-24 either CQ of a QP, and one CQ after another", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		for i := range 2 {
			var cqs [2]*provider.CQ
			cqs[0], _ = server.newCQ(8)
			cqs[1], _ = server.newCQ(8)
			one, other := *client, *server
			one.qp, other.qp, other.port = client.newQP(), server.newQPOn(cqs[0], cqs[1], nil), uint16(7000+i)
			w.join(&one, &other)
			cqs[i].Fail()
			w.settle()
			w.want(other.qp.Send(nil, nil, 0), provider.StatusConnectionInvalid)
			if one.disconnected != 1 || other.disconnected != 1 {
				t.Errorf("CQ %d: disconnect events: %d, %d", i, one.disconnected, other.disconnected)
			}
		}
	})
	t.Run("what had completed before can still be taken", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		w.sendTo(client, server, 0)
		server.cq.Fail()
		w.settle()
		server.result(success)
		w.silent(server.cq)
	})
	// The orders of closing matter: whoever is closed first waits for the rest.
	for name, order := range map[string][]int{
		"antecedents first": {0, 1, 2, 3}, "successors first": {3, 2, 1, 0}, "mixed": {1, 3, 0, 2},
	} {
		t.Run("NDK-CQ-26 closes of a CQ that failed and its successors, "+name, func(t *testing.T) {
			w := newWorld(t)
			w.hosts[1].cq, _ = w.hosts[1].newCQ(8) // with no other QP
			srq, _ := w.hosts[1].newSRQ(0)
			w.hosts[1].qp = w.hosts[1].newQPWithSRQ(srq, nil)
			client, server := w.connect()
			w.fillSRQ(srq, 2)
			w.want(client.qp.Write(nil, client.at(0, 100_000), base, server.mr.RemoteToken(), 0), success)
			w.want(server.qp.Read(nil, server.at(0, 100_000), base, client.mr.RemoteToken(), 0), success)
			server.cq.Arm(provider.NotifyAny)
			server.cq.Fail()
			objects := []closer{server.cq, srq, server.qp, server.conn}
			var closes []*async
			for _, i := range order {
				closes = append(closes, server.close(objects[i]))
			}
			for _, a := range closes {
				w.want(w.finish(a), success)
			}
			w.settle()
			for _, a := range closes {
				if a.calls > 1 || a.calls == 1 && a.returned == success {
					t.Errorf("a close returned %v and called back %d times", a.returned, a.calls)
				}
			}
		})
	}
	t.Run("every queue of the instance, and of no other", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		var order []int
		var all []*notes
		for i := range 20 {
			cq, n := h.newCQ(1)
			n.then = func() { order = append(order, i) }
			cq.Arm(provider.NotifyErrors)
			if i == 7 {
				h.close(cq)
				continue
			}
			all = append(all, n)
		}
		srq, n := h.newSRQ(0)
		all = append(all, n)
		other := must(h.device.OpenAdapter(anyVersion))
		otherCQ := must(other.CreateCQ(1, nil, nil, nil, nil, nil))
		h.FailQueues()
		w.settle()
		for _, n := range all {
			n.notified(t, provider.StatusInternalError)
		}
		if !slices.IsSorted(order) {
			t.Errorf("told in the order %v: a simulation would not repeat", order)
		}
		w.want(srq.Receive(nil, nil), provider.StatusInvalidDeviceState)
		w.want(otherCQ.Resize(2, nil, nil), success)
		w.want(otherCQ.Close(nil, nil), success)
		other.BeginClose(func() {})
	})
}
