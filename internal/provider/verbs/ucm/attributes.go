package ucm

import (
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// States of a queue pair (enum ibv_qp_state).
const (
	qpInit  = 1
	qpRTR   = 2
	qpRTS   = 3
	qpError = 6
)

// Bits of qpAttr.Mask (enum ibv_qp_attr_mask).
const (
	maskState              = 1 << 0
	maskAccess             = 1 << 3
	maskPKeyIndex          = 1 << 4
	maskPort               = 1 << 5
	maskQKey               = 1 << 6
	maskAV                 = 1 << 7
	maskPathMTU            = 1 << 8
	maskTimeout            = 1 << 9
	maskRetryCount         = 1 << 10
	maskRNRRetry           = 1 << 11
	maskRQPSN              = 1 << 12
	maskMaxReadAtomic      = 1 << 13
	maskMinRNRTimer        = 1 << 15
	maskSQPSN              = 1 << 16
	maskMaxDestReadAtomic  = 1 << 17
	maskDestQPN            = 1 << 20
	accessRemoteWrite      = 1 << 1
	accessRemoteRead       = 1 << 2
	accessRemoteAtomic     = 1 << 3
	maskConnectionlessInit = maskState | maskPKeyIndex | maskPort
)

// port is the device's only one.
const port = 1

// hopLimit is that of the packets of connections.
const hopLimit = 64

// minRNRTimer asks the peer to repeat after 40.96 ms what there was no receive for. Linux leaves 0, which is 655 ms
// (roce.md 12.5, 13): with the five repeats that programs usually ask for, peers have as long to post a receive as they take to
// get a processor, and who is late loses less time than there.
const minRNRTimer = 24

func (r request) initQPAttr() error {
	cmd, err := decoded[initQPAttr](r.body)
	if err != nil {
		return err
	}
	const size = 144
	if r.out < size {
		return syscall.ENOSPC
	}
	i, err := r.channel.find(cmd.ID)
	if err != nil {
		return err
	}
	if cmd.QPState > qpError || !i.hasDevice() {
		return syscall.EINVAL
	}
	a, ok := i.attributes(cmd.QPState)
	if !ok {
		return syscall.EINVAL
	}
	return r.respond(cmd.Response, size, &a)
}

// attributes returns the attributes that move the queue pair of an id to a state; false if the connection has not come so far.
func (i *id) attributes(state uint32) (a qpAttr, ok bool) {
	a.State, a.Port = state, port
	switch {
	case i.datagrams():
		a.Mask, a.QKey = maskConnectionlessInit|maskQKey, mad.DatagramQKey
		return a, true
	case i.handshake == none:
		a.Mask = maskConnectionlessInit | maskAccess
		return a, true
	case state == qpInit && i.handshake.open():
		a.Mask = maskConnectionlessInit | maskAccess
		a.Access = accessRemoteWrite
		if i.agreed.responderResources > 0 {
			a.Access |= accessRemoteRead | accessRemoteAtomic
		}
		return a, true
	case state == qpRTR && i.handshake.paired():
		i.receiving(&a)
		return a, true
	case state == qpRTS && i.handshake.paired():
		sending(i, &a)
		return a, true
	}
	return qpAttr{}, false
}

// receiving fills in the attributes by which a queue pair receives.
func (i *id) receiving(a *qpAttr) {
	a.Mask = maskState | maskAV | maskPathMTU | maskDestQPN | maskRQPSN | maskMaxDestReadAtomic | maskMinRNRTimer
	a.AH = i.addressHandle()
	a.PathMTU, a.DestQPN, a.RQPSN = uint32(i.agreed.mtu), i.agreed.remoteQPN, i.ownPSN
	a.MaxDestReadAtomic, a.MinRNRTimer = i.agreed.responderResources, minRNRTimer
}

// sending fills in the attributes by which a queue pair sends.
func sending(i *id, a *qpAttr) {
	a.Mask = maskState | maskSQPSN | maskTimeout | maskRetryCount | maskRNRRetry | maskMaxReadAtomic
	a.SQPSN, a.RetryCount, a.RNRRetryCount = i.agreed.sendPSN, i.agreed.retryCount, i.agreed.rnrRetryCount
	a.MaxReadAtomic, a.Timeout = i.agreed.initiatorDepth, uint8(i.agreed.ackTimeout)
	if i.options.ackTimeoutSet {
		a.Timeout = uint8(i.options.ackTimeout)
	}
}

// addressHandle leads to an id's peer.
func (i *id) addressHandle() ahAttr {
	return ahAttr{
		DGID: gidOf(i.remote.Addr()), FlowLabel: mad.FlowLabel(i.local.Port(), i.remote.Port()),
		SGIDIndex: i.service.gidIndex(i.local.Addr()), HopLimit: hopLimit, TrafficClass: i.options.service,
		Global: 1, Port: port,
	}
}
