package verbs_test

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// TestRegions: where a region's addresses begin, and that its token ends with it.
func TestRegions(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, nil)
	a, b := w.hosts[0], w.hosts[1]
	for _, test := range []struct {
		iova   uint64
		access verbs.Access
		at     uint64
	}{{0x1234_5678_9ABC, all, 0x1234_5678_9ABC}, {77, all | verbs.AccessZeroBased, 0}, {1<<64 - 100, all, 1<<64 - 100}} {
		mr, err := b.pd.RegisterMR(verbs.Bytes(b.memory[:100]), 100, test.iova, test.access)
		check(t, err)
		r := a.request(rc.OpWrite, 1, 500, 50, 0)
		r.VA, r.Token = test.at+50, mr.Key()
		w.post(qps[0], r)
		a.completed("write 1")
		if !bytes.Equal(b.memory[50:100], a.memory[500:550]) {
			t.Errorf("%#x: other bytes", test.iova)
		}
		clear(b.memory)
		check(t, mr.Deregister())
	}
	mr, err := b.pd.RegisterMR(verbs.Bytes(b.memory[:100]), 100, 0, all)
	check(t, err)
	r := a.request(rc.OpWrite, 1, 500, 50, 0)
	r.VA, r.Token = 0, mr.Key()
	check(t, mr.Deregister())
	w.post(qps[0], r)
	a.completed(fmt.Sprint("write 1 status ", verbs.RemoteAccessError))
}

// TestDomains: a token is of its domain's queue pairs.
func TestDomains(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, nil)
	a, b := w.hosts[0], w.hosts[1]
	other, err := b.AllocPD()
	check(t, err)
	mr, err := other.RegisterMR(verbs.Bytes(b.memory), size, base, all)
	check(t, err)
	r := a.request(rc.OpWrite, 1, 0, 50, 0)
	r.Token = mr.Key()
	w.post(qps[0], r)
	a.completed(fmt.Sprint("write 1 status ", verbs.RemoteAccessError))
}

// bindRequest is a request to bind a window of b's.
func bindRequest(t *testing.T, qp *verbs.QP, mw *verbs.MW, key uint32, to verbs.Binding) (verbs.SendRequest, uint32) {
	t.Helper()
	local, token, err := qp.Bind(mw, key, to)
	check(t, err)
	r := verbs.SendRequest{ID: 50}
	r.Op, r.Local = rc.OpBind, local
	return r, token
}

// TestWindows: a window grants a part of a region to peers, one of type 2 to one queue pair's only, until it is bound
// anew, invalidated by either end, or gone.
func TestWindows(t *testing.T) {
	for _, kind := range []verbs.WindowType{verbs.Window1, verbs.Window2} {
		w := newWorld(t, 1)
		qps, others := w.pair(verbs.RC, nil), w.pair(verbs.RC, nil)
		a, b := w.hosts[0], w.hosts[1]
		mw, err := b.pd.AllocMW(kind)
		check(t, err)
		bind, key := bindRequest(t, qps[1], mw, 0x77, verbs.Binding{MR: b.mr, Address: base + 1000, Length: 100, Access: verbs.AccessRemoteWrite})
		if kind == verbs.Window2 && key&0xFF != 0x77 {
			t.Errorf("key %#x", key)
		}
		w.post(qps[1], bind)
		b.completed("bind 50")
		if mw.Key() != key {
			t.Errorf("token %#x, said %#x", mw.Key(), key)
		}
		refused(t, "a region with a window", b.mr.Deregister(), syscall.EBUSY)
		write := func(at int) verbs.SendRequest {
			r := a.request(rc.OpWrite, 1, 0, 10, at)
			r.Token = key
			return r
		}
		w.post(qps[0], write(1000), write(1090))
		a.completed("write 1", "write 1")
		w.post(others[0], write(1000))
		if kind == verbs.Window1 {
			a.completed("write 1")
		} else {
			a.completed(fmt.Sprint("write 1 status ", verbs.RemoteAccessError))
		}
		if kind == verbs.Window2 {
			invalidate := a.request(rc.OpSendInvalidate, 2, 0, 1, 0)
			invalidate.Token = key
			b.receive(qps[1], 100, 5000, 10)
			w.post(qps[0], invalidate)
			a.completed("send 2")
			b.completed("receive 100 of 1 invalidated")
			again, _ := bindRequest(t, qps[1], mw, 0x78, verbs.Binding{MR: b.mr, Address: base, Length: 100, Access: verbs.AccessRemoteWrite})
			ended := verbs.SendRequest{ID: 51}
			ended.Op, ended.Local = rc.OpInvalidate, qps[1].Invalidate(key&^0xFF|0x78)
			w.post(qps[1], again, ended)
			b.completed("bind 50", "invalidate 51")
		}
		w.post(qps[0], write(1091))
		a.completed(fmt.Sprint("write 1 status ", verbs.RemoteAccessError))
		check(t, mw.Dealloc())
		check(t, qps[1].Destroy())
		check(t, others[1].Destroy())
		check(t, b.mr.Deregister())
	}
}

// TestBindingsRefused: a window grants no more than its region has, of one that may be opened so.
func TestBindingsRefused(t *testing.T) {
	for name, change := range map[string]func(b *host, to *verbs.Binding){
		"beyond the region": func(b *host, to *verbs.Binding) { to.Address += size },
		"longer":            func(b *host, to *verbs.Binding) { to.Length = size + 1 },
		"a region without the right": func(b *host, to *verbs.Binding) {
			to.MR, _ = b.pd.RegisterMR(verbs.Bytes(b.memory), size, base, all&^verbs.AccessBindWindow)
		},
		"writing where the consumer may not": func(b *host, to *verbs.Binding) {
			to.MR, _ = b.pd.RegisterMR(verbs.Bytes(b.memory), size, base, verbs.AccessBindWindow|verbs.AccessRemoteRead)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			qps := w.pair(verbs.RC, nil)
			b := w.hosts[1]
			mw, err := b.pd.AllocMW(verbs.Window2)
			check(t, err)
			to := verbs.Binding{MR: b.mr, Address: base, Length: size, Access: verbs.AccessRemoteWrite}
			change(b, &to)
			r, _ := bindRequest(t, qps[1], mw, 1, to)
			w.post(qps[1], r)
			b.completed(fmt.Sprint("bind 50 status ", verbs.WindowBindError))
		})
	}
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, nil)
	mw, err := w.hosts[0].pd.AllocMW(verbs.Window2)
	check(t, err)
	_, _, err = qps[1].Bind(mw, 1, verbs.Binding{})
	refused(t, "another domain's window", err, syscall.EINVAL)
}

// TestAtomicsOfAll: additions by both ends and by the processor itself lose nothing.
func TestAtomicsOfAll(t *testing.T) {
	w := newWorld(t, 1)
	w.path.Loss, w.path.Duplicate = 0.1, 0.1
	qps := w.pair(verbs.RC, nil)
	a, b := w.hosts[0], w.hosts[1]
	clear(b.memory[:8])
	for i := range 50 {
		r := a.request(rc.OpFetchAdd, uint64(i), 100, 8, 0)
		r.Operand = 1
		w.post(qps[0], r)
		verbs.Bytes(b.memory).Atomic(rc.OpFetchAdd, 0, 1, 0)
	}
	w.run()
	w.run()
	if got, _ := verbs.Bytes(b.memory).Atomic(rc.OpFetchAdd, 0, 0, 0); got != 100 {
		t.Errorf("%d additions of 100", got)
	}
}

// TestReregister: the token stays, and grants what it is to grant from then on.
func TestReregister(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, nil)
	a, b := w.hosts[0], w.hosts[1]
	mr, err := b.pd.RegisterMR(verbs.Bytes(b.memory[:100]), 100, base, all)
	check(t, err)
	key := mr.Key()
	check(t, mr.Reregister(verbs.Registration{Memory: verbs.Bytes(b.memory[1000:2000]), Length: 1000, Base: 5000}))
	if mr.Key() != key {
		t.Errorf("token %#x, before %#x", mr.Key(), key)
	}
	r := a.request(rc.OpWrite, 1, 500, 50, 0)
	r.VA, r.Token = 5950, key
	w.post(qps[0], r)
	a.completed("write 1")
	if !bytes.Equal(b.memory[1950:2000], a.memory[500:550]) {
		t.Error("other bytes")
	}
	wrong := verbs.AccessRemoteWrite
	refused(t, "access that makes no sense", mr.Reregister(verbs.Registration{Access: &wrong}), syscall.EINVAL)
	reads := verbs.AccessRemoteRead
	check(t, mr.Reregister(verbs.Registration{Access: &reads}))
	w.post(qps[0], r)
	a.completed(fmt.Sprint("write 1 status ", verbs.RemoteAccessError))
	other, err := b.AllocPD()
	check(t, err)
	check(t, mr.Reregister(verbs.Registration{PD: other}))
	check(t, mr.Deregister())
	check(t, other.Dealloc())
}

// TestReregisterBesideKey: the key is asked for while the region changes, which the race detector watches.
func TestReregisterBesideKey(t *testing.T) {
	h := newWorld(t, 1).hosts[0]
	other, err := h.AllocPD()
	check(t, err)
	want, done := h.mr.Key(), make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			if got := h.mr.Key(); got != want {
				t.Errorf("key %#x, want %#x", got, want)
			}
		}
	}()
	for range 50 {
		check(t, h.mr.Reregister(verbs.Registration{PD: other}))
		check(t, h.mr.Reregister(verbs.Registration{PD: h.pd}))
	}
	<-done
	check(t, h.mr.Deregister())
	check(t, other.Dealloc())
}

// TestNull: a null region reads as zeros, forgets what is written, and is of any addresses.
func TestNull(t *testing.T) {
	w := newWorld(t, 1)
	qps := w.pair(verbs.RC, nil)
	a, b := w.hosts[0], w.hosts[1]
	null, err := a.pd.RegisterMR(verbs.Null{}, 1<<64-1, 0, verbs.AccessLocalWrite)
	check(t, err)
	of := func(address uint64, n int) []rc.SGE {
		return []rc.SGE{{Address: address, Length: uint32(n), Token: null.Key()}}
	}
	write, read, add := a.request(rc.OpWrite, 1, 0, 0, 5000), a.request(rc.OpRead, 2, 0, 0, 0), a.request(rc.OpFetchAdd, 3, 0, 0, 8)
	write.SGL, read.SGL, add.SGL = of(1<<63, 100_000), of(0, 100_000), of(1<<64-100, 8)
	w.post(qps[0], write, read, add, write)
	a.completed("write 1", "read 2", "add 3", "write 1")
	if got := b.memory[5000:105_000]; !bytes.Equal(got, make([]byte, len(got))) {
		t.Error("it does not read as zeros")
	}
}

// TestAddressSpace: an implicit region is the memory that the program has at the time, and nothing else.
func TestAddressSpace(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.hosts[0], w.hosts[1]
	implicit, err := b.pd.RegisterMR(verbs.AddressSpace{}, 1<<64-1, 0, all|verbs.AccessOnDemand)
	check(t, err)
	later, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	check(t, err)
	start := uint64(uintptr(unsafe.Pointer(&later[0])))
	of := func(op rc.Op, id, address uint64) verbs.SendRequest {
		r := a.request(op, id, 0, 8, 0)
		r.VA, r.Token, r.Operand = address, implicit.Key(), 1
		return r
	}
	w.post(w.pair(verbs.RC, nil)[0], of(rc.OpWrite, 1, start+64), of(rc.OpFetchAdd, 2, start+128), of(rc.OpRead, 3, start+128))
	a.completed("write 1", "add 2", "read 3")
	if later[128] != 1 || a.memory[0] != 1 {
		t.Errorf("1 was added to make %d, of which %d was read", later[128], a.memory[0])
	}
	check(t, unix.Munmap(later))
	denied := fmt.Sprint(" status ", verbs.RemoteAccessError)
	for address, what := range map[uint64]string{
		start: "unmapped", 0: "no address", 8: "the first page", 1<<47 - 8: "the last page", 1 << 47: "not canonical", 1<<64 - 16: "the end",
	} {
		for op, name := range map[rc.Op]string{rc.OpWrite: "write", rc.OpRead: "read", rc.OpFetchAdd: "add", rc.OpCompareSwap: "swap"} {
			t.Logf("%s: %s", what, name)
			w.post(w.pair(verbs.RC, nil)[0], of(op, 1, address))
			a.completed(name + " 1" + denied)
		}
	}
}
