package provider_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ndklab/ndklab/provider"
)

func TestCreateQP(t *testing.T) {
	info := provider.DefaultAdapterInfo()
	w := newWorldOf(t, addresses, info)
	h := w.hosts[0]
	for _, c := range []struct {
		name string
		over [5]uint32 // added to the adapter's limits
		want provider.Status
	}{
		{"NDK-QP-06 all at the limits", [5]uint32{}, success},
		{"NDK-QP-01 ReceiveQueueDepth", [5]uint32{1}, provider.StatusInvalidParameter},
		{"NDK-QP-02 InitiatorQueueDepth", [5]uint32{0, 1}, provider.StatusInvalidParameter},
		{"NDK-QP-03 MaxReceiveRequestSge", [5]uint32{0, 0, 1}, provider.StatusInvalidParameter},
		{"NDK-QP-04 MaxInitiatorRequestSge", [5]uint32{0, 0, 0, 1}, provider.StatusInvalidParameter},
		{"NDK-QP-05 InlineDataSize", [5]uint32{0, 0, 0, 0, 1}, provider.StatusInvalidParameter},
	} {
		t.Run(c.name, func(t *testing.T) {
			qp, status := h.pd.CreateQP(h.cq, h.cq, nil,
				info.MaxReceiveQueueDepth+c.over[0], info.MaxInitiatorQueueDepth+c.over[1],
				info.MaxReceiveRequestSge+c.over[2], info.MaxInitiatorRequestSge+c.over[3], info.MaxInlineDataSize+c.over[4], nil, nil)
			if status != c.want || (qp != nil) != (status == success) {
				t.Fatalf("got %v, %v, want %v", qp, status, c.want)
			}
			if qp != nil {
				track(h, qp)
			}
		})
	}
	t.Run("without a CQ for either kind of request", func(t *testing.T) {
		for _, cqs := range [][2]*provider.CQ{{nil, h.cq}, {h.cq, nil}, {nil, nil}} {
			if qp, status := h.pd.CreateQP(cqs[0], cqs[1], nil, 1, 1, 1, 1, 0, nil, nil); status != provider.StatusInvalidParameter || qp != nil {
				t.Errorf("made %v, %v", qp, status)
			}
		}
	})
	t.Run("numbers go round in a circle", func(t *testing.T) {
		first := h.newQP()
		h.device.SetNextQPN(first.Number())
		if n := h.newQP().Number(); n == first.Number() {
			t.Fatalf("number %#x twice", n)
		}
		firstQPN, lastQPN := h.device.QPNs()
		h.device.SetNextQPN(lastQPN)
		if a, b := h.newQP().Number(), h.newQP().Number(); a != lastQPN || b != firstQPN {
			t.Fatalf("numbers %#x, %#x", a, b)
		}
	})
	t.Run("numbers are those of the wire, and all differ", func(t *testing.T) {
		seen := map[uint32]bool{}
		for range 100 {
			qp := h.newQP()
			if n := qp.Number(); n < 2 || n >= 1<<24-1 || seen[n] {
				t.Fatalf("number %#x", n)
			}
			seen[qp.Number()] = true
		}
	})
}

// An initiator is one of the functions that post initiator requests.
type initiator struct {
	name string
	post func(qp *provider.QP, context any, sgl []provider.SGE, flags provider.OpFlags) provider.Status
}

// initiators reach into the peer's memory at its start. The sender of an
// invalidation is not among them: there is nothing yet that it could end.
func initiators(peer *host) []initiator {
	return []initiator{
		{"Send", (*provider.QP).Send},
		{"Write", func(qp *provider.QP, context any, sgl []provider.SGE, flags provider.OpFlags) provider.Status {
			return qp.Write(context, sgl, base, peer.mr.RemoteToken(), flags)
		}},
		{"Read", func(qp *provider.QP, context any, sgl []provider.SGE, flags provider.OpFlags) provider.Status {
			return qp.Read(context, sgl, base, peer.mr.RemoteToken(), flags)
		}},
	}
}

func sendAndInvalidate(qp *provider.QP, context any, sgl []provider.SGE, flags provider.OpFlags) provider.Status {
	return qp.SendAndInvalidate(context, sgl, flags, 7)
}

func TestPost(t *testing.T) {
	for _, i := range []int{0, 1, 2} {
		name := initiators(nil)[i].name
		run := func(rule string, test func(t *testing.T, w *world, client, server *host, post initiator)) {
			t.Run(rule+" "+name, func(t *testing.T) {
				w := newWorld(t)
				client, server := w.connect()
				for range 8 {
					w.want(server.qp.Receive(nil, server.at(0, 100)), success)
				}
				test(t, w, client, server, initiators(server)[i])
			})
		}
		run("NDK-POST-07 silent success that fails", func(t *testing.T, w *world, client, server *host, post initiator) {
			sge := client.at(0, 1)
			sge[0].MemoryRegionToken++
			w.want(post.post(client.qp, 1, sge, provider.OpSilentSuccess|provider.OpDefer), success)
			w.want(post.post(client.qp, 2, nil, provider.OpSilentSuccess), success)
			got := client.results(2)
			if s := statuses(got); !slices.Equal(s, []provider.Status{provider.StatusAccessViolation, provider.StatusCancelled}) {
				t.Fatalf("got %v", s)
			}
			w.silent(client.cq)
		})
		run("NDK-POST-12 NDK-POST-02 more than the queue holds", func(t *testing.T, w *world, client, server *host, post initiator) {
			w.path.Down = true
			for range qpDepth {
				w.want(post.post(client.qp, nil, nil, provider.OpDefer), success)
			}
			w.want(post.post(client.qp, nil, nil, 0), provider.StatusNoMoreEntries)
			w.path.Down = false
			server.receive(qpDepth - 8)
			client.results(qpDepth)                            // NDK-DEFER-03 NDK-DEFER-04
			w.silent(client.cq)                                // NDK-POST-02
			server.qp.Receive(nil, nil)                        // if there is room
			w.want(post.post(client.qp, nil, nil, 0), success) // NDK-POST-17
			client.result(success)
		})
		run("NDK-POST-13 NDK-POST-02 more pieces than agreed", func(t *testing.T, w *world, client, server *host, post initiator) {
			w.want(post.post(client.qp, nil, make([]provider.SGE, qpPieces+1), 0), provider.StatusDataOverrun)
			w.silent(client.cq)
			w.want(post.post(client.qp, nil, make([]provider.SGE, qpPieces), 0), success)
			client.result(success)
		})
		run("NDK-POST-14 NDK-POST-02 more than an adapter moves at once", func(t *testing.T, w *world, client, server *host, post initiator) {
			sge := provider.SGE{Length: 1<<32 - 1, MemoryRegionToken: client.mr.LocalToken()}
			w.want(post.post(client.qp, nil, []provider.SGE{sge, sge, {Length: 2 + 5}}, 0), overflow) // 5 in 32 bits
			w.want(post.post(client.qp, nil, []provider.SGE{{Length: 1 << 30}, {Length: 1}}, 0), overflow)
			w.silent(client.cq)
			w.want(post.post(client.qp, nil, nil, 0), success)
			client.result(success)
		})
		run("NDK-POST-19 nothing", func(t *testing.T, w *world, client, server *host, post initiator) {
			w.want(post.post(client.qp, nil, nil, 0), success)
			client.result(success)
			w.want(post.post(client.qp, nil, make([]provider.SGE, 1), 0), success) // a piece of nothing
			client.result(success)
		})
		run("NDK-DEFER-01 NDK-DEFER-05 NDK-DEFER-06 a chain", func(t *testing.T, w *world, client, server *host, post initiator) {
			for n := range 7 {
				flags := provider.OpDefer
				if n%2 == 1 {
					flags |= provider.OpSilentSuccess
				}
				w.want(post.post(client.qp, n, nil, flags), success)
			}
			w.want(post.post(client.qp, 7, nil, 0), success)
			var order []any
			for _, r := range client.results(5) {
				w.want(r.Status, success)
				order = append(order, r.RequestContext)
			}
			if !slices.Equal(order, []any{0, 2, 4, 6, 7}) {
				t.Fatalf("got %v", order)
			}
		})
		for what, refused := range map[string]struct {
			sgl   []provider.SGE
			flags provider.OpFlags
			want  provider.Status
		}{
			"flag":   {nil, 1 << 20, provider.StatusInvalidParameter},
			"pieces": {make([]provider.SGE, qpPieces+1), provider.OpDefer, provider.StatusDataOverrun},
		} {
			// Without others in flight nothing but the refused request starts the chain.
			for _, inFlight := range []int{0, 3} {
				name := fmt.Sprintf("NDK-DEFER-03 NDK-DEFER-04 NDK-POST-02 a chain whose end is refused for its %s, %d others in flight", what, inFlight)
				run(name, func(t *testing.T, w *world, client, server *host, post initiator) {
					const deferred = 2
					for n := range inFlight + deferred {
						var flags provider.OpFlags
						if n >= inFlight {
							flags = provider.OpDefer
						}
						w.want(post.post(client.qp, n, client.at(0, 10), flags), success)
					}
					w.want(post.post(client.qp, nil, refused.sgl, refused.flags), refused.want)
					for n, r := range client.results(inFlight + deferred) {
						if r.RequestContext != n || r.Status != success {
							t.Errorf("got %+v at %d", r, n)
						}
					}
					w.silent(client.cq)
				})
			}
		}
		run("NDK-FLUSH-05 deferred and flushed", func(t *testing.T, w *world, client, server *host, post initiator) {
			w.want(post.post(client.qp, nil, nil, provider.OpDefer|provider.OpSilentSuccess), success)
			client.qp.Flush()
			client.result(provider.StatusCancelled)
		})
	}
}

func TestPostStates(t *testing.T) {
	all := append(initiators(&host{mr: &provider.MR{}})[:1:1], initiator{"SendAndInvalidate", sendAndInvalidate})
	all = append(all,
		initiator{"Write", func(qp *provider.QP, c any, s []provider.SGE, f provider.OpFlags) provider.Status {
			return qp.Write(c, s, 0, 0, f)
		}},
		initiator{"Read", func(qp *provider.QP, c any, s []provider.SGE, f provider.OpFlags) provider.Status {
			return qp.Read(c, s, 0, 0, f)
		}})
	refused := func(w *world, h *host) {
		w.t.Helper()
		for _, i := range all {
			if got := i.post(h.qp, nil, nil, 0); got != provider.StatusConnectionInvalid {
				w.t.Errorf("%s: got %v", i.name, got)
			}
		}
		for name, operation := range localOperations {
			if got := operation.make(h, false)(h.qp, nil, 0); got != provider.StatusConnectionInvalid {
				w.t.Errorf("%s: got %v", name, got)
			}
		}
		w.silent(h.cq)
	}
	t.Run("NDK-POST-04 NDK-POST-02 never connected", func(t *testing.T) {
		w := newWorld(t)
		refused(w, w.hosts[0])
	})
	t.Run("NDK-POST-04 while connecting, until each side is told (ndkpi.md T57)", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		var delivered *provider.Connector
		server.listen(ignore(&delivered))
		client.conn = client.newConnector()
		connect := client.dial(client.conn, server)
		refused(w, client) // before Connect has completed
		refused(w, server) // before Accept
		accept := server.accept(delivered)
		refused(w, server)
		w.want(w.finish(connect), success)
		refused(w, client) // before CompleteConnect
		refused(w, server)
		w.want(client.complete(), success)
		w.want(w.finish(accept), success)
		w.want(client.qp.Write(nil, nil, 0, 0, 0), success)
		client.result(success)
		w.want(server.qp.Write(nil, nil, 0, 0, 0), success)
		server.result(success)
	})
	t.Run("NDK-POST-04 NDK-DISC-11 disconnected", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		a := &async{}
		a.returned = client.conn.Disconnect(a.done, a)
		refused(w, client)
		w.want(w.finish(a), success)
		refused(w, client)
		refused(w, server)
	})
	t.Run("NDK-POST-05 receives before the connection", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		w.want(server.qp.Receive("early", server.at(0, 100)), success)
		w.connect()
		w.want(client.qp.Send(nil, client.at(0, 100), 0), success)
		if r := server.result(success); r.RequestContext != "early" {
			t.Fatalf("got %v", r)
		}
	})
	t.Run("NDK-POST-16 flags of other functions", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		const every = provider.OpSilentSuccess | provider.OpReadFence | provider.OpDefer
		for i, accepted := range []provider.OpFlags{
			every | provider.OpSendAndSolicitEvent | provider.OpInline,
			every | provider.OpSendAndSolicitEvent | provider.OpInline,
			every | provider.OpInline,
			every | provider.OpReadLocalInvalidate,
		} {
			for flag := provider.OpFlags(1); flag != 0; flag <<= 1 {
				got := all[i].post(client.qp, nil, nil, flag)
				if got == success == (accepted&flag == 0) || got != success && got != provider.StatusInvalidParameter {
					t.Errorf("%s with flag %#x: %v", all[i].name, flag, got)
				}
				server.qp.Receive(nil, nil)
				if i != 1 { // which ends the connection
					w.settle()
				}
			}
			if i == 1 {
				// NDK-INV-05: the peer aborts at a token that it does not know.
				w.settle()
				w.want(client.qp.Send(nil, nil, 0), provider.StatusConnectionInvalid)
				if client.disconnected != 1 || server.disconnected != 1 {
					t.Error("the connection has not been ended")
				}
				w = newWorld(t)
				client, server = w.connect()
			}
		}
	})
	t.Run("NDK-INV-05 NDK-INV-06 NDK-INV-02 an invalidation of what is none of the peer's", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		server.receive(1)
		w.want(client.qp.SendAndInvalidate(nil, nil, 0, server.mr.RemoteToken()), success)
		if r := client.result(provider.StatusRemoteResources); r.Type != provider.OperationTypeSend {
			t.Fatalf("got %+v", r)
		}
		server.results(1)
		if server.mr.RemoteToken() == 0 {
			t.Fatal("invalidated")
		}
	})
	t.Run("NDK-INV-08 NDK-INV-09 local invalidation is ignored", func(t *testing.T) {
		info := provider.DefaultAdapterInfo()
		info.AdapterFlags &^= provider.AdapterReadLocalInvalidate
		w := newWorldOf(t, addresses, info)
		client, server := w.connect()
		for range 2 {
			w.want(client.qp.Read(nil, client.at(0, 10), base, server.mr.RemoteToken(), provider.OpReadLocalInvalidate), success)
			client.result(success)
		}
	})
	t.Run("NDK-POST-15 pieces of a read", func(t *testing.T) {
		info := provider.DefaultAdapterInfo()
		info.MaxReadRequestSge = qpPieces - 1
		w := newWorldOf(t, addresses, info)
		client, server := w.connect()
		w.want(client.qp.Read(nil, make([]provider.SGE, qpPieces), base, server.mr.RemoteToken(), 0), provider.StatusDataOverrun)
		w.want(client.qp.Read(nil, make([]provider.SGE, qpPieces-1), base, server.mr.RemoteToken(), 0), success)
		w.want(client.qp.Write(nil, make([]provider.SGE, qpPieces), base, server.mr.RemoteToken(), 0), success)
		client.results(2)
	})
	t.Run("NDK-POST-12 NDK-POST-13 NDK-POST-14 NDK-POST-02 NDK-POST-17 receives", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		w.want(h.qp.Receive(nil, make([]provider.SGE, qpPieces+1)), provider.StatusDataOverrun)
		w.want(h.qp.Receive(nil, []provider.SGE{{Length: 1 << 30}, {Length: 1}}), overflow)
		h.receive(qpDepth)
		w.want(h.qp.Receive(nil, nil), provider.StatusNoMoreEntries)
		w.silent(h.cq)
		h.qp.Flush()
		h.results(qpDepth)
		w.silent(h.cq)
		h.receive(1)
	})
	t.Run("a QP without queues", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		for _, h := range w.hosts {
			h.qp = track(h, must(h.pd.CreateQP(h.cq, h.cq, nil, 0, 0, 0, 0, 0, nil, nil)))
		}
		w.join(client, server)
		w.want(client.qp.Send(nil, nil, 0), provider.StatusNoMoreEntries)
		w.want(client.qp.Receive(nil, nil), provider.StatusNoMoreEntries)
	})
}

func TestSendTooLong(t *testing.T) {
	t.Run("NDK-POST-22 NDK-POST-18", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		w.want(server.qp.Receive(1, server.at(100, 50)), success)
		w.want(server.qp.Receive(2, server.at(200, 50)), success)
		same := server.unchanged()
		w.want(client.qp.Send(1, client.at(0, 51), 0), success)
		w.want(client.qp.Write(2, nil, 0, 0, provider.OpSilentSuccess), success)
		if s := statuses(client.results(2)); !slices.Equal(s, []provider.Status{provider.StatusRemoteResources, provider.StatusCancelled}) {
			t.Errorf("client: %v", s)
		}
		if s := statuses(server.results(2)); !slices.Equal(s, []provider.Status{overflow, provider.StatusCancelled}) {
			t.Errorf("server: %v", s)
		}
		same()
		w.settle()
		if client.disconnected != 1 || server.disconnected != 1 {
			t.Error("the connection has not been ended")
		}
		// A receive posted at the end that is dead is flushed.
		w.want(server.qp.Receive(3, nil), success)
		server.result(provider.StatusCancelled)
	})
}

func TestFlush(t *testing.T) {
	t.Run("NDK-FLUSH-03 waits for no completion", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			client, _ := w.connect()
			w.path.Down = true
			client.pending()
			w.atOnce("Flush", client.qp.Flush)
			client.cancelled()
			idle := client.newQP()
			w.want(idle.Receive(nil, nil), success)
			w.atOnce("Flush of a QP that is not connected", idle.Flush)
			client.result(provider.StatusCancelled)
		})
	})
	t.Run("NDK-FLUSH-01 NDK-FLUSH-02 all that is pending", func(t *testing.T) {
		w := newWorld(t)
		client, _ := w.connect()
		var local []func(*provider.QP, any, provider.OpFlags) provider.Status
		for _, operation := range localOperations {
			local = append(local, operation.make(client, false))
		}
		w.path.Down = true
		client.receive(3)
		w.want(client.qp.Write(nil, client.at(0, 100000), base, 1, provider.OpSilentSuccess), success)
		w.want(client.qp.Send(nil, nil, 0), success)
		w.want(client.qp.SendAndInvalidate(nil, nil, 0, 1), success)
		w.want(client.qp.Read(nil, nil, base, 1, 0), success)
		for _, post := range local {
			w.want(post(client.qp, nil, 0), success)
		}
		client.qp.Flush()
		got := client.results(7 + len(local))
		kinds := map[provider.OperationType]int{}
		for _, r := range got {
			w.want(r.Status, provider.StatusCancelled)
			kinds[r.Type]++
		}
		if kinds[provider.OperationTypeReceive] != 3 || kinds[provider.OperationTypeSend] != 2 || len(kinds) != 4+len(local) {
			t.Fatalf("got %v", kinds)
		}
		client.qp.Flush()
		w.silent(client.cq)
		// ndkpi.md T48: it was the beginning of the end.
		w.want(client.qp.Send(nil, nil, 0), provider.StatusConnectionInvalid)
		client.receive(1)
		client.result(provider.StatusCancelled)
	})
	t.Run("NDK-FLUSH-08 ndkpi.md T48 never connected", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.hosts[0], w.hosts[1]
		server.cq.Arm(provider.NotifyAny)
		server.qp.Flush()
		w.silent(server.cq)
		server.notes.notified(t)
		server.receive(2)
		server.qp.Flush()
		if s := statuses(server.results(2)); !slices.Equal(s, []provider.Status{provider.StatusCancelled, provider.StatusCancelled}) {
			t.Fatalf("got %v", s)
		}
		w.connect() // it is usable as before
		w.sendTo(client, server, 0)
		server.result(success)
	})
	t.Run("NDK-FLUSH-06 NDK-CQ-18 never connected, armed for solicited events", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		h.receive(1)
		h.cq.Arm(provider.NotifySolicited)
		h.qp.Flush()
		w.settle()
		h.notes.notified(t, success)
	})
	t.Run("NDK-FLUSH-08 connected and idle", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		client.cq.Arm(provider.NotifyAny)
		client.qp.Flush()
		w.silent(client.cq)
		client.notes.notified(t)
		if client.disconnected+server.disconnected > 0 {
			t.Fatal("the connection has been ended")
		}
	})
}

// TestReceiveLate: a send that met no receive is tried again as soon as the peer
// asked for, though a later timer was running.
func TestReceiveLate(t *testing.T) {
	w := newWorld(t)
	client, server := w.connect()
	start := w.clock.Now()
	w.want(client.qp.Send(nil, nil, 0), success)
	w.clock.Run(100 * time.Microsecond)
	server.receive(1)
	client.result(success)
	if took := w.clock.Now() - start; took > time.Millisecond {
		t.Fatalf("took %v", took)
	}
}

func TestDefer(t *testing.T) {
	for i, name := range []string{"Send", "Write", "Read"} {
		t.Run("NDK-DEFER-02 may be done at once: "+name, func(t *testing.T) {
			w := newWorld(t)
			client, server := w.connect()
			w.want(server.qp.Receive(nil, server.at(0, 100)), success)
			w.want(initiators(server)[i].post(client.qp, "deferred", client.at(0, 100), provider.OpDefer), success)
			w.settle()
			early := make([]provider.ResultEx, 2)
			got := early[:client.cq.ResultsEx(early)]
			w.want(client.qp.Write("last", nil, 0, 0, 0), success)
			got = append(got, client.results(2-len(got))...)
			w.silent(client.cq)
			for i, context := range []string{"deferred", "last"} { // in order, each once
				if got[i].RequestContext != context || got[i].Status != success {
					t.Errorf("got %+v for %s", got[i], context)
				}
			}
		})
	}
}

// TestPostsAreFinal has a device that pends whatever it may post all there is to
// post: NDK-POST-03.
func TestPostsAreFinal(t *testing.T) {
	w := newWorld(t)
	pending := w.guest(func(config *provider.Config) { config.Pend = true })
	server := w.hosts[1]
	srq, _ := pending.newSRQ(0)
	posts := append(initiators(server), initiator{"SendAndInvalidate", sendAndInvalidate},
		initiator{"Receive", func(qp *provider.QP, c any, s []provider.SGE, _ provider.OpFlags) provider.Status {
			return qp.Receive(c, s)
		}},
		initiator{"SRQ.Receive", func(_ *provider.QP, c any, s []provider.SGE, _ provider.OpFlags) provider.Status {
			return srq.Receive(c, s)
		}})
	for _, state := range []string{"not connected", "connected", "ended"} {
		switch state {
		case "connected":
			w.join(pending, server)
			server.receive(1)
		case "ended":
			server.conn.Disconnect(nil, nil)
			w.settle()
		}
		for _, post := range posts {
			t.Run("NDK-POST-03 "+post.name+" "+state, func(t *testing.T) {
				for name, sgl := range map[string][]provider.SGE{
					"nothing": nil, "something": pending.at(0, 10), "too many pieces": make([]provider.SGE, 100),
				} {
					if got := post.post(pending.qp, nil, sgl, 0); got == provider.StatusPending {
						t.Errorf("%s: %v", name, got)
					}
				}
			})
		}
	}
}
