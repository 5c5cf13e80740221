package provider_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
)

// revocables has a function for each kind of object that can be invalidated, which
// makes a token of a host's with all rights.
var revocables = map[string]func(h *host) (provider.Object, target){
	"FRMR": func(h *host) (provider.Object, target) {
		mr, m := h.borrow(allRights)
		return mr, m
	},
	"window": func(h *host) (provider.Object, target) {
		mw, m := h.openWindow(allRights, 0xF)
		return mw, m
	},
}

func TestInvalidate(t *testing.T) {
	for name, grant := range revocables {
		run := func(rule string, test func(t *testing.T, w *world, client, server *host)) {
			t.Run(rule+" "+name, func(t *testing.T) {
				w := newWorld(t)
				client, server := w.connect()
				test(t, w, client, server)
			})
		}
		run("NDK-INV-04 NDK-CQ-32 NDK-INV-06 by the peer", func(t *testing.T, w *world, client, server *host) {
			_, m := grant(server)
			w.want(server.qp.Receive("r", server.at(100_000, 10)), success)
			w.want(client.qp.SendAndInvalidate("s", client.at(0, 5), 0, m.token), success)
			r := server.result(success)
			if r.Type != provider.OperationTypeReceiveAndInvalidate || r.TypeSpecificCompletionOutput != uint64(m.token) ||
				r.BytesTransferred != 5 || r.RequestContext != "r" {
				t.Fatalf("got %+v", r)
			}
			if r := client.result(success); r.Type != provider.OperationTypeSend || r.TypeSpecificCompletionOutput != 0 {
				t.Fatalf("got %+v", r)
			}
			w.try("write to", m, false)
		})
		run("NDK-CQ-33 by the peer, retrieved with the plain function", func(t *testing.T, w *world, client, server *host) {
			_, m := grant(server)
			w.want(server.qp.Receive("r", server.at(100_000, 10)), success)
			w.want(client.qp.SendAndInvalidate("s", client.at(0, 5), 0, m.token), success)
			client.result(success)
			results := make([]provider.Result, 2)
			if n := server.cq.Results(results); n != 1 {
				t.Fatalf("%d results", n)
			}
			if want := (provider.Result{BytesTransferred: 5, QPContext: server, RequestContext: "r"}); results[0] != want {
				t.Fatalf("got %+v", results[0])
			}
			w.try("read of", m, false)
		})
		run("NDK-INV-03 what the peer has invalidated", func(t *testing.T, w *world, client, server *host) {
			o, m := grant(server)
			server.receive(1)
			w.want(client.qp.SendAndInvalidate(nil, nil, 0, m.token), success)
			server.result(success)
			w.want(server.qp.Invalidate(nil, o, 0), provider.StatusInvalidDeviceRequest)
			client.result(success)
			w.silent(server.cq) // the connection goes on
			server.receive(1)
			w.want(client.qp.Send(nil, nil, 0), success)
			client.result(success)
			server.result(success)
		})
		run("NDK-INV-03 what the peer invalidates before the owner's request is performed", func(t *testing.T, w *world, client, server *host) {
			o, m := grant(server)
			server.receive(1)
			w.want(server.qp.Invalidate("late", o, provider.OpDefer), success)
			w.want(client.qp.SendAndInvalidate(nil, nil, 0, m.token), success)
			got := server.results(2)
			i := slices.IndexFunc(got, func(r provider.ResultEx) bool { return r.RequestContext == "late" })
			checkStatus(t, got[i], provider.StatusInvalidDeviceRequest)
			checkStatus(t, got[1-i], success)
			w.settle()
			if client.disconnected != 1 || server.disconnected != 1 { // NDK-POST-18
				t.Fatal("the connection goes on")
			}
		})
		run("NDK-INV-03 twice, and before it is valid", func(t *testing.T, w *world, client, server *host) {
			o, _ := grant(server)
			w.want(server.qp.Invalidate(1, o, provider.OpSilentSuccess), success)
			w.want(server.qp.Invalidate(2, o, 0), provider.StatusInvalidDeviceRequest)
			w.want(server.qp.Invalidate(3, track(server, must(server.pd.CreateMW(nil, nil))), 0), provider.StatusInvalidDeviceRequest)
			w.want(server.qp.Invalidate(4, server.newFRMR(1, true), 0), provider.StatusInvalidDeviceRequest)
			w.want(server.qp.Invalidate(5, track(server, must(server.pd.CreateMR(true, nil, nil))), 0), provider.StatusInvalidDeviceRequest)
			w.silent(server.cq)
		})
		run("NDK-INV-05 an old token by the peer", func(t *testing.T, w *world, client, server *host) {
			o, m := grant(server)
			server.invalidate(o)
			server.receive(1)
			w.want(client.qp.SendAndInvalidate(nil, nil, 0, m.token), success)
			client.result(provider.StatusRemoteResources)
		})
		run("NDK-INV-05 by a peer in another domain", func(t *testing.T, w *world, client, server *host) {
			o, m := grant(server)
			w.rejoinIn(server, track(server, must(server.CreatePD(nil, nil))))
			w.want(server.qp.Invalidate(nil, o, 0), provider.StatusInvalidParameter)
			server.receive(1)
			w.want(client.qp.SendAndInvalidate(nil, nil, 0, m.token), success)
			client.result(provider.StatusRemoteResources)
		})
		t.Run("NDK-INV-04 not while another queue pair uses the memory, by the peer "+name, func(t *testing.T) {
			notWhileInUse(t, grant, true)
		})
		t.Run("NDK-INV-01 NDK-MW-09 not while another queue pair uses the memory, by the owner "+name, func(t *testing.T) {
			notWhileInUse(t, grant, false)
		})
	}
	t.Run("NDK-INV-05 what is for its owner alone, by the peer", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		mr, m := server.borrow(provider.OpAllowLocalWrite)
		server.receive(1)
		w.want(client.qp.SendAndInvalidate(nil, nil, 0, m.token), success)
		client.result(provider.StatusRemoteResources)
		w.settle()
		w.rejoin()
		server.results(1)
		server.invalidate(mr) // it was still valid
	})
	t.Run("NDK-INV-02 a registered region", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		w.want(server.qp.Invalidate(nil, server.mr, 0), provider.StatusInvalidParameter)
		w.want(server.qp.Invalidate(nil, server.pd, 0), provider.StatusInvalidParameter)
		w.want(server.qp.Invalidate(nil, nil, 0), provider.StatusInvalidParameter)
		w.want(server.qp.Invalidate(nil, (*provider.MW)(nil), 0), provider.StatusInvalidParameter)
		w.want(server.qp.Invalidate(nil, (*provider.MR)(nil), 0), provider.StatusInvalidParameter)
		w.silent(server.cq)
		w.want(client.qp.Write(nil, client.at(0, 10), base, server.mr.RemoteToken(), 0), success)
		client.result(success)
	})
	t.Run("waits for what was posted before", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		mr, m := client.borrow(0)
		server.receive(1)
		w.path.Loss = 0.3 // so that the memory is needed again and again
		w.want(server.qp.Receive(nil, server.at(0, grantSize)), success)
		w.want(client.qp.Send(nil, nil, provider.OpDefer), success)
		w.want(client.qp.Send(nil, m.sgl, provider.OpDefer), success)
		w.want(client.qp.Invalidate(nil, mr, 0), success)
		for _, s := range statuses(client.results(3)) {
			w.want(s, success)
		}
		if !bytes.Equal(server.memory[:grantSize], client.memory[grantAt:][:grantSize]) {
			t.Fatal("arrived wrong")
		}
	})
}

func checkStatus(t *testing.T, r provider.ResultEx, want provider.Status) {
	t.Helper()
	if r.Status != want {
		t.Fatalf("%v: got %v, want %v", r.RequestContext, r.Status, want)
	}
}

func TestReadLocalInvalidate(t *testing.T) {
	const local = provider.OpReadLocalInvalidate
	t.Run("NDK-INV-07 NDK-INV-09 of an FRMR", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		mr, m := client.borrow(allRights)
		w.want(client.qp.Read(1, m.sgl, base, server.mr.RemoteToken(), local), success)
		if r := client.result(success); r.Type != provider.OperationTypeRead {
			t.Fatalf("got %+v", r)
		}
		if !bytes.Equal(client.memory[grantAt:][:grantSize], server.memory[:grantSize]) {
			t.Fatal("not read")
		}
		w.want(client.qp.Invalidate(2, mr, 0), provider.StatusInvalidDeviceRequest) // it has ended
		w.try("send from", m, false)
	})
	t.Run("NDK-INV-07 the first piece's alone", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		_, m := client.borrow(allRights)
		other := client.newFRMR(1, true)
		client.fast(other, client.lend(0, client.memory[0x8000:0x9000]), 0, 0x1000, allRights)
		sgl := append(slices.Clone(m.sgl), provider.SGE{Length: 100, MemoryRegionToken: other.LocalToken()})
		w.want(client.qp.Read(nil, sgl, base, server.mr.RemoteToken(), local), success)
		client.result(success)
		client.invalidate(other)
	})
	t.Run("NDK-INV-07 and registered anew behind it", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		mr, m := client.borrow(allRights)
		l := client.lend(0, client.memory[0x8000:0x9000])
		w.want(client.qp.FastRegister(0, mr, l.Pages, 0, 1, 0, 0), provider.StatusInvalidParameter)
		w.want(client.qp.Read(1, m.sgl, base, server.mr.RemoteToken(), local|provider.OpDefer), success)
		w.want(client.qp.Invalidate(2, mr, provider.OpDefer), provider.StatusInvalidDeviceRequest)
		w.want(client.qp.FastRegister(3, mr, l.Pages, 0, 0x1000, 0, allRights|provider.OpReadFence), success)
		client.results(2)
		client.invalidate(mr)
	})
	t.Run("and registered anew before the read is complete", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		mr, m := client.borrow(allRights)
		l := client.lend(0, client.memory[0x8000:0x9000])
		w.want(client.qp.Read(1, m.sgl, base, server.mr.RemoteToken(), local), success)
		w.want(client.qp.FastRegister(2, mr, l.Pages, 0, 0x1000, 0, 0), success) // without a fence
		results := client.results(2)
		checkStatus(t, results[0], success)
		checkStatus(t, results[1], provider.StatusInvalidDeviceRequest)
		w.settle()
		w.want(client.qp.Send(nil, nil, 0), provider.StatusConnectionInvalid)
	})
	t.Run("a read that fails leaves nothing pending", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		mr, m := client.borrow(allRights)
		w.want(client.qp.Read(1, m.sgl, base, server.mr.RemoteToken()+1, local), success)
		client.result(provider.StatusRemoteResources)
		w.settle()
		w.rejoin()
		client.invalidate(mr) // is valid still
	})
	t.Run("of what cannot be invalidated", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		w.want(client.qp.Read(nil, client.at(0, 10), base, server.mr.RemoteToken(), local), provider.StatusInvalidParameter)
		m := client.logical()
		w.want(client.qp.Read(nil, m.sgl, base, server.mr.RemoteToken(), local), provider.StatusInvalidParameter)
		w.silent(client.cq)
		nothing := []provider.SGE{{Length: 10, MemoryRegionToken: client.mr.LocalToken() + 0x1000}}
		w.want(client.qp.Read(nil, nothing, base, server.mr.RemoteToken(), local), success)
		client.result(provider.StatusAccessViolation)
		w.settle()
		w.rejoin()
		w.want(client.qp.Read(nil, nil, base, server.mr.RemoteToken(), local), success) // there is none
		client.result(success)
	})
	t.Run("of a token that has ended, whose slot is a registered region's", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		sgl := client.at(0, 10)
		sgl[0].MemoryRegionToken++ // the same slot, another key
		w.want(client.qp.Read(nil, sgl, base, server.mr.RemoteToken(), local), success)
		client.result(provider.StatusAccessViolation) // NDK-SGE-04
	})
	t.Run("NDK-INV-08 ignored without the adapter's flag", func(t *testing.T) {
		info := provider.DefaultAdapterInfo()
		info.AdapterFlags &^= provider.AdapterReadLocalInvalidate
		w := newWorldOf(t, addresses, info)
		client, server := w.connect()
		mr, m := client.borrow(allRights)
		for range 2 {
			w.want(client.qp.Read(nil, m.sgl, base, server.mr.RemoteToken(), local), success)
			client.result(success)
		}
		client.invalidate(mr)
	})
}

// TestReadInvalidatesNothing: the token that a READ is to end has ended by then,
// and as the READ is of no bytes, nobody has asked for it since.
func TestReadInvalidatesNothing(t *testing.T) {
	w := newWorld(t)
	client, server := w.connect()
	mr, m := client.borrow(allRights)
	sgl := []provider.SGE{{VirtualAddress: m.address, MemoryRegionToken: m.token}}
	w.want(client.qp.Read(nil, sgl, base, server.mr.RemoteToken(), provider.OpReadLocalInvalidate), success)
	client.close(mr)
	client.result(provider.StatusAccessViolation)
}

// TestRegisteredForARead: a READ may end what is registered right before it, and
// a registration follow behind.
func TestRegisteredForARead(t *testing.T) {
	w := newWorld(t)
	client, server := w.connect()
	mr := client.newFRMR(1, true)
	l := client.lend(0, client.memory[0x8000:0x9000])
	w.want(client.qp.FastRegister(1, mr, l.Pages, 0, 0x1000, 0, allRights|provider.OpDefer), success)
	sgl := []provider.SGE{{Length: 100, MemoryRegionToken: mr.LocalToken()}}
	w.want(client.qp.Read(2, sgl, base, server.mr.RemoteToken(), provider.OpReadLocalInvalidate|provider.OpDefer), success)
	w.want(client.qp.FastRegister(3, mr, l.Pages, 0, 0x1000, 0, allRights|provider.OpReadFence), success)
	for _, r := range client.results(3) {
		checkStatus(t, r, success)
	}
	client.invalidate(mr)
}

// TestQueuesOfOneWindow: of two queue pairs that change one window, the second
// cannot know whether the first has done its part.
func TestQueuesOfOneWindow(t *testing.T) {
	t.Run("NDK-POST-18 bound on one queue before it is invalidated on the other (ndkpi.md T71)", func(t *testing.T) {
		w := newWorld(t)
		client, _ := w.connect()
		mr := client.register(0, client.memory, 0xF)
		mw := track(client, must(client.pd.CreateMW(nil, nil)))
		client.bind(mr, mw, 0, 10, allRights)
		first := client.qp
		w.rejoin()
		w.want(first.Invalidate("first", mw, provider.OpDefer), success)
		w.want(client.qp.Bind("second", mr, mw, 0, 10, allRights), success)
		if r := client.result(provider.StatusInvalidDeviceRequest); r.RequestContext != "second" {
			t.Fatalf("got %+v", r)
		}
		w.want(first.Write("begin", nil, 0, 0, 0), success)
		for _, r := range client.results(2) {
			checkStatus(t, r, success)
		}
		a := &async{}
		a.returned = mr.Deregister(a.done, a) // no window is bound to it
		w.want(w.finish(a), success)
	})
}

// TestInvalidateAtOnce: where nobody else uses the memory, an invalidation is
// reported without any delay, though it comes together with writes to it.
func TestInvalidateAtOnce(t *testing.T) {
	b := newBench(t, 64)
	frmr := b.lend(t, 1)
	b.qps[1].Receive(nil, nil)
	b.qps[0].Write(nil, b.sge[0], 0, frmr[0].MemoryRegionToken, provider.OpDefer)
	b.qps[0].SendAndInvalidate(nil, nil, 0, frmr[0].MemoryRegionToken)
	b.hand(0) // and nothing that runs on the side
	b.take(t, 1, 1)
}

// An interceptor is a carrier that keeps invalidations from the peer until its
// own adapter is sending the response to a READ, and has them arrive right then:
// in the middle of what the responding queue pair does.
type interceptor struct {
	provider.Carrier
	receiver provider.Receiver
	armed    bool
	kept     []roce.Received
	during   func() // called after they have arrived
}

func (i *interceptor) Listen(r provider.Receiver) {
	i.receiver = r
	i.Carrier.Listen(i)
}

func (i *interceptor) Receive(packets []roce.Received) {
	if i.armed && packets[0].Header.Opcode.HasInvalidate() {
		for _, p := range packets {
			p.Payload = bytes.Clone(p.Payload)
			i.kept = append(i.kept, p)
		}
		return
	}
	i.receiver.Receive(packets)
}

func (i *interceptor) Send(flow roce.Flow, packets []roce.Packet) error {
	if i.armed && packets[0].Header.Opcode.IsReadResponse() {
		i.armed = false
		i.receiver.Receive(i.kept)
		i.during()
	}
	return i.Carrier.Send(flow, packets)
}

// TestCloseInUse: an FRMR or window is not closed while a queue pair is using its
// memory (NDK-LIFE-13).
func TestCloseInUse(t *testing.T) {
	for name, grant := range revocables {
		t.Run(name, func(t *testing.T) {
			var carrier *interceptor // the server's
			w := newWorldWith(t, addresses, func(cfg *provider.Config) {
				carrier = &interceptor{Carrier: cfg.Carrier}
				cfg.Carrier = carrier
			})
			client, server := w.connect()
			o, m := grant(server)
			var closing *async
			carrier.during = func() { closing = server.close(o) }
			carrier.armed = true
			w.want(client.qp.Read(nil, client.at(0, 100), m.address, m.token, 0), success)
			client.result(success)
			w.want(closing.returned, provider.StatusPending)
			w.want(w.finish(closing), success)
		})
	}
}

// A hooked carrier has something happen while its adapter is sending data.
type hooked struct {
	provider.Carrier
	during func() // once, if set
}

func (h *hooked) Send(flow roce.Flow, packets []roce.Packet) error {
	if during := h.during; during != nil && packets[0].Header.Opcode != roce.UDSendOnly {
		h.during = nil
		during()
	}
	return h.Carrier.Send(flow, packets)
}

// TestAllInUse: a packet that is made of several regions uses each of them
// (NDK-INV-01).
func TestAllInUse(t *testing.T) {
	for last := range 3 {
		var carrier *hooked // the server's
		w := newWorldWith(t, addresses, func(cfg *provider.Config) {
			carrier = &hooked{Carrier: cfg.Carrier}
			cfg.Carrier = carrier
		})
		client, server := w.connect()
		first := server.qp
		w.rejoin()
		var sgl []provider.SGE
		var regions []*provider.MR
		for range 3 {
			mr, m := server.borrow(allRights)
			regions = append(regions, mr)
			sgl = append(sgl, provider.SGE{VirtualAddress: m.address, Length: 10, MemoryRegionToken: m.token})
		}
		w.want(client.qp.Receive(nil, client.at(0, 100)), success)
		carrier.during = func() {
			w.want(first.Invalidate(nil, regions[last], 0), success)
			if n := server.cq.Results(make([]provider.Result, 1)); n != 0 {
				t.Errorf("region %d: reported while the memory is in use", last)
			}
		}
		w.want(server.qp.Send(nil, sgl, 0), success)
		for _, r := range server.results(2) {
			checkStatus(t, r, success)
		}
	}
}

// notWhileInUse: a token is not reported to be invalid while another queue pair
// of the domain is using its memory.
func notWhileInUse(t *testing.T, grant func(*host) (provider.Object, target), byPeer bool) {
	var carrier *interceptor // the server's
	w := newWorldWith(t, addresses, func(cfg *provider.Config) {
		carrier = &interceptor{Carrier: cfg.Carrier}
		cfg.Carrier = carrier
	})
	client, server := w.connect()
	// The server's first QP is to invalidate; its second, to respond.
	first := [2]*provider.QP{client.qp, server.qp}
	w.rejoin()
	second := client.qp
	client.qp, server.qp = first[0], first[1]
	o, m := grant(server)
	if byPeer {
		server.receive(1)
		carrier.armed = true
		w.want(client.qp.SendAndInvalidate(nil, nil, provider.OpSilentSuccess, m.token), success)
		w.clock.Run(100 * time.Microsecond)
		if len(carrier.kept) == 0 {
			t.Fatal("no invalidation has arrived")
		}
	}
	carrier.armed = true
	carrier.during = func() {
		if !byPeer {
			w.want(server.qp.Invalidate(nil, o, 0), success)
			w.want(server.qp.Send(nil, nil, provider.OpInline), success) // behind it
		}
		if n := server.cq.Results(make([]provider.Result, 1)); n != 0 {
			t.Error("reported while the memory is in use")
		}
	}
	w.want(second.Read(nil, client.at(0, 100), m.address, m.token, 0), success)
	w.settle()
	if carrier.armed {
		t.Fatal("the memory was not in use")
	}
	want := []provider.OperationType{provider.OperationTypeReceiveAndInvalidate}
	if !byPeer {
		client.receive(1)
		want = []provider.OperationType{provider.OperationTypeInvalidate, provider.OperationTypeSend}
	}
	var got []provider.OperationType
	for _, r := range server.results(len(want)) {
		checkStatus(t, r, success)
		got = append(got, r.Type)
	}
	if !slices.Equal(got, want) { // NDK-CQ-37
		t.Fatalf("got %v, want %v", got, want)
	}
	checkStatus(t, client.results(1)[0], success) // of the read, which was in time
	// The completions that waited have let go of the queue pair, which its connector
	// still holds.
	w.want(server.close(first[1]).returned, provider.StatusPending)
}
