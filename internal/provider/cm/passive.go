package cm

import (
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// AcceptParams are what Accept tells the peer.
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

// Accept consents to a ConnectRequest. What becomes of it is told by Established
// or AcceptFailed.
func (e *Endpoint) Accept(now time.Duration, id ID, p AcceptParams) error {
	if len(p.PrivateData) > mad.REPPrivateData {
		return errTooLong("accept", p.PrivateData, mad.REPPrivateData)
	}
	c := e.byID[id]
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
	e.start(now, c, &rep, slowest, now+e.config.Timeout)
	return nil
}

// NoteTraffic says that a valid request has come in on the connection's QP. That
// establishes an accepted connection as an RTU does, which may be lost; otherwise
// it means nothing.
func (e *Endpoint) NoteTraffic(now time.Duration, id ID) {
	if c := e.byID[id]; c != nil {
		e.establish(c)
	}
}

func (e *Endpoint) establish(c *connection) {
	if c.state != replySent {
		return
	}
	c.state = established
	c.connected = true
	e.noteChange(c)
	e.timers.stop(c)
	e.emit(c, Established{ID: c.id})
}

// handleREQ takes a peer's wish to connect.
func (e *Endpoint) handleREQ(now time.Duration, from path, b []byte) {
	var q mad.REQ
	if q.Decode(b) != nil {
		return
	}
	old := e.byPeer[peerKey{from.remote, q.GUID, q.LocalID}]
	if old != nil && !old.active && old.peerQPN == q.QPN {
		e.duplicateREQ(now, old, from, &q)
		return
	}
	if old == nil {
		old = e.byQPN[qpnKey{from.remote, q.GUID, q.QPN}]
	}
	if old != nil { // the peer has forgotten it: it gives its ID or its QPN to another
		if rejected := e.endForgotten(now, old); !rejected || old.peerID != q.LocalID { // or the REJ is for both
			e.refuseREQ(from, &q, mad.ReasonStaleConnection)
		}
		return
	}
	var ip mad.IPHeader
	if !e.admit(from, &q, &ip) {
		return
	}
	port, _ := mad.ServicePort(q.ServiceID)
	c := &connection{
		state:         requestReceived,
		local:         netip.AddrPortFrom(from.local, port),
		remote:        netip.AddrPortFrom(from.remote, ip.Source.Port()),
		transactionID: q.TransactionID,
		ackTimeout:    q.Primary.AckTimeout,
		thinkingSince: now,
	}
	if q.Alternate.LocalLID != 0 {
		c.failover = mad.FailoverUnsupported
	}
	e.add(c)
	e.setPeer(c, q.GUID, q.LocalID, q.QPN)
	e.emit(c, ConnectRequest{
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

// duplicateREQ answers the repetition of a REQ by where its connection stands.
func (e *Endpoint) duplicateREQ(now time.Duration, c *connection, from path, q *mad.REQ) {
	if !e.isOf(c, from) {
		return
	}
	switch c.state {
	case requestReceived:
		e.sendMRA(now, c, mad.MessageREQ)
	case replySent:
		e.transmit(c) // the REP
	case closed:
		if c.rejected {
			e.transmit(c)
		} else {
			e.refuseREQ(from, q, mad.ReasonStaleConnection)
		}
	}
}

// admit checks what Linux checks (roce.md 12.4) and what we rely on, and asks
// whether anybody listens. If not all is well it refuses the REQ.
func (e *Endpoint) admit(from path, q *mad.REQ, ip *mad.IPHeader) bool {
	reason := e.checkREQ(from, q, ip)
	if reason == 0 {
		port, _ := mad.ServicePort(q.ServiceID)
		reason = e.config.Refuses(netip.AddrPortFrom(from.local, port), netip.AddrPortFrom(from.remote, ip.Source.Port()))
	}
	if reason != 0 && reason != Ignored {
		e.refuseREQ(from, q, reason)
	}
	return reason == 0
}

// checkREQ returns what is wrong with a REQ, 0 if nothing is. It decodes ip.
func (e *Endpoint) checkREQ(from path, q *mad.REQ, ip *mad.IPHeader) mad.Reason {
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
	case q.MTU < 1 || q.MTU > e.maxMTU(from.local):
		return mad.ReasonInvalidMTU
	}
	return 0
}

// gidAddr returns an address as a GID holds it: without zone.
func gidAddr(a netip.Addr) netip.Addr { return a.WithZone("").Unmap() }

// maxMTU is Config.MaxMTU.
func (e *Endpoint) maxMTU(local netip.Addr) uint8 {
	if e.config.MaxMTU == nil {
		return 5
	}
	return e.config.MaxMTU(local)
}

// refuseREQ answers a REQ that makes no connection.
func (e *Endpoint) refuseREQ(to path, q *mad.REQ, reason mad.Reason) {
	m := mad.REJ{
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
		m.ARI[0] = e.maxMTU(to.local)
	}
	e.send(to, &m)
}

// handleRTU takes the news that the peer uses the connection.
func (e *Endpoint) handleRTU(now time.Duration, from path, b []byte) {
	var m mad.RTU
	if m.Decode(b) != nil {
		return
	}
	c := e.find(from, ID(m.RemoteID), m.LocalID)
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
		e.transmit(c)
	default:
		e.establish(c)
	}
}
