package cm

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// Disconnect ends an established connection; DisconnectDone says when that is
// done. If the peer did so first, or does so meanwhile, it is done at once.
func (e *Endpoint) Disconnect(now time.Duration, id ID) error {
	c := e.connections.byID[id]
	if c == nil || !c.connected || c.disconnectAsked || c.abandoned {
		return ErrState
	}
	c.disconnectAsked = true
	switch c.state {
	case established:
		c.end(now)
	case closed:
		c.emit(DisconnectDone{ID: c.id})
	}
	return nil
}

// sendDREQ tells the peer of an established connection that it ends.
func (c *connection) sendDREQ(now time.Duration) {
	c.state = disconnecting
	c.endpoint.disconnecting++
	m := mad.DREQ{
		TransactionID: disconnectTransaction | uint64(c.id),
		LocalID:       uint32(c.id),
		RemoteID:      c.peerID,
		RemoteQPN:     c.peerQPN,
	}
	c.start(now, &m, now+c.endpoint.config.Timeout)
}

// finishDisconnect ends a connection that was being disconnected.
func (c *connection) finishDisconnect(now time.Duration, timedOut bool) {
	c.endpoint.disconnecting--
	c.close(now)
	if c.disconnectAsked {
		c.emit(DisconnectDone{ID: c.id, TimedOut: timedOut})
	}
}

// handleDREQ takes the peer's request to end a connection. It is confirmed whether
// we know the connection or not, so that the peer need not wait.
func (e *Endpoint) handleDREQ(now time.Duration, from path, b []byte) {
	var m mad.DREQ
	if m.Decode(b) != nil {
		return
	}
	c := e.connections.find(from, ID(m.RemoteID), m.LocalID)
	if c != nil && m.RemoteQPN != c.qpn {
		return
	}
	e.send(from, &mad.DREP{TransactionID: m.TransactionID, LocalID: m.RemoteID, RemoteID: m.LocalID})
	if c != nil {
		c.endByPeer(now, false)
	}
}

// handleDREP takes the peer's confirmation.
func (e *Endpoint) handleDREP(now time.Duration, from path, b []byte) {
	var m mad.DREP
	if m.Decode(b) != nil {
		return
	}
	if c := e.connections.find(from, ID(m.RemoteID), m.LocalID); c != nil && c.state == disconnecting {
		c.finishDisconnect(now, false)
	}
}

// endByPeer closes a connection that the peer has ended, in whatever state it is.
// lost says that the peer does not know it any more.
func (c *connection) endByPeer(now time.Duration, lost bool) {
	failure := Ended
	if lost {
		failure = Aborted
	}
	switch c.state {
	case requestReceived, replySent:
		c.close(now)
		c.emit(AcceptFailed{ID: c.id, Failure: failure})
	case replyReceived:
		c.close(now)
		c.emit(ConnectFailed{ID: c.id, Failure: failure})
	case established:
		c.close(now)
		c.emit(Disconnected{ID: c.id, Lost: lost})
	case disconnecting:
		c.finishDisconnect(now, false)
	}
}

// end ends an established connection on our side.
func (c *connection) end(now time.Duration) {
	if !c.unmanaged {
		c.sendDREQ(now)
		return
	}
	c.close(now)
	if c.disconnectAsked {
		c.emit(DisconnectDone{ID: c.id})
	}
}

// endForgotten ends a connection whose peer turns out to have forgotten it, since it uses
// the same QPN for another one. The peer is told to forget it, should it not
// have (roce.md section 11): rejected says that it is by a REJ of its REQ.
func (c *connection) endForgotten(now time.Duration) (rejected bool) {
	switch c.state {
	case established:
		c.sendDREQ(now)
		c.emit(Disconnected{ID: c.id, Lost: true})
	case requestReceived, replySent:
		rejected = c.state == requestReceived
		c.reject(now, mad.ReasonStaleConnection, nil)
		c.emit(AcceptFailed{ID: c.id, Failure: Aborted})
	case replyReceived:
		c.reject(now, mad.ReasonStaleConnection, nil)
		c.emit(ConnectFailed{ID: c.id, Failure: Aborted})
	}
	return rejected
}

// Disconnecting returns how many connections wait for their peer to confirm their
// end.
func (e *Endpoint) Disconnecting() int { return e.disconnecting }
