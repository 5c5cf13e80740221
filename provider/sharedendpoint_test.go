package provider_test

import (
	"net/netip"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

const (
	inUse  = provider.StatusSharingViolation
	exists = provider.StatusAddressAlreadyExists
)

func (h *host) share(address netip.AddrPort) *provider.SharedEndpoint {
	return track(h, must(h.CreateSharedEndpoint(address, nil, nil)))
}

// dialShared starts to connect a QP from a shared endpoint.
func (h *host) dialShared(c *provider.Connector, qp *provider.QP, from *provider.SharedEndpoint, to netip.AddrPort) *async {
	a := &async{}
	a.returned = c.ConnectWithSharedEndpoint(qp, from, to, 16, 16, []byte("hello"), a.done, a)
	return a
}

// joinShared joins copies of the two hosts with a QP and a connector of their
// own, the client's from a shared endpoint, the server's at a port.
func (w *world) joinShared(from *provider.SharedEndpoint, port uint16) (client, server *host) {
	w.t.Helper()
	a, b := *w.hosts[0], *w.hosts[1]
	a.qp, b.qp, b.port = a.newQP(), b.newQP(), port
	var accepted *async
	b.listen(func(c *provider.Connector) { accepted = b.accept(c) })
	a.conn = a.newConnector()
	w.want(w.finish(a.dialShared(a.conn, a.qp, from, b.service())), success)
	w.want(a.complete(), success)
	w.want(w.finish(accepted), success)
	return &a, &b
}

// taken checks that every way to take an address into use fails with inUse.
func (h *host) taken(address, destination netip.AddrPort) {
	h.world.t.Helper()
	l := track(h, must(h.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
	h.world.want(l.Listen(address, nil, nil), inUse)
	_, status := h.CreateSharedEndpoint(address, nil, nil)
	h.world.want(status, inUse)
	h.world.want(h.dialFrom(h.newConnector(), h.newQP(), address, destination).returned, inUse)
}

// free checks that an address can be taken into use, in every way.
func (h *host) free(address netip.AddrPort) {
	h.world.t.Helper()
	w := h.world
	l := track(h, must(h.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
	w.want(l.Listen(address, nil, nil), success)
	w.finish(h.close(l))
	w.finish(h.close(h.share(address)))
	c := h.newConnector()
	w.want(h.dialFrom(c, h.newQP(), address, nowhere).returned, provider.StatusPending)
	w.finish(h.close(c))
}

func TestSharedEndpoint(t *testing.T) {
	t.Run("NDK-EP-11 in use still after a connector that was refused is closed", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		at := netip.AddrPortFrom(client.address, 5000)
		s := client.share(at)
		c := client.newConnector()
		w.want(w.finish(client.dialShared(c, client.qp, s, server.service())), refused)
		w.finish(client.close(c))
		_, status := client.CreateSharedEndpoint(at, nil, nil)
		w.want(status, provider.StatusSharingViolation)
	})
	for name, test := range map[string]func(t *testing.T, w *world, client, server *host){
		"NDK-EP-07 several destinations": func(t *testing.T, w *world, client, server *host) {
			from := client.share(addr("10.0.0.1:5000"))
			for port := uint16(7000); port < 7003; port++ {
				a, b := w.joinShared(from, port)
				if local, peer := must(a.conn.LocalAddress()), must(b.conn.PeerAddress()); local != from.LocalAddress() || peer != local {
					t.Fatalf("local %v, at the peer %v, want %v", local, peer, from.LocalAddress())
				}
				w.want(b.qp.Receive(nil, b.at(0, 100)), success)
				w.want(a.qp.Send(nil, a.at(int(port), 100), 0), success)
				a.result(success)
				b.result(success)
				if string(b.memory[:100]) != string(a.memory[port:port+100]) {
					t.Fatal("arrived wrong")
				}
			}
		},
		"NDK-EP-12 NDK-CONN-18 the same destination": func(t *testing.T, w *world, client, server *host) {
			from := client.share(addr("10.0.0.1:5000"))
			c, qp := client.newConnector(), client.newQP()
			once, onceQP := client.newConnector(), client.newQP()
			first := client.dialShared(once, onceQP, from, nowhere)
			w.want(client.dialShared(c, qp, from, nowhere).returned, exists) // being connected
			w.want(w.finish(first), timedOut)
			w.want(client.dialShared(c, qp, from, nowhere).returned, provider.StatusPending)
			// The first connector goes there from elsewhere, which does not count.
			w.want(client.dialFrom(once, onceQP, client.ephemeral(), nowhere).returned, provider.StatusPending)
			w.finish(client.close(once))
			w.want(client.dialShared(client.newConnector(), onceQP, from, nowhere).returned, exists)

			a, b := w.joinShared(from, 7000)
			c2, qp2 := client.newConnector(), client.newQP()
			w.want(client.dialShared(c2, qp2, from, b.service()).returned, exists)
			w.want(client.dialFrom(c2, qp2, from.LocalAddress(), b.service()).returned, exists)
			w.want(client.dialFrom(c2, qp2, from.LocalAddress(), addr("10.0.0.2:7001")).returned, inUse)
			w.sendTo(a, b, 0) // which none of that has disturbed
			b.result(success)

			// Disconnected, though not closed: the destination is free again.
			w.want(w.finish(a.disconnect()), success)
			w.finish(b.close(b.conn))
			w.want(b.close(b.listener).returned, success)
			a2, b2 := w.joinShared(from, 7000)
			w.finish(a.close(a.conn)) // which leaves its successor alone
			w.want(client.dialShared(c2, qp2, from, b.service()).returned, exists)
			w.sendTo(a2, b2, 0)
			b2.result(success)
		},
		"NDK-EP-08 NDK-EP-09 NDK-LIFE-27 closed with connectors open": func(t *testing.T, w *world, client, server *host) {
			from := client.share(addr("10.0.0.1:5000"))
			a, b := w.joinShared(from, 7000)
			a2, _ := w.joinShared(from, 7001)
			closing := client.close(from)
			w.want(closing.returned, provider.StatusPending)
			client.taken(addr("10.0.0.1:5000"), nowhere)
			w.finish(a2.close(a2.conn))
			w.settle()
			w.sendTo(a, b, 0)
			b.result(success)
			w.want(w.finish(a.disconnect()), success)
			client.taken(addr("10.0.0.1:5000"), nowhere)
			w.settle()
			if closing.over() && closing.calls > 0 {
				t.Fatal("closed while a connector is open")
			}
			w.finish(a.close(a.conn))
			w.settle()
			if closing.calls != 1 {
				t.Fatalf("the close called back %d times", closing.calls)
			}
			client.free(addr("10.0.0.1:5000"))
		},
		"NDK-EP-08 NDK-EP-09 closed with a connector open that was refused": func(t *testing.T, w *world, client, server *host) {
			from := client.share(addr("10.0.0.1:5000"))
			c := client.newConnector()
			for range 2 {
				w.want(w.finish(client.dialShared(c, client.qp, from, server.service())), refused)
			}
			closing := client.close(from)
			w.want(closing.returned, provider.StatusPending)
			client.taken(addr("10.0.0.1:5000"), nowhere)
			w.finish(client.close(c))
			w.want(w.finish(closing), success)
			client.free(addr("10.0.0.1:5000"))
		},
		"NDK-EP-08 NDK-EP-09 without connectors": func(t *testing.T, w *world, client, server *host) {
			from := client.share(addr("10.0.0.1:5000"))
			client.taken(addr("10.0.0.1:5000"), nowhere)
			w.want(client.close(from).returned, success)
			client.free(addr("10.0.0.1:5000"))
		},
		"NDK-EP-10 any port": func(t *testing.T, w *world, client, server *host) {
			from, other := client.share(client.ephemeral()), client.share(client.ephemeral())
			for _, s := range []*provider.SharedEndpoint{from, other} {
				var address netip.AddrPort
				length := uint32(16)
				w.want(s.GetLocalAddress(&address, &length), success)
				if address.Addr() != client.address || address.Port() < 49152 || address != s.LocalAddress() {
					t.Fatalf("chose %v", address)
				}
			}
			if from.LocalAddress() == other.LocalAddress() {
				t.Fatal("both have the same")
			}
			_, b := w.joinShared(from, 7000)
			if peer := must(b.conn.PeerAddress()); peer != from.LocalAddress() {
				t.Fatalf("%v is connected", peer)
			}
		},
		"NDK-EP-11 what cannot be shared": func(t *testing.T, w *world, client, server *host) {
			client.listen(ignore(new(*provider.Connector)))
			client.share(addr("10.0.0.1:5000"))
			client.dialFrom(client.newConnector(), client.qp, addr("10.0.0.1:5001"), nowhere)
			for address, want := range map[string]provider.Status{
				"10.0.0.1:7000": inUse, "10.0.0.1:5000": inUse, "10.0.0.1:5001": inUse,
				"10.0.0.2:5002": provider.StatusInvalidAddress, "[::1]:5002": provider.StatusInvalidAddress,
				"0.0.0.0:5002": provider.StatusInvalidAddress,
			} {
				if s, got := client.CreateSharedEndpoint(addr(address), nil, nil); got != want || s != nil {
					t.Errorf("%s: %v, %v, want %v", address, s, got, want)
				}
			}
			client.share(addr("10.0.0.1:5002"))
		},
		"NDK-LIFE-02 NDK-LIFE-03 made on a device that pends": func(t *testing.T, _ *world, _, _ *host) {
			w := newWorldWith(t, addresses, func(cfg *provider.Config) { cfg.Pend = true })
			client := w.hosts[0]
			var made provider.Object
			calls := 0
			s, status := client.CreateSharedEndpoint(addr("10.0.0.1:5000"), func(context any, status provider.Status, o provider.Object) {
				w.want(status, success)
				if context != w {
					t.Error("wrong context")
				}
				made = o
				calls++
			}, w)
			if w.want(status, provider.StatusPending); s != nil || calls != 0 {
				t.Fatalf("%v, called back %d times", s, calls)
			}
			w.settle()
			if calls != 1 || made.Type() != provider.ObjectTypeSharedEndpoint || made.Version() != provider.InterfaceVersion {
				t.Fatalf("called back %d times with %v", calls, made)
			}
			w.joinShared(track(client, made.(*provider.SharedEndpoint)), 7000)
			_, status = client.CreateSharedEndpoint(addr("10.0.0.1:5000"), func(any, provider.Status, provider.Object) {
				t.Error("called back after a failure")
			}, w)
			w.want(status, inUse)
		},
		"T28 nobody listens there": func(t *testing.T, w *world, client, server *host) {
			s := server.share(server.service())
			w.want(w.finish(client.dial(client.newConnector(), server)), refused)
			w.finish(server.close(s))
		},
		"NDK-CONN-28 NDK-CONN-29 calls that do not fit": func(t *testing.T, w *world, client, server *host) {
			from := client.share(addr("10.0.0.1:5000"))
			c := client.newConnector()
			w.want(client.dialShared(c, client.qp, nil, server.service()).returned, provider.StatusInvalidParameter)
			w.want(client.dialShared(c, client.qp, server.share(server.ephemeral()), server.service()).returned, provider.StatusInvalidParameter)
			w.want(client.dialShared(c, client.qp, from, addr("[fd00::2]:7000")).returned, provider.StatusInvalidParameter)
			w.want(client.dialShared(c, client.qp, from, netip.AddrPort{}).returned, provider.StatusInvalidParameter)
			w.want(client.dialShared(c, nil, from, server.service()).returned, provider.StatusInvalidParameter)
			w.want(c.ConnectWithSharedEndpoint(client.qp, from, server.service(), 1, 1, make([]byte, 57), func(any, provider.Status) {}, nil),
				provider.StatusInvalidBufferSize)
			w.want(c.ConnectWithSharedEndpoint(client.qp, from, server.service(), 1, 1, nil, nil, nil), provider.StatusInvalidParameter)
			a, _ := w.joinShared(from, 7000)
			w.want(client.dialShared(a.conn, client.qp, from, addr("10.0.0.2:7001")).returned, provider.StatusInvalidDeviceState)
			w.want(client.dialShared(c, a.qp, from, addr("10.0.0.2:7001")).returned, provider.StatusConnectionActive)
			// None of them has left anything in use.
			w.finish(a.close(a.conn))
			w.finish(client.close(c))
			w.want(client.close(from).returned, success)
			client.free(addr("10.0.0.1:5000"))
		},
		"NDK-CONN-13 again on the same connector": func(t *testing.T, w *world, client, server *host) {
			from, other := client.share(addr("10.0.0.1:5000")), client.share(addr("10.0.0.1:5001"))
			c := client.newConnector()
			w.want(w.finish(client.dialShared(c, client.qp, from, nowhere)), timedOut)
			w.want(w.finish(client.dialShared(c, client.qp, other, server.service())), refused)
			w.want(w.finish(client.dial(c, server)), refused)
			client.conn = c
			var accepted *async
			server.listen(func(c *provider.Connector) { accepted = server.accept(c) })
			w.want(w.finish(client.dialShared(c, client.qp, from, server.service())), success)
			w.want(client.complete(), success)
			w.want(w.finish(accepted), success)
			if local := must(c.LocalAddress()); local != from.LocalAddress() {
				t.Errorf("connected from %v", local)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test(t, w, w.hosts[0], w.hosts[1])
		})
	}
}
