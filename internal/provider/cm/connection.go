package cm

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/internal/priority"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// A state is one of the states of a connection (roce.md section 11).
type state uint8

const (
	requestSent     state = iota // active: REQ is repeated until answered
	replyReceived                // active: the consumer has yet to complete
	requestReceived              // passive: the consumer has yet to answer
	replySent                    // passive: REP is repeated until RTU or traffic
	established
	disconnecting // DREQ is repeated until answered
	closed        // timewait: stray packets die and duplicates are answered

	// A look-up is no connection, but has an ID, a peer and a message to repeat as one.
	lookUpSent     // SIDR_REQ is repeated until answered
	lookUpReceived // the consumer has yet to answer
	lookUpAnswered // duplicates are answered
)

// A connection is one end of a connection, or a look-up. It belongs to its Endpoint.
type connection struct {
	endpoint      *Endpoint
	id            ID
	state         state
	active        bool  // we sent the REQ
	unmanaged     bool  // made without messages: see Enter
	failover      uint8 // what the REP says to an alternate path
	local, remote netip.AddrPort
	transactionID uint64         // of the REQ and its answers
	qpn           uint32         // ours
	timer         priority.Place // in the Endpoint's timers

	// The peer, as far as known: its adapter, communication ID and QPN.
	peerGUID uint64
	peerID   uint32
	peerQPN  uint32

	ackTimeout      mad.Timeout
	connected       bool  // has been established
	abandoned       bool  // the consumer wants no more events
	changed         bool  // is in Endpoint.changes
	disconnectAsked bool  // Disconnect was called: DisconnectDone follows or was emitted
	rejected        bool  // closed by a REJ of ours, which is in message
	silenced        bool  // we sent an MRA: the peer does not repeat what it waits for
	resends         uint8 // of message, so far: up to maxRetries

	consumerAsked time.Duration // when the consumer was asked to answer

	// The message that is repeated: REQ, REP, RTU, REJ or DREQ, without the zeros at
	// its end. Most of it is such, and as long as a connection is idle there is
	// little else to be kept of it.
	message  []byte
	sentAt   time.Duration // first
	interval time.Duration // to the next
	giveUp   time.Duration // instant after which repeating makes no sense
	limit    time.Duration // of giveUp, whatever the peer asks for

	deadline time.Duration // when HandleTimeout is to look, if it is in the timers
}

func (c *connection) path() path {
	return path{local: c.local.Addr(), remote: c.remote.Addr()}
}

func (c *connection) peerKey() peerKey { return peerKey{c.remote.Addr(), c.peerGUID, c.peerID} }

func (c *connection) qpnKey() qpnKey { return qpnKey{c.remote.Addr(), c.peerGUID, c.peerQPN} }

func (c *connection) lookUpKey() lookUpKey { return lookUpKey{c.path(), c.peerID} }

// emit queues an event, unless the consumer has abandoned the connection.
func (c *connection) emit(ev Event) {
	if !c.abandoned {
		c.endpoint.events.push(ev)
	}
}

// wake has handleTimeout called at a time.
func (c *connection) wake(at time.Duration) { c.endpoint.timers.set(c, at) }

// start sends a message and has it repeated until giveUp at least.
func (c *connection) start(now time.Duration, m interface{ Append([]byte) []byte }, giveUp time.Duration) {
	c.message = bytes.Clone(bytes.TrimRight(m.Append(make([]byte, 0, mad.Size)), "\x00"))
	c.sentAt = now
	c.resends = 0
	c.interval = firstResend
	c.giveUp = giveUp
	c.noteChange()
	c.transmit()
	c.wake(min(now+c.interval, c.giveUp))
}

// transmit sends the connection's message, once more or for the first time.
func (c *connection) transmit() {
	p := c.path()
	d := Datagram{Local: p.local, Remote: p.remote}
	copy(d.MAD[:], c.message)
	c.endpoint.datagrams.push(d)
}

// resend repeats the message because nothing was heard for an interval.
func (c *connection) resend(now time.Duration) {
	c.transmit()
	c.resends++
	c.interval = min(2*c.interval, c.slowest())
	if c.resends == maxRetries {
		c.giveUp = min(c.giveUp, now+c.interval)
	}
	c.wake(min(now+c.interval, c.giveUp))
}

// slowest returns the longest time from one repetition to the next.
func (c *connection) slowest() time.Duration {
	if c.state == requestSent {
		return slowestREQ
	}
	return slowest
}

// close ends a connection but keeps it for its timewait. If it was refused by a
// REJ, that is in c.message, and the timewait is no shorter than rejectMemory.
func (c *connection) close(now time.Duration) {
	hold := min(c.ackTimeout.Duration(), maxTimewait)
	if c.ackTimeout == 0 { // that is never (roce.md 6.4)
		hold = maxTimewait
	}
	if c.rejected {
		hold = max(hold, rejectMemory)
	}
	if !c.connected {
		// The peer may try again with the same QP. If it took the connection for
		// established, its packets went to a QP of ours that is not used again.
		c.endpoint.connections.forgetQPN(c)
	}
	c.state = closed
	c.noteChange()
	c.giveUp = now + hold
	c.wake(c.giveUp)
}

// remove ends what there is left of a connection.
func (c *connection) remove() {
	c.endpoint.timers.stop(c)
	c.endpoint.connections.remove(c)
	c.endpoint.events.push(TimewaitOver{ID: c.id, QPN: c.qpn})
}

// handleTimeout does what is due: it repeats the message, gives up or ends the timewait.
func (c *connection) handleTimeout(now time.Duration) {
	if now < c.giveUp {
		c.resend(now)
		return
	}
	if until := c.waitUntil(); now < until {
		c.giveUp = until
		c.wake(until)
		return
	}
	switch c.state {
	case requestSent:
		c.reject(now, mad.ReasonTimeout, nil)
		c.emit(ConnectFailed{ID: c.id, Failure: TimedOut})
	case replySent:
		c.reject(now, mad.ReasonTimeout, nil)
		c.emit(AcceptFailed{ID: c.id, Failure: TimedOut})
	case disconnecting:
		c.finishDisconnect(now, true)
	case lookUpSent:
		c.emit(LookUpFailed{ID: c.id})
		c.remove()
	case closed, lookUpReceived, lookUpAnswered:
		c.remove()
	default:
		c.endpoint.timers.stop(c)
	}
}

// waitUntil returns how long the answer to a REQ or REP is waited for, though it may be behind
// other packets. Nothing is sent again for that: what was is on its way.
func (c *connection) waitUntil() time.Duration {
	config := &c.endpoint.config
	if c.state != requestSent && c.state != replySent || config.Heard == nil {
		return c.giveUp
	}
	at, behind := config.Heard(c.remote.Addr(), c.sentAt)
	if !behind {
		return c.giveUp
	}
	return min(at+config.Timeout, c.limit)
}
