package provider_test

import (
	"math"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/provider"
)

// A loan is memory that is mapped for an adapter.
type loan struct {
	provider.LAM
	fbo     uint32
	adapter *provider.Adapter
}

// Close takes the memory back, so that a loan can be tracked like an object.
func (l *loan) Close(provider.CloseCompletion, any) provider.Status {
	l.adapter.ReleaseLAM(&l.LAM)
	return success
}

func (l *loan) Type() provider.ObjectType { return 0 }

// lend maps memory that is known at an address.
func (h *host) lend(address uint64, memory []byte) *loan {
	h.world.t.Helper()
	l := &loan{adapter: h.Adapter}
	size := uint32(math.MaxUint32)
	h.world.want(h.BuildLAM(&provider.MDL{VirtualAddress: address, Bytes: memory}, uint64(len(memory)), nil, nil, &l.LAM, &size, &l.fbo), success)
	return track(h, l)
}

func (h *host) newFRMR(pages uint32, remoteAccess bool) *provider.MR {
	h.world.t.Helper()
	mr := track(h, must(h.pd.CreateMR(true, nil, nil)))
	h.world.want(mr.InitializeFastRegister(pages, remoteAccess, nil, nil), success)
	return mr
}

// fast registers what is lent, from byte fbo of its first page on, at address 0
// and fbo, and waits until that is done.
func (h *host) fast(mr *provider.MR, l *loan, fbo uint32, length uint64, flags provider.OpFlags) {
	h.world.t.Helper()
	h.world.want(h.qp.FastRegister("fast", mr, l.Pages, fbo, length, uint64(fbo), flags), success)
	checkResult(h.world.t, h.result(success), provider.OperationTypeFastRegister, "fast", h)
}

// bind opens a window and waits until that is done.
func (h *host) bind(mr *provider.MR, mw *provider.MW, address, length uint64, flags provider.OpFlags) {
	h.world.t.Helper()
	h.world.want(h.qp.Bind("bind", mr, mw, address, length, flags), success)
	checkResult(h.world.t, h.result(success), provider.OperationTypeBind, "bind", h)
}

// invalidate ends the token of an FRMR or window and waits until that is done.
func (h *host) invalidate(o provider.Object) {
	h.world.t.Helper()
	h.world.want(h.qp.Invalidate("end", o, 0), success)
	checkResult(h.world.t, h.result(success), provider.OperationTypeInvalidate, "end", h)
}

const (
	allRights = provider.OpAllowRemoteRead | provider.OpAllowRemoteWrite
	grantAt   = 700        // place in the host's memory, and in the FRMR's first page
	grantSize = 4096 + 100 // two packets and two pages
)

// borrow is an FRMR with the given rights and what is in it. Its pages have the
// host's memory around it too.
func (h *host) borrow(flags provider.OpFlags) (*provider.MR, target) {
	h.world.t.Helper()
	mr := h.newFRMR(16, true)
	l := h.lend(0x123_4000+0x100, h.memory[0x100:0x5000])
	h.fast(mr, l, grantAt, grantSize, flags)
	return mr, region(grantAt, mr.RemoteToken(), grantAt, grantSize)
}

// open is a window with the given rights and what is in it.
func (h *host) openWindow(flags provider.OpFlags, mrFlags provider.MRFlags) (*provider.MW, target) {
	h.world.t.Helper()
	mr := h.register(0x5000, h.memory[1000:20000], mrFlags)
	mw := track(h, must(h.pd.CreateMW(nil, nil)))
	h.bind(mr, mw, 0x5000+500, grantSize, flags)
	return mw, region(0x5000+500, mw.RemoteToken(), 1500, grantSize)
}

// logical is memory under logical addresses, a page in each SGE.
func (h *host) logical() target {
	h.world.t.Helper()
	l := h.lend(0x123_4000+grantAt, h.memory[grantAt:grantAt+grantSize])
	token := h.pd.PrivilegedMemoryRegionToken()
	first := uint32(provider.PageSize - grantAt)
	return target{
		sgl: []provider.SGE{
			{VirtualAddress: uint64(l.Pages[0]) + grantAt, Length: first, MemoryRegionToken: token},
			{VirtualAddress: uint64(l.Pages[1]), Length: grantSize - first, MemoryRegionToken: token},
		},
		token: token, at: grantAt, size: grantSize,
	}
}

// TestGrants: what FRMRs, windows and mappings allow, to whom, and until when.
func TestGrants(t *testing.T) {
	const everything = "send from, receive into, read into, write to, read of"
	shifted := func(m target, by uint64) target { return region(m.address+by, m.token, m.at+int(by), m.size) }
	for _, c := range []struct {
		name   string
		make   func(w *world, h *host) target
		allows string
		partly bool // a refused local access may begin
		flags  provider.AdapterFlags
	}{
		{name: "NDK-MR-20 FRMR without rights", allows: "send from", make: func(w *world, h *host) target {
			_, m := h.borrow(0)
			return m
		}},
		{name: "NDK-MR-20 FRMR with local write", allows: "send from, receive into, read into", make: func(w *world, h *host) target {
			_, m := h.borrow(provider.OpAllowLocalWrite)
			return m
		}},
		{name: "NDK-MR-20 FRMR with remote read", allows: "send from, read of", make: func(w *world, h *host) target {
			_, m := h.borrow(provider.OpAllowRemoteRead)
			return m
		}},
		{name: "NDK-MR-20 FRMR with remote write", allows: "send from, receive into, read into, write to", make: func(w *world, h *host) target {
			_, m := h.borrow(provider.OpAllowRemoteWrite)
			return m
		}},
		{name: "NDK-MR-10 FRMR as a sink without local write", allows: "send from", make: func(w *world, h *host) target {
			_, m := h.borrow(provider.OpReadSink)
			return m
		}},
		{name: "NDK-MR-20 NDK-MR-10 FRMR with all rights", allows: everything, make: func(w *world, h *host) target {
			_, m := h.borrow(allRights | provider.OpReadSink)
			return m
		}},
		{name: "NDK-MR-26 NDK-SGE-03 FRMR one byte beyond its end", partly: true, make: func(w *world, h *host) target {
			_, m := h.borrow(allRights)
			return shifted(m, 1)
		}},
		{name: "NDK-MR-26 NDK-SGE-03 FRMR one byte before its start", make: func(w *world, h *host) target {
			_, m := h.borrow(allRights)
			return shifted(m, math.MaxUint64)
		}},
		{name: "NDK-MR-20 FRMR before it is registered", make: func(w *world, h *host) target {
			mr := h.newFRMR(16, true)
			return region(grantAt, mr.RemoteToken(), grantAt, grantSize)
		}},
		{name: "NDK-FLUSH-05 FRMR whose FastRegister was flushed", make: func(w *world, h *host) target {
			mr := h.newFRMR(16, true)
			l := h.lend(0, h.memory[:0x5000])
			w.want(h.qp.FastRegister(nil, mr, l.Pages, grantAt, grantSize, grantAt, allRights|provider.OpDefer), success)
			h.qp.Flush()
			h.result(provider.StatusCancelled)
			w.settle()
			w.rejoin()
			return region(grantAt, mr.RemoteToken(), grantAt, grantSize)
		}},
		{name: "NDK-INV-01 FRMR invalidated", make: func(w *world, h *host) target {
			mr, m := h.borrow(allRights)
			h.invalidate(mr)
			return m
		}},
		{name: "NDK-MR-29 FRMR with the token of its last registration", make: func(w *world, h *host) target {
			mr, m := h.borrow(allRights)
			h.invalidate(mr)
			h.fast(mr, h.lend(0, h.memory[:0x5000]), grantAt, grantSize, allRights)
			return m
		}},
		{name: "FRMR closed", make: func(w *world, h *host) target {
			mr, m := h.borrow(allRights)
			w.want(h.close(mr).returned, success)
			return m
		}},
		{name: "FRMR whose pages are not mapped any more", make: func(w *world, h *host) target {
			mr := h.newFRMR(16, true)
			l := h.lend(0, h.memory[:0x5000])
			h.fast(mr, l, grantAt, grantSize, allRights)
			h.close(l)
			return region(grantAt, mr.RemoteToken(), grantAt, grantSize)
		}},
		{name: "NDK-SGE-07 FRMR of another protection domain", make: func(w *world, h *host) target {
			_, m := h.borrow(allRights)
			w.rejoinIn(h, track(h, must(h.CreatePD(nil, nil))))
			return m
		}},
		{name: "FRMR beyond the memory that was mapped", partly: true, make: func(w *world, h *host) target {
			mr := h.newFRMR(16, true)
			l := h.lend(0, h.memory[:grantAt+grantSize-1])
			h.fast(mr, l, grantAt, grantSize, allRights)
			return region(grantAt, mr.RemoteToken(), grantAt, grantSize)
		}},
		{name: "FRMR before the memory that was mapped", make: func(w *world, h *host) target {
			mr := h.newFRMR(16, true)
			l := h.lend(grantAt+1, h.memory[grantAt+1:0x5000])
			h.fast(mr, l, grantAt, grantSize, allRights)
			return region(grantAt, mr.RemoteToken(), grantAt, grantSize)
		}},

		{name: "NDK-MW-04 NDK-MW-06 window for reading of a region without rights", allows: "read of", make: func(w *world, h *host) target {
			_, m := h.openWindow(provider.OpAllowRemoteRead, 0)
			return m
		}},
		{name: "NDK-MW-06 window for writing", allows: "write to", make: func(w *world, h *host) target {
			_, m := h.openWindow(provider.OpAllowRemoteWrite, provider.MRAllowLocalWrite)
			return m
		}},
		{name: "NDK-MW-06 NDK-MW-08 window for both", allows: "write to, read of", make: func(w *world, h *host) target {
			_, m := h.openWindow(allRights, provider.MRAllowLocalWrite)
			return m
		}},
		{name: "NDK-MW-06 window without rights", make: func(w *world, h *host) target {
			_, m := h.openWindow(0, 0xF)
			return m
		}},
		{name: "NDK-MW-06 window one byte beyond its end", make: func(w *world, h *host) target {
			_, m := h.openWindow(allRights, 0xF)
			return shifted(m, 1)
		}},
		{name: "NDK-MW-06 window one byte before its start", make: func(w *world, h *host) target {
			_, m := h.openWindow(allRights, 0xF)
			return shifted(m, math.MaxUint64)
		}},
		{name: "NDK-MW-01 window before it is bound", make: func(w *world, h *host) target {
			mw := track(h, must(h.pd.CreateMW(nil, nil)))
			return region(base+1500, mw.RemoteToken(), 1500, grantSize)
		}},
		{name: "NDK-MW-09 window invalidated", make: func(w *world, h *host) target {
			mw, m := h.openWindow(allRights, 0xF)
			h.invalidate(mw)
			return m
		}},
		{name: "NDK-MW-10 window with the token of its last binding", make: func(w *world, h *host) target {
			mw, m := h.openWindow(allRights, 0xF)
			h.invalidate(mw)
			h.bind(h.mr, mw, base, 1<<20, allRights)
			return m
		}},
		{name: "window closed", make: func(w *world, h *host) target {
			mw, m := h.openWindow(allRights, 0xF)
			w.want(h.close(mw).returned, success)
			return m
		}},
		{name: "window of another protection domain", make: func(w *world, h *host) target {
			_, m := h.openWindow(allRights, 0xF)
			w.rejoinIn(h, track(h, must(h.CreatePD(nil, nil))))
			return m
		}},

		{name: "NDK-PTOK-01 NDK-PTOK-03 NDK-SGE-01 NDK-SGE-06 NDK-LAM-07 logical addresses", allows: "send from, receive into, read into",
			make: func(w *world, h *host) target { return h.logical() }},
		{name: "NDK-PTOK-02 a logical address", allows: "send from, receive into, read into", make: func(w *world, h *host) target {
			l := h.lend(0, h.memory[:0x5000])
			return region(uint64(l.Pages[1])+100, h.pd.PrivilegedMemoryRegionToken(), provider.PageSize+100, 1000)
		}},
		{name: "NDK-PTOK-04 logical addresses where sinks need a right", allows: "send from, receive into", flags: provider.AdapterReadSinkNotRequired,
			make: func(w *world, h *host) target { return h.logical() }},
		{name: "NDK-SGE-06 over the end of a page", make: func(w *world, h *host) target {
			m := h.logical()
			return region(m.sgl[0].VirtualAddress, m.token, grantAt, int(m.sgl[0].Length)+1)
		}},
		{name: "NDK-SGE-03 before the mapped part of a page", make: func(w *world, h *host) target {
			m := h.logical()
			return region(m.sgl[0].VirtualAddress-1, m.token, grantAt-1, 100)
		}},
		{name: "NDK-SGE-03 beyond the mapped part of a page", make: func(w *world, h *host) target {
			m := h.logical()
			return region(m.sgl[1].VirtualAddress, m.token, provider.PageSize, int(m.sgl[1].Length)+1)
		}},
		{name: "logical addresses that are not mapped any more", make: func(w *world, h *host) target {
			m := h.logical()
			h.close((*h.open)[len(*h.open)-1])
			return m
		}},
		{name: "NDK-SGE-02 a logical address with the token of a region", make: func(w *world, h *host) target {
			m := h.logical()
			for i := range m.sgl {
				m.sgl[i].MemoryRegionToken = h.mr.LocalToken()
			}
			m.address, m.token = m.sgl[0].VirtualAddress, h.mr.LocalToken()
			return m
		}},
		{name: "NDK-SGE-01 a virtual address with the privileged token", make: func(w *world, h *host) target {
			return region(base+grantAt, h.pd.PrivilegedMemoryRegionToken(), grantAt, grantSize)
		}},
		{name: "NDK-SGE-01 what is no address with the privileged token", make: func(w *world, h *host) target {
			return region(math.MaxUint64-grantSize, h.pd.PrivilegedMemoryRegionToken(), grantAt, grantSize)
		}},

		{name: "NDK-MR-11 a region where sinks need a right", flags: provider.AdapterReadSinkNotRequired, allows: "send from, receive into, write to, read of",
			make: func(w *world, h *host) target {
				return region(base+grantAt, h.mr.LocalToken(), grantAt, grantSize)
			}},
		{name: "NDK-MR-11 a region that is a sink", flags: provider.AdapterReadSinkNotRequired, allows: everything, make: func(w *world, h *host) target {
			mr := h.register(0x5000, h.memory[grantAt:][:grantSize], 0xF)
			return region(0x5000, mr.LocalToken(), grantAt, grantSize)
		}},
		{name: "NDK-MR-11 an FRMR where sinks need a right", flags: provider.AdapterReadSinkNotRequired, allows: "send from, receive into, write to, read of",
			make: func(w *world, h *host) target {
				_, m := h.borrow(allRights)
				return m
			}},
		{name: "NDK-MR-11 an FRMR that is a sink", flags: provider.AdapterReadSinkNotRequired, allows: everything, make: func(w *world, h *host) target {
			_, m := h.borrow(allRights | provider.OpReadSink)
			return m
		}},
	} {
		for access, status := range refusals {
			t.Run(c.name+" "+access, func(t *testing.T) {
				info := provider.DefaultAdapterInfo()
				info.AdapterFlags &^= c.flags
				w := newWorldOf(t, addresses, info)
				w.connect()
				m := c.make(w, w.owner(access))
				if access == "read of" {
					w.sinks() // what is read into is not what this is about
				}
				m.otherwise = c.partly && status == provider.StatusAccessViolation
				w.try(access, m, strings.Contains(c.allows, access))
			})
		}
	}
}
