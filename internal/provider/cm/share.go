package cm

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// This file is about an adapter that several processes share, each with an
// Endpoint of its own. The high bits of a communication ID say whose it is. The
// others learn of an Endpoint's connections by NextChange, and when its process
// is gone one of them ends these, by Adopt.

// MaxShares bounds the number of Endpoints that one adapter has.
const MaxShares = 1 << (32 - shareShift)

const (
	shareShift = 26
	idMask     = 1<<shareShift - 1
)

// Share returns which Endpoint of the adapter's an ID is of.
func (id ID) Share() int { return int(id >> shareShift) }

// next returns the ID that follows in the circle of one share's.
func (id ID) next() ID { return id&^idMask | (id+1)&idMask }

// A State is the state of a connection in its Record.
type State uint8

// The states.
const (
	Requesting    = State(requestSent)     // active: the peer has not answered
	ReplyReceived = State(replyReceived)   // active: the peer has accepted, the consumer has yet to complete
	Requested     = State(requestReceived) // passive: the consumer has yet to answer
	Accepting     = State(replySent)       // passive: the peer has not confirmed
	Connected     = State(established)
	Disconnecting = State(disconnecting) // the peer has not confirmed
	Closed        = State(closed)        // the peer need not be told anything
)

var stateNames = [...]string{
	Requesting: "connecting", ReplyReceived: "replied", Requested: "requested", Accepting: "accepting",
	Connected: "established", Disconnecting: "disconnecting", Closed: "closed",
}

// String returns the state in a word.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// A Record describes a connection as it is known from outside, and has what it
// takes to end it in its Endpoint's stead.
type Record struct {
	ID            ID
	State         State
	Active        bool           // we sent the REQ
	Unmanaged     bool           // the peer is not told of its end (Endpoint.Enter)
	Local, Remote netip.AddrPort // the ports are rdma_cm's; 0 if unmanaged
	QPN           uint32         // ours; 0 before Accept
	TransactionID uint64
	Silenced      bool // the peer was sent an MRA
	// The peer's, 0 while they are not known.
	PeerGUID uint64
	PeerID   uint32
	PeerQPN  uint32
}

func (c *connection) record() Record {
	return Record{
		ID: c.id, State: State(c.state), Active: c.active, Unmanaged: c.unmanaged,
		Local: c.local, Remote: c.remote, QPN: c.qpn,
		TransactionID: c.transactionID, Silenced: c.silenced,
		PeerGUID: c.peerGUID, PeerID: c.peerID, PeerQPN: c.peerQPN,
	}
}

// noteChange notes that a connection's record has changed. Look-ups have none: nobody need end them.
func (c *connection) noteChange() {
	if c.endpoint.config.Track && !c.changed && c.state < lookUpSent {
		c.changed = true
		c.endpoint.changes.push(c)
	}
}

// NextChange takes the connection that changed first since it was last taken,
// as it is now; false if there is none. The last change of a connection is that
// it is Closed. A caller that takes the changes before the datagrams knows of
// every connection before its peer does.
func (e *Endpoint) NextChange() (Record, bool) {
	c, ok := e.changes.pop()
	if !ok {
		return Record{}, false
	}
	c.changed = false
	return c.record(), true
}

// Adopt takes over a connection from an Endpoint that is gone, to end it: the
// peer is told, as far as its messages show that it needs to be. If it returns
// true then the peer is to confirm that, and DisconnectDone follows. The ID must
// not be one of e's own.
func (e *Endpoint) Adopt(now time.Duration, r Record) bool {
	if r.State == Closed || r.Unmanaged || e.connections.byID[r.ID] != nil {
		return false
	}
	c := &connection{
		endpoint: e, id: r.ID, state: state(r.State), active: r.Active, local: r.Local, remote: r.Remote, qpn: r.QPN,
		transactionID: r.TransactionID, silenced: r.Silenced, ackTimeout: adoptedAckTimeout,
	}
	e.connections.byID[c.id] = c
	if c.state != requestSent {
		e.connections.setPeer(c, r.PeerGUID, r.PeerID, r.PeerQPN)
	}
	switch c.state {
	case requestSent:
		c.reject(now, mad.ReasonTimeout, nil)
	case requestReceived:
		c.reject(now, mad.ReasonConsumer, nil)
	default:
		// The peer may be a step further than the record, which a DREQ takes
		// account of and a REJ does not.
		c.connected, c.disconnectAsked = true, true
		c.sendDREQ(now)
		return true
	}
	return false
}

// adoptedAckTimeout makes the timewait of an adopted connection 537 ms.
const adoptedAckTimeout mad.Timeout = 17
