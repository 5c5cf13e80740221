package provider_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

// TestBindRefused: what is wrong is refused at once, leaves the window as it was,
// completes nothing and does not hurt the connection.
func TestBindRefused(t *testing.T) {
	const (
		bad    = provider.StatusInvalidParameter
		denied = provider.StatusAccessViolation
		write  = provider.OpAllowRemoteWrite
		read   = provider.OpAllowRemoteRead
		size   = 10_000 // of the region, which is at base
	)
	for _, c := range []struct {
		name            string
		rights          provider.MRFlags
		address, length uint64
		flags           provider.OpFlags
		want            provider.Status
	}{
		{"NDK-MW-03 remote write of a region without rights", 0, base, 10, write, denied},
		{"NDK-MW-03 remote write of a region for reading", provider.MRAllowRemoteRead, base, 10, write | read, denied},
		{"NDK-MW-03 remote write of a region with local write", provider.MRAllowLocalWrite, base, 10, write, success},
		{"NDK-MW-04 remote read of a region without rights", 0, base, 10, read, success},
		{"NDK-MW-05 all of the region", 0xF, base, size, read, success},
		{"NDK-MW-05 one byte below the region", 0xF, base - 1, 2, read, bad},
		{"NDK-MW-05 one byte beyond the region", 0xF, base + 1, size, read, bad},
		{"NDK-MW-05 last byte of the region", 0xF, base + size - 1, 1, read, success},
		{"NDK-MW-05 behind the region", 0xF, base + size, 1, read, bad},
		{"NDK-MW-05 offset from zero", 0xF, 0, 10, read, bad},
		{"NDK-MW-07 longer than a window can be", 0xF, base, 5001, read, bad},
		{"so long that it wraps", 0xF, base + 10, math.MaxUint64 - 5, read, bad},
		{"nothing", 0xF, base, 0, read, bad},
		{"remote without local write (ndkpi.md T34)", 0xF, base, 10, 0x20, bad},
		{"local write", 0xF, base, 10, provider.OpAllowLocalWrite, bad},
		{"flag of FastRegister", 0xF, base, 10, provider.OpReadSink, bad},
	} {
		t.Run(c.name, func(t *testing.T) {
			info := provider.DefaultAdapterInfo()
			info.MaxWindowSize = size
			if c.length == 5001 {
				info.MaxWindowSize = 5000
			}
			w := newWorldOf(t, addresses, info)
			h, _ := w.connect()
			mr := h.register(base, h.memory[:size], c.rights)
			mw := track(h, must(h.pd.CreateMW(nil, nil)))
			token := mw.RemoteToken()
			w.want(h.qp.Bind("a", mr, mw, c.address, c.length, c.flags), c.want)
			if c.want == success {
				h.result(success)
				return
			}
			w.silent(h.cq) // NDK-POST-02
			if mw.RemoteToken() != token {
				t.Fatal("the token has changed")
			}
			a := &async{}
			a.returned = mr.Deregister(a.done, a) // nothing is bound to it
			w.want(w.finish(a), success)
			w.want(h.qp.Bind("b", mr, mw, base, 1, 0), bad) // not registered
			h.bind(h.mr, mw, base, 1, 0)                    // NDK-POST-17
		})
	}
	t.Run("NDK-MW-07 as long as a window can be", func(t *testing.T) {
		info := provider.DefaultAdapterInfo()
		info.MaxWindowSize = 5000
		w := newWorldOf(t, addresses, info)
		h, _ := w.connect()
		h.bind(h.mr, track(h, must(h.pd.CreateMW(nil, nil))), base, 5000, read)
	})
	t.Run("objects that do not go together", func(t *testing.T) {
		w := newWorld(t)
		h, _ := w.connect()
		mw := track(h, must(h.pd.CreateMW(nil, nil)))
		w.want(h.qp.Bind(nil, nil, mw, base, 1, 0), bad)
		w.want(h.qp.Bind(nil, h.mr, nil, base, 1, 0), bad)
		frmr, _ := h.borrow(allRights)
		w.want(h.qp.Bind(nil, frmr, mw, grantAt, 1, 0), bad)
		pd := track(h, must(h.CreatePD(nil, nil)))
		w.want(h.qp.Bind(nil, h.mr, track(h, must(pd.CreateMW(nil, nil))), base, 1, 0), bad)
		other := track(h, must(pd.CreateMR(false, nil, nil)))
		w.want(other.Register(&provider.MDL{VirtualAddress: base, Bytes: h.memory}, 100, 0xF, nil, nil), success)
		w.want(h.qp.Bind(nil, other, mw, base, 1, 0), bad)
		w.want(h.qp.Bind(nil, other, track(h, must(pd.CreateMW(nil, nil))), base, 1, 0), bad)
		w.silent(h.cq)
	})
	t.Run("what is bound, unless it has been invalidated before (ndkpi.md T71)", func(t *testing.T) {
		w := newWorld(t)
		h, _ := w.connect()
		mw := track(h, must(h.pd.CreateMW(nil, nil)))
		w.want(h.qp.Bind(1, h.mr, mw, base, 1, provider.OpDefer), success)
		w.want(h.qp.Bind(2, h.mr, mw, base, 1, provider.OpDefer), bad)
		h.result(success)
		w.want(h.qp.Bind(3, h.mr, mw, base, 1, 0), bad)
		w.want(h.qp.Invalidate(4, mw, provider.OpDefer), success)
		w.want(h.qp.Bind(5, h.mr, mw, base, 1, 0), success)
		for _, want := range []any{4, 5} {
			if r := h.result(success); r.RequestContext != want {
				t.Fatalf("got %+v", r)
			}
		}
		w.silent(h.cq)
	})
}

func TestBind(t *testing.T) {
	t.Run("NDK-MW-02 the token can be had at once", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		mw := track(server, must(server.pd.CreateMW(nil, nil)))
		initial := mw.RemoteToken()
		w.want(server.qp.Bind(nil, server.mr, mw, base+1000, 500, allRights|provider.OpDefer), success)
		token := mw.RemoteToken()
		if token == initial {
			t.Fatal("the token is the one from before")
		}
		w.want(server.qp.Write(nil, nil, 0, 0, 0), success) // begins what was deferred
		server.results(2)
		if mw.RemoteToken() != token {
			t.Fatal("the token has changed")
		}
		w.want(client.qp.Write(nil, client.at(0, 500), base+1000, token, 0), success)
		client.result(success)
		if !bytes.Equal(client.memory[:500], server.memory[1000:1500]) {
			t.Fatal("not written")
		}
	})
	t.Run("NDK-LIFE-29 closed before it was bound", func(t *testing.T) {
		w := newWorld(t)
		h, _ := w.connect()
		mr := h.register(0, h.memory[:1000], 0xF)
		mw := track(h, must(h.pd.CreateMW(nil, nil)))
		w.want(h.qp.Bind(nil, mr, mw, 0, 10, allRights|provider.OpDefer), success)
		closing := h.close(mw)
		h.qp.Flush()
		w.finish(closing)
		closing = h.close(mr)
		w.settle()
		if !closing.over() {
			t.Fatal("the region waits for a window that is gone")
		}
	})
	t.Run("NDK-MW-10 bound to another range and another region", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		mw := track(server, must(server.pd.CreateMW(nil, nil)))
		other := server.register(0x100, server.memory[700_000:800_000], provider.MRAllowLocalWrite)
		seen := map[uint32]bool{server.pd.PrivilegedMemoryRegionToken(): true, mw.RemoteToken(): true} // NDK-PTOK-05
		for i, at := range []int{0, 5000, 700_000, 710_000} {
			mr, address := server.mr, base+uint64(at)
			if i >= 2 {
				mr, address = other, 0x100+uint64(at-700_000)
			}
			server.bind(mr, mw, address, 5000, allRights)
			token := mw.RemoteToken()
			if seen[token] {
				t.Fatalf("token %#x again", token)
			}
			seen[token] = true
			w.want(client.qp.Write(nil, client.at(i*5000, 5000), address, token, 0), success)
			client.result(success)
			if !bytes.Equal(client.memory[i*5000:][:5000], server.memory[at:][:5000]) {
				t.Fatal("not written")
			}
			server.invalidate(mw)
		}
	})
	t.Run("NDK-MW-06 a window to memory of many pieces", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		m := server.memory
		mr := track(server, must(server.pd.CreateMR(false, nil, nil)))
		chain := &provider.MDL{VirtualAddress: 0, Bytes: m[:100], Next: &provider.MDL{VirtualAddress: 100, Bytes: m[200:300],
			Next: &provider.MDL{VirtualAddress: 200, Bytes: m[400:500]}}}
		w.want(mr.Register(chain, 300, 0, nil, nil), success)
		mw := track(server, must(server.pd.CreateMW(nil, nil)))
		server.bind(mr, mw, 50, 200, provider.OpAllowRemoteRead)
		w.want(client.qp.Read(nil, client.at(0, 200), 50, mw.RemoteToken(), 0), success)
		client.result(success)
		if want := bytes.Join([][]byte{m[50:100], m[200:300], m[400:450]}, nil); !bytes.Equal(client.memory[:200], want) {
			t.Fatal("read other than the window's bytes")
		}
	})
	t.Run("a region with windows cannot be deregistered", func(t *testing.T) {
		w := newWorld(t)
		h, _ := w.connect()
		mr := h.register(base, h.memory, 0xF)
		mw := track(h, must(h.pd.CreateMW(nil, nil)))
		a := &async{}
		w.want(h.qp.Bind(nil, mr, mw, base, 1, provider.OpDefer), success)
		w.want(mr.Deregister(a.done, a), provider.StatusDeviceBusy) // already
		w.want(h.qp.Invalidate(nil, mw, 0), success)
		h.results(2)
		h.bind(mr, mw, base, 1, 0)
		w.want(mr.Deregister(a.done, a), provider.StatusDeviceBusy)
		h.close(mw)
		mw = track(h, must(h.pd.CreateMW(nil, nil)))
		w.want(h.qp.Bind(nil, mr, mw, base, 1, provider.OpDefer), success)
		w.want(mr.Deregister(a.done, a), provider.StatusDeviceBusy)
		h.qp.Flush()
		h.result(provider.StatusCancelled)
		a.returned = mr.Deregister(a.done, a)
		w.want(w.finish(a), success)
	})
	for _, end := range []string{"closed", "invalidated", "invalidated by the peer", "flushed", "closed before it is bound"} {
		t.Run("NDK-LIFE-29 NDK-LIFE-32 a region closed before its window is "+end, func(t *testing.T) {
			w := newWorld(t)
			client, server := w.connect()
			mr := server.register(0x100, server.memory[:10_000], 0xF)
			mw := track(server, must(server.pd.CreateMW(nil, nil)))
			flags := allRights
			deferred := end == "flushed" || end == "closed before it is bound"
			if deferred {
				flags |= provider.OpDefer
			}
			w.want(server.qp.Bind(nil, mr, mw, 0x100, 5000, flags), success)
			if !deferred {
				server.result(success)
			}
			closing := server.close(mr)
			w.settle()
			if closing.over() {
				t.Fatal("closed while a window is bound to it")
			}
			if !deferred {
				w.want(client.qp.Write(nil, client.at(0, 5000), 0x100, mw.RemoteToken(), 0), success)
				client.result(success)
				if !bytes.Equal(client.memory[:5000], server.memory[:5000]) {
					t.Fatal("the window does not work")
				}
			}
			switch end {
			case "invalidated":
				server.invalidate(mw)
			case "invalidated by the peer":
				server.receive(1)
				w.want(client.qp.SendAndInvalidate(nil, nil, 0, mw.RemoteToken()), success)
				client.result(success)
			case "flushed":
				server.qp.Flush()
			default:
				w.want(server.close(mw).returned, success)
			}
			w.want(w.finish(closing), success)
		})
	}
}

// TestMemoryCounts: no more regions and windows than the device has.
func TestMemoryCounts(t *testing.T) {
	t.Run("NDK-CAP-03 MRs and MWs of a device, whatever instance they are of", func(t *testing.T) {
		w := newWorld(t)
		cfg := w.config(w.network.Attach(mtu, nowhere.Addr()))
		cfg.Capabilities.MaxMrCount, cfg.Capabilities.MaxMwCount = 3, 2
		m := w.start(cfg)
		a, b := must(m.OpenAdapter(anyVersion)), must(m.OpenAdapter(anyVersion))
		pds := []*provider.PD{must(a.CreatePD(nil, nil)), must(b.CreatePD(nil, nil))}
		var open []closer
		for i := range 3 {
			open = append(open, must(pds[i%2].CreateMR(i == 1, nil, nil)))
		}
		for i := range 2 {
			open = append(open, must(pds[i].CreateMW(nil, nil)))
		}
		for i, pd := range pds {
			if mr, s := pd.CreateMR(i == 0, nil, nil); mr != nil || s != provider.StatusInsufficientResources {
				t.Errorf("one MR more: %v", s)
			}
			if mw, s := pd.CreateMW(nil, nil); mw != nil || s != provider.StatusInsufficientResources {
				t.Errorf("one MW more: %v", s)
			}
		}
		open[0].Close(nil, nil)
		open[3].Close(nil, nil)
		open[0], open[3] = must(pds[1].CreateMR(true, nil, nil)), must(pds[1].CreateMW(nil, nil))
		for _, o := range append(open, pds[0], pds[1]) {
			w.want(o.Close(nil, nil), success)
		}
		ended := false
		a.BeginClose(func() { b.BeginClose(func() { m.BeginClose(func() { ended = true }) }) })
		w.wait("the end", func() bool { return ended })
	})
}
