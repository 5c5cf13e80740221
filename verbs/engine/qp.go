package main

/*
#include "engine.h"
*/
import "C"

import (
	"net/netip"
	"syscall"
	"unsafe"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

//export engineCreateQP
func engineCreateQP(init *C.struct_engine_qp_init, out *C.uint64_t) C.int {
	pd, send, receive := pds.get(uint64(init.pd)), cqs.get(uint64(init.send_cq)), cqs.get(uint64(init.recv_cq))
	var srq *verbs.SRQ
	if init.srq != 0 {
		if srq = srqs.get(uint64(init.srq)); srq == nil {
			return C.int(syscall.EINVAL)
		}
	}
	if pd == nil {
		return C.int(syscall.EINVAL)
	}
	qp, err := pd.CreateQP(verbs.QPConfig{
		Type: verbs.QPType(init._type), SendCQ: send, ReceiveCQ: receive, SRQ: srq, SignalAll: init.sq_sig_all != 0, Cookie: uint64(init.cookie),
		Capacity: verbs.Capacity{
			SendDepth: int(init.cap.max_send_wr), ReceiveDepth: int(init.cap.max_recv_wr), SendSGEs: int(init.cap.max_send_sge),
			ReceiveSGEs: int(init.cap.max_recv_sge), Inline: int(init.cap.max_inline_data),
		},
	})
	if err != nil {
		return errno(err)
	}
	_, config := qp.Query()
	init.cap = capacityOf(config.Capacity)
	init.qp_num = C.uint32_t(qp.Number())
	*out = C.uint64_t(qps.add(qp))
	return 0
}

func capacityOf(c verbs.Capacity) C.struct_ibv_qp_cap {
	return C.struct_ibv_qp_cap{
		max_send_wr: C.uint32_t(c.SendDepth), max_recv_wr: C.uint32_t(c.ReceiveDepth), max_send_sge: C.uint32_t(c.SendSGEs),
		max_recv_sge: C.uint32_t(c.ReceiveSGEs), max_inline_data: C.uint32_t(c.Inline),
	}
}

//export engineDestroyQP
func engineDestroyQP(qp C.uint64_t) C.int {
	return errno(qps.remove(uint64(qp), func(qp *verbs.QP) error {
		err := qp.Destroy()
		if err == nil {
			forget(qp.Cookie().(uint64))
		}
		return err
	}))
}

//export engineModifyQP
func engineModifyQP(in C.uint64_t, attr *C.struct_ibv_qp_attr, mask C.int) C.int {
	qp := qps.get(uint64(in))
	if qp == nil {
		return C.int(syscall.EINVAL)
	}
	a := verbs.Attributes{
		State: verbs.QPState(attr.qp_state), CurrentState: verbs.QPState(attr.cur_qp_state),
		PathMTU: roce.MTUOfCode(uint8(attr.path_mtu)), QKey: uint32(attr.qkey), ReceivePSN: uint32(attr.rq_psn), SendPSN: uint32(attr.sq_psn),
		DestQPN: uint32(attr.dest_qp_num), Access: verbs.Access(attr.qp_access_flags), PKeyIndex: uint16(attr.pkey_index),
		DrainNotify: attr.en_sqd_async_notify != 0, MaxReads: uint8(attr.max_rd_atomic), MaxDestReads: uint8(attr.max_dest_rd_atomic),
		MinRNRTimer: uint8(attr.min_rnr_timer), Port: uint8(attr.port_num), Timeout: uint8(attr.timeout), RetryCount: uint8(attr.retry_cnt),
		RNRRetry: uint8(attr.rnr_retry),
	}
	if mask&C.IBV_QP_AV != 0 {
		if attr.ah_attr.is_global == 0 {
			return C.int(syscall.EINVAL) // RoCE has no other addresses
		}
		a.Address = addressOf(&attr.ah_attr)
	}
	return errno(qp.Modify(&a, verbs.AttributeMask(mask)))
}

//export engineQueryQP
func engineQueryQP(in C.uint64_t, attr *C.struct_ibv_qp_attr, init *C.struct_ibv_qp_init_attr) C.int {
	qp := qps.get(uint64(in))
	if qp == nil {
		return C.int(syscall.EINVAL)
	}
	a, config := qp.Query()
	*attr = C.struct_ibv_qp_attr{
		qp_state: C.enum_ibv_qp_state(a.State), cur_qp_state: C.enum_ibv_qp_state(a.CurrentState), path_mtu: mtuCode(a.PathMTU),
		qkey: C.uint32_t(a.QKey), rq_psn: C.uint32_t(a.ReceivePSN), sq_psn: C.uint32_t(a.SendPSN), dest_qp_num: C.uint32_t(a.DestQPN),
		qp_access_flags: C.uint(a.Access), cap: capacityOf(config.Capacity), max_rd_atomic: C.uint8_t(a.MaxReads),
		max_dest_rd_atomic: C.uint8_t(a.MaxDestReads), min_rnr_timer: C.uint8_t(a.MinRNRTimer), port_num: C.uint8_t(a.Port),
		timeout: C.uint8_t(a.Timeout), retry_cnt: C.uint8_t(a.RetryCount), rnr_retry: C.uint8_t(a.RNRRetry),
	}
	if a.Address.Remote.IsValid() {
		h := &attr.ah_attr
		h.grh.dgid = gidOf(a.Address.Remote)
		h.grh.sgid_index, h.grh.hop_limit, h.grh.traffic_class = C.uint8_t(a.Address.GIDIndex), C.uint8_t(a.Address.HopLimit), C.uint8_t(a.Address.TrafficClass)
		h.grh.flow_label, h.sl, h.is_global, h.port_num = C.uint32_t(a.Address.FlowLabel), C.uint8_t(a.Address.ServiceLevel), 1, C.uint8_t(a.Address.Port)
	}
	init.cap = attr.cap
	init.qp_type, init.sq_sig_all = C.enum_ibv_qp_type(config.Type), 0
	if config.SignalAll {
		init.sq_sig_all = 1
	}
	return 0
}

// addressOf returns an address of the ABI.
func addressOf(h *C.struct_ibv_ah_attr) verbs.Address {
	return verbs.Address{
		Remote: netip.AddrFrom16(*(*[16]byte)(unsafe.Pointer(&h.grh.dgid))).Unmap(), GIDIndex: int(h.grh.sgid_index), Port: uint8(h.port_num),
		HopLimit: uint8(h.grh.hop_limit), TrafficClass: uint8(h.grh.traffic_class), FlowLabel: uint32(h.grh.flow_label), ServiceLevel: uint8(h.sl),
	}
}

func gidOf(a netip.Addr) C.union_ibv_gid { return C.union_ibv_gid(a.As16()) }

func mtuCode(mtu int) C.enum_ibv_mtu { return C.enum_ibv_mtu(roce.MTUCode(mtu)) }
