package rc

import "time"

// A Modification has what may change of a QP that is Ready. A field that is nil changes nothing.
type Modification struct {
	Rights      *Rights // what the peer may do, from its next packet on
	MinRNRTimer *uint8  // Connection.MinRNRTimer
	Retries     *Retries
	Reads       *Reads
	// Draining has the QP begin no request that has not begun, or go on (SQD; roce.md 8).
	Draining *bool
}

// Retries are those of a Connection.
type Retries struct {
	AckTimeout                time.Duration
	RetryCount, RNRRetryCount int
}

// Reads says how many READs and atomics the QP, and the peer, may have outstanding, as in a Connection. The QP has
// none when it may have fewer than before; the peer is to have no more.
type Reads struct{ InitiatorDepth, ResponderResources int }

// Modify changes what m says.
func (q *QP) Modify(m Modification) {
	c := &q.connection
	if m.Rights != nil {
		c.Rights = *m.Rights
	}
	if m.MinRNRTimer != nil {
		c.MinRNRTimer = *m.MinRNRTimer
	}
	if m.Retries != nil {
		c.AckTimeout, c.RetryCount, c.RNRRetryCount = m.Retries.AckTimeout, m.Retries.RetryCount, m.Retries.RNRRetryCount
		q.requester.timers.rnrLeft = int8(c.RNRRetryCount)
	}
	if m.Reads != nil {
		c.InitiatorDepth, c.ResponderResources = m.Reads.InitiatorDepth, m.Reads.ResponderResources
		q.responder.replies.resize(c.readsOnWire(c.ResponderResources))
	}
	if m.Draining != nil {
		q.draining = *m.Draining
	}
}
