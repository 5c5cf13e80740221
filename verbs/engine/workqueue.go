package main

/*
#include "engine.h"
*/
import "C"

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// workQueues are a queue pair's, in the library's memory. They implement verbs.WorkQueues.
type workQueues struct {
	memory  *C.struct_engine_queues
	send    verbs.SendRequest // what TakeSend has returned last, and so on
	receive verbs.ReceiveRequest
	pieces  [C.ENGINE_SGES]rc.SGE
}

// counter returns an atomic field of the library's memory.
func counter(field *C.uint32_t) *uint32 { return (*uint32)(unsafe.Pointer(field)) }

// next returns the oldest entry that has not been taken, nil if there is none. Its pieces are in w.pieces.
func (w *workQueues) next(q *C.struct_engine_queue) (*C.struct_engine_wqe, []rc.SGE) {
	taken := uint32(q.taken)
	if atomic.LoadUint32(counter(&q.put)) == taken {
		return nil, nil
	}
	e := &q.wqes[taken%C.ENGINE_WQES]
	n := min(int(e.num_sge), C.ENGINE_SGES)
	for i := range n {
		g := &e.sg_list[i]
		w.pieces[i] = rc.SGE{Address: uint64(g.addr), Length: uint32(g.length), Token: uint32(g.lkey)}
	}
	return e, w.pieces[:n]
}

// releaseEntry lets the library use the oldest entry again.
func releaseEntry(q *C.struct_engine_queue) { atomic.StoreUint32(counter(&q.taken), uint32(q.taken)+1) }

// watch tells the library whether the engine watches a queue, and for how many more entries the queue pair has room.
func watch(q *C.struct_engine_queue, watch bool, room int) {
	watched := uint32(0)
	if watch {
		watched = 1
		atomic.StoreUint32(counter(&q.most), uint32(q.taken)+uint32(room))
	}
	if uint32(q.watched) != watched { // which nobody else writes
		atomic.StoreUint32(counter(&q.watched), watched)
	}
}

// TakeSend implements verbs.WorkQueues.
func (w *workQueues) TakeSend() *verbs.SendRequest {
	e, pieces := w.next(&w.memory.send)
	if e == nil {
		return nil
	}
	r := &w.send
	flags := e.send_flags
	*r = verbs.SendRequest{
		ID: uint64(e.wr_id),
		Request: rc.Request{
			Op: operations[e.opcode%C.uint32_t(len(operations))], SGL: pieces, VA: uint64(e.remote_addr), Token: uint32(e.rkey),
			Immediate: network(uint32(e.imm_data)), Fence: flags&C.IBV_SEND_FENCE != 0, Solicited: flags&C.IBV_SEND_SOLICITED != 0,
		},
		Signaled: flags&C.IBV_SEND_SIGNALED != 0,
	}
	releaseEntry(&w.memory.send)
	return r
}

// TakeReceive implements verbs.WorkQueues.
func (w *workQueues) TakeReceive() *verbs.ReceiveRequest {
	e, pieces := w.next(&w.memory.recv)
	if e == nil {
		return nil
	}
	w.receive = verbs.ReceiveRequest{ID: uint64(e.wr_id), SGL: pieces}
	releaseEntry(&w.memory.recv)
	return &w.receive
}

// WatchSends implements verbs.WorkQueues.
func (w *workQueues) WatchSends(watches bool, room int) { watch(&w.memory.send, watches, room) }

// WatchReceives implements verbs.WorkQueues.
func (w *workQueues) WatchReceives(watches bool, room int) { watch(&w.memory.recv, watches, room) }

//export engineUseQueues
func engineUseQueues(in C.uint64_t, queues *C.struct_engine_queues) C.int {
	qp := qps.get(uint64(in))
	if qp == nil {
		return C.int(syscall.EINVAL)
	}
	qp.UseQueues(&workQueues{memory: queues})
	return 0
}

//export engineRing
func engineRing(in C.uint64_t) C.int {
	qp := qps.get(uint64(in))
	if qp == nil {
		return C.int(syscall.EINVAL)
	}
	qp.Ring()
	return 0
}
