package provider

import "github.com/ndklab/ndklab/internal/provider/rc"

// complete moves completions to their CQs, oldest first. A run of them that is of one CQ takes its lock once.
func (qp *QP) complete(completions []rc.Completion) {
	for len(completions) > 0 {
		cq, n := qp.cqOf(completions[0].Op), 1
		for n < len(completions) && qp.cqOf(completions[n].Op) == cq {
			n++
		}
		cq.mu.Lock()
		cq.delivery = qp.channel.Delivery()
		for i := range completions[:n] {
			cq.push(qp.resultOf(&completions[i]), completions[i].Solicited)
		}
		cq.delivery = nil
		cq.mu.Unlock()
		completions = completions[n:]
	}
}

// cqOf returns the CQ for completions of an operation.
func (qp *QP) cqOf(op rc.Op) *CQ {
	switch op {
	case rc.OpReceive, rc.OpReceiveInvalidate, rc.OpReceiveImmediate, rc.OpReceiveWrite:
		return qp.receiveCQ
	}
	return qp.initiatorCQ
}

// resultOf returns what the consumer is told of a completion.
func (qp *QP) resultOf(c *rc.Completion) (result ResultEx) {
	result.Status, result.QPContext, result.RequestContext = completionStatus(c), qp.context, c.Context
	switch c.Op {
	case rc.OpReceiveInvalidate:
		result.Type, result.BytesTransferred = OperationTypeReceiveAndInvalidate, c.Bytes
		result.TypeSpecificCompletionOutput = uint64(c.Token)
	case rc.OpReceive, rc.OpReceiveImmediate, rc.OpReceiveWrite:
		result.Type, result.BytesTransferred = OperationTypeReceive, c.Bytes
	case rc.OpSend, rc.OpSendInvalidate:
		result.Type = OperationTypeSend
	case rc.OpRead:
		result.Type = OperationTypeRead
	case rc.OpWrite:
		result.Type = OperationTypeWrite
	case rc.OpFastRegister:
		result.Type = OperationTypeFastRegister
	case rc.OpBind:
		result.Type = OperationTypeBind
	case rc.OpInvalidate:
		result.Type = OperationTypeInvalidate
	}
	if c.Status != rc.Success {
		result.ProviderErrorCode = uint32(c.Status)
		qp.timedOut = qp.timedOut || c.Status == rc.RetryExceeded || c.Status == rc.RNRRetryExceeded
	}
	return result
}

// completionStatus returns the NTSTATUS of a completion (ndkpi.md 2.9).
func completionStatus(c *rc.Completion) Status {
	switch c.Status {
	case rc.Success:
		return StatusSuccess
	case rc.Flushed:
		return StatusCancelled
	case rc.LocalLength: // of a receive: posts are checked
		return StatusBufferOverflow
	case rc.BadOperation:
		return StatusInvalidDeviceRequest
	case rc.LocalProtection:
		return StatusAccessViolation
	case rc.BadResponse:
		return StatusDataError
	case rc.RemoteInvalidRequest, rc.RemoteAccess, rc.RemoteOperation:
		return StatusRemoteResources
	case rc.RetryExceeded, rc.RNRRetryExceeded:
		return StatusIOTimeout
	default:
		return StatusInternalError
	}
}
