package provider_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// everything calls nearly all functions of the provider on a host, on its own
// objects and on new ones, to no lasting effect on what is there. None may wait
// for the callback that it is called from.
func (h *host) everything() {
	w := h.world
	var info provider.AdapterInfo
	size := uint32(provider.AdapterInfoSize)
	w.want(h.QueryAdapterInfo(&info, &size), success)
	h.device.Counters()
	h.device.TransportCounters()
	h.device.Attributes()
	h.device.Connections()
	h.device.LocalEndpoints()
	w.want(h.device.SetState(true), success)
	h.device.Subscribe(func(provider.NetEvent) {})()

	cq, _ := h.newCQ(8)
	qp := h.newQPOn(cq, cq, nil)
	w.want(qp.Receive(nil, nil), success)
	qp.Flush()
	cq.Arm(provider.NotifyAny)
	cq.Results(make([]provider.Result, 1))
	h.cq.Arm(provider.NotifyErrors)
	h.cq.ResultsEx(nil)
	h.qp.Send(nil, nil, 0) // connected or not
	h.qp.Receive(nil, nil)

	mr := h.register(1<<20, make([]byte, 10), 0)
	a := &async{}
	w.want(mr.Deregister(a.done, a), provider.StatusPending)
	pd := track(h, must(h.CreatePD(nil, nil)))

	mw := track(h, must(h.pd.CreateMW(nil, nil)))
	mw.RemoteToken()
	frmr := track(h, must(h.pd.CreateMR(true, nil, nil)))
	w.want(frmr.InitializeFastRegister(1, true, nil, nil), success)
	shared := track(h, must(h.CreateSharedEndpoint(h.ephemeral(), nil, nil)))

	event := func(any, *provider.Connector) {}
	l := track(h, must(h.CreateListener(event, nil, nil, nil)))
	w.want(l.Listen(h.ephemeral(), nil, nil), success)
	l.ControlConnectEvents(true)
	var address netip.AddrPort
	length := uint32(28)
	w.want(l.GetLocalAddress(&address, &length), success)
	c := h.newConnector()
	connect := &async{}
	connect.returned = c.Connect(qp, h.ephemeral(), nowhere, 1, 1, nil, connect.done, connect)
	for _, c := range []*provider.Connector{c, h.conn} {
		if c != nil {
			c.GetPeerAddress(&address, &length)
			c.GetLocalAddress(&address, &length)
			c.GetConnectionData(nil, nil, nil, &length)
		}
	}
	for _, o := range []closer{c, shared, l, qp, cq, mw, frmr, mr, pd} {
		h.close(o)
	}
}

// TestCallbacksCallEverything: every kind of callback calls the provider, on the
// object that it is about and on others, of its own device and of another.
func TestCallbacksCallEverything(t *testing.T) {
	for name, test := range map[string]func(w *world, client, server *host, body func()){
		"create": func(w *world, client, server *host, body func()) {
			c := &creation{then: body}
			creates["connector"](client, true, c)
			w.settle()
			client.close(track(client, c.created))
		},
		"Register": func(w *world, client, server *host, body func()) {
			mr := track(client, must(client.pd.CreateMR(false, nil, nil)))
			a := &async{then: func() {
				mr.LocalToken()
				body()
				client.close(mr)
			}}
			w.want(mr.Register(&provider.MDL{VirtualAddress: 1, Bytes: make([]byte, 1)}, 1, 0, a.done, a), provider.StatusPending)
		},
		"Deregister": func(w *world, client, server *host, body func()) {
			mr := client.register(2<<20, make([]byte, 1), 0)
			a := &async{then: func() {
				w.want(mr.Register(&provider.MDL{VirtualAddress: 1, Bytes: make([]byte, 1)}, 1, 0, nil, nil), success)
				body()
			}}
			w.want(mr.Deregister(a.done, a), provider.StatusPending)
		},
		"Listen": func(w *world, client, server *host, body func()) {
			l := track(client, must(client.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
			a := &async{then: func() {
				l.ControlConnectEvents(true)
				if _, status := l.LocalAddress(); status != success {
					t.Error(status)
				}
				body()
				client.close(l)
			}}
			w.want(l.Listen(client.ephemeral(), a.done, a), provider.StatusPending)
		},
		"Connect": func(w *world, client, server *host, body func()) {
			server.listen(func(c *provider.Connector) { server.accept(c) })
			client.conn = client.newConnector()
			client.dial(client.conn, server).then = func() {
				body()
				w.want(client.conn.CompleteConnect(nil, nil, nil, nil), success)
			}
		},
		"CompleteConnect": func(w *world, client, server *host, body func()) {
			server.listen(func(c *provider.Connector) { server.accept(c) })
			client.conn = client.newConnector()
			w.want(w.finish(client.dial(client.conn, server)), success)
			a := &async{then: func() {
				w.want(client.qp.Send(nil, nil, 0), success)
				body()
				b := &async{}
				w.want(client.conn.Disconnect(b.done, b), provider.StatusPending)
			}}
			w.want(client.conn.CompleteConnect(nil, nil, a.done, a), provider.StatusPending)
		},
		"Accept": func(w *world, client, server *host, body func()) {
			server.listen(func(c *provider.Connector) {
				server.accept(c).then = func() {
					w.want(server.qp.Send(nil, nil, 0), success)
					body()
					server.close(server.conn)
				}
			})
			client.conn = client.newConnector()
			w.want(w.finish(client.dial(client.conn, server)), success)
			w.want(client.complete(), success)
		},
		"Disconnect": func(w *world, client, server *host, body func()) {
			w.connect()
			a := &async{then: func() {
				w.want(client.qp.Send(nil, nil, 0), provider.StatusConnectionInvalid)
				body()
				client.close(client.conn)
			}}
			w.want(client.conn.Disconnect(a.done, a), provider.StatusPending)
		},
		"close": func(w *world, client, server *host, body func()) {
			w.connect()
			a := client.close(client.qp) // the connector holds it
			client.qp = client.newQP()
			a.then = body
			client.close(client.conn)
		},
		"CQ notification": func(w *world, client, server *host, body func()) {
			client.notes.then = func() {
				client.notes.then = nil
				client.cq.Results(make([]provider.Result, 8))
				client.cq.Arm(provider.NotifyAny)
				body()
				client.close(client.qp)
				client.close(client.cq)
			}
			w.want(client.qp.Receive(nil, nil), success)
			client.cq.Arm(provider.NotifyAny)
			client.qp.Flush()
		},
		"SRQ notification": func(w *world, client, server *host, body func()) {
			var srq *provider.SRQ
			srq = track(client, must(client.pd.CreateSRQ(2, 1, 1, func(_ any, status provider.Status) {
				w.want(status, success)
				w.want(srq.Receive(nil, nil), success)
				w.want(srq.Modify(3, 1, nil, nil), success)
				body()
				client.close(srq)
			}, nil, nil, nil, nil)))
			w.want(srq.Modify(0, 1, nil, nil), success)
		},
		"Modify": func(w *world, client, server *host, body func()) {
			srq := track(client, must(client.pd.CreateSRQ(2, 1, 1, nil, nil, nil, nil, nil)))
			a := &async{then: func() {
				w.want(srq.Receive(nil, nil), success)
				body()
				client.close(srq)
			}}
			w.want(srq.Modify(3, 0, a.done, a), provider.StatusPending)
		},
		"Resize": func(w *world, client, server *host, body func()) {
			a := &async{then: func() {
				w.want(client.cq.Resize(cqDepth, nil, nil), success)
				body()
			}}
			w.want(client.cq.Resize(cqDepth+1, a.done, a), provider.StatusPending)
		},
		"connect event": func(w *world, client, server *host, body func()) {
			server.listen(func(c *provider.Connector) {
				server.conn = c
				body()
				server.accept(c)
				server.close(server.listener)
			})
			client.conn = client.newConnector()
			w.want(w.finish(client.dial(client.conn, server)), success)
			w.want(client.complete(), success)
		},
		"disconnect event": func(w *world, client, server *host, body func()) {
			server.listen(func(c *provider.Connector) {
				server.conn = c
				a := &async{}
				a.returned = c.Accept(server.qp, 1, 1, nil, func(any) {
					server.qp.Flush()
					body()
					b := &async{}
					server.conn.Disconnect(b.done, b)
					server.close(server.conn)
				}, nil, a.done, a)
			})
			client.conn = client.newConnector()
			w.want(w.finish(client.dial(client.conn, server)), success)
			w.want(client.complete(), success)
			w.settle()
			client.close(client.conn)
		},
		"disconnect event with a reason": func(w *world, client, server *host, body func()) {
			server.listen(func(c *provider.Connector) { server.accept(c) })
			client.conn = client.newConnector()
			w.want(w.finish(client.dial(client.conn, server)), success)
			w.want(client.conn.CompleteConnectEx(func(any, uint32) {
				body()
				client.close(client.conn)
			}, nil, nil, nil), success)
			w.settle()
			server.close(server.conn)
		},
		"net event": func(w *world, client, server *host, body func()) {
			cancel := func() {}
			cancel = client.device.Subscribe(func(provider.NetEvent) {
				cancel()
				body() // which enables again
				client.leave()
			})
			w.want(client.device.SetState(false), success)
			w.settle()
			w.comeBack(0)
		},
	} {
		t.Run("NDK-CB-03 "+name, func(t *testing.T) {
			w := newWorldWith(t, addresses, pends)
			client, server := w.hosts[0], w.hosts[1]
			b, near := w.another(server), client
			if name == "net event" {
				near = server // the client's device is being disabled
			}
			a, calls := w.another(near), 0
			test(w, client, server, func() {
				calls++
				b.port = 7001
				a.cq.Arm(provider.NotifyAny)
				exchange(w, a, b) // from connecting on, while the callback is in progress
				if len(a.notes.statuses) == 0 {
					t.Error("no notification while another callback is in progress")
				}
				gone := &async{}
				gone.returned = a.qp.Close(gone.closed, gone)
				w.want(gone.returned, provider.StatusPending) // for the connector
				w.finish(a.close(a.conn))
				w.want(w.finish(gone), success)
				w.want(client.device.SetState(true), success)
			})
			w.clock.Run(10 * time.Second)
			if calls != 1 {
				t.Fatalf("called %d times", calls)
			}
		})
		t.Run("NDK-CB-02 "+name, func(t *testing.T) {
			w := newWorldWith(t, addresses, pends)
			client, server := w.hosts[0], w.hosts[1]
			calls := 0
			test(w, client, server, func() {
				calls++
				client.everything()
				server.everything()
				w.settle() // while the callback is in progress
			})
			w.clock.Run(10 * time.Second)
			if calls != 1 {
				t.Fatalf("called %d times", calls)
			}
		})
	}
}
