package provider_test

import (
	"testing"

	"github.com/ndklab/ndklab/provider"
)

// TestInstances: several instances of one device, in use at once.
func TestInstances(t *testing.T) {
	t.Run("NDK-VER-08 NDK-INFO-05 two instances, connected with each other and elsewhere", func(t *testing.T) {
		w := newWorld(t)
		first, elsewhere := w.hosts[0], w.hosts[1]
		second := w.another(first)
		second.fill(3)
		exchange(w, first, second) // loopback
		if a, b := must(first.conn.LocalAddress()), must(second.conn.LocalAddress()); a.Addr() != b.Addr() || a.Port() == b.Port() {
			t.Errorf("connected %v and %v", a, b)
		}
		a, b := *second, *elsewhere
		a.qp, b.port = a.newQP(), 7001
		exchange(w, &a, &b)
		if c := first.device.Counters(); c.Connect != 2 || c.Accept != 1 || c.ActiveConnection != 3 {
			t.Errorf("%+v", c) // of the device, whatever the instance
		}

		// The first instance ends; the second does not notice, but for its
		// connection with the first.
		ended := false
		first.BeginClose(func() { ended = true })
		for len(*first.open) > 0 {
			first.close((*first.open)[0])
		}
		w.settle()
		if !ended || second.disconnected != 1 {
			t.Fatalf("first instance ended: %v; %d disconnect events at the second", ended, second.disconnected)
		}
		w.want(b.qp.Receive(nil, b.at(0, 9000)), success)
		w.want(a.qp.Send(nil, a.at(0, 9000), 0), success)
		w.want(a.qp.Read(nil, a.at(0, 9000), base, b.mr.RemoteToken(), 0), success)
		a.results(2)
		b.result(success)
		_, more := a.newCQ(8)
		if more == nil || a.newConnector() == nil {
			t.Error("the second instance makes no objects")
		}

		// A third takes the first's place, ports and all.
		*first = *w.another(second)
		w.others = w.others[:1] // as the world's first host it is closed with that
		first.port = 7002
		exchange(w, second.renewed(), first)
	})
	t.Run("NDK-VER-08 what is one instance's is no other's", func(t *testing.T) {
		w := newWorld(t)
		first, peer := w.hosts[0], w.hosts[1]
		second := w.another(first)
		// Ports are the device's.
		first.listen(func(*provider.Connector) {})
		second.taken(first.service(), nowhere)
		// Queue pairs, endpoints and regions are the instance's.
		c := first.newConnector()
		w.want(first.dialFrom(c, second.qp, first.ephemeral(), peer.service()).returned, provider.StatusInvalidParameter)
		w.want(first.dialShared(c, first.qp, second.share(second.ephemeral()), peer.service()).returned, provider.StatusInvalidParameter)
		w.finish(first.close(first.listener))
		w.join(first, peer)
		w.want(first.qp.Send(nil, second.at(0, 1), 0), success)
		first.result(provider.StatusAccessViolation)
	})
	t.Run("NDK-VER-08 an instance ends while another connects", func(t *testing.T) {
		w := newWorld(t)
		first, peer := w.hosts[0], w.hosts[1]
		active := w.another(first)
		passive := *active
		passive.qp, passive.port = active.newQP(), 7001
		peer2 := *peer
		peer2.qp = peer.newQP()
		var atPeer, atPassive *provider.Connector
		peer.listen(ignore(&atPeer))
		passive.listen(ignore(&atPassive))
		active.conn, peer2.conn = active.newConnector(), peer.newConnector()
		out, in := active.dial(active.conn, peer), peer2.dial(peer2.conn, &passive)
		w.settle()
		first.leave()
		w.settle()
		accepted := []*async{peer.accept(atPeer), passive.accept(atPassive)}
		w.want(w.finish(out), success)
		w.want(w.finish(in), success)
		w.want(active.complete(), success)
		w.want(peer2.complete(), success)
		for _, a := range accepted {
			w.want(w.finish(a), success)
		}
		w.comeBack(0)
	})
	t.Run("NDK-INFO-05 three instances in a ring", func(t *testing.T) {
		w := newWorld(t)
		ring := []*host{w.hosts[0], w.another(w.hosts[0]), w.another(w.hosts[0])}
		for i, h := range ring {
			a, b := *h, *ring[(i+1)%len(ring)]
			a.qp, b.qp, b.port = a.newQP(), b.newQP(), 7000+uint16(i)
			exchange(w, &a, &b)
		}
		if c := w.hosts[0].device.Counters(); c.ActiveConnection != 6 {
			t.Errorf("%+v", c)
		}
	})
}

// renewed is the host with another QP.
func (h *host) renewed() *host {
	h.qp = h.newQP()
	return h
}
