package cm

import (
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// This file is about services of unreliable datagrams: a peer asks by SIDR_REQ which queue pair serves a
// port, and is told by SIDR_REP (IBTA Vol. 1, 12.11).

// LookUpIgnored is Config.RefusesLookUp's answer as Ignored is Config.Refuses's.
const LookUpIgnored mad.SIDRStatus = 0xFF

// LookUpParams name what LookUp asks for.
type LookUpParams struct {
	Local, Remote netip.AddrPort // of one family; the ports are rdma_cm's
	PrivateData   []byte         // at most mad.ConsumerLookUpData; copied
}

// LookUp asks a peer for the queue pair of a datagram service. LookUpAnswered or LookUpFailed follows. The error
// is about p: nothing was sent then.
func (e *Endpoint) LookUp(now time.Duration, p LookUpParams) (ID, error) {
	if len(p.PrivateData) > mad.ConsumerLookUpData {
		return 0, errTooLong("look up", p.PrivateData, mad.ConsumerLookUpData)
	}
	if err := checkFamily("look up", p.Local, p.Remote); err != nil {
		return 0, err
	}
	c := &connection{
		endpoint: e, state: lookUpSent, active: true, local: p.Local, remote: p.Remote,
		limit: now + e.config.EstablishTimeout,
	}
	e.connections.add(c)
	q := mad.SIDRREQ{
		TransactionID: establishTransaction | uint64(c.id),
		RequestID:     uint32(c.id),
		PKey:          defaultPKey,
		ServiceID:     mad.DatagramServiceID(p.Remote.Port()),
	}
	mad.IPHeader{Source: p.Local, Destination: p.Remote.Addr()}.Put(q.PrivateData[:])
	copy(q.PrivateData[mad.IPHeaderSize:], p.PrivateData)
	c.start(now, &q, now+e.config.Timeout)
	return c.id, nil
}

// A LookUpAnswer holds what AnswerLookUp tells the peer.
type LookUpAnswer struct {
	Status      mad.SIDRStatus // mad.SIDRValid: what follows is valid
	QPN, QKey   uint32
	PrivateData []byte // at most mad.SIDRREPPrivateData; copied
}

// AnswerLookUp answers a LookUpRequest. Nothing but TimewaitOver follows.
func (e *Endpoint) AnswerLookUp(now time.Duration, id ID, a LookUpAnswer) error {
	if len(a.PrivateData) > mad.SIDRREPPrivateData {
		return errTooLong("answer", a.PrivateData, mad.SIDRREPPrivateData)
	}
	c := e.connections.byID[id]
	if c == nil || c.state != lookUpReceived {
		return ErrState
	}
	c.answer(now, &a)
	return nil
}

// answer sends a SIDR_REP, and keeps it for as long as the peer may ask again.
func (c *connection) answer(now time.Duration, a *LookUpAnswer) {
	m := mad.SIDRREP{
		TransactionID: c.transactionID, RequestID: c.peerID, ServiceID: mad.DatagramServiceID(c.local.Port()),
		Status: a.Status, QPN: a.QPN, QKey: a.QKey,
	}
	copy(m.PrivateData[:], a.PrivateData)
	c.message = m.Append(nil)
	c.state = lookUpAnswered
	c.giveUp = now + rejectMemory
	c.wake(c.giveUp)
	c.transmit()
}

// handleSIDRREQ takes a peer's look-up. A duplicate is answered again, unless the consumer has yet to answer.
func (e *Endpoint) handleSIDRREQ(now time.Duration, from path, b []byte) {
	var q mad.SIDRREQ
	if q.Decode(b) != nil {
		return
	}
	if c := e.connections.lookUps[lookUpKey{from, q.RequestID}]; c != nil {
		if c.state == lookUpAnswered {
			c.transmit()
		}
		return
	}
	local, remote, status := e.config.admitLookUp(from, &q)
	switch status {
	case mad.SIDRValid:
	case LookUpIgnored:
		return
	default:
		e.send(from, &mad.SIDRREP{
			TransactionID: q.TransactionID, RequestID: q.RequestID, ServiceID: q.ServiceID, Status: status,
		})
		return
	}
	c := &connection{
		endpoint: e, state: lookUpReceived, local: local, remote: remote, transactionID: q.TransactionID, peerID: q.RequestID,
		giveUp: now + e.config.EstablishTimeout,
	}
	e.connections.add(c)
	e.connections.lookUps[c.lookUpKey()] = c
	c.wake(c.giveUp)
	c.emit(LookUpRequest{
		ID: c.id, Local: local, Remote: remote,
		PrivateData: [mad.ConsumerLookUpData]byte(q.PrivateData[mad.IPHeaderSize:]),
	})
}

// admitLookUp finds what a look-up is for and whether it is to be delivered.
func (config *Config) admitLookUp(from path, q *mad.SIDRREQ) (local, remote netip.AddrPort, status mad.SIDRStatus) {
	port, ok := mad.DatagramServicePort(q.ServiceID)
	if !ok || config.RefusesLookUp == nil {
		return local, remote, mad.SIDRUnsupported
	}
	var ip mad.IPHeader
	if !ip.Decode(q.PrivateData[:]) || ip.Destination != gidAddr(from.local) || ip.Source.Addr() != gidAddr(from.remote) {
		return local, remote, mad.SIDRReject
	}
	local, remote = netip.AddrPortFrom(from.local, port), netip.AddrPortFrom(from.remote, ip.Source.Port())
	return local, remote, config.RefusesLookUp(local, remote)
}

// handleSIDRREP takes the peer's answer.
func (e *Endpoint) handleSIDRREP(from path, b []byte) {
	var m mad.SIDRREP
	if m.Decode(b) != nil {
		return
	}
	c := e.connections.byID[ID(m.RequestID)]
	if c == nil || c.state != lookUpSent || !e.connections.isOf(c, from) {
		return
	}
	c.emit(LookUpAnswered{ID: c.id, Status: m.Status, QPN: m.QPN, QKey: m.QKey, PrivateData: m.PrivateData})
	c.remove()
}
