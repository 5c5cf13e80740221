package provider

import (
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/sharing"
)

// CreateQP makes a queue pair. Each number is at most the adapter's limit of
// the like name; receives complete on receiveCQ, all else on initiatorCQ, and
// both, which are of the domain's instance, may be one queue.
func (pd *PD) CreateQP(receiveCQ, initiatorCQ *CQ, qpContext any, receiveQueueDepth, initiatorQueueDepth,
	maxReceiveRequestSge, maxInitiatorRequestSge, inlineDataSize uint32,
	completion CreateCompletion, context any) (*QP, Status) {
	info := &pd.adapter.miniport.info
	if receiveQueueDepth > info.MaxReceiveQueueDepth || maxReceiveRequestSge > info.MaxReceiveRequestSge {
		return nil, StatusInvalidParameter
	}
	qp := &QP{
		pd: pd, receiveCQ: receiveCQ, initiatorCQ: initiatorCQ, context: qpContext,
		maxReceive: int(maxReceiveRequestSge),
		receives:   rc.NewReceiveQueue(int(receiveQueueDepth), int(maxReceiveRequestSge)),
	}
	return pd.createQP(qp, initiatorQueueDepth, maxInitiatorRequestSge, inlineDataSize, completion, context)
}

// CreateQPWithSRQ is CreateQP for a queue pair that takes its receives from srq,
// which must be of the same domain. Its own Receive fails.
func (pd *PD) CreateQPWithSRQ(receiveCQ, initiatorCQ *CQ, srq *SRQ, qpContext any,
	initiatorQueueDepth, maxInitiatorRequestSge, inlineDataSize uint32,
	completion CreateCompletion, context any) (*QP, Status) {
	if srq == nil || srq.pd != pd || !srq.open() {
		return nil, StatusInvalidParameter
	}
	qp := &QP{pd: pd, receiveCQ: receiveCQ, initiatorCQ: initiatorCQ, srq: srq, context: qpContext}
	return pd.createQP(qp, initiatorQueueDepth, maxInitiatorRequestSge, inlineDataSize, completion, context)
}

// createQP makes the initiator half of a queue pair and puts it to use. A queue
// pair without receives of its own takes them from its SRQ.
func (pd *PD) createQP(qp *QP, initiatorQueueDepth, maxInitiatorRequestSge, inlineDataSize uint32,
	completion CreateCompletion, context any) (*QP, Status) {
	if !pd.open() {
		return nil, StatusInvalidDeviceState
	}
	m := pd.adapter.miniport
	info := &m.info
	if !pd.adapter.has(qp.receiveCQ) || !pd.adapter.has(qp.initiatorCQ) ||
		initiatorQueueDepth > info.MaxInitiatorQueueDepth || maxInitiatorRequestSge > info.MaxInitiatorRequestSge ||
		inlineDataSize > info.MaxInlineDataSize {
		return nil, StatusInvalidParameter
	}
	if !qp.reserve(m, sharing.QPs, m.capabilities.MaxQpCount) {
		return nil, StatusInsufficientResources
	}
	qp.memory = view{qp: qp, regions: &m.regions}
	qp.maxSend, qp.maxInline = int(maxInitiatorRequestSge), int(inlineDataSize)
	config := rc.Config{
		SendDepth: int(initiatorQueueDepth), MaxSGE: qp.maxSend, MaxInline: qp.maxInline,
		Receives: qp.receives, Memory: &qp.memory, Early: m.reorder,
	}
	if qp.srq != nil {
		config.Receives, config.SharedReceives = srqReceives{qp.srq}, true
	}
	qp.channel.Init(m.transport, config, owner{qp})
	qp.Dispatch = qp
	qp.init(pd.clock, ObjectTypeQP, &pd.object, &qp.receiveCQ.object, &qp.initiatorCQ.object)
	if qp.srq != nil {
		qp.addAntecedent(&qp.srq.object)
	}
	// Last: packets may come in as soon as it is in the table.
	if !m.transport.Add(&qp.channel.Pair) {
		qp.discard()
		return nil, StatusInsufficientResources
	}
	// In the table, where a queue that fails from now on finds it.
	if !qp.usable() {
		m.transport.Remove(&qp.channel.Pair)
		qp.discard()
		return nil, StatusInvalidDeviceState
	}
	return completeCreate(m, qp, &qp.object, completion, context)
}
