package ucm

import (
	"net/netip"
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/internal/provider/sharing"
)

// maxRetries is the largest count of retries, and of those for want of a receive, where it is for ever.
const maxRetries = 7

// A device that acknowledges within 134 ms, as soft-RoCE does, announces ackDelay. Linux takes packets to live for
// packetLifeTime over RoCE (roce.md 12.3). Both are exponents of 4.096 us.
const (
	ackDelay       mad.Timeout = 15
	packetLifeTime mad.Timeout = 16
)

// ackTimeout returns the time that a queue pair waits for an acknowledgement, over a path on which packets live so long and to
// a device that takes so long (roce.md 10.6).
func ackTimeout(delay, lifeTime mad.Timeout) mad.Timeout {
	timeout := lifeTime + 1
	switch {
	case timeout >= delay:
		if delay >= lifeTime {
			timeout++
		}
	case timeout >= delay-1:
		timeout = delay + 1
	default:
		timeout = delay
	}
	return min(timeout, mad.MaxTimeout)
}

// mtu returns the code of the path MTU from an id's address, 0 if no packet fits.
func (i *id) mtu() uint8 { return roce.MTUCode(i.service.config.Device.PathMTU(i.local.Addr())) }

// lifeTime returns the time that packets live on an id's path.
func (i *id) lifeTime() mad.Timeout {
	if i.options.ackTimeoutSet && i.options.ackTimeout > 0 {
		return i.options.ackTimeout - 1
	}
	return packetLifeTime
}

// eceIn reads what a command says of enhanced connection establishment, which it may have no room for.
func eceIn(body []byte, at int) mad.ECE {
	if len(body) < at+8 {
		return mad.ECE{}
	}
	e, err := decoded[ece](body[at:])
	if err != nil {
		return mad.ECE{}
	}
	return mad.ECE{Vendor: e.Vendor, Options: e.Options}
}

// Where the commands have it, in bytes.
const (
	connectECE = 280
	acceptECE  = 288
)

func (r request) connect() error {
	cmd, err := decoded[connect](r.body)
	if err != nil || cmd.Param.Valid == 0 {
		return syscall.EINVAL
	}
	i, err := r.channel.find(cmd.ID)
	if err != nil {
		return err
	}
	if _, ok := i.state.after(doConnect); !ok {
		return syscall.EINVAL
	}
	s := r.channel.service
	if i.datagrams() {
		err = s.lookUp(i, &cmd.Param)
	} else {
		err = s.connect(i, &cmd.Param, eceIn(r.body, connectECE))
	}
	if err != nil {
		return err
	}
	return i.step(doConnect)
}

// connect asks the peer for a reliable connection.
func (s *Service) connect(i *id, p *connParam, ece mad.ECE) error {
	mtu := i.mtu()
	if p.PrivateDataLength > mad.ConsumerPrivateData || mtu == 0 {
		return syscall.EINVAL
	}
	timeout := ackTimeout(ackDelay, i.lifeTime())
	i.agreed = agreement{
		mtu: mtu, responderResources: p.ResponderResources, initiatorDepth: p.InitiatorDepth,
		retryCount: min(p.RetryCount, maxRetries), ackTimeout: timeout,
	}
	connection, err := s.manager.CM.Connect(s.config.Device.Clock().Now(), cm.ConnectParams{
		Local: i.local, Remote: i.remote, QPN: p.QPN & roce.PSNMask, StartingPSN: i.ownPSN, MTU: mtu,
		ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth,
		RetryCount: i.agreed.retryCount, RNRRetryCount: min(p.RNRRetryCount, maxRetries), AckTimeout: timeout,
		SRQ: p.SRQ != 0, ECE: ece, PrivateData: p.PrivateData[:p.PrivateDataLength],
	})
	if err != nil {
		return syscall.EINVAL
	}
	s.join(i, connection, asked)
	s.config.Device.Transport().HoldNumber(p.QPN & roce.PSNMask)
	return nil
}

// join has an id be told of a connection.
func (s *Service) join(i *id, connection cm.ID, h handshake) {
	i.connection, i.handshake = connection, h
	s.manager.Join(connection, conversation{i})
}

func (r request) listen() error {
	cmd, err := decoded[listen](r.body)
	if err != nil {
		return err
	}
	i, err := r.channel.find(cmd.ID)
	if err != nil {
		return err
	}
	if i.state == idle {
		if err := i.bindTo(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)); err != nil {
			return err
		}
	}
	if _, ok := i.state.after(doListen); !ok {
		return syscall.EINVAL
	}
	if i.options.reuse {
		if err := i.mayUse(false); err != nil {
			return err
		}
	}
	i.backlog = maxBacklog
	if cmd.Backlog > 0 && cmd.Backlog < maxBacklog {
		i.backlog = int(cmd.Backlog)
	}
	i.answerOn()
	return i.step(doListen)
}

// maxBacklog bounds the requests that wait for a program that asks for no less, as in Linux.
const maxBacklog = 1024

// answerOn has requests to an id's addresses be delivered to it.
func (i *id) answerOn() {
	for _, e := range i.endpoints {
		if i.datagrams() {
			e.LookUps = listener{i}
		} else {
			e.Listener = listener{i}
		}
		i.service.config.Device.UsePort(e.Address, sharing.PortOfListener)
	}
}

func (r request) accept() error {
	cmd, err := decoded[accept](r.body)
	if err != nil {
		return err
	}
	i, err := r.channel.find(cmd.ID)
	if err != nil {
		return err
	}
	if i.state != connecting {
		return syscall.EINVAL
	}
	s := r.channel.service
	switch {
	case i.datagrams():
		err = s.answerLookUp(i, &cmd)
	case cmd.Param.Valid == 0:
		err = s.complete(i)
	default:
		err = s.accept(i, &cmd, eceIn(r.body, acceptECE))
	}
	if err != nil {
		// As Linux: what cannot be accepted is refused.
		_ = s.reject(i, mad.ReasonConsumer, nil)
		return err
	}
	return nil
}

// accept consents to a request.
func (s *Service) accept(i *id, cmd *accept, ece mad.ECE) error {
	p := &cmd.Param
	if i.handshake != requested || p.PrivateDataLength > mad.REPPrivateData {
		return syscall.EINVAL
	}
	qpn := p.QPN & roce.PSNMask
	if s.manager.CM.Accept(s.config.Device.Clock().Now(), i.connection, cm.AcceptParams{
		QPN: qpn, StartingPSN: i.ownPSN, ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth,
		TargetAckDelay: ackDelay, RNRRetryCount: min(p.RNRRetryCount, maxRetries), SRQ: p.SRQ != 0,
		ECE: ece, PrivateData: p.PrivateData[:p.PrivateDataLength],
	}) != nil {
		return syscall.EINVAL
	}
	i.uid, i.handshake = cmd.UID, accepted
	i.agreed.responderResources, i.agreed.initiatorDepth = p.ResponderResources, p.InitiatorDepth
	s.byQPN[qpn], i.ownQPN = i, qpn
	s.config.Device.Transport().HoldNumber(qpn)
	return nil
}

// forgetQPN ends the wait for traffic on an id's queue pair.
func (s *Service) forgetQPN(i *id) {
	if s.byQPN[i.ownQPN] == i {
		delete(s.byQPN, i.ownQPN)
	}
}

// complete confirms the peer's consent: the connection is up.
func (s *Service) complete(i *id) error {
	if i.handshake != replied || s.manager.CM.CompleteConnect(s.config.Device.Clock().Now(), i.connection) != nil {
		return syscall.EINVAL
	}
	i.enter(established)
	return nil
}

func (r request) reject() error {
	cmd, err := decoded[reject](r.body)
	if err != nil {
		return err
	}
	reason := mad.Reason(cmd.Reason)
	switch reason {
	case 0:
		reason = mad.ReasonConsumer
	case mad.ReasonConsumer, mad.ReasonVendorOption:
	default:
		return syscall.EINVAL
	}
	i, err := r.channel.find(cmd.ID)
	if err != nil {
		return err
	}
	return r.channel.service.reject(i, reason, cmd.PrivateData[:cmd.PrivateDataLength])
}

// reject refuses a request, or a reply to one of ours.
func (s *Service) reject(i *id, reason mad.Reason, data []byte) error {
	if i.datagrams() {
		return s.refuseLookUp(i, data)
	}
	if s.manager.CM.Reject(s.config.Device.Clock().Now(), i.connection, reason, data) != nil {
		return syscall.EINVAL
	}
	i.enter(over)
	return nil
}

func (r request) disconnect() error {
	cmd, err := decoded[disconnect](r.body)
	if err != nil {
		return err
	}
	i, err := r.channel.find(cmd.ID)
	if err != nil {
		return err
	}
	if i.handshake == none {
		return syscall.EINVAL
	}
	// A connection that is not up cannot be ended, and the program need not know: the peer may have ended it already.
	_ = r.channel.service.manager.CM.Disconnect(r.channel.service.config.Device.Clock().Now(), i.connection)
	return nil
}

// communicationEstablished is IBV_EVENT_COMM_EST.
const communicationEstablished = 4

// notify takes the program's word that something has come in on the queue pair.
func (r request) notify() error {
	cmd, err := decoded[notify](r.body)
	if err != nil {
		return err
	}
	i, err := r.channel.find(cmd.ID)
	if err != nil {
		return err
	}
	switch {
	case cmd.Event != communicationEstablished:
		return syscall.EINVAL
	case i.handshake == established:
		return syscall.EISCONN
	case i.handshake != accepted:
		return syscall.EINVAL
	}
	r.channel.service.manager.CM.NoteTraffic(r.channel.service.config.Device.Clock().Now(), i.connection)
	return nil
}
