package provider_test

import (
	"bytes"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
)

func TestBuildLAM(t *testing.T) {
	t.Run("nowhere to say how large it is, or where it begins", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		memory := &provider.MDL{Bytes: make([]byte, 1)}
		lam, size, fbo := &provider.LAM{}, uint32(10_000), uint32(0)
		w.want(h.BuildLAM(memory, 1, nil, nil, lam, nil, &fbo), provider.StatusInvalidParameter)
		w.want(h.BuildLAM(memory, 1, nil, nil, lam, &size, nil), provider.StatusInvalidParameter)
		if h.device.Mappings() != 0 {
			t.Error("something is left")
		}
	})
	const page = provider.PageSize
	type mdl = provider.MDL
	b := make([]byte, 1<<20)
	for _, c := range []struct {
		name   string
		mdl    *mdl
		length uint64
		want   provider.Status
		fbo    uint32
		pages  int
	}{
		{"NDK-LAM-01 a byte", &mdl{0x5000, b, nil}, 1, success, 0, 1},
		{"NDK-LAM-01 the last byte of a page", &mdl{0x5FFF, b, nil}, 1, success, page - 1, 1},
		{"NDK-LAM-01 two bytes in two pages", &mdl{0x5FFF, b, nil}, 2, success, page - 1, 2},
		{"NDK-LAM-01 a page", &mdl{0x5000, b, nil}, page, success, 0, 1},
		{"NDK-LAM-01 a byte more than a page", &mdl{0x5000, b, nil}, page + 1, success, 0, 2},
		{"NDK-LAM-01 many pages", &mdl{0x5001, b, nil}, 1<<20 - 1, success, 1, 256},
		{"NDK-LAM-01 several ranges", &mdl{0x5001, b[:10], &mdl{0x500B, nil, &mdl{0x500B, b[:page], nil}}}, page + 10, success, 1, 2},
		{"NDK-LAM-07 up to the last address", &mdl{math.MaxUint64 - 9, b, nil}, 10, success, page - 10, 1},
		{"beyond the last address", &mdl{math.MaxUint64 - 8, b, nil}, 10, provider.StatusInvalidParameter, 0, 0},
		{"NDK-LAM-05 a gap", &mdl{10, b[:5], &mdl{16, b, nil}}, 6, provider.StatusInvalidParameter, 0, 0},
		{"NDK-LAM-05 a gap behind the length", &mdl{10, b[:5], &mdl{16, b, nil}}, 5, success, 10, 1},
		{"NDK-LAM-05 an overlap", &mdl{10, b[:5], &mdl{14, b, nil}}, 6, provider.StatusInvalidParameter, 0, 0},
		{"longer than the chain", &mdl{0, b[:10], nil}, 11, provider.StatusInvalidParameter, 0, 0},
		{"nothing", &mdl{0, b, nil}, 0, provider.StatusInvalidParameter, 0, 0},
		{"no memory", nil, 1, provider.StatusInvalidParameter, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			h := w.hosts[0]
			needed := uint32(16 + 8*c.pages)
			lam, size, fbo := &provider.LAM{}, uint32(10_000), uint32(99)
			w.want(h.BuildLAM(c.mdl, c.length, nil, nil, lam, &size, &fbo), c.want)
			if c.want != success {
				if lam.AdapterContext != nil || lam.Pages != nil || fbo != 99 || h.device.Mappings() != 0 {
					t.Fatalf("something is left: %+v", lam)
				}
				return
			}
			if fbo != c.fbo || len(lam.Pages) != c.pages || size != needed { // NDK-LAM-04
				t.Fatalf("%d pages from byte %d in %d bytes, want %d from %d in %d", len(lam.Pages), fbo, size, c.pages, c.fbo, needed)
			}
			seen := map[provider.LogicalAddress]bool{}
			for _, p := range lam.Pages { // NDK-LAM-02
				if p <= 0 || p%page != 0 || seen[p] {
					t.Fatalf("page %#x", p)
				}
				seen[p] = true
			}
			h.ReleaseLAM(lam)
			if h.device.Mappings() != 0 {
				t.Fatal("not released")
			}
		})
	}
	t.Run("NDK-LAM-03 NDK-LAM-04 too small a buffer, and one that will do", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		m := &mdl{100, b[:2*page], nil}
		const needed = 16 + 3*8
		for _, given := range []uint32{0, 16, needed - 1} {
			lam, size, fbo := &provider.LAM{}, given, uint32(0)
			w.want(h.BuildLAM(m, 2*page, nil, nil, lam, &size, &fbo), provider.StatusBufferTooSmall)
			if size != needed || lam.Pages != nil || h.device.Mappings() != 0 {
				t.Fatalf("%d bytes needed, %+v", size, lam)
			}
		}
		size, fbo := uint32(1000), uint32(0)
		w.want(h.BuildLAM(m, 2*page, nil, nil, nil, &size, &fbo), provider.StatusBufferTooSmall)
		lam := &provider.LAM{Pages: make([]provider.LogicalAddress, 0, 3)}
		room := &lam.Pages[:1][0]
		w.want(h.BuildLAM(m, 2*page, nil, nil, lam, &size, &fbo), success)
		if size != needed || &lam.Pages[0] != room { // NDK-LAM-04
			t.Fatal("not in the consumer's own buffer")
		}
		h.ReleaseLAM(lam)
	})
	t.Run("NDK-LAM-06 nothing is left of a mapping that cannot be made", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		h.device.LeaveMappings(1)
		l := h.lend(0, h.memory)
		lam, size, fbo := &provider.LAM{}, uint32(10_000), uint32(0)
		for range 3 {
			w.want(h.BuildLAM(&mdl{0, b, nil}, 1<<20, nil, nil, lam, &size, &fbo), provider.StatusInsufficientResources)
			if lam.Pages != nil || h.device.Mappings() != 1 {
				t.Fatalf("%d mappings, %+v", h.device.Mappings(), lam)
			}
		}
		h.close(l)
		h.lend(0, h.memory)
	})
	t.Run("NDK-LAM-02 in virtual order", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		l := client.lend(0x7000+100, client.memory[:3*page])
		for i, p := range l.Pages[1:3] {
			w.want(client.qp.Write(nil, []provider.SGE{{VirtualAddress: uint64(p), Length: page - 100, MemoryRegionToken: client.pd.PrivilegedMemoryRegionToken()}},
				base, server.mr.RemoteToken(), 0), success)
			client.result(success)
			if place := (i+1)*page - 100; !bytes.Equal(server.memory[:page-100], client.memory[place:place+page-100]) {
				t.Fatalf("page %d is not what comes next", i+1)
			}
		}
	})
	t.Run("NDK-LAM-08 what was described is unchanged and can be used again", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		second := &mdl{0x1100, h.memory[100:200], nil}
		first := mdl{0x1000, h.memory[:256], second}
		first.Bytes = first.Bytes[:256:256]
		was, wasSecond := first, *second
		unchanged := h.unchanged()
		for range 2 {
			l := &loan{adapter: h.Adapter}
			size := uint32(1000)
			w.want(h.BuildLAM(&first, 300, nil, nil, &l.LAM, &size, &l.fbo), success)
			h.ReleaseLAM(&l.LAM)
			h.ReleaseLAM(&l.LAM) // is released already
		}
		if !sameMDL(first, was) || !sameMDL(*second, wasSecond) || first.Next != second {
			t.Fatal("changed")
		}
		unchanged()
		mr := track(h, must(h.pd.CreateMR(false, nil, nil)))
		w.want(mr.Register(&first, 300, 0, nil, nil), success)
	})
	for _, pend := range []bool{false, true} {
		t.Run(map[bool]string{false: "NDK-LAM-09 without a callback", true: "NDK-LAM-09 without a callback on a device that pends"}[pend], func(t *testing.T) {
			w := newWorld(t)
			cfg := w.config(w.network.Attach(mtu, nowhere.Addr()))
			cfg.Pend = pend
			m := w.start(cfg)
			a := must(m.OpenAdapter(anyVersion))
			lams := [2]provider.LAM{}
			size, fbo := uint32(1000), uint32(0)
			w.want(a.BuildLAM(&mdl{0, b, nil}, 10, nil, nil, &lams[0], &size, &fbo), success)
			call := &async{}
			call.returned = a.BuildLAM(&mdl{0, b, nil}, 10, call.done, call, &lams[1], &size, &fbo)
			if (call.returned == provider.StatusPending) != pend || call.calls != 0 {
				t.Fatalf("returned %v", call.returned)
			}
			w.want(w.finish(call), success)
			for i := range lams {
				if len(lams[i].Pages) != 1 {
					t.Fatal("not built")
				}
				a.ReleaseLAM(&lams[i])
			}
			ended := false
			a.BeginClose(func() { m.BeginClose(func() { ended = true }) })
			w.settle()
			if !ended || call.calls > 1 {
				t.Fatalf("ended %v after %d callbacks", ended, call.calls)
			}
		})
	}
	t.Run("NDK-LIFE-31 the adapter's close waits for the release", func(t *testing.T) {
		w := newWorld(t)
		a := must(w.hosts[0].device.OpenAdapter(anyVersion))
		lam, size, fbo := provider.LAM{}, uint32(1000), uint32(0)
		w.want(a.BuildLAM(&mdl{0, b, nil}, 10, nil, nil, &lam, &size, &fbo), success)
		ended := false
		a.BeginClose(func() { ended = true })
		w.settle()
		if ended {
			t.Fatal("closed with a LAM")
		}
		a.ReleaseLAM(&lam)
		w.settle()
		if !ended {
			t.Fatal("not closed")
		}
	})
	t.Run("addresses are not given out again soon", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		seen := map[provider.LogicalAddress]bool{}
		for range 4096 {
			lam, size, fbo := provider.LAM{}, uint32(1000), uint32(0)
			w.want(h.BuildLAM(&mdl{0, b, nil}, 10, nil, nil, &lam, &size, &fbo), success)
			if seen[lam.Pages[0]] {
				t.Fatalf("page %#x again", lam.Pages[0])
			}
			seen[lam.Pages[0]] = true
			h.ReleaseLAM(&lam)
		}
	})
}

func sameMDL(a, b provider.MDL) bool {
	return a.VirtualAddress == b.VirtualAddress && bytes.Equal(a.Bytes, b.Bytes) && &a.Bytes[0] == &b.Bytes[0] &&
		cap(a.Bytes) == cap(b.Bytes) && a.Next == b.Next
}

// TestTokens: NDK-PTOK-05 and the uniqueness of all tokens of an adapter.
func TestTokens(t *testing.T) {
	t.Run("slots are used again, in the end", func(t *testing.T) {
		h := newWorld(t).hosts[0]
		for range 10_000 {
			mw := must(h.pd.CreateMW(nil, nil))
			if slot := mw.RemoteToken() >> 8; slot > 4096+10 {
				t.Fatalf("slot %d, while none is in use", slot)
			}
			mw.Close(nil, nil)
		}
	})
	t.Run("NDK-PTOK-05 NDK-MR-12 no token is the privileged one, or another's", func(t *testing.T) {
		w := newWorld(t)
		h, _ := w.connect()
		seen := []uint32{h.pd.PrivilegedMemoryRegionToken(), h.mr.LocalToken()}
		note := func(token uint32) {
			t.Helper()
			if token == 0 || slices.Contains(seen, token) {
				t.Fatalf("token %#x again", token)
			}
			seen = append(seen, token)
		}
		l := h.lend(0, h.memory)
		frmr := h.newFRMR(256, true)
		mw := track(h, must(h.pd.CreateMW(nil, nil)))
		note(frmr.LocalToken())
		note(mw.RemoteToken())
		for range 250 { // keys have 8 bits
			mr := h.register(0, h.memory, 0)
			note(mr.LocalToken())
			if mr.LocalToken() != mr.RemoteToken() {
				t.Fatal("two tokens of one region")
			}
			h.fast(frmr, l, 0, 1, 0)
			note(frmr.LocalToken())
			h.bind(h.mr, mw, base, 1, 0)
			note(mw.RemoteToken())
			h.invalidate(frmr)
			h.invalidate(mw)
		}
	})
}

// A sender is a carrier whose packets are looked at before they are sent, with the lock
// of their queue pair held.
type sender struct {
	provider.Carrier
	look func([]roce.Packet) // if set
}

func (s *sender) Send(flow roce.Flow, packets []roce.Packet) error {
	if s.look != nil {
		s.look(packets)
	}
	return s.Carrier.Send(flow, packets)
}

// TestReleaseLAMWaits: memory whose mapping has been released is the consumer's alone,
// also if a peer was reading it through an FRMR.
func TestReleaseLAMWaits(t *testing.T) {
	var senders []*sender
	w := newWorldWith(t, addresses, func(cfg *provider.Config) {
		senders = append(senders, &sender{Carrier: cfg.Carrier})
		cfg.Carrier = senders[len(senders)-1]
	})
	client, server := w.connect()
	l := server.lend(0x7000, server.memory[:4096])
	lam := l.LAM
	mr := server.newFRMR(1, true)
	w.want(server.qp.FastRegister(nil, mr, l.Pages, 0, 4096, 0, allRights), success)
	server.result(success)
	released := make(chan struct{})
	asked := false
	senders[1].look = func(packets []roce.Packet) {
		if asked || !packets[0].Header.Opcode.IsReadResponse() {
			return
		}
		asked = true
		go func() {
			server.ReleaseLAM(&l.LAM)
			close(released)
		}()
		if !provider.AwaitRelease(&lam) {
			t.Error("ReleaseLAM does not wait")
		}
		select {
		case <-released:
			t.Error("released while the memory is read")
		default:
		}
	}
	w.want(client.qp.Read(nil, client.at(0, 4096), 0, mr.RemoteToken(), 0), success)
	w.clock.Run(time.Second)
	if !asked {
		t.Fatal("nothing was read")
	}
	<-released
}
