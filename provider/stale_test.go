package provider_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/transport"
	"github.com/ndklab/ndklab/provider"
)

// A reborn is a source of randomness that repeats a device's first draws, which
// decide about its queue pair numbers and its GUID, and not the next, which
// decides about its communication IDs: had it those again too, its requests would
// be duplicates.
type reborn struct {
	first, rest *rand.PCG
	draws       int
}

func (r *reborn) Uint64() uint64 {
	r.draws++
	if r.draws <= 3 {
		return r.first.Uint64()
	}
	return r.rest.Uint64()
}

// restart has the client's device vanish without a word while its first n queue
// pairs are connected, and start anew with the GUID and the queue pair numbers that
// it had. It returns the servers' ends of the lost
// connections.
func (w *world) restart(client, server *host, n int) (lost []*host) {
	w.t.Helper()
	for i := range n {
		a, b := *client, *server
		if i > 0 {
			a.qp = a.newQP()
		}
		b.qp, b.port = b.newQP(), 7001+uint16(i)
		w.join(&a, &b)
		lost = append(lost, &b)
	}
	first := client.qp.Number()
	w.path.Down = true
	ended := false
	client.endAll(func() { ended = true })
	for len(*client.open) > 0 {
		client.close((*client.open)[0])
	}
	w.settle() // it lingers for half a second
	if !ended {
		w.t.Fatal("the device has not ended")
	}
	w.path.Down = false
	cfg := w.config(w.network.Attach(mtu, client.address))
	seed := uint64(slices.Index(w.hosts[:], client)) + 1
	cfg.Rand = rand.New(&reborn{first: rand.NewPCG(seed, 7), rest: rand.NewPCG(100, 7)})
	*client = *w.equip(w.start(cfg), client.address)
	if got := client.qp.Number(); got != first {
		w.t.Fatalf("the first queue pair is %d, was %d", got, first)
	}
	return lost
}

// TestQPNs: the numbers are those of the share, but for the first few, which are
// special, and the last, 0xFFFFFF of the last share; and they go round.
func TestQPNs(t *testing.T) {
	w := newWorld(t)
	h := w.hosts[0]
	first, last := h.device.QPNs()
	if first != 16 || last != 1<<transport.ShareShift-2 {
		t.Errorf("from %d to %d", first, last)
	}
	h.device.SetNextQPN(last - 1)
	for _, want := range []uint32{last - 1, last, first, first + 1} {
		if got := h.newQP().Number(); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
}

func TestStaleConnections(t *testing.T) {
	t.Run("asked again under another number", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		lost := w.restart(client, server, 3)
		before := client.qp.Number()
		exchange(w, client, server)
		if after := client.qp.Number(); after == before {
			t.Error("the queue pair has kept its number")
		}
		for i, b := range lost {
			if b.disconnected != 1 {
				t.Errorf("lost connection %d: %d disconnect events", i, b.disconnected)
			}
		}
		// One attempt, which did not fail.
		if c := client.device.Counters(); c.Connect != 1 || c.ConnectFailure != 0 {
			t.Errorf("%+v", c)
		}
		if c := server.device.Counters(); c.ConnectionError != 3 || c.ActiveConnection != 1 {
			t.Errorf("%+v", c)
		}
	})
	t.Run("not for ever", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		w.restart(client, server, 10)
		var accepted *async
		server.listen(func(c *provider.Connector) { accepted = server.accept(c) })
		client.conn = client.newConnector()
		w.want(w.finish(client.dial(client.conn, server)), refused)
		if c := client.device.Counters(); c.ConnectFailure != 1 {
			t.Errorf("%+v", c)
		}
		// By the next attempt the peer has forgotten them all.
		w.want(w.finish(client.dial(client.conn, server)), success)
		w.want(client.complete(), success)
		w.want(w.finish(accepted), success)
	})
	t.Run("the peer's number is the stale one", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		lost := w.restart(server, client, 1)
		var accepts []*async
		server.listen(func(c *provider.Connector) {
			accepts = append(accepts, server.accept(c))
			server.qp = server.newQP() // for the next
		})
		client.conn = client.newConnector()
		w.want(w.finish(client.dial(client.conn, server)), success)
		w.want(client.complete(), success)
		if len(accepts) != 2 {
			t.Fatalf("%d requests", len(accepts))
		}
		w.want(w.finish(accepts[0]), aborted)
		w.want(w.finish(accepts[1]), success)
		if lost[0].disconnected != 1 {
			t.Errorf("%d disconnect events of the lost connection", lost[0].disconnected)
		}
	})
	t.Run("closed in between", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		w.restart(client, server, 1)
		server.listen(func(c *provider.Connector) { server.accept(c) })
		c := client.newConnector()
		a := client.dial(c, server)
		first := client.qp.Number()
		w.wait("another number", func() bool { return client.qp.Number() != first })
		w.want(client.close(c).returned, provider.StatusPending)
		w.want(w.finish(a), provider.StatusCancelled)
		client.conn = client.newConnector()
		w.finish(server.close(server.listener))
	})
	t.Run("no number is left", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		w.restart(client, server, 1)
		server.listen(func(c *provider.Connector) { server.accept(c) })
		before := w.clock.Now()
		client.device.WithoutQPNs(func() {
			w.want(w.finish(client.dial(client.newConnector(), server)), refused)
		})
		if took := w.clock.Now() - before; took > 40*time.Microsecond { // two round trips
			t.Errorf("refused after %v: it was asked more than once", took)
		}
	})
}
