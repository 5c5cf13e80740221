package verbs

import "github.com/ndklab/ndklab/provider"

// This file lists a context's queue pairs, and reports their errors, through the device.

// The names of kinds and states, as rdma(8) has them.
var (
	typeNames  = map[QPType]string{RC: "RC", UC: "UC", UD: "UD"}
	stateNames = map[QPState]string{
		Reset: "reset", Init: "init", ReadyToReceive: "rtr", ReadyToSend: "rts", SendQueueDrain: "sqd", SendQueueError: "sqe", Error: "error",
	}
)

// listQPs lists the context's queue pairs.
func (c *Context) listQPs() []provider.QueuePair {
	var all []provider.QueuePair
	for _, qp := range c.openQPs(func(*QP) bool { return true }) {
		all = append(all, qp.entry())
	}
	return all
}

func (qp *QP) entry() provider.QueuePair {
	e := provider.QueuePair{Number: qp.Number(), Transport: typeNames[qp.config.Type]}
	if qp.config.Type == RC {
		e.Sent, e.Received = qp.channel.Packets()
	} else {
		e.Sent, e.Received = qp.unreliable.Packets()
	}
	qp.lock.Lock()
	defer qp.lock.Unlock()
	e.State = stateNames[qp.state]
	if qp.config.Type != UD && qp.state != Reset && qp.state != Init {
		e.PeerNumber, e.Local, e.Remote = qp.attributes.DestQPN, qp.local, qp.attributes.Address.Remote
	}
	return e
}

// reportError reports, once, that the queue pair has gone to error by itself. The lock is held.
func (qp *QP) reportError(reason string) {
	if qp.reason != "" {
		return
	}
	qp.reason = reason
	qp.pd.context.device.TellQPError(provider.QPError{Number: qp.pair.Number(), Remote: qp.attributes.Address.Remote, Reason: reason})
}
