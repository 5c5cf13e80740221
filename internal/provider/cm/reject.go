package cm

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// Reject refuses a ConnectRequest that is not accepted yet, or a ConnectReply
// that is not completed yet, on behalf of the consumer. data is at most
// mad.REJPrivateData bytes and copied.
func (e *Endpoint) Reject(now time.Duration, id ID, data []byte) error {
	return e.Refuse(now, id, mad.ReasonConsumer, data)
}

// Refuse is Reject for a reason that the consumer has.
func (e *Endpoint) Refuse(now time.Duration, id ID, reason mad.Reason, data []byte) error {
	if len(data) > mad.REJPrivateData {
		return errTooLong("reject", data, mad.REJPrivateData)
	}
	c := e.byID[id]
	if c == nil || c.state != requestReceived && c.state != replyReceived {
		return ErrState
	}
	e.reject(now, c, reason, data)
	return nil
}

// Abandon ends a connection for good, whatever its state: the peer is told as the
// state demands, and TimewaitOver is the only event still to come of it. An ID
// that is not or no longer known is ignored.
func (e *Endpoint) Abandon(now time.Duration, id ID) {
	c := e.byID[id]
	if c == nil {
		return
	}
	c.abandoned = true
	e.events.remove(func(ev Event) bool { return ev.Of() == id })
	switch c.state {
	case requestSent:
		e.reject(now, c, mad.ReasonTimeout, nil)
	case replyReceived, requestReceived, replySent:
		e.reject(now, c, mad.ReasonConsumer, nil)
	case established:
		e.endLocally(now, c)
	case lookUpSent:
		e.remove(c)
	case lookUpReceived:
		e.answer(now, c, &LookUpAnswer{Status: mad.SIDRReject})
	}
}

// reject sends a REJ for a connection that is not established and closes it.
func (e *Endpoint) reject(now time.Duration, c *connection, reason mad.Reason, data []byte) {
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
		m.SetGUID(e.config.GUID)
	}
	copy(m.PrivateData[:], data)
	c.rejected = true
	e.close(now, c)
	giveUp := c.giveUp
	e.start(now, c, &m, slowest, giveUp)
	if !c.silenced {
		// A lost REJ is repeated when the peer repeats what it answers.
		e.timers.set(c, giveUp)
	}
}

// handleREJ takes the peer's refusal, or its giving up.
func (e *Endpoint) handleREJ(now time.Duration, from path, b []byte) {
	var m mad.REJ
	if m.Decode(b) != nil {
		return
	}
	c := e.findRejected(from, &m)
	if c == nil {
		return
	}
	switch {
	case c.state == requestSent:
		e.close(now, c)
		e.emit(c, Rejected{ID: c.id, Reason: m.Reason, MTU: acceptableMTU(&m), PrivateData: m.PrivateData})
	case c.state == replyReceived && m.Reason == mad.ReasonTimeout:
		e.close(now, c)
		e.emit(c, ConnectFailed{ID: c.id, Failure: TimedOut})
	default:
		e.endByPeer(now, c, true)
	}
}

// findRejected returns the connection that a REJ is about; nil if there is none.
func (e *Endpoint) findRejected(from path, m *mad.REJ) *connection {
	if guid, ok := m.GUID(); ok && m.Reason == mad.ReasonTimeout && m.RemoteID == 0 {
		// The peer gave up before it had heard from us.
		c := e.byPeer[peerKey{from.remote, guid, m.LocalID}]
		if c == nil || !e.isOf(c, from) {
			return nil
		}
		return c
	}
	c := e.byID[ID(m.RemoteID)]
	switch {
	case c == nil || c.unmanaged || !e.isOf(c, from):
		return nil
	case c.state == requestSent:
		return c
	case m.Message == mad.MessageREQ:
		// Of a stray duplicate of our REQ, which was answered otherwise.
		return nil
	case c.peerID != m.LocalID:
		return nil
	}
	return c
}

// acceptableMTU returns the MTU code that a REJ names; 0 if it names none.
func acceptableMTU(m *mad.REJ) uint8 {
	if m.Reason != mad.ReasonInvalidMTU || m.ARILength == 0 {
		return 0
	}
	return m.ARI[0]
}
