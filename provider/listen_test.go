package provider_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/provider"
)

func TestListen(t *testing.T) {
	w := newWorld(t)
	h := w.hosts[0]
	listener := func() *provider.Listener {
		return track(h, must(h.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
	}
	l := listener()
	w.want(l.Listen(addr("10.0.0.1:7000"), nil, nil), success)
	for _, c := range []struct {
		name, address string
		want          provider.Status
	}{
		{"NDK-LSN-04 in use", "10.0.0.1:7000", provider.StatusSharingViolation},
		{"another port", "10.0.0.1:7001", success},
		{"NDK-LSN-05 of another adapter", "10.0.0.2:7000", provider.StatusInvalidAddress},
		{"NDK-LSN-05 of another family", "[::1]:7000", provider.StatusInvalidAddress},
		{"NDK-LSN-05 any address", "0.0.0.0:7000", provider.StatusInvalidAddress},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := listener()
			if got := l.Listen(addr(c.address), nil, nil); got != c.want {
				t.Fatalf("got %v, want %v", got, c.want)
			}
			address, status := l.LocalAddress()
			if c.want == success && (status != success || address != addr(c.address)) ||
				c.want != success && status != provider.StatusInvalidDeviceState {
				t.Fatalf("local address %v, %v", address, status)
			}
		})
	}
	t.Run("no address at all", func(t *testing.T) {
		if got := listener().Listen(netip.AddrPort{}, nil, nil); got != provider.StatusInvalidAddress {
			t.Fatal(got)
		}
	})
	t.Run("twice", func(t *testing.T) {
		if got := l.Listen(addr("10.0.0.1:7002"), nil, nil); got != provider.StatusInvalidDeviceState {
			t.Fatal(got)
		}
	})
	t.Run("no callback", func(t *testing.T) {
		if _, got := h.CreateListener(nil, nil, nil, nil); got != provider.StatusInvalidParameter {
			t.Fatal(got)
		}
	})
}

// TestEphemeralPorts has an address run out of ports, by each of the calls that
// choose one.
func TestEphemeralPorts(t *testing.T) {
	w := newWorld(t)
	h, peer := w.hosts[0], w.hosts[1]
	const ports = 65536 - 49152
	var taken []closer // not tracked, which takes time for so many
	seen := map[netip.AddrPort]bool{}
	chosen := func(t *testing.T, address netip.AddrPort) {
		t.Helper()
		if address.Addr() != h.address || address.Port() < 49152 || seen[address] {
			t.Fatalf("chose %v", address)
		}
		seen[address] = true
	}
	t.Run("NDK-LSN-02 every listener has a port of its own", func(t *testing.T) {
		for range ports / 2 {
			l := must(h.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil))
			w.want(l.Listen(h.ephemeral(), nil, nil), success)
			taken = append(taken, l)
			chosen(t, must(l.LocalAddress()))
		}
	})
	t.Run("NDK-EP-10 and every shared endpoint", func(t *testing.T) {
		for range ports / 2 {
			s := must(h.CreateSharedEndpoint(h.ephemeral(), nil, nil))
			taken = append(taken, s)
			chosen(t, s.LocalAddress())
		}
	})
	c := h.newConnector()
	l := track(h, must(h.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
	none := func(t *testing.T) {
		t.Helper()
		w.want(l.Listen(h.ephemeral(), nil, nil), provider.StatusTooManyAddresses)
		_, status := h.CreateSharedEndpoint(h.ephemeral(), nil, nil)
		w.want(status, provider.StatusTooManyAddresses)
		w.want(h.dialFrom(c, h.qp, h.ephemeral(), peer.service()).returned, provider.StatusTooManyAddresses)
	}
	t.Run("NDK-LSN-02 the listener gets what is left", func(t *testing.T) {
		last := taken[len(taken)-1].(*provider.SharedEndpoint)
		taken = taken[:len(taken)-1]
		free := last.LocalAddress()
		w.want(last.Close(nil, nil), success)
		w.want(l.Listen(h.ephemeral(), nil, nil), success)
		if got := must(l.LocalAddress()); got != free {
			t.Fatalf("chose %v, but only %v is free", got, free)
		}
	})
	listening := l
	l = track(h, must(h.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
	t.Run("NDK-LSN-03 NDK-CONN-17 NDK-EP-11 none is left", none)
	w.finish(h.close(listening))
	t.Run("NDK-CONN-16 the connector gets what is left", func(t *testing.T) {
		var accepted *async
		peer.listen(func(c *provider.Connector) { accepted = peer.accept(c) })
		h.conn = c
		w.want(w.finish(h.dial(c, peer)), success)
		w.want(h.complete(), success)
		w.want(w.finish(accepted), success)
		var got netip.AddrPort
		length := uint32(16)
		w.want(c.GetLocalAddress(&got, &length), success)
		if got.Addr() != h.address || got.Port() < 49152 || must(peer.conn.PeerAddress()) != got {
			t.Fatalf("chose %v", got)
		}
		c = h.newConnector()
		h.qp = h.newQP()
		none(t)
	})
	for _, o := range taken {
		o.Close(nil, nil)
	}
}

func TestListener(t *testing.T) {
	t.Run("NDK-LSN-01 NDK-LSN-12 NDK-CONN-33 one event, one connector, valid until decided", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		events := 0
		var c *provider.Connector
		server.listen(func(delivered *provider.Connector) { events++; c = delivered })
		client.conn = client.newConnector()
		a := client.dial(client.conn, server)
		w.clock.Run(time.Minute) // the client repeats its request meanwhile
		if events != 1 || c == nil || a.over() {
			t.Fatalf("%d events, connector %v, Connect over: %v", events, c, a.over())
		}
		if peer, local := must(c.PeerAddress()), must(client.conn.LocalAddress()); peer != local {
			t.Fatalf("peer %v, want %v", peer, local)
		}
		accepted := server.accept(c)
		w.want(w.finish(a), success)
		w.want(client.complete(), success)
		w.want(w.finish(accepted), success)
	})
	for name, decide := range map[string]struct {
		call func(server *host, c *provider.Connector) provider.Status
		want provider.Status
		peer provider.Status // Connect's
	}{
		"Accept": {func(server *host, c *provider.Connector) provider.Status { return server.accept(c).returned },
			provider.StatusPending, success},
		"Reject": {func(_ *host, c *provider.Connector) provider.Status { return c.Reject([]byte("no")) }, success, refused},
		"Close":  {func(server *host, c *provider.Connector) provider.Status { return server.close(c).returned }, success, refused},
	} {
		t.Run("NDK-LSN-10 all that is to be done in the event, then "+name, func(t *testing.T) {
			w := newWorld(t)
			client, server := w.hosts[0], w.hosts[1]
			c := client.newConnector()
			events := 0
			server.listen(func(delivered *provider.Connector) {
				events++
				var peer netip.AddrPort
				length := uint32(28)
				w.want(delivered.GetPeerAddress(&peer, &length), success)
				if peer != must(c.LocalAddress()) {
					t.Errorf("from %v", peer)
				}
				var in, out uint32
				data := make([]byte, 56)
				length = 56
				w.want(delivered.GetConnectionData(&in, &out, data, &length), success)
				if in != 16 || out != 16 || !strings.HasPrefix(string(data), "hello") {
					t.Errorf("limits %d and %d, data %q", in, out, data)
				}
				w.want(decide.call(server, delivered), decide.want)
				w.settle() // while the callback is in progress
			})
			w.want(w.finish(client.dial(c, server)), decide.peer)
			if events != 1 {
				t.Errorf("%d events", events)
			}
		})
	}
	t.Run("NDK-LSN-06 NDK-LSN-07 paused", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		events := 0
		l := server.listen(func(c *provider.Connector) { events++; server.close(c) })
		l.ControlConnectEvents(true)
		c := client.newConnector()
		w.want(w.finish(client.dial(c, server)), refused)
		if events != 0 {
			t.Fatal("an event of a paused listener")
		}
		l.ControlConnectEvents(false)
		w.want(w.finish(client.dial(c, server)), refused)
		if events != 1 {
			t.Fatalf("%d events", events)
		}
	})
	t.Run("NDK-LSN-08 NDK-EP-03 closed with a connector open", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		closing := server.close(server.listener)
		w.want(closing.returned, provider.StatusPending)
		other := client.newConnector()
		w.want(w.finish(client.dialFrom(other, client.newQP(), client.ephemeral(), server.service())), refused)
		l := track(server, must(server.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
		w.want(l.Listen(server.service(), nil, nil), provider.StatusSharingViolation)
		w.want(server.dialFrom(server.newConnector(), server.newQP(), server.service(), client.service()).returned,
			provider.StatusSharingViolation)
		w.want(client.qp.Write(nil, nil, 0, 0, 0), success) // NDK-LSN-09
		client.result(success)
	})
	t.Run("NDK-EP-04 NDK-EP-02 free when listener and connectors are closed", func(t *testing.T) {
		w := newWorld(t)
		_, server := w.connect()
		conn := server.conn
		closing := server.close(server.listener)
		server.taken(server.service(), nowhere) // NDK-EP-03
		w.settle()
		if closing.calls > 0 {
			t.Fatal("closed with a connector open")
		}
		w.finish(server.close(conn))
		w.want(w.finish(closing), success)
		server.free(server.service())
	})
	t.Run("NDK-EP-01 NDK-EP-02 a connector's reference outlives nothing else", func(t *testing.T) {
		w := newWorld(t)
		_, server := w.connect()
		w.finish(server.close(server.conn))
		l := track(server, must(server.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
		w.want(l.Listen(server.service(), nil, nil), provider.StatusSharingViolation)
		w.want(server.close(server.listener).returned, success)
		w.want(l.Listen(server.service(), nil, nil), success)
	})
	t.Run("NDK-LSN-11 NDK-CNT-03 a delivered connector is closed", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		server.listen(func(c *provider.Connector) { server.close(c) })
		w.want(w.finish(client.dial(client.newConnector(), server)), refused)
		if client.device.Counters().ConnectFailure != 1 || server.device.Counters().ConnectFailure != 1 {
			t.Errorf("ConnectFailure %d and %d", client.device.Counters().ConnectFailure, server.device.Counters().ConnectFailure)
		}
	})
	t.Run("NDK-CONN-10 the backlog is full", func(t *testing.T) {
		w, gates := newGatedWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		var waiting []*provider.Connector
		server.listen(func(c *provider.Connector) { waiting = append(waiting, c) })
		const backlog = 1024
		gates[1].keep = true
		var dials []*async
		for range backlog + 10 {
			dials = append(dials, client.dialFrom(client.newConnector(), client.newQP(), client.ephemeral(), server.service()))
		}
		w.clock.Run(10 * time.Millisecond)
		var reasons []mad.Reason
		gates[0].change = func(p *roce.Received) {
			var rej mad.REJ
			if rej.Decode(p.Payload) == nil {
				reasons = append(reasons, rej.Reason)
			}
		}
		gates[1].open() // all at once
		w.clock.Run(10 * time.Millisecond)
		if len(waiting) != backlog {
			t.Fatalf("%d requests delivered", len(waiting))
		}
		for _, a := range dials[backlog:] {
			w.want(w.finish(a), refused)
		}
		if d := cmp.Diff(slices.Repeat([]mad.Reason{mad.ReasonNoResources}, 10), reasons); d != "" {
			t.Error(d)
		}
		c, qp := client.newConnector(), client.newQP()
		w.want(w.finish(client.dialFrom(c, qp, client.ephemeral(), server.service())), refused)
		// Each way to decide makes room for one more.
		for _, decide := range []func(*provider.Connector){
			func(c *provider.Connector) { c.Reject(nil) },
			func(c *provider.Connector) { server.close(c) },
			func(c *provider.Connector) { server.accept(c) },
		} {
			decide(waiting[0])
			waiting = waiting[1:]
			n := len(waiting)
			a := client.dialFrom(client.newConnector(), client.newQP(), client.ephemeral(), server.service())
			w.clock.Run(10 * time.Millisecond)
			if a.over() || len(waiting) != n+1 {
				t.Fatalf("refused: %v", a.status)
			}
		}
		w.want(w.finish(client.dialFrom(c, qp, client.ephemeral(), server.service())), refused)
	})
}
