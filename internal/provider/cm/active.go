package cm

import (
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// ConnectParams describe the connection that Connect asks the peer for.
type ConnectParams struct {
	Local, Remote      netip.AddrPort // of one family; the ports are rdma_cm's
	QPN                uint32
	StartingPSN        uint32 // of the peer's first request: the receiver chooses (roce.md 5)
	MTU                uint8  // code of the path MTU, 1 (256) to 5 (4096)
	ResponderResources uint8  // READs that we answer at once
	InitiatorDepth     uint8  // READs that we want to have outstanding
	RetryCount         uint8  // for both sides' sends; at most 6 lets a Linux peer notice our death
	RNRRetryCount      uint8  // for the peer's sends; 7 is for ever
	AckTimeout         mad.Timeout
	SRQ                bool
	ECE                mad.ECE
	PrivateData        []byte // at most mad.ConsumerPrivateData; copied
}

// Connect asks a peer for a connection. One of ConnectReply, Rejected and
// ConnectFailed tells the outcome. The error is about p: nothing was sent then.
func (e *Endpoint) Connect(now time.Duration, p ConnectParams) (ID, error) {
	if len(p.PrivateData) > mad.ConsumerPrivateData {
		return 0, errTooLong("connect", p.PrivateData, mad.ConsumerPrivateData)
	}
	if err := checkFamily("connect", p.Local, p.Remote); err != nil {
		return 0, err
	}
	c := &connection{
		endpoint:   e,
		state:      requestSent,
		active:     true,
		local:      p.Local,
		remote:     p.Remote,
		qpn:        p.QPN,
		ackTimeout: p.AckTimeout,
		limit:      now + e.config.EstablishTimeout,
	}
	e.connections.add(c)
	c.transactionID = establishTransaction | uint64(c.id)

	q := mad.REQ{
		TransactionID:         c.transactionID,
		LocalID:               uint32(c.id),
		ServiceID:             mad.ServiceID(p.Remote.Port()),
		GUID:                  e.config.GUID,
		QPN:                   p.QPN,
		ResponderResources:    p.ResponderResources,
		InitiatorDepth:        p.InitiatorDepth,
		RemoteResponseTimeout: responseTimeout,
		StartingPSN:           p.StartingPSN,
		LocalResponseTimeout:  responseTimeout,
		RetryCount:            p.RetryCount,
		PKey:                  defaultPKey,
		MTU:                   p.MTU,
		RNRRetryCount:         p.RNRRetryCount,
		MaxCMRetries:          maxRetries,
		SRQ:                   p.SRQ,
		ECE:                   p.ECE,
		Primary: mad.Path{
			LocalLID:   roceLID,
			RemoteLID:  roceLID,
			LocalGID:   p.Local.Addr(),
			RemoteGID:  p.Remote.Addr(),
			FlowLabel:  mad.FlowLabel(p.Local.Port(), p.Remote.Port()),
			HopLimit:   hopLimit,
			AckTimeout: p.AckTimeout,
		},
	}
	mad.IPHeader{Source: p.Local, Destination: p.Remote.Addr()}.Put(q.PrivateData[:])
	copy(q.PrivateData[mad.IPHeaderSize:], p.PrivateData)
	c.start(now, &q, now+e.config.Timeout)
	return c.id, nil
}

const (
	// The upper halves of our transaction IDs; the lower one is the communication
	// ID. That makes the IDs of two attempts differ, which is all they are for.
	establishTransaction  = 1 << 32
	disconnectTransaction = 2 << 32

	defaultPKey = 0xFFFF
	roceLID     = 0xFFFF // where there are no LIDs and packets may be routed
	hopLimit    = 64
)

// CompleteConnect answers a ConnectReply: the connection is established, and the
// peer is told.
func (e *Endpoint) CompleteConnect(now time.Duration, id ID) error {
	c := e.connections.byID[id]
	if c == nil || c.state != replyReceived {
		return ErrState
	}
	c.state = established
	c.connected = true
	rtu := mad.RTU{TransactionID: c.transactionID, LocalID: uint32(c.id), RemoteID: c.peerID}
	c.start(now, &rtu, now+rejectMemory)
	if !c.silenced {
		// A lost RTU is repeated when the peer repeats its REP.
		e.timers.stop(c)
	}
	return nil
}

// handleREP takes a REP: the peer accepts.
func (e *Endpoint) handleREP(now time.Duration, from path, b []byte) {
	var p mad.REP
	if p.Decode(b) != nil {
		return
	}
	c := e.connections.byID[ID(p.RemoteID)]
	switch {
	case c == nil || !c.active || !e.connections.isOf(c, from):
		e.send(from, rejectionOfREP(&p, mad.ReasonInvalidCommID))
	case c.state == requestSent:
		c.takeREP(now, &p)
	case c.peerID != p.LocalID:
		// We gave up before, or a stray duplicate of our REQ was accepted too.
		e.send(from, rejectionOfREP(&p, mad.ReasonInvalidCommID))
	case c.state == replyReceived:
		c.sendMRA(now, mad.MessageREP)
	case c.state == established, c.rejected:
		c.transmit() // the RTU, the REJ
	case c.state == closed:
		e.send(from, rejectionOfREP(&p, mad.ReasonInvalidCommID))
	}
}

// takeREP takes the first REP that answers the connection's REQ.
func (c *connection) takeREP(now time.Duration, p *mad.REP) {
	e := c.endpoint
	if stale := e.connections.byQPN[qpnKey{c.remote.Addr(), p.GUID, p.QPN}]; stale != nil {
		// The peer's adapter lost what we believe in. It hears of both.
		stale.endForgotten(now)
		e.send(c.path(), rejectionOfREP(p, mad.ReasonStaleConnection))
		c.close(now)
		c.emit(Rejected{ID: c.id, Reason: mad.ReasonStaleConnection})
		return
	}
	e.connections.setPeer(c, p.GUID, p.LocalID, p.QPN)
	c.state = replyReceived
	c.consumerAsked = now
	e.timers.stop(c)
	c.emit(ConnectReply{
		ID:                 c.id,
		GUID:               p.GUID,
		QPN:                p.QPN,
		StartingPSN:        p.StartingPSN,
		ResponderResources: p.ResponderResources,
		InitiatorDepth:     p.InitiatorDepth,
		TargetAckDelay:     p.TargetAckDelay,
		RNRRetryCount:      p.RNRRetryCount,
		SRQ:                p.SRQ,
		ECE:                p.ECE,
		PrivateData:        p.PrivateData,
	})
}

// rejectionOfREP returns the answer to a REP that belongs to no connection, so that its sender need
// not wait for its timeout.
func rejectionOfREP(p *mad.REP, reason mad.Reason) *mad.REJ {
	return &mad.REJ{
		TransactionID: p.TransactionID,
		LocalID:       p.RemoteID,
		RemoteID:      p.LocalID,
		Message:       mad.MessageREP,
		Reason:        reason,
	}
}

// handleMRA takes an MRA: the peer's consumer needs more time to answer.
func (e *Endpoint) handleMRA(now time.Duration, from path, b []byte) {
	var m mad.MRA
	if m.Decode(b) != nil {
		return
	}
	c := e.connections.byID[ID(m.RemoteID)]
	if c == nil || c.unmanaged || !e.connections.isOf(c, from) {
		return
	}
	switch {
	case c.state == requestSent && m.Message == mad.MessageREQ:
	case c.state == replySent && m.Message == mad.MessageREP && c.peerID == m.LocalID:
	default:
		return
	}
	wait := m.ServiceTimeout.Duration() + packetLifeTime.Duration()
	c.giveUp = min(now+wait+e.config.Timeout, c.limit)
	c.wake(min(now+wait, c.giveUp))
}

// sendMRA answers a duplicate of the message that the consumer has yet to
// answer, if it has taken more than answerTime. The peer then stops repeating it.
func (c *connection) sendMRA(now time.Duration, about mad.Message) {
	if now-c.consumerAsked < answerTime {
		return
	}
	c.silenced = true
	c.noteChange()
	c.endpoint.send(c.path(), &mad.MRA{
		TransactionID:  c.transactionID,
		LocalID:        uint32(c.id),
		RemoteID:       c.peerID,
		Message:        about,
		ServiceTimeout: serviceTimeout,
	})
}
