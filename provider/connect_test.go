package provider_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/provider"
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

func TestConnectErrors(t *testing.T) {
	w := newWorld(t)
	client, server := w.hosts[0], w.hosts[1]
	l := track(client, must(client.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
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
			t.Run("NDK-CONN-13 and again on the same connector", func(t *testing.T) {
				w.want(w.finish(client.dialFrom(connector, client.qp, addr(c.from), addr(c.to))), c.want)
			})
			w.finish(client.close(connector))
		})
	}
	w.t = t
	t.Run("no destination", func(t *testing.T) {
		w.want(client.dialFrom(client.newConnector(), client.qp, client.ephemeral(), netip.AddrPort{}).returned, provider.StatusInvalidParameter)
	})
	t.Run("no destination of an IPv6 source", func(t *testing.T) {
		w := newWorldOf(t, addresses6, provider.DefaultAdapterInfo())
		h := w.hosts[0]
		w.want(h.dialFrom(h.newConnector(), h.qp, h.ephemeral(), netip.AddrPort{}).returned, provider.StatusInvalidParameter)
	})
	t.Run("no QP", func(t *testing.T) {
		w.want(client.dialFrom(client.newConnector(), nil, client.ephemeral(), server.service()).returned, provider.StatusInvalidParameter)
	})
	t.Run("a QP that has failed with its CQ", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		cq, _ := h.newCQ(1)
		qp := h.newQPOn(cq, h.cq, nil)
		cq.Fail()
		w.settle()
		w.want(h.dialFrom(h.newConnector(), qp, h.ephemeral(), w.hosts[1].service()).returned, provider.StatusConnectionActive)
	})
	t.Run("an accept that tells nobody", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		server.listen(func(c *provider.Connector) {
			w.want(c.Accept(server.qp, 1, 1, nil, nil, nil, nil, nil), provider.StatusInvalidParameter)
			server.accept(c)
		})
		w.want(w.finish(client.dial(client.newConnector(), server)), success)
	})
	t.Run("a queue pair that fails while it is accepted", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		var accepted *async
		server.listen(func(c *provider.Connector) { accepted = server.accept(c) })
		client.conn = client.newConnector()
		w.want(w.finish(client.dial(client.conn, server)), success)
		server.cq.Fail()
		w.clock.Run(time.Millisecond)
		w.want(w.finish(accepted), aborted)
		w.want(client.complete(), aborted) // it was told at once
	})
	t.Run("a connector that has rejected", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		var rejected *provider.Connector
		server.listen(func(c *provider.Connector) {
			rejected = c
			w.want(c.Reject(nil), success)
		})
		before := w.clock.Now()
		w.want(w.finish(client.dial(client.newConnector(), server)), refused)
		if took := w.clock.Now() - before; took > time.Millisecond {
			t.Errorf("refused after %v", took)
		}
		w.want(server.dial(rejected, client).returned, provider.StatusInvalidDeviceState)
		w.want(rejected.Reject(nil), provider.StatusInvalidDeviceState)
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
			w.want(client.complete(), timedOut)
			if server.disconnected > 0 { // NDK-DISC-13
				t.Error("a disconnect event without a connection")
			}
		},
		"NDK-CONN-21 completed too late": func(t *testing.T, w *world, client, server *host) {
			var accept *async
			server.listen(func(c *provider.Connector) { accept = server.accept(c) })
			client.conn = client.newConnector()
			w.want(w.finish(client.dial(client.conn, server)), success)
			w.want(w.finish(accept), timedOut)
			w.settle()
			w.want(client.complete(), timedOut)
			// The connector is of no more use.
			w.want(client.complete(), timedOut)
			w.want(client.dial(client.conn, server).returned, provider.StatusInvalidDeviceState)
			w.want(client.disconnect().returned, provider.StatusConnectionInvalid)
			// All else is, at both ends: the same queue pair even on this side.
			server.qp = server.newQP()
			w.finish(server.close(server.conn))
			w.finish(server.close(server.listener))
			exchange(w, client, server)
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
			local := must(client.conn.LocalAddress())
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
			for _, get := range []func() (netip.AddrPort, provider.Status){c.LocalAddress, c.PeerAddress} {
				if _, status := get(); status != provider.StatusInvalidDeviceState {
					t.Error(status)
				}
			}
			w.connect()
			if a, b := must(client.conn.LocalAddress()), must(server.conn.PeerAddress()); a != b {
				t.Errorf("%v and %v", a, b)
			}
			if a, b := must(client.conn.PeerAddress()), must(server.conn.LocalAddress()); a != b || a != server.service() {
				t.Errorf("%v and %v", a, b)
			}
		},
		"NDK-EP-05 NDK-EP-06 the local port": func(t *testing.T, w *world, client, server *host) {
			w.connect()
			local := must(client.conn.LocalAddress())
			a := &async{}
			a.returned = client.conn.Disconnect(a.done, a)
			w.want(w.finish(a), success)
			l := track(client, must(client.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
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
		"packets of an earlier connection establish nothing": func(t *testing.T, w *world, client, server *host) {
			var accept *async
			server.listen(func(c *provider.Connector) { accept = server.accept(c) })
			client.conn = client.newConnector()
			w.want(w.finish(client.dial(client.conn, server)), success)
			late := roce.Packet{Header: roce.Header{Opcode: roce.WriteOnly, PKey: roce.DefaultPKey, DestQPN: server.qp.Number(), PSN: 0x123456}}
			flow := roce.Flow{Local: client.address, Remote: server.address, SourcePort: 0xC000}
			if err := w.network.Attach(mtu).Send(flow, []roce.Packet{late}); err != nil {
				t.Fatal(err)
			}
			w.clock.Run(time.Millisecond)
			if accept.over() {
				t.Fatal("Accept completed")
			}
		},
		"a stranger's packets establish nothing": func(t *testing.T, w *world, client, server *host) {
			var accept *async
			server.listen(func(c *provider.Connector) { accept = server.accept(c) })
			client.conn = client.newConnector()
			w.want(w.finish(client.dial(client.conn, server)), success)
			before := server.device.Counters().RDMAInFrames
			stranger := w.network.Attach(mtu, netip.MustParseAddr("10.0.0.7"))
			forge(w, stranger, server)
			if accept.over() {
				t.Fatal("Accept completed")
			}
			if got := server.device.Counters().RDMAInFrames; got != before {
				t.Errorf("%d frames counted", got-before)
			}
			if got := server.device.TransportCounters()["misdirected"]; got != 1 {
				t.Errorf("%d misdirected", got)
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
	h2.endAll(func() { ended = true })
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
