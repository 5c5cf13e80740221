package provider

import "github.com/ndklab/ndklab/internal/provider/rc"

// complete moves a completion to its CQ.
func (qp *QP) complete(c *rc.Completion) {
	result := ResultEx{
		Result: Result{Status: completionStatus(c), QPContext: qp.context, RequestContext: c.Context},
	}
	cq := qp.initiatorCQ
	switch c.Op {
	case rc.OpReceive, rc.OpReceiveInvalidate, rc.OpReceiveImmediate, rc.OpReceiveWrite:
		cq = qp.receiveCQ
		result.Type = OperationTypeReceive
		result.BytesTransferred = c.Bytes
		if c.Op == rc.OpReceiveInvalidate {
			result.Type = OperationTypeReceiveAndInvalidate
			result.TypeSpecificCompletionOutput = uint64(c.Token)
		}
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
	cq.push(&result, c.Solicited, qp.channel.Delivery())
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
