package provider

import (
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// An UnmanagedConnection has the values that the two ends of a connection have told
// each other by means of their own, without connection management. Each needs its
// queue pair's number for that (QP.Number).
type UnmanagedConnection struct {
	Local, Remote netip.Addr // of one family, the first one of the adapter's
	RemoteQPN     uint32     // 2 to 0xFFFFFE
	SendPSN       uint32     // of our first request; 24 bits, best chosen at random
	ReceivePSN    uint32     // of the peer's first request; 24 bits
	// MTU is a packet's payload in bytes: 256, 512, 1024, 2048 or 4096, the same at
	// both ends, and not more than the path MTU of Local.
	MTU int
	// The peer is lost when it has acknowledged nothing for RetryCount+1 times
	// 4.096 us x 2^AckTimeout, if that is not 0, or has had no receive when it was
	// asked RNRRetryCount+1 times, if that is not 7. RetryCount is at most 7,
	// AckTimeout 31.
	AckTimeout, RetryCount, RNRRetryCount uint8
	// READs that may be in progress, in from the peer and out to it; capped as by
	// Connect, and not more than the other end allows.
	InboundReadLimit, OutboundReadLimit uint32
}

// check finds what is wrong with u in itself.
func (u *UnmanagedConnection) check() Status {
	const lastQPN, maxCount = 0xFFFFFE, 7
	switch {
	case !u.Local.IsValid(), !u.Remote.IsValid(), u.Local.Is4() != u.Remote.Is4(),
		u.RemoteQPN <= mad.QPN, u.RemoteQPN > lastQPN,
		u.SendPSN > roce.PSNMask, u.ReceivePSN > roce.PSNMask, roce.MTUCode(u.MTU) == 0,
		u.AckTimeout > uint8(mad.MaxTimeout), u.RetryCount > maxCount, u.RNRRetryCount > maxCount:
		return StatusInvalidParameter
	}
	return StatusSuccess
}

// ConnectUnmanaged establishes one end of a connection, whose other end the peer
// establishes without being asked. It is an extension: NDKPI connects only by
// connection management. The connection is like any other, and counted as one of
// Connect's, except that nothing is sent to make or to end it: Disconnect flushes
// the queue pair and is done, the peer has to find out by itself, and event, which
// may be nil, is called when the peer is lost, never when it disconnects. The
// addresses have port 0.
//
// The status is StatusImplementationLimit if the MTU is more than the path MTU.
// Requests that come before the call are dropped as if they were lost, so that an
// end is to be told the other's numbers last when it is to send first.
func (c *Connector) ConnectUnmanaged(qp *QP, u UnmanagedConnection, event DisconnectEventEx, eventContext any,
	completion RequestCompletion, context any) Status {
	m := c.adapter.miniport
	m.manager.Lock()
	defer m.manager.Unlock()
	status := u.check()
	switch {
	case c.state != idle:
		return StatusInvalidDeviceState
	case status != StatusSuccess:
		return status
	case !m.manager.HasAddress(u.Local):
		return StatusInvalidAddress
	}
	mtu, status := m.checkPath(u.Local, u.Remote)
	switch {
	case status != StatusSuccess:
		return status
	case u.MTU > mtu:
		return StatusImplementationLimit
	}
	if status := c.takeQP(qp); status != StatusSuccess {
		return status
	}
	c.local, c.remote = netip.AddrPortFrom(u.Local, 0), netip.AddrPortFrom(u.Remote, 0)
	c.reads.take(m, min(u.InboundReadLimit, m.info.MaxInboundReadLimit), min(u.OutboundReadLimit, m.info.MaxOutboundReadLimit))
	c.private = peerData{}
	timeout := mad.Timeout(u.AckTimeout)
	c.attempt, c.remoteQPN = new(attempt), u.RemoteQPN
	c.agreed = rc.Connection{
		MTU: u.MTU, SendPSN: u.SendPSN, ReceivePSN: u.ReceivePSN,
		AckTimeout: timeout.Ack(), RetryCount: int(u.RetryCount), RNRRetryCount: int(u.RNRRetryCount),
		AckDelay: foreignAckDelay.Ack(), // nobody knows what kind the peer is of, nor how far away
	}
	c.id = m.manager.CM.Enter(cm.Unmanaged{
		Local: u.Local, Remote: u.Remote, QPN: qp.Number(), PeerQPN: u.RemoteQPN, AckTimeout: timeout,
	})
	m.manager.Join(c.id, conversation{c})
	m.transport.HoldNumber(qp.Number())
	c.disconnect = disconnectCallback{event, eventContext}
	c.connectQP(false)
	c.enter(established)
	m.manager.Progress(m.clock.Now())
	return m.completeRequest(&c.object, completion, context)
}
