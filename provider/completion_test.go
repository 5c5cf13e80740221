package provider_test

import (
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A hasty clock is the real one, but what Go runs gets ahead of its caller: while
// until is set, Go returns only when that is closed.
type hasty struct {
	clock.Clock
	until atomic.Pointer[chan struct{}]
	runs  atomic.Int32 // of what Go was given
}

func (h *hasty) Go(f func()) {
	until := h.until.Swap(nil) // before f, which may lead to another
	h.runs.Add(1)
	h.Clock.Go(func() {
		defer h.runs.Add(-1)
		f()
	})
	if until != nil {
		<-*until
	}
}

// TestCompletionBeforeReturn: a request's completion runs before the call that
// started it has returned, and closes the object.
func TestCompletionBeforeReturn(t *testing.T) {
	type call func(provider.RequestCompletion) provider.Status
	// accepted makes a connector whose Connect has succeeded, and everything
	// that has to do with it, the peer's connector first.
	accepted := func(client, server *crowd) (*provider.Connector, []closer) {
		qps := []*provider.QP{client.newQP(), server.newQP()}
		delivered := make(chan *provider.Connector, 1)
		l := must(server.CreateListener(func(_ any, c *provider.Connector) {
			c.Accept(qps[1], 0, 0, nil, nil, nil, func(any, provider.Status) {}, nil)
			delivered <- c
		}, nil, nil, nil))
		to := netip.AddrPortFrom(addresses[1], firstPort)
		l.Listen(to, nil, nil)
		c := must(client.CreateConnector(nil, nil))
		await(func(done provider.RequestCompletion) provider.Status {
			return c.Connect(qps[0], netip.AddrPortFrom(addresses[0], 0), to, 0, 0, nil, done, nil)
		})
		return c, []closer{<-delivered, qps[0], qps[1], l}
	}
	for name, start := range map[string]func(client, server *crowd) (o closer, request call, rest []closer){
		"NDK-LIFE-18 Listen": func(client, server *crowd) (closer, call, []closer) {
			l := must(client.CreateListener(func(any, *provider.Connector) {}, nil, nil, nil))
			return l, func(done provider.RequestCompletion) provider.Status {
				return l.Listen(netip.AddrPortFrom(addresses[0], 0), done, nil)
			}, nil
		},
		"NDK-LIFE-18 Register": func(client, server *crowd) (closer, call, []closer) {
			mr := must(client.pd.CreateMR(false, nil, nil))
			return mr, func(done provider.RequestCompletion) provider.Status {
				return mr.Register(&provider.MDL{Bytes: make([]byte, 8)}, 8, 0, done, nil)
			}, nil
		},
		"NDK-LIFE-18 CompleteConnect": func(client, server *crowd) (closer, call, []closer) {
			c, rest := accepted(client, server)
			return c, func(done provider.RequestCompletion) provider.Status {
				return c.CompleteConnect(nil, nil, done, nil)
			}, rest
		},
		"NDK-LIFE-18 Disconnect": func(client, server *crowd) (closer, call, []closer) {
			c, rest := accepted(client, server)
			c.CompleteConnect(nil, nil, nil, nil)
			awaitClose(rest[0])
			for client.device.Counters().ActiveConnection > 0 { // then there is nobody to wait for
				runtime.Gosched()
			}
			return c, func(done provider.RequestCompletion) provider.Status { return c.Disconnect(done, nil) }, rest[1:]
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer leak.Check(t)()
			h := &hasty{Clock: clock.Real()}
			w := newWire(0)
			client := newCrowdWith(t, w, addresses[0], 1, 8, h, true)
			server := newCrowd(t, w, addresses[1], 2, 8)
			o, request, rest := start(client, server)

			entered, returned, closed := make(chan struct{}), make(chan struct{}), make(chan struct{})
			var completions, closes atomic.Int32
			early := false
			for h.runs.Load() > 0 { // what runs the callbacks of before would run the next, too
				runtime.Gosched()
			}
			h.until.Store(&entered)
			status := request(func(_ any, s provider.Status) {
				select {
				case <-returned:
				default:
					early = true
				}
				if completions.Add(1); s != success {
					t.Errorf("completed with %v", s)
				}
				close(entered)
				if s := o.Close(func(any) { closes.Add(1); close(closed) }, nil); s != provider.StatusPending {
					t.Errorf("closed with %v within the object's own callback", s)
					close(closed)
				}
				if closes.Load() > 0 {
					t.Error("closed while the object's own callback is in progress")
				}
			})
			close(returned)
			if status != provider.StatusPending {
				t.Fatalf("the call returned %v", status)
			}
			<-closed
			if !early {
				t.Error("the completion has not run before the call returned")
			}
			for _, o := range rest {
				awaitClose(o)
			}
			client.end()
			server.end()
			if completions.Load() != 1 || closes.Load() != 1 {
				t.Errorf("%d completions, %d closes", completions.Load(), closes.Load())
			}
		})
	}
}
