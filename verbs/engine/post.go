package main

/*
#include "engine.h"
*/
import "C"

import (
	"math/bits"
	"slices"
	"sync"
	"syscall"
	"unsafe"

	"github.com/ndklab/ndklab/internal/provider/fault"
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// A scratch has the memory in which a call converts work requests and completions.
type scratch struct {
	sends       []verbs.SendRequest
	sendWRs     []*C.struct_ibv_send_wr
	receives    []verbs.ReceiveRequest
	receiveWRs  []*C.struct_ibv_recv_wr
	pieces      []rc.SGE // of all requests, each with room for its own
	inline      []byte
	completions [pollAtOnce]verbs.Completion
}

// pollAtOnce bounds the completions that are converted at once.
const pollAtOnce = 32

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// network returns a number of the ABI that is in network order, and the reverse.
func network(n uint32) uint32 {
	if littleEndian {
		return bits.ReverseBytes32(n)
	}
	return n
}

var littleEndian = func() bool { n := uint16(1); return *(*byte)(unsafe.Pointer(&n)) == 1 }()

// operations are those of the ABI's work requests; 0 for those that are refused.
var operations = [...]rc.Op{
	C.IBV_WR_RDMA_WRITE: rc.OpWrite, C.IBV_WR_RDMA_WRITE_WITH_IMM: rc.OpWriteImmediate, C.IBV_WR_SEND: rc.OpSend,
	C.IBV_WR_SEND_WITH_IMM: rc.OpSendImmediate, C.IBV_WR_RDMA_READ: rc.OpRead, C.IBV_WR_ATOMIC_CMP_AND_SWP: rc.OpCompareSwap,
	C.IBV_WR_ATOMIC_FETCH_AND_ADD: rc.OpFetchAdd, C.IBV_WR_LOCAL_INV: rc.OpInvalidate, C.IBV_WR_BIND_MW: rc.OpBind,
	C.IBV_WR_SEND_WITH_INV: rc.OpSendInvalidate, C.IBV_WR_ATOMIC_WRITE: rc.OpAtomicWrite,
}

// mostPieces bounds what is looked at of a work request that has too many.
const mostPieces = 1024

// appendPieces appends those of a work request. Pieces that were appended before stay where they are.
func (s *scratch) appendPieces(list *C.struct_ibv_sge, n C.int) []rc.SGE {
	first := len(s.pieces)
	for _, g := range unsafe.Slice(list, int(n)) {
		s.pieces = append(s.pieces, rc.SGE{Address: uint64(g.addr), Length: uint32(g.length), Token: uint32(g.lkey)})
	}
	return s.pieces[first:len(s.pieces):len(s.pieces)]
}

// gather copies the inline data of a work request: EINVAL if it is more than most bytes, EFAULT if it is not there.
func (s *scratch) gather(list *C.struct_ibv_sge, n C.int, most int) ([]byte, error) {
	first, total := len(s.inline), 0
	for _, g := range unsafe.Slice(list, int(n)) {
		if total += int(g.length); total > most {
			return nil, syscall.EINVAL
		}
	}
	s.inline = slices.Grow(s.inline, total)
	to := s.inline[first : first : first+total]
	for _, g := range unsafe.Slice(list, int(n)) {
		end := len(to) + int(g.length)
		if g.length > 0 && !fault.Copy(to[len(to):end], at(uint64(g.addr), int(g.length))) {
			return nil, syscall.EFAULT
		}
		to = to[:end]
	}
	s.inline = s.inline[:first+total]
	return to, nil
}

//export enginePostSend
func enginePostSend(in C.uint64_t, wr *C.struct_ibv_send_wr, bad **C.struct_ibv_send_wr) C.int {
	qp := qps.get(uint64(in))
	if qp == nil {
		*bad = wr
		return C.int(syscall.EINVAL)
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.sends, s.sendWRs, s.pieces, s.inline = s.sends[:0], s.sendWRs[:0], s.pieces[:0], s.inline[:0]
	for ; wr != nil; wr = wr.next {
		s.sends, s.sendWRs = append(s.sends, verbs.SendRequest{}), append(s.sendWRs, wr)
		if err := s.convert(qp, &s.sends[len(s.sends)-1], wr); err != nil {
			if i, earlier := qp.Post(s.sends[:len(s.sends)-1]); earlier != nil {
				*bad = s.sendWRs[i]
				return errno(earlier)
			}
			*bad = wr
			return errno(err)
		}
	}
	i, err := qp.Post(s.sends)
	if err != nil {
		*bad = s.sendWRs[i]
	}
	clear(s.sends) // of what is the program's
	return errno(err)
}

// convert makes a request of a work request.
func (s *scratch) convert(qp *verbs.QP, r *verbs.SendRequest, wr *C.struct_ibv_send_wr) error {
	if uint(wr.opcode) >= uint(len(operations)) || operations[wr.opcode] == 0 || wr.num_sge < 0 || wr.num_sge > mostPieces {
		return syscall.EINVAL
	}
	op := operations[wr.opcode]
	flags := wr.send_flags
	r.ID, r.Op = uint64(wr.wr_id), op
	r.Signaled, r.Fence, r.Solicited = flags&C.IBV_SEND_SIGNALED != 0, flags&C.IBV_SEND_FENCE != 0, flags&C.IBV_SEND_SOLICITED != 0
	switch {
	case op == rc.OpBind, op == rc.OpInvalidate:
	case flags&C.IBV_SEND_INLINE != 0:
		var err error
		if r.Inline, err = s.gather(wr.sg_list, wr.num_sge, qp.Capacity().Inline); err != nil {
			return err
		}
	default:
		r.SGL = s.appendPieces(wr.sg_list, wr.num_sge)
	}
	other := *(*uint32)(unsafe.Pointer(&wr.anon0)) // imm_data or invalidate_rkey
	switch op {
	case rc.OpSendImmediate, rc.OpWriteImmediate:
		r.Immediate = network(other)
	case rc.OpSendInvalidate:
		r.Token = other
	case rc.OpInvalidate:
		r.Local = qp.Invalidate(other)
	case rc.OpBind:
		return bindOf(qp, r, wr)
	}
	remote := unsafe.Pointer(&wr.wr)
	switch {
	case qp.Type() == verbs.UD:
		to := (*struct {
			ah        *C.struct_ibv_ah
			qpn, qkey C.uint32_t
		})(remote)
		if to.ah != nil {
			r.AH = ahs.get(uint64(to.ah.handle))
		}
		r.RemoteQPN, r.QKey = uint32(to.qpn), uint32(to.qkey)
	case op == rc.OpFetchAdd || op == rc.OpCompareSwap:
		of := (*struct {
			va, compareAdd, swap C.uint64_t
			key                  C.uint32_t
		})(remote)
		r.VA, r.Token, r.Operand, r.Compare = uint64(of.va), uint32(of.key), uint64(of.swap), uint64(of.compareAdd)
		if op == rc.OpFetchAdd {
			r.Operand = uint64(of.compareAdd)
		}
	case op == rc.OpWrite || op == rc.OpWriteImmediate || op == rc.OpRead || op == rc.OpAtomicWrite:
		of := (*struct {
			va  C.uint64_t
			key C.uint32_t
		})(remote)
		r.VA, r.Token = uint64(of.va), uint32(of.key)
	}
	return nil
}

// bindOf has r bind the window of a work request. One of type 1 has another token from then on, which is told in the
// window's structure.
func bindOf(qp *verbs.QP, r *verbs.SendRequest, wr *C.struct_ibv_send_wr) error {
	b := (*struct {
		mw   *C.struct_ibv_mw
		key  C.uint32_t
		info C.struct_ibv_mw_bind_info
	})(unsafe.Pointer(&wr.anon1))
	if b.mw == nil {
		return syscall.EINVAL
	}
	to := verbs.Binding{Address: uint64(b.info.addr), Length: uint64(b.info.length), Access: verbs.Access(b.info.mw_access_flags)}
	if b.info.mr != nil {
		to.MR = mrs.get(uint64(b.info.mr.handle))
	}
	local, key, err := qp.Bind(mws.get(uint64(b.mw.handle)), uint32(b.key), to)
	if err != nil {
		return err
	}
	r.Local = local
	b.mw.rkey = C.uint32_t(key)
	return nil
}

//export enginePostRecv
func enginePostRecv(in C.uint64_t, wr *C.struct_ibv_recv_wr, bad **C.struct_ibv_recv_wr) C.int {
	qp := qps.get(uint64(in))
	if qp == nil {
		*bad = wr
		return C.int(syscall.EINVAL)
	}
	return postReceives(wr, bad, qp.Receive)
}

//export enginePostSRQRecv
func enginePostSRQRecv(in C.uint64_t, wr *C.struct_ibv_recv_wr, bad **C.struct_ibv_recv_wr) C.int {
	srq := srqs.get(uint64(in))
	if srq == nil {
		*bad = wr
		return C.int(syscall.EINVAL)
	}
	return postReceives(wr, bad, func(receives []verbs.ReceiveRequest) (int, error) {
		for i := range receives {
			if err := srq.Receive(receives[i]); err != nil {
				return i, err
			}
		}
		return 0, nil
	})
}

// postReceives posts a list of receives.
func postReceives(wr *C.struct_ibv_recv_wr, bad **C.struct_ibv_recv_wr, post func([]verbs.ReceiveRequest) (int, error)) C.int {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.receives, s.receiveWRs, s.pieces = s.receives[:0], s.receiveWRs[:0], s.pieces[:0]
	var wrong *C.struct_ibv_recv_wr
	for ; wr != nil && wrong == nil; wr = wr.next {
		if wr.num_sge < 0 || wr.num_sge > mostPieces {
			wrong = wr
			break
		}
		s.receives = append(s.receives, verbs.ReceiveRequest{ID: uint64(wr.wr_id), SGL: s.appendPieces(wr.sg_list, wr.num_sge)})
		s.receiveWRs = append(s.receiveWRs, wr)
	}
	i, err := post(s.receives)
	switch {
	case err != nil:
		*bad = s.receiveWRs[i]
	case wrong != nil:
		*bad, err = wrong, syscall.EINVAL
	}
	return errno(err)
}

//export enginePollCQ
func enginePollCQ(in C.uint64_t, n C.int, wc *C.struct_ibv_wc, at *C.uint64_t) C.int {
	cq := cqs.get(uint64(in))
	if cq == nil || n < 0 {
		return -C.int(syscall.EINVAL)
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	to := unsafe.Slice(wc, int(n))
	done := 0
	for done < len(to) {
		got := cq.Poll(s.completions[:min(pollAtOnce, len(to)-done)])
		for i := range got {
			convertCompletion(&to[done+i], &s.completions[i])
			if at != nil {
				unsafe.Slice(at, int(n))[done+i] = C.uint64_t(s.completions[i].At)
			}
		}
		if done += got; got < pollAtOnce {
			break
		}
	}
	return C.int(done)
}

func convertCompletion(to *C.struct_ibv_wc, c *verbs.Completion) {
	*to = C.struct_ibv_wc{
		wr_id: C.uint64_t(c.ID), status: C.enum_ibv_wc_status(c.Status), opcode: C.enum_ibv_wc_opcode(c.Opcode), vendor_err: C.uint32_t(c.VendorError),
		byte_len: C.uint32_t(c.Bytes), qp_num: C.uint32_t(c.QPN), src_qp: C.uint32_t(c.SourceQPN), sl: C.uint8_t(c.Network), wc_flags: C.uint(c.Flags),
	}
	if client != 0 && c.Solicited {
		to.wc_flags |= C.ENGINE_WC_SOLICITED
	}
	other := (*uint32)(unsafe.Pointer(&to.anon0)) // imm_data or invalidated_rkey
	if *other = c.Invalidated; c.Flags&verbs.HasImmediate != 0 {
		*other = network(c.Immediate)
	}
}
