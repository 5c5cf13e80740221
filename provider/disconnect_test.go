package provider_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// disconnect starts to end the host's connection.
func (h *host) disconnect() *async {
	a := &async{}
	a.returned = h.conn.Disconnect(a.done, a)
	return a
}

// pending posts a receive and two requests that the peer does not answer.
func (h *host) pending() {
	h.world.t.Helper()
	h.world.want(h.qp.Receive(nil, nil), success)
	h.world.want(h.qp.Send(nil, nil, 0), success) // the peer has no receive
	h.world.want(h.qp.Write(nil, nil, 0, 0, provider.OpSilentSuccess), success)
}

// cancelled checks that what pending posted, and nothing else, is cancelled.
func (h *host) cancelled() {
	h.world.t.Helper()
	for _, r := range h.results(3) {
		h.world.want(r.Status, provider.StatusCancelled)
	}
	h.world.silent(h.cq)
}

// disconnects checks how many disconnect events the hosts have had.
func (w *world) disconnects(client, server int) {
	w.t.Helper()
	w.settle()
	if w.hosts[0].disconnected != client || w.hosts[1].disconnected != server {
		w.t.Fatalf("%d and %d disconnect events, want %d and %d", w.hosts[0].disconnected, w.hosts[1].disconnected, client, server)
	}
}

func TestDisconnect(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, w *world, client, server *host){
		"NDK-DISC-01 NDK-DISC-02 NDK-DISC-05 the active side": func(t *testing.T, w *world, client, server *host) {
			client.pending()
			a := client.disconnect()
			// ndkpi.md T55: what is flushed is there when Disconnect completes.
			a.then = func() { client.cancelled() }
			w.want(a.returned, provider.StatusPending)
			w.want(w.finish(a), success)
			w.disconnects(0, 1)
			w.want(client.disconnect().returned, success) // there is nothing left to do
			w.disconnects(0, 1)
		},
		"NDK-DISC-01 NDK-DISC-02 NDK-DISC-05 the passive side": func(t *testing.T, w *world, client, server *host) {
			server.pending()
			w.want(w.finish(server.disconnect()), success)
			server.cancelled()
			w.disconnects(1, 0)
		},
		"NDK-DISC-01 the request is lost": func(t *testing.T, w *world, client, server *host) {
			w.path.Down = true
			a := client.disconnect()
			w.path.Down = false
			w.want(w.finish(a), success)
			w.disconnects(0, 1)
		},
		"NDK-DISC-01 the answer is lost": func(t *testing.T, w *world, client, server *host) {
			a := client.disconnect()
			w.path.Down = true // what is under way arrives
			w.wait("the event", func() bool { return server.disconnected > 0 })
			w.path.Down = false
			w.want(w.finish(a), success)
			w.disconnects(0, 1)
		},
		"twice at once": func(t *testing.T, w *world, client, server *host) {
			a := client.disconnect()
			w.want(client.disconnect().returned, provider.StatusConnectionInvalid)
			w.want(w.finish(a), success)
		},
		"NDK-DISC-03 NDK-DISC-04 the peer's, then Disconnect": func(t *testing.T, w *world, client, server *host) {
			server.pending()
			w.finish(client.disconnect())
			w.disconnects(0, 1)
			w.silent(server.cq)
			a := server.disconnect()
			w.want(w.finish(a), success)
			server.cancelled()
			w.disconnects(0, 1)
		},
		"the connection's ID is given up after the timewait": func(t *testing.T, w *world, client, server *host) {
			held := client.device.InUse()
			w.finish(client.disconnect())
			w.clock.Run(time.Minute)
			if got := client.device.InUse(); got != held-1 {
				t.Errorf("%d entries in the tables, %d while connected", got, held)
			}
			w.want(client.disconnect().returned, success) // there is nothing left to do
		},
		"NDK-DISC-03 nothing more is sent and nothing fails": func(t *testing.T, w *world, client, server *host) {
			server.pending()
			w.settle()
			w.finish(client.disconnect())
			w.disconnects(0, 1)
			if n := server.device.Busy(); n != 0 {
				t.Errorf("%d queue pairs wait for their peers", n)
			}
			frames := server.device.Counters().RDMAOutFrames
			w.clock.Run(time.Minute) // beyond all timeouts
			w.silent(server.cq)
			if got := server.device.Counters().RDMAOutFrames; got != frames {
				t.Errorf("%d frames were sent", got-frames)
			}
			w.want(w.finish(server.disconnect()), success)
			server.cancelled()
			w.disconnects(0, 1)
		},
		"NDK-DISC-03 what had arrived is delivered": func(t *testing.T, w *world, client, server *host) {
			server.receive(1)
			w.want(client.qp.Send(nil, nil, provider.OpSilentSuccess), success)
			w.finish(client.disconnect())
			w.settle()
			server.result(success)
		},
		"NDK-DISC-03 NDK-DISC-04 the peer's, then Flush": func(t *testing.T, w *world, client, server *host) {
			server.pending()
			w.finish(client.disconnect())
			w.silent(server.cq)
			server.qp.Flush()
			server.cancelled()
		},
		"NDK-DISC-03 NDK-DISC-04 the peer's, then the connector's close": func(t *testing.T, w *world, client, server *host) {
			server.pending()
			w.finish(client.disconnect())
			w.silent(server.cq)
			w.finish(server.close(server.conn))
			server.cancelled()
		},
		"the peer's, and Disconnect after everybody has forgotten": func(t *testing.T, w *world, client, server *host) {
			server.receive(1)
			w.finish(client.disconnect())
			w.clock.Run(time.Minute)
			w.want(w.finish(server.disconnect()), success)
			server.result(provider.StatusCancelled)
		},
		"NDK-DISC-06 no answer": func(t *testing.T, w *world, client, server *host) {
			client.receive(1)
			w.path.Down = true
			start := w.clock.Now()
			w.want(w.finish(client.disconnect()), timedOut)
			if took := w.clock.Now() - start; took < 5*time.Second {
				t.Errorf("gave up after %v", took)
			}
			client.result(provider.StatusCancelled)
			if server.disconnected > 0 || client.disconnected > 0 {
				t.Error("a disconnect event")
			}
		},
		"NDK-DISC-07 both at once": func(t *testing.T, w *world, client, server *host) {
			a, b := client.disconnect(), server.disconnect()
			w.want(w.finish(a), success)
			w.want(w.finish(b), success)
			w.disconnects(0, 0)
		},
		"NDK-DISC-08 closed instead": func(t *testing.T, w *world, client, server *host) {
			client.pending()
			w.finish(client.close(client.conn))
			client.cancelled()
			w.disconnects(0, 1)
		},
		"closed while disconnecting": func(t *testing.T, w *world, client, server *host) {
			client.pending()
			w.path.Down = true
			a := client.disconnect()
			closing := client.close(client.conn)
			w.want(w.finish(closing), success)
			if a.calls != 1 || a.status != provider.StatusCancelled {
				t.Fatalf("Disconnect: %+v", a)
			}
			client.cancelled()
			w.path.Down = false
			w.disconnects(0, 1) // the request to disconnect is repeated for the closed connector
		},
		"closed while disconnecting, before the peer can answer": func(t *testing.T, w *world, client, server *host) {
			client.pending()
			a := client.disconnect()
			// All is flushed when Disconnect completes, and that before the close.
			a.then = func() { client.cancelled() }
			closing := client.close(client.conn)
			w.want(closing.returned, provider.StatusPending)
			closing.then = func() {
				if a.calls != 1 {
					t.Error("the close completed before Disconnect")
				}
			}
			w.want(w.finish(a), provider.StatusCancelled)
			w.want(w.finish(closing), success)
			w.disconnects(0, 1)
			if a.calls != 1 || client.device.Counters().ActiveConnection != 0 {
				t.Errorf("Disconnect called back %d times", a.calls)
			}
		},
		"NDK-DISC-12 NDK-CNT-04 lost": func(t *testing.T, w *world, client, server *host) {
			client.receive(1)
			w.path.Down = true
			w.want(client.qp.Send(nil, nil, 0), success)
			got := statuses(client.results(2))
			if !slices.Contains(got, timedOut) || !slices.Contains(got, provider.StatusCancelled) {
				t.Fatalf("got %v", got)
			}
			w.disconnects(1, 0)
			if c := client.device.Counters(); c.ConnectionError != 1 || c.ActiveConnection != 0 {
				t.Errorf("%+v", c)
			}
			// NDK-DISC-04: it is over; the peer is told as soon as it can be.
			w.want(client.disconnect().returned, success)
			w.path.Down = false
			w.clock.Run(10 * time.Second)
			w.disconnects(1, 1)
		},
		"NDK-DISC-12 the peer has started anew": func(t *testing.T, w *world, client, server *host) {
			// The server's adapter goes without a word; its successor does not
			// know the connection.
			w.path.Down = true
			w.network.Attach(mtu, server.address)
			w.path.Down = false
			w.want(client.qp.Write(nil, nil, 0, 0, 0), success)
			client.result(timedOut)
			w.disconnects(1, 0)
			w.network.Attach(mtu, server.address)
			if c := client.device.Counters(); c.ConnectionError != 1 {
				t.Errorf("%+v", c)
			}
		},
		"NDK-CONN-31 nobody to tell": func(t *testing.T, w *world, client, server *host) {
			client2, server2 := *client, *server
			client2.qp, server2.qp, server2.port = client.newQP(), server.newQP(), 7001
			var accepted, connected async
			server2.listen(func(c *provider.Connector) {
				server2.conn = c
				w.want(c.Accept(server2.qp, 1, 1, nil, nil, nil, accepted.done, &accepted), provider.StatusPending)
			})
			c := client.newConnector()
			connected.returned = c.Connect(client2.qp, client.ephemeral(), server2.service(), 1, 1, nil, connected.done, &connected)
			w.want(w.finish(&connected), success)
			w.want(c.CompleteConnect(nil, nil, nil, nil), success)
			w.settle()
			w.want(client2.qp.Write(nil, client.at(0, 1), 0, 0, 0), success) // an error at both ends
			client.result(provider.StatusRemoteResources)
			w.disconnects(0, 0)
			if server.device.Counters().ConnectionError != 1 || client.device.Counters().ConnectionError != 1 {
				t.Error("the loss was not noticed")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			client, server := w.connect()
			test(t, w, client, server)
		})
	}
	for name, end := range map[string]func(w *world, local, peer *host){
		"answered": func(w *world, local, peer *host) { w.want(w.finish(local.disconnect()), success) },
		"no answer": func(w *world, local, peer *host) {
			w.path.Down = true
			w.want(w.finish(local.disconnect()), timedOut)
			w.path.Down = false
		},
		"with requests under way": func(w *world, local, peer *host) {
			local.pending()
			w.want(w.finish(local.disconnect()), success)
			local.cancelled()
		},
		"both at once": func(w *world, local, peer *host) {
			a, b := local.disconnect(), peer.disconnect()
			w.want(w.finish(a), success)
			w.want(w.finish(b), success)
		},
		"after Flush": func(w *world, local, peer *host) {
			local.qp.Flush()
			w.want(w.finish(local.disconnect()), success)
		},
		"closed instead": func(w *world, local, peer *host) { w.finish(local.close(local.conn)) },
		"closed meanwhile": func(w *world, local, peer *host) {
			local.disconnect()
			w.finish(local.close(local.conn))
		},
	} {
		for _, ex := range []bool{false, true} {
			for i, side := range []string{"active", "passive"} {
				t.Run(fmt.Sprintf("NDK-DISC-05 the %s side, %s, Ex: %v", side, name, ex), func(t *testing.T) {
					w := newWorld(t)
					client, server := w.joinEx(ex, ex)
					end(w, w.hosts[i], w.hosts[1-i])
					w.clock.Run(time.Minute) // beyond all timeouts
					[]*events{client, server}[i].told(t, 0)
				})
			}
		}
	}
	t.Run("NDK-DISC-12 NDK-CNT-04 the peer has forgotten the connection", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		server.listen(func(c *provider.Connector) { server.accept(c) })
		client.conn = client.newConnector()
		w.want(w.finish(client.dial(client.conn, server)), success)
		next := w.openAt(server.address, provider.DefaultAdapterInfo()) // takes the server's place
		w.want(client.complete(), success)
		client.receive(1)
		w.disconnects(1, 0)
		if c := client.device.Counters(); c.ConnectionError != 1 || c.ActiveConnection != 0 {
			t.Errorf("%+v", c)
		}
		w.want(w.finish(client.disconnect()), success)
		client.result(provider.StatusCancelled)
		ended := false
		next.BeginClose(func() { ended = true })
		w.settle()
		if !ended {
			t.Error("an adapter without objects does not close")
		}
	})
	t.Run("NDK-DISC-10 never connected", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		h.conn = h.newConnector()
		w.want(h.disconnect().returned, provider.StatusConnectionInvalid)
		a := h.dialFrom(h.conn, h.qp, h.ephemeral(), nowhere)
		w.want(h.disconnect().returned, provider.StatusConnectionInvalid)
		w.want(w.finish(a), timedOut)
		w.want(h.disconnect().returned, provider.StatusConnectionInvalid)
	})
}
