package cm

import (
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// AcceptParams hold the parameters of the answer that Accept gives to the peer.
type AcceptParams struct {
	QPN                uint32
	StartingPSN        uint32 // of the peer's first request: the receiver chooses (roce.md 5)
	ResponderResources uint8  // READs that we answer at once; at most the request's InitiatorDepth
	InitiatorDepth     uint8  // READs that we will have outstanding; at most its ResponderResources
	TargetAckDelay     mad.Timeout
	RNRRetryCount      uint8 // for the peer's sends; 7 is for ever
	SRQ                bool
	ECE                mad.ECE
	PrivateData        []byte // at most mad.REPPrivateData; copied
}

// Accept consents to a ConnectRequest. Established or AcceptFailed tells the
// outcome.
func (e *Endpoint) Accept(now time.Duration, id ID, p AcceptParams) error {
	if len(p.PrivateData) > mad.REPPrivateData {
		return errTooLong("accept", p.PrivateData, mad.REPPrivateData)
	}
	c := e.connections.byID[id]
	if c == nil || c.state != requestReceived {
		return ErrState
	}
	c.state = replySent
	c.silenced = false // the REP is repeated, whether the peer is or not
	c.qpn = p.QPN
	c.limit = now + e.config.EstablishTimeout
	rep := mad.REP{
		TransactionID:      c.transactionID,
		LocalID:            uint32(c.id),
		RemoteID:           c.peerID,
		QPN:                p.QPN,
		StartingPSN:        p.StartingPSN,
		ResponderResources: p.ResponderResources,
		InitiatorDepth:     p.InitiatorDepth,
		TargetAckDelay:     p.TargetAckDelay,
		Failover:           c.failover,
		RNRRetryCount:      p.RNRRetryCount,
		SRQ:                p.SRQ,
		ECE:                p.ECE,
		GUID:               e.config.GUID,
	}
	copy(rep.PrivateData[:], p.PrivateData)
	c.start(now, &rep, now+e.config.Timeout)
	return nil
}

// NoteTraffic says that a valid request has come in on the connection's QP. That
// establishes an accepted connection as an RTU does, which may be lost; otherwise
// it means nothing.
func (e *Endpoint) NoteTraffic(now time.Duration, id ID) {
	if c := e.connections.byID[id]; c != nil {
		c.establish()
	}
}

func (c *connection) establish() {
	if c.state != replySent {
		return
	}
	c.state = established
	c.connected = true
	c.noteChange()
	c.endpoint.timers.stop(c)
	c.emit(Established{ID: c.id})
}

// handleREQ takes a peer's request to connect.
func (e *Endpoint) handleREQ(now time.Duration, from path, b []byte) {
	var q mad.REQ
	if q.Decode(b) != nil {
		return
	}
	old := e.connections.byPeer[peerKey{from.remote, q.GUID, q.LocalID}]
	if old != nil && !old.active && old.peerQPN == q.QPN {
		if e.connections.isOf(old, from) {
			old.answerDuplicate(now, &q)
		}
		return
	}
	if old == nil {
		old = e.connections.byQPN[qpnKey{from.remote, q.GUID, q.QPN}]
	}
	if old != nil { // the peer has forgotten it: it gives its ID or its QPN to another
		if rejected := old.endForgotten(now); !rejected || old.peerID != q.LocalID { // or the REJ is for both
			e.send(from, e.config.rejectionOfREQ(from, &q, mad.ReasonStaleConnection))
		}
		return
	}
	var ip mad.IPHeader
	switch reason := e.config.reasonAgainst(from, &q, &ip); reason {
	case 0:
	case Ignored:
		return
	default:
		e.send(from, e.config.rejectionOfREQ(from, &q, reason))
		return
	}
	port, _ := mad.ServicePort(q.ServiceID)
	c := &connection{
		endpoint:      e,
		state:         requestReceived,
		local:         netip.AddrPortFrom(from.local, port),
		remote:        netip.AddrPortFrom(from.remote, ip.Source.Port()),
		transactionID: q.TransactionID,
		ackTimeout:    q.Primary.AckTimeout,
		consumerAsked: now,
	}
	if q.Alternate.LocalLID != 0 {
		c.failover = mad.FailoverUnsupported
	}
	e.connections.add(c)
	e.connections.setPeer(c, q.GUID, q.LocalID, q.QPN)
	c.emit(ConnectRequest{
		ID:                 c.id,
		Local:              c.local,
		Remote:             c.remote,
		GUID:               q.GUID,
		QPN:                q.QPN,
		StartingPSN:        q.StartingPSN,
		MTU:                q.MTU,
		ResponderResources: q.ResponderResources,
		InitiatorDepth:     q.InitiatorDepth,
		RetryCount:         q.RetryCount,
		RNRRetryCount:      q.RNRRetryCount,
		AckTimeout:         q.Primary.AckTimeout,
		SRQ:                q.SRQ,
		ECE:                q.ECE,
		PrivateData:        [mad.ConsumerPrivateData]byte(q.PrivateData[mad.IPHeaderSize:]),
	})
}

// answerDuplicate answers the repetition of the connection's REQ, depending on its state.
func (c *connection) answerDuplicate(now time.Duration, q *mad.REQ) {
	switch c.state {
	case requestReceived:
		c.sendMRA(now, mad.MessageREQ)
	case replySent:
		c.transmit() // the REP
	case closed:
		if c.rejected {
			c.transmit()
		} else {
			c.endpoint.send(c.path(), c.endpoint.config.rejectionOfREQ(c.path(), q, mad.ReasonStaleConnection))
		}
	}
}

// reasonAgainst checks a REQ for what Linux checks (roce.md 12.4) and what we rely on, and asks
// whether it is to be delivered. It returns why not, 0 if it is, and decodes ip.
func (config *Config) reasonAgainst(from path, q *mad.REQ, ip *mad.IPHeader) mad.Reason {
	if reason := config.checkREQ(from, q, ip); reason != 0 {
		return reason
	}
	port, _ := mad.ServicePort(q.ServiceID)
	return config.Refuses(netip.AddrPortFrom(from.local, port), netip.AddrPortFrom(from.remote, ip.Source.Port()))
}

// checkREQ returns what is wrong with a REQ, 0 if nothing is. It decodes ip.
func (config *Config) checkREQ(from path, q *mad.REQ, ip *mad.IPHeader) mad.Reason {
	local, remote := gidAddr(from.local), gidAddr(from.remote)
	_, known := mad.ServicePort(q.ServiceID)
	switch {
	case q.TransportType != 0 || q.ExtendedTransport != 0:
		return mad.ReasonInvalidTransport
	case !known:
		return mad.ReasonInvalidServiceID
	case q.Primary.RemoteGID != local || q.Primary.LocalGID != remote:
		return mad.ReasonInvalidGID
	case !ip.Decode(q.PrivateData[:]) || ip.Destination != local || ip.Source.Addr() != remote:
		return mad.ReasonConsumer
	case q.MTU < 1 || q.MTU > config.maxMTU(from.local):
		return mad.ReasonInvalidMTU
	}
	return 0
}

// gidAddr returns an address as a GID holds it: without zone.
func gidAddr(a netip.Addr) netip.Addr { return a.WithZone("").Unmap() }

// maxMTU is MaxMTU, or what that stands for if it is nil.
func (config *Config) maxMTU(local netip.Addr) uint8 {
	if config.MaxMTU == nil {
		return 5
	}
	return config.MaxMTU(local)
}

// rejectionOfREQ returns the answer to a REQ that makes no connection.
func (config *Config) rejectionOfREQ(to path, q *mad.REQ, reason mad.Reason) *mad.REJ {
	m := &mad.REJ{
		TransactionID: q.TransactionID,
		RemoteID:      q.LocalID,
		Message:       mad.MessageREQ,
		Reason:        reason,
	}
	switch reason {
	case mad.ReasonInvalidGID:
		gid := to.local.As16()
		m.ARILength = uint8(copy(m.ARI[:], gid[:]))
	case mad.ReasonInvalidMTU:
		m.ARILength = 1
		m.ARI[0] = config.maxMTU(to.local)
	}
	return m
}

// handleRTU takes an RTU: the peer uses the connection.
func (e *Endpoint) handleRTU(now time.Duration, from path, b []byte) {
	var m mad.RTU
	if m.Decode(b) != nil {
		return
	}
	c := e.connections.find(from, ID(m.RemoteID), m.LocalID)
	switch {
	case c == nil:
		// The peer believes in a connection that we know nothing of.
		e.send(from, &mad.REJ{
			TransactionID: m.TransactionID,
			LocalID:       m.RemoteID,
			RemoteID:      m.LocalID,
			Message:       mad.MessageOther,
			Reason:        mad.ReasonInvalidCommID,
		})
	case c.rejected:
		c.transmit()
	default:
		c.establish()
	}
}
