package cm

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// A state is where a connection stands (roce.md section 11).
type state uint8

const (
	requestSent     state = iota // active: REQ is repeated until answered
	replyReceived                // active: the consumer thinks
	requestReceived              // passive: the consumer thinks
	replySent                    // passive: REP is repeated until RTU or traffic
	established
	disconnecting // DREQ is repeated until answered
	closed        // timewait: stray packets die and duplicates are answered

	// A look-up is no connection, but has an ID, a peer and a message to repeat as one.
	lookUpSent     // SIDR_REQ is repeated until answered
	lookUpReceived // the consumer thinks
	lookUpAnswered // duplicates are answered
)

// A connection is one end of a connection. It belongs to its Endpoint.
type connection struct {
	id            ID
	state         state
	active        bool // we sent the REQ
	unmanaged     bool // made without messages: see Enter
	local, remote netip.AddrPort
	transactionID uint64 // of the REQ and its answers
	qpn           uint32 // ours
	ackTimeout    mad.Timeout
	failover      uint8 // what the REP says to an alternate path

	// The peer, as far as known: its adapter, communication ID and QPN.
	peerGUID uint64
	peerID   uint32
	peerQPN  uint32

	connected       bool // has been established
	abandoned       bool // the consumer wants no more events
	changed         bool // is in Endpoint.changes
	disconnectAsked bool // Disconnect was called: DisconnectDone is owed or was given
	rejected        bool // closed by a REJ of ours, which is in message
	silenced        bool // we sent an MRA: the peer does not repeat what it waits for

	thinkingSince time.Duration // when the consumer was asked

	// The message that is repeated: REQ, REP, RTU, REJ or DREQ, without the zeros at
	// its end. Most of it is such, and as long as a connection is idle there is
	// little else to be kept of it.
	message  []byte
	sentAt   time.Duration // first
	resends  int           // so far
	interval time.Duration // to the next
	slowest  time.Duration // limit of interval
	giveUp   time.Duration // instant after which repeating makes no sense
	limit    time.Duration // of giveUp, whatever the peer asks for

	deadline time.Duration // when HandleTimeout is to look, if timer >= 0
	timer    int           // place in the Endpoint's timers, -1 outside
}

func (c *connection) path() path {
	return path{local: c.local.Addr(), remote: c.remote.Addr()}
}

// add makes a connection known under a new ID.
func (e *Endpoint) add(c *connection) {
	for e.nextID == 0 || e.byID[e.nextID] != nil {
		e.nextID = e.nextID.next()
	}
	c.id = e.nextID
	c.timer = -1
	e.nextID = e.nextID.next()
	e.byID[c.id] = c
}

// setPeer records who the peer is.
func (e *Endpoint) setPeer(c *connection, guid uint64, id, qpn uint32) {
	c.peerGUID, c.peerID, c.peerQPN = guid, id, qpn
	e.byPeer[c.peerKey()] = c
	e.byQPN[c.qpnKey()] = c
	e.noteChange(c)
}

func (c *connection) peerKey() peerKey { return peerKey{c.remote.Addr(), c.peerGUID, c.peerID} }

func (c *connection) qpnKey() qpnKey { return qpnKey{c.remote.Addr(), c.peerGUID, c.peerQPN} }

// forgetQPN lets the peer use its QPN for another connection.
func (e *Endpoint) forgetQPN(c *connection) {
	if key := c.qpnKey(); e.byQPN[key] == c {
		delete(e.byQPN, key)
	}
}

// find returns the connection that a message between two communication IDs is about;
// nil if there is none.
func (e *Endpoint) find(from path, localID ID, peerID uint32) *connection {
	c := e.byID[localID]
	if c == nil || c.unmanaged || !e.isOf(c, from) || c.state == requestSent || c.peerID != peerID {
		return nil
	}
	return c
}

// start sends a message and has it repeated until giveUp at least.
func (e *Endpoint) start(now time.Duration, c *connection, m interface{ Append([]byte) []byte }, slowest, giveUp time.Duration) {
	c.message = bytes.Clone(bytes.TrimRight(m.Append(make([]byte, 0, mad.Size)), "\x00"))
	c.sentAt = now
	c.resends = 0
	c.interval = firstResend
	c.slowest = slowest
	c.giveUp = giveUp
	e.noteChange(c)
	e.transmit(c)
	e.timers.set(c, min(now+c.interval, c.giveUp))
}

// transmit sends the connection's message, once more or for the first time.
func (e *Endpoint) transmit(c *connection) {
	p := c.path()
	d := Datagram{Local: p.local, Remote: p.remote}
	copy(d.MAD[:], c.message)
	e.datagrams.push(d)
}

// resend repeats the message because nothing was heard for an interval.
func (e *Endpoint) resend(now time.Duration, c *connection) {
	e.transmit(c)
	c.resends++
	c.interval = min(2*c.interval, c.slowest)
	if c.resends == maxRetries {
		c.giveUp = min(c.giveUp, now+c.interval)
	}
	e.timers.set(c, min(now+c.interval, c.giveUp))
}

// close ends a connection but keeps it for its timewait. If it was refused by a
// REJ, that is in c.message, and the timewait is no shorter than rejectMemory.
func (e *Endpoint) close(now time.Duration, c *connection) {
	hold := min(c.ackTimeout.Duration(), maxTimewait)
	if c.ackTimeout == 0 { // that is never (roce.md 6.4)
		hold = maxTimewait
	}
	if c.rejected {
		hold = max(hold, rejectMemory)
	}
	if !c.connected {
		// The peer may try again with the same QP. What it sent, if it took the
		// connection for established, went to a QP of ours that is not used again.
		e.forgetQPN(c)
	}
	c.state = closed
	e.noteChange(c)
	c.giveUp = now + hold
	e.timers.set(c, c.giveUp)
}

// remove forgets a connection.
func (e *Endpoint) remove(c *connection) {
	e.timers.stop(c)
	delete(e.byID, c.id)
	if key := c.lookUpKey(); e.lookUps[key] == c {
		delete(e.lookUps, key)
	}
	if key := c.peerKey(); e.byPeer[key] == c {
		delete(e.byPeer, key)
	}
	e.forgetQPN(c)
	e.events.push(TimewaitOver{ID: c.id, QPN: c.qpn})
}
