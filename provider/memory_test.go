package provider_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

func TestRegister(t *testing.T) {
	info := provider.DefaultAdapterInfo()
	info.MaxRegistrationSize = 1 << 20
	w := newWorldOf(t, addresses, info)
	h := w.hosts[0]
	b := make([]byte, 2<<20)
	type mdl = provider.MDL
	for _, c := range []struct {
		name   string
		mdl    *mdl
		length uint64
		flags  provider.MRFlags
		want   provider.Status
	}{
		{"one piece", &mdl{0, b[:1000], nil}, 1000, 0, success},
		{"part of a piece, and as long as the adapter allows", &mdl{0, b, nil}, 1 << 20, 0, success},
		{"contiguous pieces", &mdl{10, b[:5], &mdl{15, nil, &mdl{15, b[5:9], nil}}}, 9, 0, success},
		{"NDK-MR-01 a gap", &mdl{10, b[:5], &mdl{16, b[5:9], nil}}, 9, 0, provider.StatusInvalidParameter},
		{"NDK-MR-01 an overlap", &mdl{10, b[:5], &mdl{14, b[5:9], nil}}, 9, 0, provider.StatusInvalidParameter},
		{"NDK-MR-01 a gap behind the length", &mdl{10, b[:5], &mdl{16, b[5:9], nil}}, 5, 0, success},
		{"NDK-MR-02 longer than the chain", &mdl{10, b[:5], &mdl{15, b[5:9], nil}}, 10, 0, provider.StatusInvalidParameter},
		{"NDK-MR-03 longer than the adapter allows", &mdl{0, b, nil}, 1<<20 + 1, 0, provider.StatusInvalidParameter},
		{"no memory", nil, 1, 0, provider.StatusInvalidParameter},
		{"no length", &mdl{0, b, nil}, 0, 0, provider.StatusInvalidParameter},
		{"up to the last address", &mdl{math.MaxUint64 - 9, b[:10], nil}, 10, 0, success},
		{"beyond the last address", &mdl{math.MaxUint64 - 8, b[:10], nil}, 10, 0, provider.StatusInvalidParameter},
		{"NDK-MR-10 read sink", &mdl{0, b, nil}, 1, provider.MRReadSink, success},
		{"remote write without local write", &mdl{0, b, nil}, 1, 0x4, provider.StatusInvalidParameter},
		{"unknown flag", &mdl{0, b, nil}, 1, 0x10, provider.StatusInvalidParameter},
	} {
		t.Run(c.name, func(t *testing.T) {
			mr := must(h.pd.CreateMR(false, nil, nil))
			if got := mr.Register(c.mdl, c.length, c.flags, nil, nil); got != c.want {
				t.Fatalf("got %v, want %v", got, c.want)
			}
			// NDK-MR-12
			if (mr.LocalToken() != 0) != (c.want == success) || (mr.RemoteToken() != 0) != (c.want == success) {
				t.Fatalf("tokens %#x, %#x", mr.LocalToken(), mr.RemoteToken())
			}
			if c.want == success && mr.Register(&mdl{0, b, nil}, 1, 0, nil, nil) != provider.StatusInvalidDeviceState {
				t.Fatal("registered twice")
			}
			mr.Close(nil, nil)
		})
	}
}

// refusals has for each kind of access the status with which it ends if it is not
// allowed.
var refusals = map[string]provider.Status{
	"send from": provider.StatusAccessViolation, "receive into": provider.StatusAccessViolation,
	"read into": provider.StatusAccessViolation,
	"write to":  provider.StatusRemoteResources, "read of": provider.StatusRemoteResources,
}

// A target is memory of one host that is to be accessed, by its own requests or
// by the peer's.
type target struct {
	sgl       []provider.SGE // as its own requests name it
	address   uint64         // as the peer's do
	token     uint32
	at, size  int  // where it is in the host's memory
	otherwise bool // a refused access may have gone part of the way
}

// region is a target in one region.
func region(address uint64, token uint32, at, size int) target {
	return target{
		sgl:     []provider.SGE{{VirtualAddress: address, Length: uint32(size), MemoryRegionToken: token}},
		address: address, token: token, at: at, size: size,
	}
}

// owner is the host whose memory is the target of an access: the client's where
// it is used by an SGE, the server's where the client reaches into it.
func (w *world) owner(access string) *host {
	if access == "write to" || access == "read of" || access == "receive into" {
		return w.hosts[1]
	}
	return w.hosts[0]
}

// try makes an access between the hosts, which are connected, and checks that it
// succeeds or is refused as it should be: with the right status at both ends, the
// connection terminated (NDK-POST-18), and not one byte touched at either.
func (w *world) try(access string, m target, allowed bool) {
	w.t.Helper()
	client, server := w.hosts[0], w.hosts[1]
	var before [2][]byte
	if !allowed {
		before = [2][]byte{bytes.Clone(client.memory), bytes.Clone(server.memory)}
	}
	const other = 500000 // place of the other end's memory
	var source, sink []byte
	failing := client
	switch access {
	case "send from":
		w.want(server.qp.Receive(nil, server.at(other, m.size)), success)
		w.want(client.qp.Send(nil, m.sgl, 0), success)
		source, sink = client.memory[m.at:], server.memory[other:]
	case "receive into":
		w.want(server.qp.Receive(nil, m.sgl), success)
		w.want(client.qp.Send(nil, client.at(other, m.size), 0), success)
		source, sink = client.memory[other:], server.memory[m.at:]
		failing = server
	case "read into":
		w.want(client.qp.Read(nil, m.sgl, base+other, server.mr.RemoteToken(), 0), success)
		source, sink = server.memory[other:], client.memory[m.at:]
	case "write to":
		w.want(client.qp.Write(nil, client.at(other, m.size), m.address, m.token, 0), success)
		source, sink = client.memory[other:], server.memory[m.at:]
	case "read of":
		w.want(client.qp.Read(nil, client.at(other, m.size), m.address, m.token, 0), success)
		source, sink = server.memory[m.at:], client.memory[other:]
	}
	if allowed {
		client.result(success)
		if access == "send from" || access == "receive into" {
			server.result(success)
		}
		if !bytes.Equal(source[:m.size], sink[:m.size]) {
			w.t.Fatalf("%s: not transferred", access)
		}
		return
	}
	failing.result(refusals[access])
	w.settle()
	if m.otherwise {
		from := len(client.memory) - len(sink)
		for i, h := range w.hosts {
			clear(h.memory[from : from+m.size])
			clear(before[i][from : from+m.size])
		}
	}
	if !bytes.Equal(client.memory, before[0]) || !bytes.Equal(server.memory, before[1]) {
		w.t.Fatalf("%s: memory has changed", access)
	}
	w.want(client.qp.Send(nil, nil, 0), provider.StatusConnectionInvalid)
	w.want(server.qp.Send(nil, nil, 0), provider.StatusConnectionInvalid)
	if client.disconnected != 1 || server.disconnected != 1 {
		w.t.Errorf("told %d and %d times that the connection is gone", client.disconnected, server.disconnected)
	}
}

// TestAccess: what each right of a region allows, to whom (NDK-MR-05 to 09,
// NDK-SGE-03 to 07). A refused access touches not one byte at either end, save
// that a local range may be used up to where it leaves the region.
func TestAccess(t *testing.T) {
	const none = provider.MRAllowLocalRead
	const at, size = 0x5000, 4096 + 100 // two packets each
	for _, c := range []struct {
		name   string
		flags  provider.MRFlags
		offset uint64                                   // of the access, from the region's start
		token  func(*provider.MR) uint32                // default: the region's
		pd     func(*world, *host) *provider.PD         // of the region
		before func(w *world, h *host, mr *provider.MR) // the access
		allows string
	}{
		{name: "NDK-MR-06 no flags", flags: none, allows: "send from"},
		{name: "NDK-MR-07 local write", flags: provider.MRAllowLocalWrite, allows: "send from, receive into, read into"},
		{name: "NDK-MR-08 remote read", flags: provider.MRAllowRemoteRead, allows: "send from, read of"},
		{name: "NDK-MR-09 remote write", flags: provider.MRAllowRemoteWrite, allows: "send from, receive into, read into, write to"},
		{name: "NDK-MR-10 NDK-SGE-05 read sink without local write", flags: provider.MRReadSink, allows: "send from"},
		{name: "NDK-MR-04 NDK-MR-12 NDK-SGE-02 all", flags: 0xF, allows: "send from, receive into, read into, write to, read of"},
		{name: "NDK-SGE-03 NDK-POST-26 one byte beyond the end", flags: 0xF, offset: 1},
		{name: "NDK-SGE-03 NDK-POST-26 one byte before the start", flags: 0xF, offset: math.MaxUint64},
		{name: "NDK-MR-05 NDK-SGE-02 offset from zero", flags: 0xF, offset: math.MaxUint64 - at + 1},
		{name: "round the end of the address space", flags: 0xF, offset: math.MaxUint64 - at - size/2},
		{name: "NDK-SGE-04 NDK-POST-27 unknown token", flags: 0xF, token: func(*provider.MR) uint32 { return 0xBAD00 }},
		{name: "NDK-SGE-04 token of another time", flags: 0xF, token: func(mr *provider.MR) uint32 { return mr.LocalToken() ^ 3 }},
		{name: "token zero", flags: 0xF, token: func(*provider.MR) uint32 { return 0 }},
		{name: "NDK-SGE-07 another protection domain", flags: 0xF, pd: func(w *world, h *host) *provider.PD {
			return track(h, must(h.CreatePD(nil, nil)))
		}},
		{name: "NDK-MR-13 deregistered", flags: 0xF, before: func(w *world, h *host, mr *provider.MR) {
			a := &async{}
			a.returned = mr.Deregister(a.done, a)
			w.want(w.finish(a), success)
		}},
		{name: "NDK-MR-13 closed", flags: 0xF, before: func(w *world, h *host, mr *provider.MR) { w.finish(h.close(mr)) }},
	} {
		for access := range refusals {
			t.Run(c.name+" "+access, func(t *testing.T) {
				w := newWorld(t)
				w.connect()
				h := w.owner(access)
				pd := h.pd
				if c.pd != nil {
					pd = c.pd(w, h)
				}
				mr := track(h, must(pd.CreateMR(false, nil, nil)))
				w.want(mr.Register(&provider.MDL{VirtualAddress: at, Bytes: h.memory[1000 : 1000+size]}, size, c.flags, nil, nil), success)
				token := mr.LocalToken()
				if c.token != nil {
					token = c.token(mr)
				}
				if c.before != nil {
					c.before(w, h, mr)
				}
				m := region(at+c.offset, token, 1000, size)
				m.otherwise = c.offset == 1 && refusals[access] == provider.StatusAccessViolation
				w.try(access, m, strings.Contains(c.allows, access))
			})
		}
	}
}

// TestAnyAddress: memory is used at the address that it is known under, whether a processor could
// have it there or not.
func TestAnyAddress(t *testing.T) {
	const size = 5000 // two packets
	for _, at := range []uint64{0, 1, 1<<47 - size/2, 1 << 47, 1<<63 - size/2, math.MaxUint64 - (size - 1)} {
		t.Run(fmt.Sprintf("NDK-MR-04 NDK-SGE-02 at %#x", at), func(t *testing.T) {
			w := newWorld(t)
			client, server := w.connect()
			a, b := client.register(at, client.memory[:size], 0xF), server.register(at, server.memory[:size], 0xF)
			from := []provider.SGE{{VirtualAddress: at, Length: size, MemoryRegionToken: a.LocalToken()}}
			into := []provider.SGE{{VirtualAddress: at, Length: size, MemoryRegionToken: b.LocalToken()}}
			for name, post := range map[string]func() provider.Status{
				"Write": func() provider.Status { return client.qp.Write(nil, from, at, b.RemoteToken(), 0) },
				"Read":  func() provider.Status { return client.qp.Read(nil, from, at, b.RemoteToken(), 0) },
				"Send": func() provider.Status {
					w.want(server.qp.Receive(nil, into), success)
					return client.qp.Send(nil, from, 0)
				},
			} {
				client.fill(2)
				server.fill(3)
				w.want(post(), success)
				client.result(success)
				if !bytes.Equal(client.memory[:size], server.memory[:size]) {
					t.Errorf("%s: transferred wrong", name)
				}
			}
			server.result(success)
		})
	}
}

// TestPieces: a region of many pieces is one range of addresses (NDK-MR-04
// NDK-SGE-02), also where it is longer than 4 GiB.
func TestPieces(t *testing.T) {
	w := newWorld(t)
	client, server := w.connect()
	const size = 1 << 20 // of a piece
	const pieces = 4100
	var chain *provider.MDL
	last := make([]byte, size)
	for i := pieces - 1; i >= 0; i-- {
		bytes := server.memory // all but one are the same
		if i == pieces-2 {
			bytes = last
		}
		chain = &provider.MDL{VirtualAddress: base + uint64(i)*size, Bytes: bytes, Next: chain}
	}
	mr := track(server, must(server.pd.CreateMR(false, nil, nil)))
	w.want(mr.Register(chain, pieces*size, 0xF, nil, nil), success)
	write := func(offset uint64, n int) {
		t.Helper()
		w.want(client.qp.Write(nil, client.at(0, n), base+offset, mr.RemoteToken(), 0), success)
		client.result(success)
	}
	want, wantLast := bytes.Clone(server.memory), bytes.Clone(last)
	check := func() {
		t.Helper()
		if !bytes.Equal(server.memory, want) || !bytes.Equal(last, wantLast) {
			t.Fatal("not the bytes that were to be written")
		}
	}
	write((pieces-2)*size-5, 5000) // across the start of the last but one
	copy(want[size-5:], client.memory[:5])
	copy(wantLast, client.memory[5:5000])
	check()
	write((pieces-1)*size-100, 200) // across its end
	copy(wantLast[size-100:], client.memory[:100])
	copy(want, client.memory[100:200])
	check()
	write(pieces*size-7, 7) // to the very end
	copy(want[size-7:], client.memory[:7])
	check()
	w.want(client.qp.Write(nil, client.at(0, 8), base+pieces*size-7, mr.RemoteToken(), 0), success)
	client.result(provider.StatusRemoteResources)
	w.settle()
	check()
}

// TestScatter: several SGEs are one message, in their order.
func TestScatter(t *testing.T) {
	w := newWorld(t)
	client, server := w.connect()
	odd := client.register(7, client.memory[500000:500100], 0)
	gather := append(client.at(10, 5000), provider.SGE{VirtualAddress: 7 + 50, Length: 50, MemoryRegionToken: odd.LocalToken()})
	gather = append(gather, client.at(0, 0)...)
	gather = append(gather, client.at(20000, 3)...)
	want := bytes.Join([][]byte{client.memory[10:5010], client.memory[500050:500100], client.memory[20000:20003]}, nil)

	scatter := append(server.at(9000, 4000), server.at(100, 2000)...)
	w.want(server.qp.Receive(nil, scatter), success)
	w.want(client.qp.Send(nil, gather, 0), success)
	if r := server.result(success); int(r.BytesTransferred) != len(want) { // NDK-POST-21
		t.Fatalf("%d bytes, want %d", r.BytesTransferred, len(want))
	}
	client.result(success)
	if got := append(bytes.Clone(server.memory[9000:13000]), server.memory[100:100+len(want)-4000]...); !bytes.Equal(got, want) {
		t.Fatal("a send arrived wrong")
	}
	w.want(client.qp.Write(nil, gather, base+700000, server.mr.RemoteToken(), 0), success)
	client.result(success)
	if !bytes.Equal(server.memory[700000:700000+len(want)], want) {
		t.Fatal("a write arrived wrong")
	}
	sink := append(client.at(300000, 1), client.at(600000, len(want)-1)...)
	w.want(client.qp.Read(nil, sink, base+700000, server.mr.RemoteToken(), 0), success)
	client.result(success)
	if client.memory[300000] != want[0] || !bytes.Equal(client.memory[600000:][:len(want)-1], want[1:]) {
		t.Fatal("a read arrived wrong")
	}
}

// TestInline: bytes given by value.
func TestInline(t *testing.T) {
	w := newWorld(t)
	client, server := w.connect()
	text := []byte("by value")
	sge := func(b []byte) provider.SGE {
		return provider.SGE{VirtualAddress: 12345, Length: uint32(len(b)), MemoryRegionToken: 99, Inline: b}
	}
	t.Run("NDK-INL-01 NDK-INL-02 NDK-INL-05 NDK-POST-20", func(t *testing.T) {
		w.t = t
		w.want(server.qp.Receive(nil, server.at(0, 100)), success)
		b := bytes.Clone(text)
		sgl := []provider.SGE{sge(b)}
		w.want(client.qp.Send(nil, sgl, provider.OpInline), success)
		clear(b)
		sgl[0] = provider.SGE{}
		client.result(success)
		server.result(success)
		if !bytes.Equal(server.memory[:len(text)], text) {
			t.Fatalf("got %q", server.memory[:len(text)])
		}
	})
	t.Run("NDK-INL-03 more pieces than the QP allows", func(t *testing.T) {
		w.t = t
		w.want(server.qp.Receive(nil, server.at(0, 100)), success)
		var sgl []provider.SGE
		for i := range text {
			sgl = append(sgl, sge(text[i:i+1]))
		}
		w.want(client.qp.Send(nil, sgl, provider.OpInline), success)
		client.result(success)
		if r := server.result(success); !bytes.Equal(server.memory[:r.BytesTransferred], text) {
			t.Fatalf("got %q", server.memory[:r.BytesTransferred])
		}
	})
	t.Run("NDK-INL-06 NDK-POST-23 write", func(t *testing.T) {
		w.t = t
		w.want(client.qp.Write(nil, []provider.SGE{sge(text)}, base+50, server.mr.RemoteToken(), provider.OpInline), success)
		client.result(success)
		if !bytes.Equal(server.memory[50:50+len(text)], text) {
			t.Fatalf("got %q", server.memory[50:50+len(text)])
		}
	})
	t.Run("NDK-INL-04 too much", func(t *testing.T) {
		w.t = t
		for _, size := range []uint32{0, 1, inline, client.Info().MaxInlineDataSize} {
			a, b := *client, *server
			a.qp = track(client, must(client.pd.CreateQP(client.cq, client.cq, nil, qpDepth, qpDepth, qpPieces, qpPieces, size, nil, nil)))
			b.qp, b.port = server.newQP(), 7100+uint16(size)
			w.join(&a, &b)
			whole := sge(make([]byte, size))
			for _, post := range append(initiators(server)[:2], initiator{"SendAndInvalidate", sendAndInvalidate}) {
				for _, more := range [][]provider.SGE{{sge(make([]byte, size+1))}, {whole, sge(text[:1])}} {
					if got := post.post(a.qp, nil, more, provider.OpInline); got != provider.StatusInvalidParameter {
						t.Errorf("%s of %d bytes where %d are allowed: %v", post.name, size+1, size, got)
					}
				}
				w.silent(client.cq)
				if post.name == "SendAndInvalidate" {
					continue // there is nothing that it could end
				}
				w.want(b.qp.Receive(nil, server.at(0, 1000)), success)
				w.want(post.post(a.qp, nil, []provider.SGE{whole}, provider.OpInline), success)
				client.result(success)
			}
			server.result(success)
		}
	})
	t.Run("length and bytes differ", func(t *testing.T) {
		w.t = t
		bad := sge(text)
		bad.Length--
		w.want(client.qp.Send(nil, []provider.SGE{bad}, provider.OpInline), provider.StatusInvalidParameter)
		w.silent(client.cq)
	})
	t.Run("nothing", func(t *testing.T) {
		w.t = t
		w.want(server.qp.Receive(nil, nil), success)
		w.want(client.qp.Send(nil, nil, provider.OpInline), success)
		client.result(success)
		server.result(success)
	})
	t.Run("NDK-POST-20 the SGL is copied", func(t *testing.T) {
		w.t = t
		sgl := client.at(1000, 5000)
		w.want(server.qp.Receive(nil, server.at(0, 5000)), success)
		w.want(client.qp.Send(nil, sgl, provider.OpDefer), success)
		sgl[0] = provider.SGE{}
		w.want(client.qp.Write(nil, nil, 0, 0, provider.OpSilentSuccess), success)
		client.result(success)
		server.result(success)
		if !bytes.Equal(server.memory[:5000], client.memory[1000:6000]) {
			t.Fatal("arrived wrong")
		}
	})
	w.t = t
}

// TestStaleToken: a token is not given out again soon, and never twice at once.
func TestStaleToken(t *testing.T) {
	w := newWorld(t)
	h := w.hosts[0]
	seen := map[uint32]bool{h.mr.LocalToken(): true}
	mr := track(h, must(h.pd.CreateMR(false, nil, nil)))
	for range 5000 { // slots are used again once some 4000 are free
		w.want(mr.Register(&provider.MDL{VirtualAddress: base, Bytes: h.memory}, 1, 0, nil, nil), success)
		if seen[mr.LocalToken()] {
			t.Fatalf("token %#x again", mr.LocalToken())
		}
		seen[mr.LocalToken()] = true
		a := &async{}
		a.returned = mr.Deregister(a.done, a)
		if mr.LocalToken() != 0 {
			t.Fatal("a token while not registered")
		}
		w.want(w.finish(a), success)
	}
}
