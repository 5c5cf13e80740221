package provider_test

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// A creation is a create call that pends: what it returned and what it called
// back with. It is its own context.
type creation struct {
	returned provider.Object
	status   provider.Status // returned
	calls    int
	created  provider.Object // by the callback
	final    provider.Status
	then     func() // called by the callback, if set
}

func (c *creation) done(context any, status provider.Status, object provider.Object) {
	if context != c {
		panic("wrong context")
	}
	c.calls++
	c.final, c.created = status, object
	if c.then != nil {
		c.then()
	}
}

// returns notes what a create returned: an object that is not there is nil.
func returns[T provider.Object](c *creation, object T, status provider.Status) {
	c.status = status
	if !reflect.ValueOf(object).IsNil() {
		c.returned = object
	}
}

// creates are all create functions; good says whether the call is to succeed.
var creates = map[string]func(h *host, good bool, c *creation){
	"CQ": func(h *host, good bool, c *creation) {
		depth := h.Info().MaxCqDepth + 1
		if good {
			depth = 1
		}
		cq, status := h.CreateCQ(depth, nil, nil, nil, c.done, c)
		returns(c, cq, status)
	},
	"PD": func(h *host, _ bool, c *creation) {
		pd, status := h.CreatePD(c.done, c)
		returns(c, pd, status)
	},
	"MR": func(h *host, _ bool, c *creation) {
		mr, status := h.pd.CreateMR(false, c.done, c)
		returns(c, mr, status)
	},
	"QP": func(h *host, good bool, c *creation) {
		inline := h.Info().MaxInlineDataSize + 1
		if good {
			inline = 0
		}
		qp, status := h.pd.CreateQP(h.cq, h.cq, nil, 1, 1, 1, 1, inline, c.done, c)
		returns(c, qp, status)
	},
	"FRMR": func(h *host, _ bool, c *creation) {
		mr, status := h.pd.CreateMR(true, c.done, c)
		returns(c, mr, status)
	},
	"MW": func(h *host, _ bool, c *creation) {
		mw, status := h.pd.CreateMW(c.done, c)
		returns(c, mw, status)
	},
	"shared endpoint": func(h *host, good bool, c *creation) {
		address := nowhere
		if good {
			address = h.ephemeral()
		}
		s, status := h.CreateSharedEndpoint(address, c.done, c)
		returns(c, s, status)
	},
	"SRQ": func(h *host, good bool, c *creation) {
		depth := h.Info().MaxSrqDepth + 1
		if good {
			depth = 1
		}
		srq, status := h.pd.CreateSRQ(depth, 1, 0, nil, nil, nil, c.done, c)
		returns(c, srq, status)
	},
	"QP with an SRQ": func(h *host, good bool, c *creation) {
		inline := h.Info().MaxInlineDataSize + 1
		if good {
			inline = 0
		}
		srq := track(h, must(h.pd.CreateSRQ(1, 1, 0, nil, nil, nil, nil, nil)))
		qp, status := h.pd.CreateQPWithSRQ(h.cq, h.cq, srq, nil, 1, 1, inline, c.done, c)
		returns(c, qp, status)
	},
	"connector": func(h *host, _ bool, c *creation) {
		connector, status := h.CreateConnector(c.done, c)
		returns(c, connector, status)
	},
	"listener": func(h *host, good bool, c *creation) {
		var event provider.ConnectEvent
		if good {
			event = func(any, *provider.Connector) {}
		}
		l, status := h.CreateListener(event, nil, c.done, c)
		returns(c, l, status)
	},
}

// canFail are the creates that can be made to fail by their parameters, and how.
var canFail = map[string]provider.Status{
	"CQ": provider.StatusInvalidParameter, "SRQ": provider.StatusInvalidParameter, "QP": provider.StatusInvalidParameter,
	"QP with an SRQ": provider.StatusInvalidParameter, "listener": provider.StatusInvalidParameter,
	"shared endpoint": provider.StatusInvalidAddress,
}

func pends(c *provider.Config) { c.Pend = true }

func TestCreates(t *testing.T) {
	for name, create := range creates {
		t.Run("NDK-LIFE-01 "+name, func(t *testing.T) {
			w := newWorld(t)
			var c creation
			create(w.hosts[0], true, &c)
			w.want(c.status, success)
			if c.returned == nil || c.returned.Type() == 0 {
				t.Fatal("no object")
			}
			w.settle()
			if c.calls > 0 {
				t.Fatal("called back")
			}
			w.hosts[0].close(track(w.hosts[0], c.returned))
		})
		t.Run("NDK-LIFE-02 NDK-LIFE-03 "+name+" that pends", func(t *testing.T) {
			w := newWorldWith(t, addresses, pends)
			h := w.hosts[0]
			var c creation
			var closing *async
			c.then = func() {
				// The delivered object is the consumer's, and may be closed at once
				// (NDK-LIFE-17).
				closing = h.close(track(h, c.created))
				w.settle()
				if closing.calls > 0 {
					t.Error("closed while its creation's callback is in progress")
				}
			}
			create(h, true, &c)
			w.want(c.status, provider.StatusPending)
			if c.returned != nil || c.calls > 0 {
				t.Fatalf("returned %v; called back from within the call: %v", c.returned, c.calls > 0)
			}
			w.clock.Run(time.Minute)
			w.want(c.final, success)
			if c.calls != 1 || c.created == nil || c.created.Type() == 0 || closing.calls != 1 {
				t.Fatalf("got %+v, closed %+v", c, closing)
			}
		})
		t.Run("NDK-LIFE-01 "+name+" that could pend and has nobody to tell", func(t *testing.T) {
			w := newWorldWith(t, addresses, pends)
			pd, status := w.hosts[0].CreatePD(nil, nil)
			w.want(status, success)
			track(w.hosts[0], pd)
		})
		if failure, ok := canFail[name]; ok {
			for mode, change := range map[string]func(*provider.Config){"at once": func(*provider.Config) {}, "on a device that pends": pends} {
				t.Run("NDK-LIFE-04 "+name+" that fails "+mode, func(t *testing.T) {
					w := newWorldWith(t, addresses, change)
					var c creation
					create(w.hosts[0], false, &c)
					w.want(c.status, failure)
					w.clock.Run(time.Minute)
					if c.returned != nil || c.calls > 0 {
						t.Fatalf("got %+v", c)
					}
				})
			}
		}
	}
}

func TestCloses(t *testing.T) {
	for name, create := range creates {
		t.Run("NDK-LIFE-08 NDK-LIFE-09 "+name+" that nothing holds", func(t *testing.T) {
			w := newWorld(t)
			var c creation
			create(w.hosts[0], true, &c)
			closing := w.hosts[0].close(track(w.hosts[0], c.returned))
			w.want(closing.returned, success)
			w.clock.Run(time.Minute)
			if closing.calls > 0 {
				t.Fatal("called back")
			}
		})
		t.Run("NDK-LIFE-08 NDK-LIFE-10 "+name+" whose callback is in progress", func(t *testing.T) {
			w := newWorldWith(t, addresses, pends)
			h := w.hosts[0]
			var c creation
			var closing *async
			c.then = func() { closing = h.close(track(h, c.created)) }
			create(h, true, &c)
			w.clock.Run(time.Minute)
			w.want(closing.returned, provider.StatusPending)
			if closing.calls != 1 {
				t.Fatalf("called back %d times", closing.calls)
			}
		})
	}
}

// TestRequestsThatPend: what a device may do at once, it may also do later.
func TestRequestsThatPend(t *testing.T) {
	for name, request := range map[string]func(w *world, a *async) provider.Status{
		"Register": func(w *world, a *async) provider.Status {
			h := w.hosts[0]
			mr := track(h, must(h.pd.CreateMR(false, nil, nil)))
			return mr.Register(&provider.MDL{VirtualAddress: 1, Bytes: make([]byte, 1)}, 1, 0, a.done, a)
		},
		"Resize": func(w *world, a *async) provider.Status { return w.hosts[0].cq.Resize(cqDepth+1, a.done, a) },
		"Modify": func(w *world, a *async) provider.Status {
			srq := track(w.hosts[0], must(w.hosts[0].pd.CreateSRQ(1, 1, 0, nil, nil, nil, nil, nil)))
			return srq.Modify(2, 0, a.done, a)
		},
		"InitializeFastRegister": func(w *world, a *async) provider.Status {
			mr := track(w.hosts[0], must(w.hosts[0].pd.CreateMR(true, nil, nil)))
			return mr.InitializeFastRegister(16, true, a.done, a)
		},
		"BuildLAM": func(w *world, a *async) provider.Status {
			h := w.hosts[0]
			var lam provider.LAM
			size, fbo := uint32(1<<10), uint32(0)
			status := h.BuildLAM(&provider.MDL{Bytes: make([]byte, 9)}, 9, a.done, a, &lam, &size, &fbo)
			h.ReleaseLAM(&lam)
			return status
		},
		"Listen": func(w *world, a *async) provider.Status {
			h := w.hosts[0]
			l := track(h, must(h.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil)))
			return l.Listen(netip.AddrPortFrom(h.address, 0), a.done, a)
		},
		"CompleteConnect": func(w *world, a *async) provider.Status {
			client, server := w.hosts[0], w.hosts[1]
			server.listen(func(c *provider.Connector) { server.accept(c) })
			client.conn = client.newConnector()
			w.want(w.finish(client.dial(client.conn, server)), success)
			return client.conn.CompleteConnect(nil, nil, a.done, a)
		},
	} {
		t.Run("NDK-LIFE-05 "+name, func(t *testing.T) {
			w := newWorld(t)
			var a async
			w.want(request(w, &a), success)
			w.clock.Run(time.Minute)
			if a.calls > 0 {
				t.Fatal("called back")
			}
		})
		t.Run("NDK-LIFE-06 NDK-LIFE-07 "+name, func(t *testing.T) {
			w := newWorldWith(t, addresses, pends)
			var a async
			w.want(request(w, &a), provider.StatusPending)
			if a.calls > 0 {
				t.Fatal("called back from within the call")
			}
			w.clock.Run(time.Minute)
			w.want(a.status, success)
			if a.calls != 1 {
				t.Fatalf("called back %d times", a.calls)
			}
		})
	}
	t.Run("NDK-LIFE-06 Disconnect after the peer's", func(t *testing.T) {
		w := newWorldWith(t, addresses, pends)
		client, server := w.connect()
		w.finish(client.disconnect())
		w.clock.Run(time.Minute) // the connection is forgotten: there is nobody to tell
		a := server.disconnect()
		w.want(a.returned, provider.StatusPending)
		w.settle()
		if a.calls != 1 || a.status != success {
			t.Fatalf("called back %d times, with %v", a.calls, a.status)
		}
	})
	t.Run("all of a connection's life", func(t *testing.T) {
		w := newWorldWith(t, addresses, pends)
		exchange(w, w.hosts[0], w.hosts[1])
	})
}
