package cm

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// Reject refuses a ConnectRequest that is not accepted yet, or a ConnectReply
// that is not completed yet. The peer is told the reason, as a rule
// mad.ReasonConsumer. data is at most mad.REJPrivateData bytes and copied.
func (e *Endpoint) Reject(now time.Duration, id ID, reason mad.Reason, data []byte) error {
	if len(data) > mad.REJPrivateData {
		return errTooLong("reject", data, mad.REJPrivateData)
	}
	c := e.connections.byID[id]
	if c == nil || c.state != requestReceived && c.state != replyReceived {
		return ErrState
	}
	c.reject(now, reason, data)
	return nil
}

// Abandon ends a connection for good, whatever its state: the peer is told as the
// state demands, and TimewaitOver is the only event still to come of it. An ID
// that is not or no longer known is ignored.
func (e *Endpoint) Abandon(now time.Duration, id ID) {
	c := e.connections.byID[id]
	if c == nil {
		return
	}
	c.abandoned = true
	e.events.remove(func(ev Event) bool { return ev.Of() == id })
	switch c.state {
	case requestSent:
		c.reject(now, mad.ReasonTimeout, nil)
	case replyReceived, requestReceived, replySent:
		c.reject(now, mad.ReasonConsumer, nil)
	case established:
		c.end(now)
	case lookUpSent:
		c.remove()
	case lookUpReceived:
		c.answer(now, &LookUpAnswer{Status: mad.SIDRReject})
	}
}

// reject sends a REJ for a connection that is not established and closes it.
func (c *connection) reject(now time.Duration, reason mad.Reason, data []byte) {
	m := mad.REJ{
		TransactionID: c.transactionID,
		LocalID:       uint32(c.id),
		RemoteID:      c.peerID,
		Message:       mad.MessageOther,
		Reason:        reason,
	}
	switch c.state {
	case requestReceived:
		m.Message = mad.MessageREQ
		if !c.silenced {
			m.LocalID = 0 // the peer has not heard of it
		}
	case replyReceived:
		m.Message = mad.MessageREP
	}
	if reason == mad.ReasonTimeout {
		m.SetGUID(c.endpoint.config.GUID)
	}
	copy(m.PrivateData[:], data)
	c.rejected = true
	c.close(now)
	giveUp := c.giveUp
	c.start(now, &m, giveUp)
	if !c.silenced {
		// A lost REJ is repeated when the peer repeats what it answers.
		c.wake(giveUp)
	}
}

// handleREJ takes the peer's refusal, or its giving up.
func (e *Endpoint) handleREJ(now time.Duration, from path, b []byte) {
	var m mad.REJ
	if m.Decode(b) != nil {
		return
	}
	c := e.connections.findRejected(from, &m)
	if c == nil {
		return
	}
	switch {
	case c.state == requestSent:
		c.close(now)
		c.emit(Rejected{ID: c.id, Reason: m.Reason, MTU: acceptableMTUCode(&m), PrivateData: m.PrivateData})
	case c.state == replyReceived && m.Reason == mad.ReasonTimeout:
		c.close(now)
		c.emit(ConnectFailed{ID: c.id, Failure: TimedOut})
	default:
		c.endByPeer(now, true)
	}
}

// acceptableMTUCode returns the MTU code that a REJ names; 0 if it names none.
func acceptableMTUCode(m *mad.REJ) uint8 {
	if m.Reason != mad.ReasonInvalidMTU || m.ARILength == 0 {
		return 0
	}
	return m.ARI[0]
}
