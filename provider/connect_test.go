package provider_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/roce"
	"github.com/ndklab/ndklab/provider/sim"
)

const (
	timedOut = provider.StatusIOTimeout
	refused  = provider.StatusConnectionRefused
	aborted  = provider.StatusConnectionAborted
)

func addr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// dialFrom starts to connect a QP from a local address.
func (h *host) dialFrom(c *provider.Connector, qp *provider.QP, from, to netip.AddrPort) *async {
	a := &async{}
	a.returned = c.Connect(qp, from, to, 16, 16, nil, a.done, a)
	return a
}

// ignore is a consumer that leaves a request undecided.
func ignore(into **provider.Connector) func(*provider.Connector) {
	return func(c *provider.Connector) { *into = c }
}

func TestListen(t *testing.T) {
	w := newWorld(t)
	h := w.hosts[0]
	listener := func() *provider.Listener {
		return track(h, must(h.CreateListener(func(any, *provider.Connector) {}, nil)))
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
			address, status := l.GetLocalAddress()
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
		if _, got := h.CreateListener(nil, nil); got != provider.StatusInvalidParameter {
			t.Fatal(got)
		}
	})
}

// TestEphemeralPorts: NDK-LSN-02 NDK-LSN-03 NDK-CONN-16 NDK-CONN-17.
func TestEphemeralPorts(t *testing.T) {
	w := newWorld(t)
	h := w.hosts[0]
	var listeners []*provider.Listener
	seen := map[netip.AddrPort]bool{}
	for {
		l := track(h, must(h.CreateListener(func(any, *provider.Connector) {}, nil)))
		if status := l.Listen(h.ephemeral(), nil, nil); status != success {
			w.want(status, provider.StatusTooManyAddresses)
			break
		}
		listeners = append(listeners, l)
		address := must(l.GetLocalAddress())
		if address.Addr() != h.address || address.Port() < 49152 || seen[address] {
			t.Fatalf("chose %v", address)
		}
		seen[address] = true
	}
	if len(seen) != 65536-49152 {
		t.Fatalf("%d ports, want all %d", len(seen), 65536-49152)
	}
	c := h.newConnector()
	a := h.dialFrom(c, h.qp, h.ephemeral(), w.hosts[1].service())
	w.want(a.returned, provider.StatusTooManyAddresses)
	free := must(listeners[1000].GetLocalAddress())
	w.finish(h.close(listeners[1000]))
	a = h.dialFrom(c, h.qp, h.ephemeral(), w.hosts[1].service())
	w.want(a.returned, provider.StatusPending)
	if got := must(c.GetLocalAddress()); got != free {
		t.Fatalf("chose %v, but only %v is free", got, free)
	}
	w.want(w.finish(a), refused)
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
		w.clock.Run(5 * time.Second) // the client repeats its request meanwhile
		if events != 1 || c == nil || a.over() {
			t.Fatalf("%d events, connector %v, Connect over: %v", events, c, a.over())
		}
		if peer, local := must(c.GetPeerAddress()), must(client.conn.GetLocalAddress()); peer != local {
			t.Fatalf("peer %v, want %v", peer, local)
		}
		accepted := server.accept(c)
		w.want(w.finish(a), success)
		w.want(client.complete(), success)
		w.want(w.finish(accepted), success)
	})
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
		l := track(server, must(server.CreateListener(func(any, *provider.Connector) {}, nil)))
		w.want(l.Listen(server.service(), nil, nil), provider.StatusSharingViolation)
		w.want(server.dialFrom(server.newConnector(), server.newQP(), server.service(), client.service()).returned,
			provider.StatusSharingViolation)
		w.want(client.qp.Write(nil, nil, 0, 0, 0), success) // NDK-LSN-09
		client.result(success)
		// NDK-EP-02 NDK-EP-04
		w.finish(server.close(server.conn))
		w.want(w.finish(closing), success)
		w.want(l.Listen(server.service(), nil, nil), success)
	})
	t.Run("NDK-EP-01 NDK-EP-02 a connector's reference outlives nothing else", func(t *testing.T) {
		w := newWorld(t)
		_, server := w.connect()
		w.finish(server.close(server.conn))
		l := track(server, must(server.CreateListener(func(any, *provider.Connector) {}, nil)))
		w.want(l.Listen(server.service(), nil, nil), provider.StatusSharingViolation)
		w.want(server.close(server.listener).returned, success)
		w.want(l.Listen(server.service(), nil, nil), success)
	})
	t.Run("NDK-LSN-11 NDK-CNT-03 a delivered connector is closed", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		server.listen(func(c *provider.Connector) { server.close(c) })
		w.want(w.finish(client.dial(client.newConnector(), server)), refused)
		if client.Counters().ConnectFailure != 1 || server.Counters().ConnectFailure != 1 {
			t.Errorf("ConnectFailure %d and %d", client.Counters().ConnectFailure, server.Counters().ConnectFailure)
		}
	})
	t.Run("NDK-CONN-10 the backlog is full", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		var waiting []*provider.Connector
		server.listen(func(c *provider.Connector) { waiting = append(waiting, c) })
		const backlog = 1024
		for range backlog {
			client.dialFrom(client.newConnector(), client.newQP(), client.ephemeral(), server.service())
		}
		w.clock.Run(10 * time.Millisecond)
		if len(waiting) != backlog {
			t.Fatalf("%d requests delivered", len(waiting))
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

func TestConnectErrors(t *testing.T) {
	w := newWorld(t)
	client, server := w.hosts[0], w.hosts[1]
	l := track(client, must(client.CreateListener(func(any, *provider.Connector) {}, nil)))
	w.want(l.Listen(addr("10.0.0.1:7777"), nil, nil), success)
	server.listen(func(c *provider.Connector) { server.close(c) })
	for _, c := range []struct {
		name, from, to string
		want           provider.Status
	}{
		{"NDK-CONN-14 source in use", "10.0.0.1:7777", "10.0.0.2:7000", provider.StatusSharingViolation},
		{"NDK-CONN-15 source of another adapter", "10.0.0.2:7777", "10.0.0.2:7000", provider.StatusInvalidAddress},
		{"NDK-CONN-09 no listener", "10.0.0.1:0", "10.0.0.2:7001", refused},
		{"NDK-CONN-12 silent", "10.0.0.1:0", "10.0.0.9:7000", timedOut},
		{"another family", "10.0.0.1:0", "[fd00::1]:7000", provider.StatusInvalidParameter},
		{"NDK-EP-13 explicit source", "10.0.0.1:5000", "10.0.0.2:7000", refused},
		{"NDK-EP-13 the same again", "10.0.0.1:5000", "10.0.0.2:7000", refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			connector := client.newConnector()
			w.t = t
			w.want(w.finish(client.dialFrom(connector, client.qp, addr(c.from), addr(c.to))), c.want)
			w.t.Run("NDK-CONN-13 and again on the same connector", func(t *testing.T) {
				w.want(w.finish(client.dialFrom(connector, client.qp, addr(c.from), addr(c.to))), c.want)
			})
			w.finish(client.close(connector))
		})
	}
	w.t = t
	t.Run("no destination", func(t *testing.T) {
		w.want(client.dialFrom(client.newConnector(), client.qp, client.ephemeral(), netip.AddrPort{}).returned, provider.StatusInvalidParameter)
	})
	t.Run("no QP", func(t *testing.T) {
		w.want(client.dialFrom(client.newConnector(), nil, client.ephemeral(), server.service()).returned, provider.StatusInvalidParameter)
	})
	t.Run("a QP of another adapter", func(t *testing.T) {
		w.want(client.dialFrom(client.newConnector(), server.qp, client.ephemeral(), server.service()).returned, provider.StatusInvalidParameter)
	})
}

func TestRetry(t *testing.T) {
	for _, c := range []struct {
		name string
		// fails makes a connector with the client's QP whose attempt has failed.
		fails func(w *world, client, server *host) *provider.Connector
		same  bool // the connector can be used again
	}{
		{"refused", func(w *world, client, server *host) *provider.Connector {
			c := client.newConnector()
			w.want(w.finish(client.dial(c, server)), refused)
			return c
		}, true},
		{"timed out", func(w *world, client, server *host) *provider.Connector {
			c := client.newConnector()
			w.want(w.finish(client.dialFrom(c, client.qp, client.ephemeral(), nowhere)), timedOut)
			return c
		}, true},
		{"rejected by us", func(w *world, client, server *host) *provider.Connector {
			return client.replied(server, func(c *provider.Connector) { w.want(c.Reject(nil), success) })
		}, false},
		{"given up by the peer", func(w *world, client, server *host) *provider.Connector {
			return client.replied(server, func(c *provider.Connector) {
				server.close(server.conn)
				w.settle()
				w.want(c.CompleteConnect(nil, nil, nil, nil), aborted)
				w.clock.Run(10 * time.Second) // the peer's timewait, in which it knows the QP as that of another connection
			})
		}, false},
	} {
		for _, again := range []string{"same", "same, with another QP, the", "new", "new, the first one closed meanwhile"} {
			if strings.HasPrefix(again, "same") && !c.same {
				continue
			}
			t.Run("NDK-CONN-13 "+c.name+", "+again+" connector", func(t *testing.T) {
				w := newWorld(t)
				client, server := w.hosts[0], w.hosts[1]
				client.receive(1)
				failed := c.fails(w, client, server)
				if server.listener != nil {
					server.qp = server.newQP()
					w.finish(server.close(server.listener))
				}
				client.conn = failed
				if !strings.HasPrefix(again, "same") {
					client.conn = client.newConnector()
				}
				old := client.qp
				if strings.Contains(again, "another QP") {
					client.qp = client.newQP()
					client.receive(1)
				}
				var accepted *async
				server.listen(func(c *provider.Connector) { accepted = server.accept(c) })
				w.want(w.finish(client.dial(client.conn, server)), success)
				w.want(client.complete(), success)
				w.want(w.finish(accepted), success)
				if again == "new, the first one closed meanwhile" {
					w.finish(client.close(failed))
				}
				// The QP is as good as new, with the receive it had.
				w.want(server.qp.Send(nil, nil, 0), success)
				client.result(success)
				server.result(success)
				w.want(client.qp.Send(nil, nil, 0), success)
				if old != client.qp { // it has been the connector's, too (NDK-LIFE-26)
					w.want(client.close(old).returned, provider.StatusPending)
				}
			})
		}
	}
}

// replied makes a connector whose Connect has succeeded and hands it to then.
func (h *host) replied(server *host, then func(*provider.Connector)) *provider.Connector {
	h.world.t.Helper()
	server.listen(func(c *provider.Connector) { server.accept(c) })
	c := h.newConnector()
	h.world.want(h.world.finish(h.dial(c, server)), success)
	then(c)
	h.world.settle()
	if server.conn != nil {
		server.closeIfOpen(server.conn)
	}
	return c
}

func (h *host) closeIfOpen(o closer) {
	for _, open := range *h.open {
		if open == o {
			h.world.finish(h.close(o))
			return
		}
	}
}

func TestConnect(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, w *world, client, server *host){
		"NDK-CONN-01 NDK-CONN-02 NDK-CONN-03 step by step": func(t *testing.T, w *world, client, server *host) {
			var delivered *provider.Connector
			server.listen(ignore(&delivered))
			client.conn = client.newConnector()
			connect := client.dial(client.conn, server)
			w.settle()
			if connect.over() {
				t.Fatal("Connect completed before the peer accepted")
			}
			accept := server.accept(delivered)
			w.want(accept.returned, provider.StatusPending)
			w.clock.Run(3 * time.Second) // NDK-CONN-36
			if !connect.over() || accept.over() {
				t.Fatalf("Connect over: %v, Accept over: %v", connect.over(), accept.over())
			}
			w.want(w.finish(connect), success)
			w.want(client.complete(), success)
			w.want(w.finish(accept), success)
		},
		"NDK-CONN-36 slow consumers": func(t *testing.T, w *world, client, server *host) {
			var delivered *provider.Connector
			server.listen(ignore(&delivered))
			client.conn = client.newConnector()
			connect := client.dial(client.conn, server)
			w.clock.Run(20 * time.Second)
			accept := server.accept(delivered)
			w.clock.Run(20 * time.Second)
			w.want(w.finish(connect), success)
			w.want(client.complete(), success)
			w.want(w.finish(accept), success)
		},
		"NDK-CONN-04 never completed": func(t *testing.T, w *world, client, server *host) {
			var accept *async
			server.listen(func(c *provider.Connector) { accept = server.accept(c) })
			client.conn = client.newConnector()
			w.want(w.finish(client.dial(client.conn, server)), success)
			w.want(w.finish(accept), timedOut)
			w.settle()
			w.want(client.complete(), aborted)
			if server.disconnected > 0 { // NDK-DISC-13
				t.Error("a disconnect event without a connection")
			}
		},
		"NDK-CONN-04 NDK-DISC-13 the active side is gone": func(t *testing.T, w *world, client, server *host) {
			var accept *async
			server.listen(func(c *provider.Connector) { w.path.Down = true; accept = server.accept(c) })
			client.conn = client.newConnector()
			connect := client.dial(client.conn, server)
			w.want(w.finish(connect), timedOut)
			w.want(w.finish(accept), timedOut)
			if server.disconnected+client.disconnected > 0 {
				t.Error("a disconnect event without a connection")
			}
		},
		"NDK-CONN-05 the active side closes": func(t *testing.T, w *world, client, server *host) {
			var accept *async
			server.listen(func(c *provider.Connector) { accept = server.accept(c) })
			c := client.newConnector()
			w.want(w.finish(client.dial(c, server)), success)
			client.close(c)
			w.want(w.finish(accept), aborted)
		},
		"NDK-CONN-22 the active side rejects": func(t *testing.T, w *world, client, server *host) {
			var accept *async
			server.listen(func(c *provider.Connector) { accept = server.accept(c) })
			c := client.newConnector()
			w.want(w.finish(client.dial(c, server)), success)
			w.want(c.Reject([]byte("no")), success)
			w.want(w.finish(accept), aborted)
			w.want(c.CompleteConnect(nil, nil, nil, nil), provider.StatusConnectionInvalid)
			w.want(c.Reject(nil), provider.StatusInvalidDeviceState)
			w.want(server.qp.Send(nil, nil, 0), provider.StatusConnectionInvalid)
		},
		"NDK-CONN-06 NDK-CONN-07 given up before it is decided": func(t *testing.T, w *world, client, server *host) {
			var delivered *provider.Connector
			server.listen(ignore(&delivered))
			c := client.newConnector()
			client.dial(c, server)
			w.settle()
			client.close(c)
			w.settle()
			w.want(server.accept(delivered).returned, aborted)
			w.want(delivered.Reject(nil), aborted)
		},
		"NDK-CONN-08 rejected": func(t *testing.T, w *world, client, server *host) {
			server.listen(func(c *provider.Connector) {
				w.want(c.Reject(nil), success)
				w.want(c.Reject(nil), provider.StatusInvalidDeviceState)
				w.want(server.accept(c).returned, provider.StatusInvalidDeviceState)
			})
			w.want(w.finish(client.dial(client.newConnector(), server)), refused)
		},
		"NDK-CONN-19 not connecting": func(t *testing.T, w *world, client, server *host) {
			c := client.newConnector()
			w.want(c.CompleteConnect(nil, nil, nil, nil), provider.StatusConnectionInvalid)
			client.dialFrom(c, client.qp, client.ephemeral(), nowhere)
			w.want(c.CompleteConnect(nil, nil, nil, nil), provider.StatusConnectionInvalid)
			client.qp = client.newQP()
			w.connect()
			w.want(client.complete(), provider.StatusConnectionInvalid)
			w.want(server.conn.CompleteConnect(nil, nil, nil, nil), provider.StatusConnectionInvalid)
		},
		"NDK-CONN-20 the accepting side gives up": func(t *testing.T, w *world, client, server *host) {
			server.listen(func(c *provider.Connector) { server.accept(c) })
			client.conn = client.newConnector()
			w.want(w.finish(client.dial(client.conn, server)), success)
			server.close(server.conn)
			w.settle()
			w.want(client.complete(), aborted)
			w.want(client.conn.Reject(nil), aborted)
		},
		"NDK-CONN-28 NDK-CONN-29 NDK-CONN-18 calls that do not fit": func(t *testing.T, w *world, client, server *host) {
			w.connect()
			w.want(client.dial(client.conn, server).returned, provider.StatusInvalidDeviceState)
			w.want(client.accept(client.conn).returned, provider.StatusInvalidDeviceState)
			w.want(server.accept(server.conn).returned, provider.StatusInvalidDeviceState)
			w.want(client.conn.Reject(nil), provider.StatusInvalidDeviceState)
			w.want(client.dial(client.newConnector(), server).returned, provider.StatusConnectionActive)
			local := must(client.conn.GetLocalAddress())
			w.want(client.dialFrom(client.newConnector(), client.newQP(), local, server.service()).returned, provider.StatusSharingViolation)
			connecting := client.newQP()
			client.dialFrom(client.newConnector(), connecting, client.ephemeral(), nowhere)
			w.want(client.dialFrom(client.newConnector(), connecting, client.ephemeral(), nowhere).returned, provider.StatusConnectionActive)
			w.sendTo(client, server, 0)
			server.result(success)
		},
		"NDK-CONN-28 accept with a QP that is connected": func(t *testing.T, w *world, client, server *host) {
			w.connect()
			second := *client
			second.qp = client.newQP()
			server2 := *server
			server2.port = 7001
			var delivered *provider.Connector
			server2.listen(ignore(&delivered))
			second.conn = client.newConnector()
			connect := second.dial(second.conn, &server2)
			w.settle()
			w.want(server2.accept(delivered).returned, provider.StatusConnectionActive)
			server2.qp = server.newQP() // and once more, with another QP
			w.want(server2.accept(delivered).returned, provider.StatusPending)
			w.want(w.finish(connect), success)
		},
		"NDK-CONN-32 addresses": func(t *testing.T, w *world, client, server *host) {
			c := client.newConnector()
			for _, get := range []func() (netip.AddrPort, provider.Status){c.GetLocalAddress, c.GetPeerAddress} {
				if _, status := get(); status != provider.StatusInvalidDeviceState {
					t.Error(status)
				}
			}
			w.connect()
			if a, b := must(client.conn.GetLocalAddress()), must(server.conn.GetPeerAddress()); a != b {
				t.Errorf("%v and %v", a, b)
			}
			if a, b := must(client.conn.GetPeerAddress()), must(server.conn.GetLocalAddress()); a != b || a != server.service() {
				t.Errorf("%v and %v", a, b)
			}
		},
		"NDK-EP-05 NDK-EP-06 the local port": func(t *testing.T, w *world, client, server *host) {
			w.connect()
			local := must(client.conn.GetLocalAddress())
			a := &async{}
			a.returned = client.conn.Disconnect(a.done, a)
			w.want(w.finish(a), success)
			l := track(client, must(client.CreateListener(func(any, *provider.Connector) {}, nil)))
			w.want(l.Listen(local, nil, nil), provider.StatusSharingViolation)
			w.finish(client.close(client.conn))
			w.want(l.Listen(local, nil, nil), success)
		},
		"NDK-CONN-02 the RTU is lost and the first request stands in for it": func(t *testing.T, w *world, client, server *host) {
			var accept *async
			server.listen(func(c *provider.Connector) { accept = server.accept(c) })
			client.conn = client.newConnector()
			w.want(w.finish(client.dial(client.conn, server)), success)
			w.path.Down = true
			w.want(client.complete(), success)
			w.path.Down = false
			w.want(client.qp.Write(nil, nil, 0, 0, 0), success)
			w.clock.Run(time.Millisecond) // the REP is not repeated before 100 ms
			if accept.calls != 1 {
				t.Fatal("Accept has not completed")
			}
			w.want(accept.status, success)
		},
		"a stranger's packets establish nothing": func(t *testing.T, w *world, client, server *host) {
			var accept *async
			server.listen(func(c *provider.Connector) { accept = server.accept(c) })
			client.conn = client.newConnector()
			w.want(w.finish(client.dial(client.conn, server)), success)
			before := server.Counters().RDMAInFrames
			stranger := w.network.Attach(mtu, netip.MustParseAddr("10.0.0.7"))
			forge(w, stranger, server)
			if accept.over() {
				t.Fatal("Accept completed")
			}
			if got := server.Counters().RDMAInFrames; got != before {
				t.Errorf("%d frames counted", got-before)
			}
			if got := server.TransportCounters()["misdirected"]; got != 1 {
				t.Errorf("%d misdirected", got)
			}
		},
		"NDK-CB-01 nothing waits for the network": func(t *testing.T, w *world, client, server *host) {
			w.connect()
			w.path.Down = true
			start := w.clock.Now()
			a := &async{}
			client.qp.Send(nil, nil, 0)
			client.qp.Flush()
			client.conn.Disconnect(a.done, a)
			client.close(client.conn)
			client.dialFrom(client.newConnector(), client.newQP(), client.ephemeral(), server.service())
			if w.clock.Now() != start {
				t.Fatal("time has passed")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test(t, w, w.hosts[0], w.hosts[1])
		})
	}
}

// forge has a carrier send a write to the server's QP, of which only the
// sender's address is wrong.
func forge(w *world, stranger *sim.Carrier, server *host) {
	w.t.Helper()
	flow := roce.Flow{Local: stranger.Addresses()[0], Remote: server.address, SourcePort: 0xC000}
	if err := stranger.Send(flow, []roce.Packet{{Header: roce.Header{
		Opcode: roce.WriteOnly, PKey: roce.DefaultPKey, DestQPN: server.qp.Number(),
	}}}); err != nil {
		w.t.Fatal(err)
	}
	w.settle()
}

func TestPrivateData(t *testing.T) {
	// read asks a connector for its private data.
	read := func(t *testing.T, c *provider.Connector) []byte {
		t.Helper()
		length := uint32(0)
		if s := c.GetConnectionData(nil, nil, nil, &length); s != success { // NDK-RL-09
			t.Fatal(s)
		}
		b := bytes.Repeat([]byte{0xEE}, int(length)+1)
		n := length + 1
		if s := c.GetConnectionData(nil, nil, b, &n); s != success || n != length || b[length] != 0xEE { // NDK-RL-10
			t.Fatalf("%v, length %d, want %d", s, n, length)
		}
		short := bytes.Repeat([]byte{0xEE}, 4)
		n = 3
		if s := c.GetConnectionData(nil, nil, short, &n); s != provider.StatusBufferTooSmall || n != length ||
			!bytes.Equal(short[:3], b[:3]) || short[3] != 0xEE { // NDK-RL-11
			t.Fatalf("%v, length %d, %x", s, n, short)
		}
		n = 5
		if s := c.GetConnectionData(nil, nil, nil, &n); s != provider.StatusInvalidParameter {
			t.Fatal(s)
		}
		if s := c.GetConnectionData(nil, nil, short, &n); s != provider.StatusInvalidParameter {
			t.Fatal(s)
		}
		return b[:length]
	}
	prefix := func(t *testing.T, got, want []byte) {
		t.Helper()
		if !bytes.HasPrefix(got, want) || len(bytes.Trim(got[len(want):], "\x00")) > 0 {
			t.Fatalf("got %q, want %q and zeros", got, want)
		}
	}
	t.Run("NDK-CONN-23 NDK-CONN-24 with Connect and Accept", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		server.listen(func(c *provider.Connector) {
			prefix(t, read(t, c), []byte("hello"))
			server.accept(c)
		})
		client.conn = client.newConnector()
		length := uint32(0)
		w.want(client.conn.GetConnectionData(nil, nil, nil, &length), provider.StatusConnectionInvalid)
		w.want(w.finish(client.dial(client.conn, server)), success)
		prefix(t, read(t, client.conn), []byte("welcome"))
		w.want(client.complete(), success)
		w.settle()
		read(t, client.conn) // NDK-RL-12
		read(t, server.conn)
	})
	t.Run("NDK-CONN-25 with Reject", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		l := server.listen(func(c *provider.Connector) { w.want(c.Reject([]byte("go away")), success) })
		c := client.newConnector()
		w.want(w.finish(client.dial(c, server)), refused)
		prefix(t, read(t, c), []byte("go away"))
		// A later refusal by nobody in particular says nothing.
		l.ControlConnectEvents(true)
		w.want(w.finish(client.dial(c, server)), refused)
		length := uint32(0)
		w.want(c.GetConnectionData(nil, nil, nil, &length), provider.StatusConnectionInvalid)
	})
	t.Run("NDK-CONN-26 NDK-CONN-27 lengths", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		info, _ := client.QueryAdapterInfo()
		caller, callee := make([]byte, info.MaxCallerData+1), make([]byte, info.MaxCalleeData+1)
		for i := range callee {
			callee[i] = 0xAA
		}
		copy(caller, callee)
		a := &async{}
		server.listen(func(c *provider.Connector) {
			if got := read(t, c); !bytes.Equal(got, caller[:info.MaxCallerData]) {
				t.Errorf("got %x", got)
			}
			w.want(c.Accept(server.qp, 1, 1, callee, nil, nil, a.done, a), provider.StatusInvalidBufferSize)
			w.want(c.Reject(callee), provider.StatusInvalidBufferSize)
			w.want(c.Accept(server.qp, 1, 1, callee[1:], nil, nil, a.done, a), provider.StatusPending)
		})
		c := client.newConnector()
		connect := &async{}
		w.want(c.Connect(client.qp, client.ephemeral(), server.service(), 1, 1, caller, connect.done, connect), provider.StatusInvalidBufferSize)
		connect.returned = c.Connect(client.qp, client.ephemeral(), server.service(), 1, 1, caller[1:], connect.done, connect)
		w.want(w.finish(connect), success)
		prefix(t, read(t, c), callee[1:])
	})
}

// TestReadLimits: NDK-RL-01 to 06, 08, 12.
func TestReadLimits(t *testing.T) {
	const huge = 1 << 31
	for _, c := range []struct {
		name                          string
		clientIn, clientOut           uint32
		serverIn, serverOut           uint32
		in, out                       uint32 // the client's effective limits
		provisionalIn, provisionalOut uint32 // the server's before Accept
	}{
		{"NDK-RL-01 capped to the adapter's", huge, huge, huge, huge, 16, 16, 16, 16},
		{"NDK-RL-02 a peer that reads less", 10, 10, 16, 3, 3, 10, 10, 10},
		{"NDK-RL-03 a peer that answers less", 10, 10, 4, 16, 10, 4, 10, 10},
		{"each its own way", 1, 2, 3, 4, 1, 2, 2, 1},
		{"none", 0, 0, 16, 16, 0, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			client, server := w.hosts[0], w.hosts[1]
			var accepted, connected async
			limits := func(conn *provider.Connector, in, out uint32) {
				t.Helper()
				var gotIn, gotOut, length uint32
				w.want(conn.GetConnectionData(&gotIn, nil, nil, &length), success) // NDK-RL-08
				w.want(conn.GetConnectionData(nil, &gotOut, nil, &length), provider.StatusInvalidParameter)
				length = 0
				w.want(conn.GetConnectionData(nil, &gotOut, nil, &length), success)
				if gotIn != in || gotOut != out {
					t.Fatalf("limits %d in, %d out, want %d and %d", gotIn, gotOut, in, out)
				}
			}
			server.listen(func(conn *provider.Connector) {
				server.conn = conn
				limits(conn, c.provisionalIn, c.provisionalOut) // NDK-RL-05
				w.want(conn.Accept(server.qp, c.serverIn, c.serverOut, nil, nil, nil, accepted.done, &accepted), provider.StatusPending)
			})
			conn := client.newConnector()
			connected.returned = conn.Connect(client.qp, client.ephemeral(), server.service(), c.clientIn, c.clientOut, nil, connected.done, &connected)
			w.want(w.finish(&connected), success)
			limits(conn, c.in, c.out) // NDK-RL-06
			w.want(conn.CompleteConnect(nil, nil, nil, nil), success)
			w.settle()
			limits(conn, c.in, c.out)        // NDK-RL-12
			limits(server.conn, c.out, c.in) // NDK-RL-04

			// NDK-RL-07: more reads than that are done in turns; with none
			// allowed they are refused (NDK-RL-13).
			for _, from := range []*host{client, server} {
				limit, to := c.out, server
				if from == server {
					limit, to = c.in, client
				}
				for range 40 {
					want := success
					if limit == 0 {
						want = provider.StatusInvalidDeviceState
					}
					w.want(from.qp.Read(nil, from.at(0, 10000), base, to.mr.RemoteToken(), 0), want)
				}
				if limit > 0 {
					for _, r := range from.results(40) {
						w.want(r.Status, success)
					}
				}
				w.silent(from.cq)
			}
		})
	}
}

// TestNarrowInterface: what no packet fits through cannot be connected over.
func TestNarrowInterface(t *testing.T) {
	w := newWorld(t)
	h := w.hosts[0]
	narrow := w.openOn(w.network.Attach(256+96-1, netip.MustParseAddr("10.0.0.3")), provider.DefaultAdapterInfo())
	h2 := w.equip(narrow, netip.MustParseAddr("10.0.0.3"))
	c := h2.newConnector()
	for range 2 { // nothing is left in use
		w.want(h2.dialFrom(c, h2.qp, addr("10.0.0.3:5000"), h.service()).returned, provider.StatusNetworkUnreachable)
	}
	for len(*h2.open) > 0 {
		h2.close((*h2.open)[0])
	}
	ended := false
	h2.BeginClose(func() { ended = true })
	w.settle()
	if !ended {
		t.Fatal("not closed")
	}
}

// TestFamilies: NDK-INFO-05 NDK-INFO-07.
func TestFamilies(t *testing.T) {
	for name, addresses := range map[string][2]netip.Addr{"IPv4": addresses, "IPv6": addresses6} {
		t.Run("NDK-INFO-07 "+name, func(t *testing.T) {
			w := newWorldOf(t, addresses, provider.DefaultAdapterInfo())
			exchange(w, w.hosts[0], w.hosts[1])
		})
		t.Run("NDK-INFO-05 loopback "+name, func(t *testing.T) {
			w := newWorldOf(t, addresses, provider.DefaultAdapterInfo())
			server := *w.hosts[0]
			server.cq, server.notes = server.newCQ(cqDepth)
			server.qp = server.newQP()
			exchange(w, w.hosts[0], &server)
			a := &async{}
			a.returned = server.conn.Disconnect(a.done, a)
			w.want(w.finish(a), success)
			if w.hosts[0].disconnected != 1 || server.disconnected != 0 {
				t.Errorf("%d and %d disconnect events", w.hosts[0].disconnected, server.disconnected)
			}
		})
	}
}

// exchange connects two hosts and has each send, write and read.
func exchange(w *world, client, server *host) {
	w.t.Helper()
	w.join(client, server)
	for _, d := range []struct{ from, to *host }{{client, server}, {server, client}} {
		w.want(d.to.qp.Receive(nil, d.to.at(0, 9000)), success)
		w.want(d.from.qp.Send(nil, d.from.at(10000, 9000), 0), success)
		w.want(d.from.qp.Write(nil, d.from.at(20000, 9000), base+30000, d.to.mr.RemoteToken(), 0), success)
		w.want(d.from.qp.Read(nil, d.from.at(40000, 9000), base+50000, d.to.mr.RemoteToken(), 0), success)
		for _, r := range append(d.from.results(3), d.to.results(1)...) {
			w.want(r.Status, success)
		}
		for _, c := range [][2][]byte{
			{d.from.memory[10000:], d.to.memory}, {d.from.memory[20000:], d.to.memory[30000:]}, {d.to.memory[50000:], d.from.memory[40000:]},
		} {
			if !bytes.Equal(c[0][:9000], c[1][:9000]) {
				w.t.Fatal("transferred wrong")
			}
		}
	}
}
