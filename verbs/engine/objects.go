package main

/*
#include "engine.h"
*/
import "C"

import (
	"encoding/binary"
	"math"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/verbs"
)

var (
	pds  handles[verbs.PD]
	mrs  handles[verbs.MR]
	mws  handles[verbs.MW]
	cqs  handles[verbs.CQ]
	srqs handles[verbs.SRQ]
	ahs  handles[verbs.AH]
	qps  handles[verbs.QP]
)

//export engineAllocPD
func engineAllocPD(context C.uint64_t, out *C.uint64_t) C.int {
	o := contexts.get(uint64(context))
	if o == nil {
		return C.int(syscall.EINVAL)
	}
	pd, err := o.AllocPD()
	if err == nil {
		*out = C.uint64_t(pds.add(pd))
	}
	return errno(err)
}

//export engineDeallocPD
func engineDeallocPD(pd C.uint64_t) C.int { return errno(pds.remove(uint64(pd), (*verbs.PD).Dealloc)) }

//export engineRegMR
func engineRegMR(in C.uint64_t, address unsafe.Pointer, length, iova C.uint64_t, access C.uint32_t, out *C.uint64_t, key *C.uint32_t) C.int {
	pd := pds.get(uint64(in))
	if pd == nil {
		return C.int(syscall.EINVAL)
	}
	memory, err := memoryAt(address, length, verbs.Access(access))
	if err != nil {
		return errno(err)
	}
	mr, err := pd.RegisterMR(memory, uint64(length), uint64(iova), verbs.Access(access))
	if err != nil {
		release(memory)
		return errno(err)
	}
	*out, *key = C.uint64_t(mrs.add(mr)), C.uint32_t(mr.Key())
	return 0
}

//export engineReregMR
func engineReregMR(mr C.uint64_t, flags C.int, pd C.uint64_t, address unsafe.Pointer, length C.uint64_t, access C.uint32_t, key *C.uint32_t) C.int {
	of := mrs.get(uint64(mr))
	if of == nil || flags&^(C.IBV_REREG_MR_CHANGE_TRANSLATION|C.IBV_REREG_MR_CHANGE_PD|C.IBV_REREG_MR_CHANGE_ACCESS) != 0 {
		return C.int(syscall.EINVAL)
	}
	var to verbs.Registration
	if flags&C.IBV_REREG_MR_CHANGE_PD != 0 {
		if to.PD = pds.get(uint64(pd)); to.PD == nil {
			return C.int(syscall.EINVAL)
		}
	}
	rights := of.Access()
	if flags&C.IBV_REREG_MR_CHANGE_ACCESS != 0 {
		rights = verbs.Access(access)
		to.Access = &rights
	}
	if flags&C.IBV_REREG_MR_CHANGE_TRANSLATION != 0 {
		memory, err := memoryAt(address, length, rights)
		if err != nil {
			return errno(err)
		}
		to.Memory, to.Length, to.Base = memory, uint64(length), uint64(uintptr(address))
	}
	*key = C.uint32_t(of.Key())
	before := of.Memory()
	if err := of.Reregister(to); err != nil {
		release(to.Memory)
		return errno(err)
	}
	if to.Memory != nil {
		release(before)
	}
	return 0
}

// longest is more bytes than a process can have.
const longest = 1 << 47

// memoryAt returns memory of the program's. All addresses there can be are a null region, or an implicit one.
func memoryAt(address unsafe.Pointer, length C.uint64_t, access verbs.Access) (verbs.Memory, error) {
	onDemand := access&verbs.AccessOnDemand != 0
	switch {
	case address == nil && length == math.MaxUint64 && !onDemand:
		return verbs.Null{}, nil
	case client != 0:
		return space.Register(client, uint64(uintptr(address)), uint64(length), onDemand)
	case address == nil && length == math.MaxUint64:
		return verbs.AddressSpace{}, nil
	}
	return bytesAt(address, length, access)
}

// bytesAt returns memory of the program's: EFAULT if some of it is not mapped, as pinning it would find (ibv_reg_mr on Linux),
// unless it is registered for paging on demand. It may be unmapped later.
func bytesAt(address unsafe.Pointer, length C.uint64_t, access verbs.Access) (verbs.Bytes, error) {
	switch {
	case length == 0:
		return verbs.Bytes{}, nil
	case length > longest || uint64(uintptr(address)) > math.MaxUint64-uint64(length):
		return nil, syscall.EINVAL
	case address == nil:
		return nil, syscall.EFAULT
	}
	if access&verbs.AccessOnDemand == 0 {
		// msync writes back only files, and with MS_ASYNC not even these: it only goes through the mappings.
		start := uintptr(address) &^ (pageSize - 1)
		if _, _, e := unix.RawSyscall(unix.SYS_MSYNC, start, uintptr(address)+uintptr(length)-start, unix.MS_ASYNC); e == unix.ENOMEM {
			return nil, syscall.EFAULT
		}
	}
	return verbs.Bytes(unsafe.Slice((*byte)(address), int(length))), nil
}

var pageSize = uintptr(os.Getpagesize())

//export engineDeregMR
func engineDeregMR(mr C.uint64_t) C.int {
	return errno(mrs.remove(uint64(mr), func(mr *verbs.MR) error {
		err := mr.Deregister()
		if err == nil {
			release(mr.Memory())
		}
		return err
	}))
}

//export engineAllocMW
func engineAllocMW(in C.uint64_t, kind C.uint32_t, out *C.uint64_t, key *C.uint32_t) C.int {
	pd := pds.get(uint64(in))
	if pd == nil || kind > 2 {
		return C.int(syscall.EINVAL)
	}
	mw, err := pd.AllocMW(verbs.WindowType(kind))
	if err == nil {
		*out, *key = C.uint64_t(mws.add(mw)), C.uint32_t(mw.Key())
	}
	return errno(err)
}

//export engineDeallocMW
func engineDeallocMW(mw C.uint64_t) C.int { return errno(mws.remove(uint64(mw), (*verbs.MW).Dealloc)) }

//export engineCreateCQ
func engineCreateCQ(context C.uint64_t, cqe, fd C.int, cookie C.uint64_t, out *C.uint64_t) C.int {
	o := contexts.get(uint64(context))
	if o == nil {
		return C.int(syscall.EINVAL)
	}
	var notify func()
	if fd >= 0 {
		events, told := outboxOf(int(fd)), event{uint64(cookie), binary.NativeEndian.AppendUint64(nil, uint64(cookie))}
		notify = func() { events.put(told) }
	}
	cq, err := o.CreateCQ(int(cqe), notify)
	if err == nil {
		cookies.Store(cq, uint64(cookie))
		*out = C.uint64_t(cqs.add(cq))
	}
	return errno(err)
}

//export engineResizeCQ
func engineResizeCQ(in C.uint64_t, cqe C.int) C.int {
	cq := cqs.get(uint64(in))
	if cq == nil {
		return C.int(syscall.EINVAL)
	}
	return errno(cq.Resize(int(cqe)))
}

//export engineNameCQ
func engineNameCQ(in, cookie C.uint64_t) {
	if cq := cqs.get(uint64(in)); cq != nil {
		names.Store(cq, uint64(cookie))
	}
}

//export engineDestroyCQ
func engineDestroyCQ(cq C.uint64_t) C.int {
	return errno(cqs.remove(uint64(cq), func(cq *verbs.CQ) error {
		err := cq.Destroy()
		if err == nil {
			forget(cookieOf(cq))
			cookies.Delete(cq)
			if name, ok := names.LoadAndDelete(cq); ok {
				forget(name.(uint64))
			}
		}
		return err
	}))
}

//export engineReqNotifyCQ
func engineReqNotifyCQ(in C.uint64_t, solicited C.int) C.int {
	cq := cqs.get(uint64(in))
	if cq == nil {
		return C.int(syscall.EINVAL)
	}
	cq.Arm(solicited != 0)
	return 0
}

//export engineCreateSRQ
func engineCreateSRQ(in, cookie C.uint64_t, attr *C.struct_ibv_srq_attr, out *C.uint64_t) C.int {
	pd := pds.get(uint64(in))
	if pd == nil {
		return C.int(syscall.EINVAL)
	}
	srq, err := pd.CreateSRQ(int(attr.max_wr), int(attr.max_sge), 0)
	if err == nil {
		cookies.Store(srq, uint64(cookie))
		*out = C.uint64_t(srqs.add(srq))
	}
	return errno(err)
}

//export engineModifySRQ
func engineModifySRQ(in C.uint64_t, attr *C.struct_ibv_srq_attr, mask C.int) C.int {
	srq := srqs.get(uint64(in))
	if srq == nil || mask&^(C.IBV_SRQ_MAX_WR|C.IBV_SRQ_LIMIT) != 0 {
		return C.int(syscall.EINVAL)
	}
	if mask&C.IBV_SRQ_MAX_WR != 0 {
		if err := srq.Resize(int(attr.max_wr)); err != nil {
			return errno(err)
		}
	}
	if mask&C.IBV_SRQ_LIMIT != 0 {
		return errno(srq.SetLimit(int(attr.srq_limit)))
	}
	return 0
}

//export engineQuerySRQ
func engineQuerySRQ(in C.uint64_t, attr *C.struct_ibv_srq_attr) C.int {
	srq := srqs.get(uint64(in))
	if srq == nil {
		return C.int(syscall.EINVAL)
	}
	depth, sges, limit := srq.Query()
	*attr = C.struct_ibv_srq_attr{max_wr: C.uint32_t(depth), max_sge: C.uint32_t(sges), srq_limit: C.uint32_t(limit)}
	return 0
}

//export engineDestroySRQ
func engineDestroySRQ(srq C.uint64_t) C.int {
	return errno(srqs.remove(uint64(srq), func(srq *verbs.SRQ) error {
		err := srq.Destroy()
		if err == nil {
			forget(cookieOf(srq))
			cookies.Delete(srq)
		}
		return err
	}))
}

//export engineCreateAH
func engineCreateAH(in C.uint64_t, attr *C.struct_ibv_ah_attr, out *C.uint64_t) C.int {
	pd := pds.get(uint64(in))
	if pd == nil || attr.is_global == 0 {
		return C.int(syscall.EINVAL)
	}
	ah, err := pd.CreateAH(addressOf(attr))
	if err == nil {
		*out = C.uint64_t(ahs.add(ah))
	}
	return errno(err)
}

//export engineDestroyAH
func engineDestroyAH(ah C.uint64_t) C.int { return errno(ahs.remove(uint64(ah), (*verbs.AH).Destroy)) }

//export engineAttachMcast
func engineAttachMcast(in C.uint64_t, gid *C.uint8_t) C.int {
	qp := qps.get(uint64(in))
	if qp == nil {
		return C.int(syscall.EINVAL)
	}
	return errno(qp.Attach(groupOf(gid)))
}

//export engineDetachMcast
func engineDetachMcast(in C.uint64_t, gid *C.uint8_t) C.int {
	qp := qps.get(uint64(in))
	if qp == nil {
		return C.int(syscall.EINVAL)
	}
	return errno(qp.Detach(groupOf(gid)))
}

// groupOf returns the address that a multicast GID of RoCEv2 is.
func groupOf(gid *C.uint8_t) netip.Addr {
	return netip.AddrFrom16(*(*[16]byte)(unsafe.Pointer(gid))).Unmap()
}
