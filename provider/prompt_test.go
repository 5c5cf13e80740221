package provider_test

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// atOnce fails the test if f waits: for a while, for a timer, for another goroutine or for
// virtual time. It is for tests in a bubble of testing/synctest, whose clock stands still as long
// as anything runs in it, however long that takes the machine, and moves as soon as everything
// waits. A wait that nothing would ever end is a deadlock there, which ends the test.
func (w *world) atOnce(what string, f func()) {
	w.t.Helper()
	bubble := clock.Real()
	began, virtual := bubble.Now(), w.clock.Now()
	f()
	if waited := bubble.Now() - began + w.clock.Now() - virtual; waited != 0 {
		w.t.Errorf("%s waits for %v", what, waited)
	}
}

// promptCalls are calls of an object's functions, by name, and the functions called so far of each
// kind of object.
type promptCalls struct {
	w      *world
	called map[provider.ObjectType][]string
}

// call calls a function that is to return at once, with wanted unless it returns no status. It
// returns what else the function does. An argument nil is the zero value.
func (p *promptCalls) call(o object, function string, wanted provider.Status, arguments ...any) []reflect.Value {
	p.w.t.Helper()
	method := reflect.ValueOf(o).MethodByName(function)
	in := make([]reflect.Value, len(arguments))
	for i, argument := range arguments {
		parameter := method.Type().In(i)
		if argument == nil {
			in[i] = reflect.Zero(parameter)
		} else {
			in[i] = reflect.ValueOf(argument).Convert(parameter)
		}
	}
	name := reflect.TypeOf(o).Elem().Name() + "." + function
	var out []reflect.Value
	p.w.atOnce(name, func() { out = method.Call(in) })
	p.called[o.Type()] = append(p.called[o.Type()], function)
	if n := len(out); n > 0 {
		if got, ok := out[n-1].Interface().(provider.Status); ok && got != wanted {
			p.w.t.Errorf("%s: got %v, want %v", name, got, wanted)
		}
	}
	return out
}

// make calls a create function and returns the object.
func (p *promptCalls) make(h *host, o object, function string, arguments ...any) object {
	p.w.t.Helper()
	made := p.call(o, function, success, arguments...)[0].Interface()
	track(h, made.(closer))
	return made.(object)
}

// TestPrompt calls every function that must not block while nothing comes back from the peer, with
// arguments that have it do what it is for.
func TestPrompt(t *testing.T) {
	t.Run("NDK-CB-01 nothing waits for the network", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			client, server := w.connect()
			p := &promptCalls{w, map[provider.ObjectType][]string{}}
			const pending = provider.StatusPending
			done, closed := &async{}, &async{}
			completion, closing := provider.RequestCompletion(done.done), provider.CloseCompletion(closed.closed)

			// Three requests for Accept, AcceptEx and Reject, and two consents for CompleteConnect
			// and CompleteConnectEx.
			var requested []*provider.Connector
			second := *server
			second.port = 7001
			second.listen(func(c *provider.Connector) { requested = append(requested, c) })
			dial := func() *async {
				return client.dialFrom(client.newConnector(), client.newQP(), client.ephemeral(), second.service())
			}
			for range 3 {
				dial()
			}
			third := *server
			third.port = 7002
			third.listen(func(c *provider.Connector) {
				third.qp = third.newQP()
				third.accept(c)
			})
			var replied []*provider.Connector
			for range 2 {
				replied = append(replied, client.newConnector())
				w.want(w.finish(client.dialFrom(replied[len(replied)-1], client.newQP(), client.ephemeral(), third.service())), success)
			}
			w.settle()
			w.path.Down = true
			client.pending()

			event := provider.ConnectEvent(func(any, *provider.Connector) {})
			cq := p.make(client, client.Adapter, "CreateCQ", 8, nil, nil, nil, nil, nil)
			p.make(client, client.Adapter, "CreatePD", nil, nil)
			endpoint := p.make(client, client.Adapter, "CreateSharedEndpoint", client.ephemeral(), nil, nil)
			connector := p.make(client, client.Adapter, "CreateConnector", nil, nil)
			overShared := p.make(client, client.Adapter, "CreateConnector", nil, nil)
			listener := p.make(client, client.Adapter, "CreateListener", event, nil, nil, nil)
			mdl, lam := &provider.MDL{VirtualAddress: base, Bytes: client.memory[:100]}, &provider.LAM{}
			size, fbo := uint32(1000), uint32(0)
			p.call(client.Adapter, "BuildLAM", success, mdl, 100, nil, nil, lam, &size, &fbo)

			p.call(cq, "Arm", 0, provider.NotifyAny)
			p.call(cq, "ControlInterruptModeration", success, 1000, 4)
			p.call(client.cq, "Results", 0, make([]provider.Result, 1))
			p.call(client.cq, "ResultsEx", 0, make([]provider.ResultEx, 1))
			p.call(cq, "Resize", success, 16, nil, nil)

			mr := p.make(client, client.pd, "CreateMR", false, nil, nil)
			frmr := p.make(client, client.pd, "CreateMR", true, nil, nil)
			mw := p.make(client, client.pd, "CreateMW", nil, nil)
			srq := p.make(client, client.pd, "CreateSRQ", 8, 1, 0, nil, nil, nil, nil, nil)
			qp := p.make(client, client.pd, "CreateQP", cq, cq, nil, 8, 8, 1, 1, 0, nil, nil)
			qpWithSRQ := p.make(client, client.pd, "CreateQPWithSRQ", cq, cq, srq, nil, 8, 1, 0, nil, nil)
			p.call(client.pd, "PrivilegedMemoryRegionToken", 0)
			p.call(mr, "Register", success, mdl, 100, 0, nil, nil)
			p.call(frmr, "InitializeFastRegister", success, 1, true, nil, nil)
			p.call(mr, "LocalToken", 0)
			p.call(mr, "RemoteToken", 0)
			p.call(mw, "RemoteToken", 0)
			p.call(srq, "Modify", success, 4, 1, nil, nil)
			p.call(srq, "Receive", success, nil, nil)

			p.call(client.qp, "Receive", success, nil, nil)
			p.call(client.qp, "Send", success, nil, client.at(0, 5000), 0)
			p.call(client.qp, "SendAndInvalidate", success, nil, nil, 0, 1)
			p.call(client.qp, "Write", success, nil, client.at(0, 5000), base, server.mr.RemoteToken(), 0)
			p.call(client.qp, "Read", success, nil, client.at(0, 5000), base, server.mr.RemoteToken(), 0)
			p.call(client.qp, "FastRegister", success, nil, frmr, lam.Pages, fbo, 100, uint64(fbo), provider.OpAllowRemoteRead)
			p.call(client.qp, "Bind", success, nil, mr, mw, base, 10, provider.OpAllowRemoteRead)
			p.call(client.qp, "Invalidate", success, nil, mw, provider.OpReadFence)
			p.call(client.qp, "Flush", 0)

			p.call(connector, "Connect", pending, qp, client.ephemeral(), nowhere, 1, 1, []byte("hello"), completion, done)
			p.call(overShared, "ConnectWithSharedEndpoint", pending, qpWithSRQ, endpoint, nowhere, 1, 1, nil, completion, done)
			p.call(replied[0], "CompleteConnect", success, nil, nil, nil, nil)
			p.call(replied[1], "CompleteConnectEx", success, nil, nil, nil, nil)
			p.call(requested[0], "Accept", pending, server.newQP(), 1, 1, nil, nil, nil, completion, done)
			p.call(requested[1], "AcceptEx", pending, server.newQP(), 1, 1, nil, nil, nil, completion, done)
			p.call(requested[2], "Reject", success, []byte("no"))
			var address netip.AddrPort
			length, none := uint32(28), uint32(0)
			for _, o := range []object{client.conn, server.listener, endpoint} {
				p.call(o, "GetLocalAddress", success, &address, &length)
			}
			p.call(client.conn, "GetPeerAddress", success, &address, &length)
			p.call(client.conn, "GetConnectionData", success, nil, nil, nil, &none)
			p.call(client.conn, "Disconnect", pending, completion, done)
			p.call(listener, "Listen", success, client.ephemeral(), nil, nil)
			p.call(listener, "ControlConnectEvents", 0, true)

			p.call(client.Adapter, "ReleaseLAM", 0, lam)
			p.call(client.register(1<<20, make([]byte, 10), 0), "Deregister", pending, completion, done)
			p.call(client.Adapter, "QueryExtension", provider.StatusNotSupported, nil, nil, nil)
			for _, h := range w.hosts {
				for _, o := range slices.Clone(*h.open) {
					p.call(o.(object), "QueryExtension", provider.StatusNotSupported, nil, nil, nil)
					// Antecedents first, so that they have something to wait for.
					w.atOnce("Close", func() { o.Close(closing, closed) })
					p.called[o.Type()] = append(p.called[o.Type()], "Close")
				}
				*h.open = nil
			}
			for kind, functions := range tables {
				for _, function := range functions {
					// QueryAdapterInfo may block (ndkpi.md 1.4).
					if function != "QueryAdapterInfo" && !slices.Contains(p.called[kind], function) {
						t.Errorf("%s of objects of type %v is not called", function, kind)
					}
				}
			}
		})
	})
}
