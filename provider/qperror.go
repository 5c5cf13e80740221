package provider

import (
	"fmt"
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/rc"
)

// A QPError says that a queue pair has gone to error otherwise than by its consumer's
// doing, which ends its connection.
type QPError struct {
	Number uint32     `json:"qpn,omitempty"`
	Remote netip.Addr `json:"remote,omitzero"`  // where its peer is
	Reason string     `json:"reason,omitempty"` // for people
	// More, if it is not 0, is that many others that nothing else is known of: the rest
	// is not set then.
	More uint64 `json:"more,omitempty"`
}

// tellError tells of an error, once. cause is the first completion that neither
// succeeded nor was flushed, nil if there is none. qp.channel's lock is held.
func (qp *QP) tellError(cause *rc.Completion) {
	m := qp.pd.adapter.miniport
	if m.qpError == nil || m.closing.Load() {
		return
	}
	m.qpError(QPError{Number: qp.Number(), Remote: qp.channel.Remote(), Reason: qp.reason(cause)})
}

// reason returns why the queue pair is in error, in words.
func (qp *QP) reason(cause *rc.Completion) string {
	switch {
	case cause == nil && !qp.usable():
		return "a completion queue or shared receive queue of it has failed"
	case cause == nil:
		return "a request of the peer was refused"
	}
	return ReasonOf(cause.Status, cause.Op.IsReceive())
}

// ReasonOf returns why a queue pair is in error, in words, by the completion that tells so and
// whether that is a receive's.
func ReasonOf(status rc.Status, receive bool) string {
	switch status {
	case rc.LocalLength:
		return "a message was longer than what it was to be received in"
	case rc.LocalProtection:
		return "a request named local memory that is not registered so"
	case rc.BadOperation:
		return "a local operation could not be carried out"
	case rc.BadResponse:
		return "an answer of the peer made no sense"
	case rc.RemoteInvalidRequest:
		if receive {
			return "a request of the peer was invalid"
		}
		return "the peer found a request invalid"
	case rc.RemoteAccess:
		return "the peer refused access to its memory"
	case rc.RemoteOperation:
		return "the peer could not carry out a request"
	case rc.RetryExceeded:
		return "no answer from the peer has arrived"
	case rc.RNRRetryExceeded:
		return "the peer had no receive posted"
	}
	return fmt.Sprintf("status %d", status)
}

// causeOf returns the first completion that neither succeeded nor was flushed; nil if there
// is none.
func causeOf(completions []rc.Completion) *rc.Completion {
	for i := range completions {
		if s := completions[i].Status; s != rc.Success && s != rc.Flushed {
			return &completions[i]
		}
	}
	return nil
}
