package provider_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
)

const (
	success  = provider.StatusSuccess
	overflow = provider.StatusBufferOverflow
)

// notified fails the test unless the callback was told just these statuses.
func (n *notes) notified(t *testing.T, wanted ...provider.Status) {
	t.Helper()
	if !slices.Equal(n.statuses, wanted) {
		t.Fatalf("notified with %v, want %v", n.statuses, wanted)
	}
}

// sendTo has one host's receive complete by the other's send.
func (w *world) sendTo(from, to *host, flags provider.OpFlags) {
	w.t.Helper()
	w.want(to.qp.Receive(nil, nil), success)
	w.want(from.qp.Send(nil, nil, flags|provider.OpSilentSuccess), success)
	w.clock.Run(time.Millisecond)
}

// overrun has the host's CQ overrun by receives.
func (w *world) overrun(from, to *host) {
	w.t.Helper()
	for range cqDepth + 1 {
		w.sendTo(from, to, 0)
	}
}

func TestCreateCQ(t *testing.T) {
	info := provider.DefaultAdapterInfo()
	info.MaxCqDepth = cqDepth
	w := newWorldOf(t, addresses, info)
	h := w.hosts[0]
	for _, c := range []struct {
		name     string
		depth    uint32
		affinity *provider.GroupAffinity
		want     provider.Status
	}{
		{"NDK-CQ-01 too deep", cqDepth + 1, nil, provider.StatusInvalidParameter},
		{"NDK-CQ-01 as deep as can be", cqDepth, nil, success},
		{"no depth", 0, nil, provider.StatusInvalidParameter},
		{"NDK-CQ-45 an affinity for a processor that is not there", 1, &provider.GroupAffinity{Mask: 1 << 63, Group: 999}, success},
		{"NDK-CQ-45 an affinity for all processors", 1, &provider.GroupAffinity{Mask: ^uint64(0)}, success},
		{"NDK-CQ-45 an affinity for none", 1, &provider.GroupAffinity{}, success},
	} {
		t.Run(c.name, func(t *testing.T) {
			cq, status := h.CreateCQ(c.depth, nil, nil, c.affinity, nil, nil)
			if status != c.want || (cq != nil) != (status == success) {
				t.Fatalf("got %v, %v, want %v", cq, status, c.want)
			}
			if cq != nil {
				track(h, cq)
				cq.Arm(provider.NotifyAny) // without a notification function that does nothing
			}
		})
	}
}

// TestNobodyNotified: a queue may have no callback.
func TestNobodyNotified(t *testing.T) {
	w := newWorld(t)
	h := w.hosts[0]
	cq := track(h, must(h.CreateCQ(4, nil, nil, nil, nil, nil)))
	qp := h.newQPOn(cq, cq, nil)
	for _, arm := range []provider.NotifyType{provider.NotifyAny, provider.NotifySolicited} {
		cq.Arm(arm)
		w.want(qp.Receive(nil, nil), success)
		qp.Flush()
		w.settle()
		w.results(cq, 1)
	}
	cq.Arm(provider.NotifyErrors)
	cq.Fail()
	w.settle()
}

func TestNotification(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *world, *host, *host){
		"NDK-CQ-02 never armed": func(t *testing.T, w *world, client, server *host) {
			w.sendTo(client, server, provider.OpSendAndSolicitEvent)
			server.notes.notified(t)
		},
		"NDK-CQ-03 armed and empty": func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			w.settle()
			server.notes.notified(t)
			w.sendTo(client, server, 0)
			server.notes.notified(t, success)
		},
		"NDK-CQ-04 one arm, one callback": func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			for range 3 {
				w.sendTo(client, server, 0)
			}
			server.notes.notified(t, success)
		},
		"NDK-CQ-05 newer entry": func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			w.sendTo(client, server, 0)
			w.sendTo(client, server, 0) // after the callback, and not armed
			server.notes.notified(t, success)
			server.cq.Arm(provider.NotifyAny)
			w.clock.Run(0)
			server.notes.notified(t, success, success)
		},
		"NDK-CQ-05 newer entry, solicited": func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			w.sendTo(client, server, 0)
			w.sendTo(client, server, provider.OpSendAndSolicitEvent)
			w.sendTo(client, server, 0)
			server.cq.Arm(provider.NotifySolicited)
			w.clock.Run(0)
			server.notes.notified(t, success, success)
		},
		"no newer entry that is still there": func(t *testing.T, w *world, client, server *host) {
			w.sendTo(client, server, provider.OpSendAndSolicitEvent)
			w.sendTo(client, server, 0)
			server.results(1)
			server.cq.Arm(provider.NotifySolicited)
			w.settle()
			server.notes.notified(t)
			server.results(1)
			server.cq.Arm(provider.NotifyAny)
			w.settle()
			server.notes.notified(t)
		},
		"NDK-CQ-06 only old entries": func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyAny)
			w.sendTo(client, server, 0)
			server.notes.notified(t, success)
			// Allowed would be a callback at once; ours waits for a newer entry, and
			// either way there is one callback.
			server.cq.Arm(provider.NotifyAny)
			w.settle()
			server.notes.notified(t, success)
			w.sendTo(client, server, 0)
			server.notes.notified(t, success, success)
			server.results(2)
		},
		"NDK-CQ-07 never notified": func(t *testing.T, w *world, client, server *host) {
			w.sendTo(client, server, 0)
			server.cq.Arm(provider.NotifyAny)
			w.clock.Run(0)
			server.notes.notified(t, success)
		},
		"NDK-CQ-08 armed again in the callback": func(t *testing.T, w *world, client, server *host) {
			inside := 0
			server.notes.then = func() {
				if inside++; inside > 1 {
					t.Error("a callback began during another")
				}
				if len(server.notes.statuses) < 3 {
					server.cq.Arm(provider.NotifyAny)
					w.sendTo(client, server, 0)
				}
				inside--
			}
			server.cq.Arm(provider.NotifyAny)
			w.sendTo(client, server, 0)
			w.settle()
			server.notes.notified(t, success, success, success)
		},
		"NDK-CQ-16 not solicited": func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifySolicited)
			w.sendTo(client, server, 0)
			server.notes.notified(t)
		},
		"NDK-CQ-17 solicited": func(t *testing.T, w *world, client, server *host) {
			got := 0
			server.notes.then = func() { got = server.cq.Results(make([]provider.Result, 5)) }
			server.cq.Arm(provider.NotifySolicited)
			w.sendTo(client, server, provider.OpSendAndSolicitEvent)
			server.notes.notified(t, success)
			if got != 1 {
				t.Fatalf("%d completions inside the callback, want 1", got)
			}
		},
		"NDK-CQ-17 solicited, with an invalidation": func(t *testing.T, w *world, client, server *host) {
			_, m := server.borrow(allRights)
			server.receive(1)
			got := 0
			server.notes.then = func() { got = server.cq.Results(make([]provider.Result, 5)) }
			server.cq.Arm(provider.NotifySolicited)
			w.want(client.qp.SendAndInvalidate(nil, nil, provider.OpSendAndSolicitEvent, m.token), success)
			w.settle()
			server.notes.notified(t, success)
			if got != 1 {
				t.Fatalf("%d completions inside the callback, want 1", got)
			}
		},
		"NDK-CQ-18 error, solicited": func(t *testing.T, w *world, client, server *host) {
			client.cq.Arm(provider.NotifySolicited)
			w.want(client.qp.Write(nil, client.at(0, 1), 1, 1, 0), success)
			w.settle()
			client.notes.notified(t, success)
			client.result(provider.StatusRemoteResources)
		},
		"NDK-CQ-20 errors only": func(t *testing.T, w *world, client, server *host) {
			server.cq.Arm(provider.NotifyErrors)
			w.sendTo(client, server, provider.OpSendAndSolicitEvent)
			server.notes.notified(t)
		},
		"NDK-CQ-22 failed before armed": func(t *testing.T, w *world, client, server *host) {
			w.overrun(client, server)
			server.notes.notified(t)
			server.cq.Arm(provider.NotifySolicited)
			w.clock.Run(0)
			server.notes.notified(t, overflow)
		},
		"a failure is told once": func(t *testing.T, w *world, client, server *host) {
			server.notes.then = func() { server.cq.Arm(provider.NotifyAny) }
			w.overrun(client, server)
			server.cq.Arm(provider.NotifyAny)
			w.settle()
			server.notes.notified(t, overflow)
		},
		"NDK-CQ-42 closed in a callback": func(t *testing.T, w *world, client, server *host) {
			cq, n := server.newCQ(8)
			server.qp = server.newQPOn(cq, cq, nil)
			server.receive(4)
			var closing *async
			n.then = func() {
				cq.Arm(provider.NotifyAny) // there is a newer entry by now, or will be
				closing = server.close(cq)
				server.qp.Flush()
				w.want(closing.returned, provider.StatusPending)
				server.close(server.qp)
				w.settle()
				if closing.calls > 0 {
					t.Error("closed during its callback")
				}
			}
			cq.Arm(provider.NotifyAny)
			server.qp.Flush()
			w.settle()
			n.notified(t, success)
			if closing.calls != 1 {
				t.Fatalf("close called back %d times", closing.calls)
			}
		},
		"NDK-CQ-43 armed and closed": func(t *testing.T, w *world, client, server *host) {
			cq, n := server.newCQ(8)
			cq.Arm(provider.NotifyAny)
			w.want(server.close(cq).returned, success)
			w.settle()
			n.notified(t)
		},
		"NDK-CQ-43 armed and closing": func(t *testing.T, w *world, client, server *host) {
			server.receive(1)
			server.cq.Arm(provider.NotifyAny)
			w.want(server.close(server.cq).returned, provider.StatusPending)
			server.qp.Flush()
			w.settle()
			server.notes.notified(t)
		},
		"NDK-CQ-44 never in vain": func(t *testing.T, w *world, client, server *host) {
			total := 0
			server.notes.then = func() {
				n := server.cq.Results(make([]provider.Result, 3))
				if n == 0 {
					t.Error("notified of nothing")
				}
				total += n
				server.cq.Arm(provider.NotifyAny)
			}
			server.cq.Arm(provider.NotifyAny)
			server.receive(20)
			for range 20 {
				w.want(client.qp.Send(nil, nil, 0), success)
			}
			w.settle()
			total += server.cq.Results(make([]provider.Result, 20))
			if total != 20 {
				t.Fatalf("%d completions, want 20", total)
			}
		},
		"NDK-POST-06 silent success": func(t *testing.T, w *world, client, server *host) {
			client.cq.Arm(provider.NotifyAny)
			w.want(client.qp.Write(nil, nil, 0, 0, provider.OpSilentSuccess), success)
			w.silent(client.cq)
			client.notes.notified(t)
		},
		"NDK-FLUSH-06 flushed": func(t *testing.T, w *world, client, server *host) {
			server.receive(1)
			server.cq.Arm(provider.NotifySolicited)
			server.qp.Flush()
			w.clock.Run(0)
			server.notes.notified(t, success)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			client, server := w.connect()
			test(t, w, client, server)
		})
	}
}

// receive posts n receives without a buffer.
func (h *host) receive(n int) {
	h.world.t.Helper()
	for range n {
		h.world.want(h.qp.Receive(nil, nil), success)
	}
}

// TestArms: what one arm on top of another waits for (ndkpi.md 5.4, the matrix).
func TestArms(t *testing.T) {
	const (
		errs = provider.NotifyErrors
		any  = provider.NotifyAny
		sol  = provider.NotifySolicited
	)
	for _, c := range []struct {
		rule                  string
		first, second, result provider.NotifyType
	}{
		{"NDK-CQ-10", any, errs, any},
		{"NDK-CQ-10", any, sol, any},
		{"NDK-CQ-10", any, any, any},
		{"NDK-CQ-11", errs, any, any},
		{"NDK-CQ-12", errs, errs, errs},
		{"NDK-CQ-13", errs, sol, sol},
		{"NDK-CQ-14", sol, any, any},
		{"NDK-CQ-15", sol, errs, sol},
		{"NDK-CQ-15", sol, sol, sol},
	} {
		t.Run(fmt.Sprintf("%s NDK-CQ-21 %d then %d", c.rule, c.first, c.second), func(t *testing.T) {
			for event, cause := range map[string]struct {
				happens  func(w *world, client, server *host)
				notifies bool
				status   provider.Status
			}{
				"success": {func(w *world, client, server *host) { w.sendTo(client, server, 0) },
					c.result == any, success},
				"solicited": {func(w *world, client, server *host) { w.sendTo(client, server, provider.OpSendAndSolicitEvent) },
					c.result != errs, success},
				"overrun": {func(w *world, client, server *host) { w.sendTo(client, server, 0) }, true, overflow},
			} {
				w := newWorld(t)
				client, server := w.connect()
				if event == "overrun" {
					for range cqDepth {
						w.sendTo(client, server, 0)
					}
					server.cq.Arm(any) // so that there is no newer entry
					w.settle()
					server.notes.statuses = nil
				}
				server.cq.Arm(c.first)
				server.cq.Arm(c.second)
				cause.happens(w, client, server)
				if cause.notifies {
					server.notes.notified(t, cause.status)
				} else {
					server.notes.notified(t)
				}
			}
		})
	}
}

// TestLoneError: one failed request, alone on its CQ, satisfies an arm, whatever its status.
func TestLoneError(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(w *world, client, server *host) // one request of the client's
		want provider.Status
	}{
		"an unknown local token": {func(w *world, client, server *host) {
			w.want(client.qp.Send(nil, []provider.SGE{{VirtualAddress: base, Length: 1}}, 0), success)
		}, provider.StatusAccessViolation},
		"a read into what is not there": {func(w *world, client, server *host) {
			w.want(client.qp.Read(nil, []provider.SGE{{VirtualAddress: base, Length: 1}}, base, server.mr.RemoteToken(), 0), success)
		}, provider.StatusAccessViolation},
		"an unknown remote token": {func(w *world, client, server *host) {
			w.want(client.qp.Write(nil, client.at(0, 1), 1, 1, provider.OpSilentSuccess), success)
		}, provider.StatusRemoteResources},
		"a token that the peer has just ended": {func(w *world, client, server *host) {
			mr, m := client.borrow(allRights)
			client.receive(1)
			w.want(server.qp.SendAndInvalidate(nil, nil, 0, m.token), success)
			w.want(client.qp.Read("before", client.at(0, 1<<19), base, server.mr.RemoteToken(), 0), success)
			w.want(client.qp.Invalidate(nil, mr, 0), success) // waits for the read, and the peer is faster
			client.results(2)
		}, provider.StatusInvalidDeviceRequest},
		"a receive that is too short": {func(w *world, client, server *host) {
			w.want(client.qp.Receive(nil, client.at(0, 1)), success)
			w.want(server.qp.Send(nil, server.at(0, 2), 0), success)
		}, overflow},
		"a peer that is gone": {func(w *world, client, server *host) {
			w.path.Down = true
			w.want(client.qp.Write(nil, nil, 0, 0, 0), success)
		}, timedOut},
		"flushed": {func(w *world, client, server *host) {
			client.receive(1)
			client.qp.Flush()
		}, provider.StatusCancelled},
	} {
		t.Run("NDK-CQ-19 "+name, func(t *testing.T) {
			w := newWorld(t)
			client, server := w.connect()
			c.fail(w, client, server)
			client.cq.Arm(provider.NotifyAny)
			var got []provider.Result
			client.notes.then = func() { // within which the entry can be taken already
				got = make([]provider.Result, 2)
				got = got[:client.cq.Results(got)]
			}
			w.wait("the notification", func() bool { return len(client.notes.statuses) > 0 })
			client.notes.notified(t, success)
			if len(got) != 1 || got[0].Status != c.want {
				t.Errorf("got %+v, want one entry with %v", got, c.want)
			}
		})
	}
}

func TestOverrun(t *testing.T) {
	t.Run("NDK-CQ-23 NDK-CQ-24 NDK-CNT-08 nothing more is reported, and every QP is unusable", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		otherCQ, _ := server.newCQ(4)
		other := server.newQPOn(server.cq, otherCQ, nil)
		// The server's second QP is idle when the CQ that it shares overruns.
		client2, server2 := *client, *server
		client2.qp, server2.qp, server2.port = client.newQP(), other, 7001
		w.join(&client2, &server2)
		w.overrun(client, server)
		buffer := make([]provider.Result, 2*cqDepth)
		if n := server.cq.Results(buffer); n != cqDepth {
			t.Fatalf("%d entries, want %d", n, cqDepth)
		}
		for _, qp := range []*provider.QP{server.qp, other} {
			w.want(qp.Send(nil, nil, 0), provider.StatusConnectionInvalid)
			qp.Receive(nil, nil)
		}
		w.silent(server.cq)
		if server.disconnected != 1 || server2.disconnected != 1 || client.disconnected != 1 || client2.disconnected != 1 {
			t.Error("not every end of the connections was told that they are gone")
		}
		if got := server.device.Counters().CQError; got != 1 {
			t.Errorf("CQError is %d, want 1", got)
		}
		if _, status := server.pd.CreateQP(server.cq, server.cq, nil, 1, 1, 1, 1, 0, nil, nil); status == success {
			t.Error("a QP was made on a CQ that has failed")
		}
	})
	t.Run("NDK-CQ-24 a QP that was to be connected", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		late := *server
		late.qp, late.disconnected = server.newQP(), 0
		var connector *provider.Connector
		l := track(client, must(client.CreateListener(func(_ any, c *provider.Connector) {
			client2 := *client
			client2.qp = client.newQP()
			client2.accept(track(client, c))
		}, nil, nil, nil)))
		w.want(l.Listen(client.service(), nil, nil), success)
		connector = server.newConnector()
		late.conn = connector
		w.want(w.finish(late.dial(connector, client)), success)
		w.overrun(client, server)
		w.want(late.complete(), success)
		w.want(late.qp.Send(nil, nil, 0), provider.StatusConnectionInvalid)
		w.settle()
		if late.disconnected != 1 {
			t.Errorf("told %d times that the connection is gone", late.disconnected)
		}
	})
	t.Run("NDK-CQ-24 NDK-DISC-13 a QP that is being connected", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		late := *server
		late.qp, late.port, late.disconnected = server.newQP(), 7001, 0
		var accepted *async
		late.listen(func(c *provider.Connector) { accepted = late.accept(c) })
		client.conn = client.newConnector()
		connecting := *client
		connecting.qp = client.newQP()
		w.want(w.finish(connecting.dial(client.conn, &late)), success)
		w.overrun(client, server)
		w.settle()
		if accepted.calls != 1 {
			t.Fatal("Accept has not completed")
		}
		w.want(accepted.status, provider.StatusConnectionAborted)
		w.want(client.complete(), provider.StatusConnectionAborted)
		if late.disconnected > 0 {
			t.Error("a disconnect event without a connection")
		}
	})
}
