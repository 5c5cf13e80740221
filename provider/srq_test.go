package provider_test

import (
	"bytes"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

const (
	srqDepth  = 16
	srqPieces = 3
)

// newSRQ makes an SRQ and the notes of its notifications.
func (h *host) newSRQ(threshold uint32) (*provider.SRQ, *notes) {
	n := &notes{}
	return track(h, must(h.pd.CreateSRQ(srqDepth, srqPieces, threshold, func(context any, s provider.Status) {
		if context != n {
			panic("wrong context")
		}
		n.statuses = append(n.statuses, s)
		if n.then != nil {
			n.then()
		}
	}, n, nil, nil, nil))), n
}

// newQPWithSRQ makes a QP with receive and initiator completions on the host's CQ.
func (h *host) newQPWithSRQ(srq *provider.SRQ, context any) *provider.QP {
	return track(h, must(h.pd.CreateQPWithSRQ(h.cq, h.cq, srq, context, qpDepth, qpPieces, inline, nil, nil)))
}

// shared is a world whose server has an SRQ with the given threshold, from which
// its QP receives.
func shared(t *testing.T, threshold uint32) (w *world, client, server *host, srq *provider.SRQ, n *notes) {
	t.Helper()
	w = newWorld(t)
	server = w.hosts[1]
	srq, n = server.newSRQ(threshold)
	server.qp = server.newQPWithSRQ(srq, server)
	client, _ = w.connect()
	return w, client, server, srq, n
}

// fillSRQ posts n receives.
func (w *world) fillSRQ(srq *provider.SRQ, n int) {
	w.t.Helper()
	for range n {
		w.want(srq.Receive(nil, nil), success)
	}
}

// send has the client send n messages.
func (w *world) send(client *host, n int) {
	w.t.Helper()
	for range n {
		w.want(client.qp.Send(nil, nil, provider.OpSilentSuccess), success)
	}
	w.settle()
}

func TestCreateSRQ(t *testing.T) {
	info := provider.DefaultAdapterInfo()
	w := newWorldOf(t, addresses, info)
	h := w.hosts[0]
	for _, c := range []struct {
		name          string
		depth, pieces uint32
		want          provider.Status
	}{
		{"NDK-SRQ-01 too deep", info.MaxSrqDepth + 1, 1, provider.StatusInvalidParameter},
		{"NDK-SRQ-01 too many pieces", 1, info.MaxReceiveRequestSge + 1, provider.StatusInvalidParameter},
		{"NDK-SRQ-01 at the limits", info.MaxSrqDepth, info.MaxReceiveRequestSge, success},
		{"no depth", 0, 1, provider.StatusInvalidParameter},
	} {
		t.Run(c.name, func(t *testing.T) {
			srq, status := h.pd.CreateSRQ(c.depth, c.pieces, 0, nil, nil, &provider.GroupAffinity{Mask: 1 << 63}, nil, nil)
			if status != c.want || (srq != nil) != (status == success) {
				t.Fatalf("got %v, %v, want %v", srq, status, c.want)
			}
			if srq == nil {
				return
			}
			if srq.Type() != provider.ObjectTypeSRQ {
				t.Errorf("type %v", srq.Type())
			}
			track(h, srq)
		})
	}
	t.Run("NDK-INFO-04 an adapter without SRQs", func(t *testing.T) {
		info := provider.DefaultAdapterInfo()
		info.MaxSrqDepth = 0
		w := newWorldOf(t, addresses, info)
		for _, depth := range []uint32{1, 2, 1 << 20} {
			_, status := w.hosts[0].pd.CreateSRQ(depth, 1, 0, nil, nil, nil, nil, nil)
			w.want(status, provider.StatusInvalidParameter)
		}
	})
	srq, _ := h.newSRQ(0)
	for _, c := range []struct {
		name string
		over [3]uint32 // added to the adapter's limits
		want provider.Status
	}{
		{"NDK-QP-06 all at the limits", [3]uint32{}, success},
		{"NDK-QP-02 InitiatorQueueDepth", [3]uint32{1}, provider.StatusInvalidParameter},
		{"NDK-QP-04 MaxInitiatorRequestSge", [3]uint32{0, 1}, provider.StatusInvalidParameter},
		{"NDK-QP-05 InlineDataSize", [3]uint32{0, 0, 1}, provider.StatusInvalidParameter},
	} {
		t.Run(c.name+", with an SRQ", func(t *testing.T) {
			qp, status := h.pd.CreateQPWithSRQ(h.cq, h.cq, srq, nil, info.MaxInitiatorQueueDepth+c.over[0],
				info.MaxInitiatorRequestSge+c.over[1], info.MaxInlineDataSize+c.over[2], nil, nil)
			if status != c.want || (qp != nil) != (status == success) {
				t.Fatalf("got %v, %v, want %v", qp, status, c.want)
			}
			if qp != nil {
				track(h, qp)
			}
		})
	}
	t.Run("a QP with no SRQ, or one of another domain", func(t *testing.T) {
		other := track(h, must(h.CreatePD(nil, nil)))
		_, status := h.pd.CreateQPWithSRQ(h.cq, h.cq, nil, nil, 1, 1, 0, nil, nil)
		w.want(status, provider.StatusInvalidParameter)
		_, status = other.CreateQPWithSRQ(h.cq, h.cq, srq, nil, 1, 1, 0, nil, nil)
		w.want(status, provider.StatusInvalidParameter)
	})
}

func TestSRQReceive(t *testing.T) {
	t.Run("NDK-SRQ-02 NDK-CQ-29 several QPs", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		srq, _ := server.newSRQ(0)
		var clients, servers [3]host
		for i := range servers {
			clients[i], servers[i] = *client, *server
			clients[i].qp = client.newQP()
			servers[i].port = uint16(7000 + i)
			servers[i].cq, _ = server.newCQ(8)
			servers[i].qp = track(server, must(server.pd.CreateQPWithSRQ(servers[i].cq, server.cq, srq, i, 8, 1, 0, nil, nil)))
			w.join(&clients[i], &servers[i])
		}
		for n := range 6 {
			w.want(srq.Receive(n, server.at(n*1000, 1000)), success)
		}
		// In which order the QPs take decides what each gets.
		for n := range 6 {
			i := (2 * n) % 3
			w.want(clients[i].qp.Send(nil, client.at(n*100, 50+n), 0), success)
			client.result(success)
			got := w.results(servers[i].cq, 1)[0]
			if got.Status != success || got.QPContext != i || got.RequestContext != n || got.BytesTransferred != uint32(50+n) ||
				got.Type != provider.OperationTypeReceive {
				t.Fatalf("send %d to QP %d: %+v", n, i, got)
			}
			if !bytes.Equal(server.memory[n*1000:n*1000+50+n], client.memory[n*100:n*100+50+n]) {
				t.Fatalf("send %d arrived wrong", n)
			}
		}
		for i := range servers {
			w.silent(servers[i].cq)
		}
		w.silent(server.cq)
	})
	t.Run("NDK-QP-07 NDK-POST-17 Receive of the QP itself", func(t *testing.T) {
		w, client, server, srq, _ := shared(t, 0)
		w.want(server.qp.Receive(nil, nil), provider.StatusInvalidDeviceRequest)
		w.silent(server.cq)
		w.fillSRQ(srq, 1)
		w.send(client, 1)
		server.result(success)
	})
	t.Run("NDK-POST-12 NDK-POST-13 NDK-POST-14 NDK-POST-17 posts that are refused", func(t *testing.T) {
		w, client, server, srq, _ := shared(t, 0)
		w.want(srq.Receive(nil, make([]provider.SGE, srqPieces+1)), provider.StatusDataOverrun)
		w.want(srq.Receive(nil, []provider.SGE{{Length: 1 << 30}, {Length: 1}}), overflow)
		w.want(srq.Receive(nil, make([]provider.SGE, srqPieces)), success)
		w.fillSRQ(srq, srqDepth-1)
		w.want(srq.Receive(nil, nil), provider.StatusNoMoreEntries)
		w.send(client, srqDepth)
		server.results(srqDepth)
		w.silent(server.cq)
		w.fillSRQ(srq, srqDepth)
	})
	t.Run("NDK-SRQ-13 empty", func(t *testing.T) {
		w, client, server, srq, _ := shared(t, 0)
		w.want(client.qp.Send(nil, nil, 0), success)
		w.silent(client.cq)
		w.silent(server.cq)
		w.fillSRQ(srq, 1)
		client.result(success)
		server.result(success)
		if client.disconnected+server.disconnected > 0 {
			t.Fatal("the connection has been ended")
		}
	})
	t.Run("NDK-FLUSH-07 a flushed QP leaves what is queued", func(t *testing.T) {
		for _, connected := range []bool{true, false} {
			w, client, server, srq, _ := shared(t, 0)
			other := *server
			other.qp, other.port = server.newQPWithSRQ(srq, 2), 7001
			w.fillSRQ(srq, 3)
			if connected {
				server.qp.Flush()
			} else {
				server.newQPWithSRQ(srq, 3).Flush()
			}
			w.silent(server.cq)
			again := *client
			again.qp = client.newQP()
			w.join(&again, &other)
			w.send(&again, 3)
			for _, r := range server.results(3) {
				if r.Status != success || r.QPContext != 2 {
					t.Fatalf("got %+v", r)
				}
			}
		}
	})
	t.Run("a receive that was taken is flushed with the QP that took it", func(t *testing.T) {
		w, client, server, srq, _ := shared(t, 0)
		w.want(srq.Receive("taken", server.at(0, 300_000)), success)
		w.fillSRQ(srq, 1)
		w.want(client.qp.Send(nil, client.at(0, 300_000), 0), success)
		w.clock.Run(100_000) // at 10 Gb/s some of it has arrived
		server.qp.Flush()
		if r := server.result(provider.StatusCancelled); r.RequestContext != "taken" || r.QPContext != server {
			t.Fatalf("got %+v", r)
		}
		w.silent(server.cq)
	})
	t.Run("NDK-LIFE-24 closed before its QP", func(t *testing.T) {
		w, client, server, srq, _ := shared(t, 0)
		w.fillSRQ(srq, 2)
		closing := server.close(srq)
		w.want(closing.returned, provider.StatusPending)
		w.send(client, 1) // a bare reference dropped
		server.result(success)
		if closing.calls > 0 {
			t.Fatal("closed while its QP is open")
		}
		server.close(server.conn)
		server.close(server.qp)
		w.want(w.finish(closing), success)
		w.silent(server.cq) // T63: what is queued is dropped
	})
	t.Run("NDK-LIFE-25 its domain is closed first", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		pd := must(h.CreatePD(nil, nil))
		srq := must(pd.CreateSRQ(1, 1, 0, nil, nil, nil, nil, nil))
		closing := &async{}
		closing.returned = pd.Close(closing.closed, closing)
		w.want(closing.returned, provider.StatusPending)
		w.settle()
		if closing.calls > 0 {
			t.Fatal("closed while its SRQ is open")
		}
		w.want(srq.Close(nil, nil), success)
		w.want(w.finish(closing), success)
	})
}

func TestSRQThreshold(t *testing.T) {
	const threshold = 4
	for name, test := range map[string]func(t *testing.T, w *world, client *host, srq *provider.SRQ, n *notes){
		"NDK-SRQ-15 NDK-SRQ-10 the first filling (T40)": func(t *testing.T, w *world, client *host, srq *provider.SRQ, n *notes) {
			w.fillSRQ(srq, threshold-1)
			w.send(client, 2)
			w.fillSRQ(srq, threshold-2) // one is left, and threshold-1 there are
			n.notified(t)
			w.send(client, 1)
			n.notified(t)
			w.fillSRQ(srq, 2) // as many as the threshold, for the first time
			n.notified(t)
			w.send(client, 1)
			n.notified(t, success)
		},
		"NDK-SRQ-09 exactly at the threshold": func(t *testing.T, w *world, client *host, srq *provider.SRQ, n *notes) {
			w.fillSRQ(srq, threshold+1)
			w.send(client, 1)
			n.notified(t)
			w.want(srq.Modify(0, threshold, nil, nil), success)
			w.settle()
			n.notified(t)
		},
		"NDK-SRQ-05 enough are queued": func(t *testing.T, w *world, client *host, srq *provider.SRQ, n *notes) {
			w.fillSRQ(srq, 6)
			w.want(srq.Modify(0, 6, nil, nil), success)
			w.settle()
			n.notified(t)
			w.send(client, 1)
			n.notified(t, success)
		},
		"NDK-SRQ-06 fewer are queued": func(t *testing.T, w *world, client *host, srq *provider.SRQ, n *notes) {
			w.fillSRQ(srq, 5)
			w.want(srq.Modify(0, 6, nil, nil), success)
			w.clock.Run(0)
			n.notified(t, success)
		},
		"NDK-SRQ-07 once, after a drop": func(t *testing.T, w *world, client *host, srq *provider.SRQ, n *notes) {
			w.fillSRQ(srq, threshold)
			w.send(client, 2)
			n.notified(t, success)
			w.fillSRQ(srq, threshold)
			w.send(client, 3) // a second drop
			n.notified(t, success)
			w.fillSRQ(srq, threshold)
			w.want(srq.Modify(0, threshold, nil, nil), success)
			w.send(client, threshold)
			n.notified(t, success, success)
		},
		"NDK-SRQ-07 once, after Modify": func(t *testing.T, w *world, client *host, srq *provider.SRQ, n *notes) {
			w.fillSRQ(srq, 2)
			w.want(srq.Modify(0, threshold, nil, nil), success)
			w.fillSRQ(srq, threshold)
			w.send(client, threshold)
			w.want(srq.Modify(0, 0, nil, nil), success)
			w.want(srq.Modify(srqDepth, 0, nil, nil), success)
			w.settle()
			n.notified(t, success)
			w.want(srq.Modify(0, threshold, nil, nil), success)
			w.clock.Run(0)
			n.notified(t, success, success)
		},
		"NDK-SRQ-08 NotifyThreshold 0 keeps an arm": func(t *testing.T, w *world, client *host, srq *provider.SRQ, n *notes) {
			w.fillSRQ(srq, threshold)
			w.want(srq.Modify(srqDepth+1, 0, nil, nil), success)
			w.settle()
			n.notified(t)
			w.send(client, 1)
			n.notified(t, success)
		},
		"NDK-SRQ-08 NotifyThreshold 0 arms nothing": func(t *testing.T, w *world, client *host, srq *provider.SRQ, n *notes) {
			w.fillSRQ(srq, threshold)
			w.send(client, 1)
			n.notified(t, success)
			w.want(srq.Modify(0, 0, nil, nil), success)
			w.fillSRQ(srq, 1)
			w.send(client, 1)
			n.notified(t, success)
		},
		"in the callback the consumer arms again": func(t *testing.T, w *world, client *host, srq *provider.SRQ, n *notes) {
			inside := false
			n.then = func() {
				if inside {
					t.Error("a callback began during another")
				}
				inside = true
				if len(n.statuses) < 3 {
					w.want(srq.Modify(0, threshold, nil, nil), success)
					w.settle()
				}
				inside = false
			}
			w.fillSRQ(srq, threshold)
			w.send(client, 1)
			n.notified(t, success, success, success)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, client, _, srq, n := shared(t, threshold)
			test(t, w, client, srq, n)
		})
	}
	t.Run("NDK-SRQ-12 no notification", func(t *testing.T) {
		w := newWorld(t)
		server := w.hosts[1]
		srq := track(server, must(server.pd.CreateSRQ(srqDepth, 1, 2, nil, nil, nil, nil, nil)))
		server.qp = server.newQPWithSRQ(srq, server)
		client, _ := w.connect()
		w.fillSRQ(srq, 2)
		w.send(client, 1)
		w.want(srq.Modify(0, 5, nil, nil), success)
		w.send(client, 1)
		server.results(2)
		srq.Fail()
		w.settle()
		w.want(server.qp.Send(nil, nil, 0), provider.StatusConnectionInvalid)
	})
	t.Run("closed during a notification", func(t *testing.T) {
		w, client, server, srq, n := shared(t, 1)
		var closing *async
		n.then = func() {
			server.close(server.conn)
			server.close(server.qp)
			closing = server.close(srq)
			w.want(closing.returned, provider.StatusPending)
			w.settle()
			if closing.calls > 0 {
				t.Error("closed during its callback")
			}
		}
		w.fillSRQ(srq, 1)
		w.send(client, 1)
		w.finish(closing)
		n.notified(t, success)
	})
}

func TestModifySRQ(t *testing.T) {
	t.Run("NDK-SRQ-03 too deep", func(t *testing.T) {
		w, _, _, srq, n := shared(t, 0)
		w.fillSRQ(srq, srqDepth)
		limit := provider.DefaultAdapterInfo().MaxSrqDepth
		w.want(srq.Modify(limit+1, srqDepth+1, nil, nil), provider.StatusInvalidParameter)
		w.want(srq.Receive(nil, nil), provider.StatusNoMoreEntries)
		w.settle()
		n.notified(t)
		w.want(srq.Modify(limit, 0, nil, nil), success)
	})
	t.Run("NDK-SRQ-04 depth 0", func(t *testing.T) {
		w, _, _, srq, _ := shared(t, 0)
		w.want(srq.Modify(0, 1, nil, nil), success)
		w.fillSRQ(srq, srqDepth)
		w.want(srq.Receive(nil, nil), provider.StatusNoMoreEntries)
	})
	t.Run("deeper and shallower, nothing lost", func(t *testing.T) {
		w, client, server, srq, _ := shared(t, 0)
		next := 0
		post := func(n int) {
			for range n {
				w.want(srq.Receive(next, nil), success)
				next++
			}
		}
		post(srqDepth)
		w.send(client, 5)
		post(5) // the ring has gone round
		w.want(srq.Modify(srqDepth+2, 0, nil, nil), success)
		post(2)
		w.want(srq.Receive(nil, nil), provider.StatusNoMoreEntries)
		w.send(client, 8)
		w.want(srq.Modify(srqDepth-6, 0, nil, nil), success)
		w.want(srq.Receive(nil, nil), provider.StatusNoMoreEntries)
		w.send(client, srqDepth-6)
		for i, r := range server.results(next) {
			if r.RequestContext != i {
				t.Fatalf("receive %v in place of %d", r.RequestContext, i)
			}
		}
		w.silent(server.cq)
	})
	t.Run("NDK-SRQ-14 more are queued", func(t *testing.T) {
		w, client, server, srq, n := shared(t, 0)
		w.fillSRQ(srq, 8)
		w.want(srq.Modify(7, 9, nil, nil), overflow)
		w.fillSRQ(srq, srqDepth-8)
		w.settle()
		n.notified(t) // nor is the threshold taken over
		w.send(client, srqDepth)
		server.results(srqDepth)
		n.notified(t)
	})
}

func TestFailedSRQ(t *testing.T) {
	t.Run("NDK-SRQ-11 NDK-SRQ-10", func(t *testing.T) {
		w, client, server, srq, n := shared(t, 0)
		// A second QP is not connected, a third is none of the SRQ's.
		idle, other := server.newQPWithSRQ(srq, "idle"), server.newQP()
		w.fillSRQ(srq, 2)
		w.want(server.qp.Read(nil, server.at(0, 300_000), base, client.mr.RemoteToken(), 0), success)
		w.want(other.Receive("other", nil), success)
		srq.Fail()
		srq.Fail() // once is all there is
		if srq.Take() {
			t.Error("a QP that has not failed yet could still take a receive")
		}
		w.settle()
		n.notified(t, provider.StatusInternalError)
		server.result(provider.StatusCancelled)
		w.want(server.qp.Send(nil, nil, 0), provider.StatusConnectionInvalid)
		w.want(srq.Receive(nil, nil), provider.StatusInvalidDeviceState)
		w.want(srq.Modify(0, 100, nil, nil), provider.StatusInvalidDeviceState)
		_, status := server.pd.CreateQPWithSRQ(server.cq, server.cq, srq, nil, 1, 1, 0, nil, nil)
		w.want(status, provider.StatusInvalidDeviceState)
		w.silent(server.cq)
		n.notified(t, provider.StatusInternalError)
		if client.disconnected != 1 || server.disconnected != 1 {
			t.Errorf("disconnect events: %d, %d", client.disconnected, server.disconnected)
		}
		idle.Flush()
		w.silent(server.cq)
		other.Flush() // which had not failed
		if r := server.result(provider.StatusCancelled); r.RequestContext != "other" {
			t.Fatalf("got %+v", r)
		}
		if got := server.device.Counters().CQError; got != 0 {
			t.Errorf("CQError is %d", got)
		}
		for _, o := range []closer{srq, server.qp, idle} { // NDK-CQ-26 for SRQs
			server.close(o)
		}
	})
}
