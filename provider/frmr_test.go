package provider_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

func TestInitializeFastRegister(t *testing.T) {
	w := newWorld(t)
	h := w.hosts[0]
	newMR := func(t *testing.T, fastRegister bool) *provider.MR {
		w.t = t
		return track(h, must(h.pd.CreateMR(fastRegister, nil, nil)))
	}
	t.Run("NDK-MR-14 Register of an FRMR", func(t *testing.T) {
		mr := newMR(t, true)
		w.want(mr.Register(&provider.MDL{Bytes: h.memory}, 1, 0, nil, nil), provider.StatusInvalidParameter)
		w.want(mr.InitializeFastRegister(16, true, nil, nil), success)
		w.want(mr.Register(&provider.MDL{Bytes: h.memory}, 1, 0, nil, nil), provider.StatusInvalidParameter)
		a := &async{}
		w.want(mr.Deregister(a.done, a), provider.StatusInvalidDeviceState)
	})
	t.Run("NDK-MR-15 of what is no FRMR", func(t *testing.T) {
		mr := newMR(t, false)
		w.want(mr.InitializeFastRegister(16, true, nil, nil), provider.StatusInvalidParameter)
		w.want(mr.Register(&provider.MDL{Bytes: h.memory}, 1, 0, nil, nil), success)
	})
	t.Run("NDK-MR-16 pages that every adapter supports", func(t *testing.T) {
		for pages := uint32(1); pages <= 16; pages++ {
			w.want(newMR(t, true).InitializeFastRegister(pages, pages%2 == 0, nil, nil), success)
		}
	})
	t.Run("NDK-MR-17 more pages than supported", func(t *testing.T) {
		mr := newMR(t, true)
		w.want(mr.InitializeFastRegister(1<<20+1, true, nil, nil), provider.StatusImplementationLimit)
		w.want(mr.InitializeFastRegister(math.MaxUint32, true, nil, nil), provider.StatusImplementationLimit)
		w.want(mr.InitializeFastRegister(0, true, nil, nil), provider.StatusInvalidParameter)
		if mr.LocalToken() != 0 || mr.RemoteToken() != 0 {
			t.Fatal("a token all the same")
		}
		w.want(mr.InitializeFastRegister(1<<20, true, nil, nil), success)
	})
	t.Run("NDK-MR-18 in parallel and in sequence", func(t *testing.T) {
		w.t = t
		tokens := make(chan uint32, 100)
		var group sync.WaitGroup
		for range cap(tokens) {
			mr := newMR(t, true)
			group.Go(func() {
				for pages := range uint32(3) {
					if s := mr.InitializeFastRegister(pages+1, true, nil, nil); s != success {
						t.Error(s)
					}
				}
				tokens <- mr.LocalToken()
			})
		}
		group.Wait()
		close(tokens)
		seen := map[uint32]bool{0: true, h.pd.PrivilegedMemoryRegionToken(): true} // NDK-PTOK-05
		for token := range tokens {
			if seen[token] {
				t.Fatalf("token %#x twice", token)
			}
			seen[token] = true
		}
	})
	t.Run("no tokens left", func(t *testing.T) {
		w := newWorld(t)
		h := w.hosts[0]
		h.device.LeaveTokens(1)
		h.newFRMR(1, true)
		mr := track(h, must(h.pd.CreateMR(true, nil, nil)))
		w.want(mr.InitializeFastRegister(1, true, nil, nil), provider.StatusInsufficientResources)
		if _, s := h.pd.CreateMW(nil, nil); s != provider.StatusInsufficientResources {
			t.Fatal(s)
		}
		other := track(h, must(h.pd.CreateMR(false, nil, nil)))
		w.want(other.Register(&provider.MDL{Bytes: h.memory}, 1, 0, nil, nil), provider.StatusInsufficientResources)
		w.finish(h.close(h.mr)) // whose token is free then
		w.want(mr.InitializeFastRegister(1, true, nil, nil), success)
	})
	w.t = t
}

// TestFastRegisterRefused: what is wrong is refused at once, leaves the region
// as it was, completes nothing and does not hurt the connection.
func TestFastRegisterRefused(t *testing.T) {
	const (
		bad    = provider.StatusInvalidParameter
		denied = provider.StatusAccessViolation
		page   = provider.PageSize
	)
	for _, c := range []struct {
		name   string
		pages  int // of the four that there are
		fbo    uint32
		length uint64
		base   uint64
		flags  provider.OpFlags
		local  bool // the FRMR is without remote access
		change func([]provider.LogicalAddress)
		want   provider.Status
	}{
		{name: "NDK-MR-19 remote read of a local FRMR", pages: 1, length: 1, local: true, flags: provider.OpAllowRemoteRead, want: denied},
		{name: "NDK-MR-19 remote write of a local FRMR", pages: 1, length: 1, local: true, flags: provider.OpAllowRemoteWrite, want: denied},
		{name: "NDK-MR-19 local write of a local FRMR", pages: 1, length: 1, local: true, flags: provider.OpAllowLocalWrite, want: success},
		{name: "NDK-MR-21 as many pages as can be", pages: 4, length: 4 * page, want: success},
		{name: "NDK-MR-21 fewer pages", pages: 3, length: 3 * page, want: success},
		{name: "NDK-MR-21 one page more", pages: 5, length: 1, want: bad},
		{name: "no page", length: 1, want: bad},
		{name: "NDK-MR-22 as long as the pages", pages: 2, fbo: 100, length: 2*page - 100, base: 100, want: success},
		{name: "NDK-MR-22 longer than the pages", pages: 2, fbo: 100, length: 2*page - 99, base: 100, want: bad},
		{name: "NDK-MR-22 so long that it wraps", pages: 2, fbo: 100, length: math.MaxUint64 - 50, base: 100, want: bad},
		{name: "nothing", pages: 1, want: bad},
		{name: "NDK-MR-23 base in the same place of another page", pages: 1, fbo: 100, length: 1, base: 7*page + 100, want: success},
		{name: "NDK-MR-23 base in another place", pages: 1, fbo: 100, length: 1, base: 7*page + 101, want: bad},
		{name: "NDK-MR-24 base 0", pages: 1, length: 1, want: success},
		{name: "NDK-MR-24 base 0 with an offset", pages: 1, fbo: 1, length: 1, want: bad},
		{name: "NDK-MR-24 base in the page below the offset", pages: 1, fbo: page + 1, length: 1, base: 1, want: bad},
		{name: "first byte beyond the first page", pages: 2, fbo: page, length: 1, base: page, want: bad},
		{name: "up to the last address", pages: 1, length: page, base: math.MaxUint64 - page + 1, want: success},
		{name: "beyond the last address", pages: 2, length: page + 1, base: math.MaxUint64 - page + 1, want: bad},
		{name: "NDK-MR-25 a page that is not aligned", pages: 2, length: 1, change: func(p []provider.LogicalAddress) { p[0]++ }, want: bad},
		{name: "NDK-MR-25 a page that is not aligned and not needed", pages: 4, length: 1, change: func(p []provider.LogicalAddress) { p[3]++ }, want: bad},
		{name: "a page between two", pages: 2, length: 1, change: func(p []provider.LogicalAddress) { p[1] -= page }, want: bad},
		{name: "a page beyond the last", pages: 2, length: 1, change: func(p []provider.LogicalAddress) { p[1] += 8 * page }, want: bad},
		{name: "a page of nobody's", pages: 2, length: 1, change: func(p []provider.LogicalAddress) { p[1] = 0 }, want: bad},
		{name: "a negative address", pages: 2, length: 1, change: func(p []provider.LogicalAddress) { p[1] |= math.MinInt64 }, want: bad},
		{name: "remote without local write (ndkpi.md T34)", pages: 1, length: 1, flags: 0x20, want: bad},
		{name: "unknown flag", pages: 1, length: 1, flags: provider.OpInline, want: bad},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			h, _ := w.connect()
			mr := h.newFRMR(4, !c.local)
			lent := h.lend(0x5000, h.memory[:4*page])
			pages := append(slices.Clone(lent.Pages), lent.Pages[0])[:c.pages]
			if c.change != nil {
				c.change(pages)
			}
			token := mr.LocalToken()
			w.want(h.qp.FastRegister("a", mr, pages, c.fbo, c.length, c.base, c.flags), c.want)
			if c.want == success {
				h.result(success)
				return
			}
			w.silent(h.cq) // NDK-POST-02
			if mr.LocalToken() != token {
				t.Fatal("the token has changed")
			}
			h.fast(mr, lent, 0, 1, 0) // NDK-POST-17
		})
	}
	t.Run("NDK-MR-15 of what is no FRMR", func(t *testing.T) {
		w := newWorld(t)
		h, _ := w.connect()
		l := h.lend(0, h.memory[:page])
		w.want(h.qp.FastRegister(nil, h.mr, l.Pages, 0, 1, 0, 0), bad)
		w.want(h.qp.FastRegister(nil, nil, l.Pages, 0, 1, 0, 0), bad)
		fresh := track(h, must(h.pd.CreateMR(true, nil, nil)))
		w.want(h.qp.FastRegister(nil, fresh, l.Pages, 0, 1, 0, 0), provider.StatusInvalidDeviceState)
		w.silent(h.cq)
	})
	t.Run("an FRMR of another protection domain", func(t *testing.T) {
		w := newWorld(t)
		h, _ := w.connect()
		mr := track(h, must(track(h, must(h.CreatePD(nil, nil))).CreateMR(true, nil, nil)))
		w.want(mr.InitializeFastRegister(1, true, nil, nil), success)
		w.want(h.qp.FastRegister(nil, mr, h.lend(0, h.memory[:page]).Pages, 0, 1, 0, 0), bad)
	})
	t.Run("pages of another instance of the adapter", func(t *testing.T) {
		w := newWorld(t)
		h, _ := w.connect()
		other := must(h.device.OpenAdapter(anyVersion))
		l := &loan{adapter: other}
		size := uint32(1000)
		w.want(other.BuildLAM(&provider.MDL{Bytes: h.memory}, 100, nil, nil, &l.LAM, &size, &l.fbo), success)
		w.want(h.qp.FastRegister(nil, h.newFRMR(1, true), l.Pages, 0, 1, 0, 0), bad)
		h.ReleaseLAM(&l.LAM) // does nothing
		if len(l.Pages) != 1 {
			t.Fatal("released by an adapter that it is not of")
		}
		other.ReleaseLAM(&l.LAM)
		other.Close()
	})
	t.Run("more requests than the queue holds", func(t *testing.T) {
		w := newWorld(t)
		h, _ := w.connect()
		mr, l := h.newFRMR(1, true), h.lend(0, h.memory[:page])
		token := mr.LocalToken()
		w.path.Down = true
		for range qpDepth {
			w.want(h.qp.Send(nil, nil, provider.OpDefer), success)
		}
		w.want(h.qp.FastRegister(nil, mr, l.Pages, 0, 1, 0, 0), provider.StatusNoMoreEntries)
		if mr.LocalToken() != token {
			t.Fatal("the token has changed")
		}
		h.qp.Flush()
		h.results(qpDepth)
	})
	t.Run("what is registered, unless it has been invalidated before (ndkpi.md T71)", func(t *testing.T) {
		w := newWorld(t)
		h, _ := w.connect()
		mr, l := h.newFRMR(1, true), h.lend(0, h.memory[:page])
		w.want(h.qp.FastRegister(1, mr, l.Pages, 0, 1, 0, provider.OpDefer), success)
		w.want(h.qp.FastRegister(2, mr, l.Pages, 0, 1, 0, provider.OpDefer), bad)
		h.result(success) // NDK-DEFER-03
		token := mr.LocalToken()
		w.want(h.qp.FastRegister(3, mr, l.Pages, 0, 1, 0, 0), bad)
		w.want(mr.InitializeFastRegister(2, true, nil, nil), provider.StatusInvalidDeviceState)
		if mr.LocalToken() != token {
			t.Fatal("the token has changed")
		}
		w.want(h.qp.Invalidate(4, mr, provider.OpDefer), success)
		w.want(h.qp.Invalidate(5, mr, provider.OpDefer), provider.StatusInvalidDeviceRequest)
		w.want(h.qp.FastRegister(6, mr, l.Pages, 0, 1, 0, 0), success)
		for _, want := range []any{4, 6} {
			if r := h.result(success); r.RequestContext != want {
				t.Fatalf("got %+v", r)
			}
		}
		w.silent(h.cq)
	})
}

// TestFastRegister: what a registration is made of, and when it takes effect.
func TestFastRegister(t *testing.T) {
	const page = provider.PageSize
	t.Run("as long as the adapter registers, and no longer", func(t *testing.T) {
		info := provider.DefaultAdapterInfo()
		info.MaxRegistrationSize = 1 << 20
		w := newWorldOf(t, addresses, info)
		client, _ := w.connect()
		pages := client.lend(0, client.memory).Pages
		pages = append(pages, pages[0])
		mr := client.newFRMR(uint32(len(pages)), false)
		w.want(client.qp.FastRegister(nil, mr, pages, 0, 1<<20+1, 0, 0), provider.StatusInvalidParameter)
		w.want(client.qp.FastRegister(nil, mr, pages, 0, 1<<20, 0, 0), success)
		client.result(success)
	})
	t.Run("NDK-MR-26 NDK-LAM-02 pages of several mappings in any order", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		// Three mappings, the second of two ranges of memory that lie apart.
		m := server.memory
		first, third := server.lend(0x7000, m[:5*page]), server.lend(0x2000_0000+50, m[100_000:100_000+page])
		second := &loan{adapter: server.Adapter}
		size := uint32(1000)
		chain := &provider.MDL{VirtualAddress: 0x9000, Bytes: m[200_000 : 200_000+100],
			Next: &provider.MDL{VirtualAddress: 0x9000 + 100, Bytes: m[300_000 : 300_000+page]}}
		w.want(server.BuildLAM(chain, page+100, nil, nil, &second.LAM, &size, &second.fbo), success)
		track(server, second)
		pages := []provider.LogicalAddress{first.Pages[2], second.Pages[0], first.Pages[0], first.Pages[1],
			first.Pages[4], first.Pages[3], third.Pages[0], first.Pages[0]}
		const fbo, virtual = 1000, 0x5_0000_0000 + 1000
		length := uint64(6*page + 500 - fbo) // 450 bytes of the third mapping's; the last page is not used
		mr := server.newFRMR(8, true)
		w.want(server.qp.FastRegister(nil, mr, pages, fbo, length, virtual, allRights), success)
		server.result(success)
		clear(pages) // they have been copied

		content := func() []byte {
			return bytes.Join([][]byte{
				m[2*page+fbo : 3*page], m[200_000 : 200_000+100], m[300_000 : 300_000+page-100],
				m[:page], m[page : 2*page], m[4*page : 5*page], m[3*page : 4*page], make([]byte, 50), m[100_000 : 100_000+450],
			}, nil)
		}
		hole := int(length) - 500
		for _, part := range [][2]int{{0, hole}, {hole + 50, int(length)}, {page - fbo - 7, page - fbo + 300}} {
			n := part[1] - part[0]
			w.want(client.qp.Read(nil, client.at(400_000, n), virtual+uint64(part[0]), mr.RemoteToken(), 0), success)
			client.result(success)
			if !bytes.Equal(client.memory[400_000:400_000+n], content()[part[0]:part[1]]) {
				t.Fatalf("read other than bytes %d to %d", part[0], part[1])
			}
			want := content()
			copy(want[part[0]:], client.memory[600_000:600_000+n])
			untouched := bytes.Clone(m[400_000:])
			w.want(client.qp.Write(nil, client.at(600_000, n), virtual+uint64(part[0]), mr.RemoteToken(), 0), success)
			client.result(success)
			if !bytes.Equal(content(), want) || !bytes.Equal(untouched, m[400_000:]) {
				t.Fatalf("written other than bytes %d to %d", part[0], part[1])
			}
		}
		w.want(client.qp.Read(nil, client.at(0, 2), virtual+uint64(hole)-1, mr.RemoteToken(), 0), success)
		client.result(provider.StatusRemoteResources) // there is no memory
	})
	t.Run("nothing but what was mapped can be accessed", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		l := server.lend(0x5000+500, server.memory[10_000:10_000+1000])
		for _, part := range []struct {
			fbo    uint32
			length uint64
		}{{0, 500}, {100, 100}, {1500, 1}, {2000, page - 2000}} {
			mr := server.newFRMR(1, true)
			server.fast(mr, l, part.fbo, part.length, allRights)
			at, token := uint64(part.fbo)+part.length-1, mr.RemoteToken()
			untouched := server.unchanged()
			w.want(client.qp.Write(nil, client.at(0, 1), at, token, 0), success)
			client.result(provider.StatusRemoteResources)
			untouched()
			w.settle()
			w.rejoin()
		}
	})
	t.Run("NDK-MR-27 NDK-MR-28 NDK-DEFER-01 the peer is told of a token and uses it at once", func(t *testing.T) {
		w := newWorld(t)
		w.path.Loss, w.path.Reorder = 0.05, 0.05
		client, server := w.connect()
		mr, l := client.newFRMR(4, true), client.lend(0, client.memory[:4*page])
		initial := mr.RemoteToken()
		for range 20 {
			w.want(server.qp.Receive(nil, server.at(0, 4)), success)
			w.want(client.qp.FastRegister(nil, mr, l.Pages, 0, 4*page, 0, allRights|provider.OpDefer|provider.OpSilentSuccess), success)
			token := mr.RemoteToken()
			if token == initial || mr.LocalToken() != token {
				t.Fatalf("token %#x, %#x", token, initial)
			}
			told := binary.BigEndian.AppendUint32(nil, token)
			w.want(client.qp.Send(nil, []provider.SGE{{Length: 4, Inline: told}}, provider.OpInline), success)
			server.result(success)
			w.want(server.qp.Write(nil, server.at(1000, 3*page), 500, binary.BigEndian.Uint32(server.memory), 0), success)
			server.result(success)
			if !bytes.Equal(server.memory[1000:1000+3*page], client.memory[500:500+3*page]) {
				t.Fatal("not written")
			}
			client.result(success) // of the send; the registration is silent
			if mr.RemoteToken() != token {
				t.Fatal("the token has changed")
			}
			client.invalidate(mr)
		}
	})
	t.Run("NDK-POST-08 not before it is performed", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		mr, l := client.newFRMR(4, true), client.lend(0, client.memory[:4*page])
		// The fence stays closed until the server has been told of the token and
		// has tried it.
		w.want(client.qp.Read(nil, client.at(500_000, 300_000), base+500_000, server.mr.RemoteToken(), 0), success)
		w.want(client.qp.FastRegister(nil, mr, l.Pages, 0, 4*page, 0, allRights|provider.OpReadFence), success)
		w.want(server.qp.Write(nil, server.at(0, 10), 0, mr.RemoteToken(), 0), success)
		unchanged := client.memory[0]
		server.result(provider.StatusRemoteResources)
		for i, s := range statuses(client.results(2)) {
			if s != provider.StatusCancelled {
				t.Errorf("request %d: %v", i, s)
			}
		}
		if client.memory[0] != unchanged {
			t.Fatal("written")
		}
	})
	t.Run("NDK-MR-29 NDK-DEFER-01 register, tell, invalidate and register other pages in one chain", func(t *testing.T) {
		w := newWorld(t)
		client, server := w.connect()
		mr, l := client.newFRMR(4, true), client.lend(0, client.memory[:8*page])
		w.want(server.qp.Receive(nil, server.at(0, 4)), success)
		const defers = provider.OpDefer
		w.want(client.qp.FastRegister(1, mr, l.Pages[:4], 0, 4*page, 0, allRights|defers), success)
		before := mr.RemoteToken()
		w.want(client.qp.Send(2, []provider.SGE{{VirtualAddress: 0, Length: 4, MemoryRegionToken: mr.LocalToken()}}, defers), success)
		w.want(client.qp.Invalidate(3, mr, defers), success)
		w.want(client.qp.FastRegister(4, mr, l.Pages[4:], 0, 4*page, 0, allRights), success)
		after := mr.RemoteToken()
		for want := 1; want <= 4; want++ {
			if r := client.result(success); r.RequestContext != want {
				t.Fatalf("got %+v, want %d", r, want)
			}
		}
		server.result(success)
		if !bytes.Equal(server.memory[:4], client.memory[:4]) {
			t.Fatal("sent other than the first registration")
		}
		w.want(server.qp.Read(nil, server.at(0, 4*page), 0, after, 0), success)
		server.result(success)
		if !bytes.Equal(server.memory[:4*page], client.memory[4*page:8*page]) {
			t.Fatal("not the second registration")
		}
		w.want(server.qp.Read(nil, server.at(0, 1), 0, before, 0), success)
		server.result(provider.StatusRemoteResources)
	})
	t.Run("NDK-FLUSH-01 what was flushed can be registered on another QP", func(t *testing.T) {
		w := newWorld(t)
		client, _ := w.connect()
		mr, l := client.newFRMR(4, true), client.lend(0, client.memory[:4*page])
		w.want(client.qp.FastRegister(nil, mr, l.Pages, 0, 1, 0, provider.OpDefer), success)
		w.want(client.qp.Invalidate(nil, mr, provider.OpDefer), success)
		w.want(client.qp.FastRegister(nil, mr, l.Pages, 0, 1, 0, provider.OpDefer), success)
		client.qp.Flush()
		client.results(3)
		w.settle()
		w.rejoin()
		client.fast(mr, l, 0, 1, 0)
		client.invalidate(mr)
	})
	for _, invalidated := range []bool{false, true} {
		name := map[bool]string{false: "a FastRegister", true: "an Invalidate"}[invalidated]
		t.Run("NDK-MR-13 closed with "+name+" under way", func(t *testing.T) {
			w := newWorld(t)
			_, server := w.connect()
			mr, l := server.newFRMR(4, true), server.lend(0, server.memory[:4*page])
			tokens := server.device.Tokens()
			w.want(server.qp.FastRegister(1, mr, l.Pages, 0, page, 0, allRights|provider.OpDefer), success)
			if invalidated {
				w.want(server.qp.Write(nil, nil, 0, 0, 0), success)
				server.results(2)
				w.want(server.qp.Invalidate(1, mr, provider.OpDefer), success)
			}
			token := mr.RemoteToken()
			w.want(server.close(mr).returned, success)
			w.want(server.qp.Write(2, nil, 0, 0, 0), success) // begins what was deferred
			for _, s := range statuses(server.results(2)) {
				w.want(s, success)
			}
			if got := server.device.Tokens(); got != tokens-1 {
				t.Fatalf("%d tokens in use, were %d", got, tokens)
			}
			w.try("write to", region(0, token, 0, 100), false)
		})
	}
}
