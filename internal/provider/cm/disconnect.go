package cm

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// Disconnect ends an established connection; DisconnectDone says when that is
// done. If the peer did so first, or does so meanwhile, it is done at once.
func (e *Endpoint) Disconnect(now time.Duration, id ID) error {
	c := e.byID[id]
	if c == nil || !c.connected || c.disconnectAsked || c.abandoned {
		return ErrState
	}
	c.disconnectAsked = true
	switch c.state {
	case established:
		e.endLocally(now, c)
	case closed:
		e.emit(c, DisconnectDone{ID: c.id})
	}
	return nil
}

func (e *Endpoint) sendDREQ(now time.Duration, c *connection) {
	c.state = disconnecting
	e.disconnecting++
	m := mad.DREQ{
		TransactionID: disconnectTransaction | uint64(c.id),
		LocalID:       uint32(c.id),
		RemoteID:      c.peerID,
		RemoteQPN:     c.peerQPN,
	}
	e.start(now, c, &m, slowest, now+e.config.Timeout)
}

// finishDisconnect ends a connection that was being disconnected.
func (e *Endpoint) finishDisconnect(now time.Duration, c *connection, timedOut bool) {
	e.disconnecting--
	e.close(now, c)
	if c.disconnectAsked {
		e.emit(c, DisconnectDone{ID: c.id, TimedOut: timedOut})
	}
}

// handleDREQ takes the peer's wish to end a connection. It is confirmed whether
// we know the connection or not, so that the peer need not wait.
func (e *Endpoint) handleDREQ(now time.Duration, from path, b []byte) {
	var m mad.DREQ
	if m.Decode(b) != nil {
		return
	}
	c := e.find(from, ID(m.RemoteID), m.LocalID)
	if c != nil && m.RemoteQPN != c.qpn {
		return
	}
	e.send(from, &mad.DREP{TransactionID: m.TransactionID, LocalID: m.RemoteID, RemoteID: m.LocalID})
	if c != nil {
		e.endByPeer(now, c, false)
	}
}

// handleDREP takes the peer's confirmation.
func (e *Endpoint) handleDREP(now time.Duration, from path, b []byte) {
	var m mad.DREP
	if m.Decode(b) != nil {
		return
	}
	if c := e.find(from, ID(m.RemoteID), m.LocalID); c != nil && c.state == disconnecting {
		e.finishDisconnect(now, c, false)
	}
}

// endByPeer closes a connection that the peer has ended, in whatever state it is.
// lost says that the peer does not know it any more.
func (e *Endpoint) endByPeer(now time.Duration, c *connection, lost bool) {
	failure := Ended
	if lost {
		failure = Aborted
	}
	switch c.state {
	case requestReceived, replySent:
		e.close(now, c)
		e.emit(c, AcceptFailed{ID: c.id, Failure: failure})
	case replyReceived:
		e.close(now, c)
		e.emit(c, ConnectFailed{ID: c.id, Failure: failure})
	case established:
		e.close(now, c)
		e.emit(c, Disconnected{ID: c.id, Lost: lost})
	case disconnecting:
		e.finishDisconnect(now, c, false)
	}
}

// endForgotten ends a connection whose peer turns out to have forgotten it, since it uses
// the same QPN for another one. The peer is told to forget it, should it not
// have (roce.md section 11): rejected says that it is by a REJ of its REQ.
func (e *Endpoint) endForgotten(now time.Duration, c *connection) (rejected bool) {
	switch c.state {
	case established:
		e.sendDREQ(now, c)
		e.emit(c, Disconnected{ID: c.id, Lost: true})
	case requestReceived, replySent:
		rejected = c.state == requestReceived
		e.reject(now, c, mad.ReasonStaleConnection, nil)
		e.emit(c, AcceptFailed{ID: c.id, Failure: Aborted})
	case replyReceived:
		e.reject(now, c, mad.ReasonStaleConnection, nil)
		e.emit(c, ConnectFailed{ID: c.id, Failure: Aborted})
	}
	return rejected
}

// Disconnecting returns how many connections wait for their peer to confirm their
// end.
func (e *Endpoint) Disconnecting() int { return e.disconnecting }
