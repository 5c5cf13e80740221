package ucm

import (
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
)

// This file has the port space of datagrams. Connecting looks up a service's queue pair, and accepting answers with it.
// The server learns no more of its clients.

// lookUp asks the peer for the queue pair of its service.
func (s *Service) lookUp(i *id, p *connParam) error {
	connection, err := s.manager.CM.LookUp(s.config.Device.Clock().Now(), cm.LookUpParams{
		Local: i.local, Remote: i.remote, PrivateData: p.PrivateData[:p.PrivateDataLength],
	})
	if err != nil {
		return syscall.EINVAL
	}
	s.join(i, connection, asked)
	return nil
}

// answerLookUp tells the peer the program's queue pair.
func (s *Service) answerLookUp(i *id, cmd *accept) error {
	if err := s.answer(i, cm.LookUpAnswer{
		Status: mad.SIDRValid, QPN: cmd.Param.QPN & roce.PSNMask, QKey: mad.DatagramQKey,
		PrivateData: cmd.Param.PrivateData[:cmd.Param.PrivateDataLength],
	}); err != nil {
		return err
	}
	if cmd.Param.Valid != 0 {
		i.uid = cmd.UID
	}
	return nil
}

// refuseLookUp tells the peer that it gets no queue pair.
func (s *Service) refuseLookUp(i *id, data []byte) error {
	return s.answer(i, cm.LookUpAnswer{Status: mad.SIDRReject, PrivateData: data})
}

func (s *Service) answer(i *id, a cm.LookUpAnswer) error {
	if i.handshake != requested || s.manager.CM.AnswerLookUp(s.config.Device.Clock().Now(), i.connection, a) != nil {
		return syscall.EINVAL
	}
	i.enter(over)
	return nil
}

// lookedUp tells the program the queue pair of its peer.
func (v conversation) lookedUp(e *cm.LookUpAnswered) {
	i := v.id
	i.enter(over)
	p := &udParam{PrivateDataLength: mad.SIDRREPPrivateData}
	copy(p.PrivateData[:], e.PrivateData[:])
	if e.Status != mad.SIDRValid {
		i.emit(eventUnreachable, uint32(e.Status), p)
		return
	}
	p.QPN, p.QKey, p.AH = e.QPN, e.QKey, i.addressHandle()
	i.emit(eventEstablished, 0, p)
}

// RefusesLookUp has look-ups ignored that there is no room for.
func (l listener) RefusesLookUp() mad.SIDRStatus {
	if l.id.backlog == 0 {
		return cm.LookUpIgnored
	}
	return mad.SIDRValid
}

// DeliverLookUp makes an id of a look-up, and tells the program of it.
func (l listener) DeliverLookUp(e cm.LookUpRequest) {
	i := l.request()
	i.local, i.remote = e.Local, e.Remote
	l.id.service.join(i, e.ID, requested)
	p := &udParam{PrivateDataLength: mad.ConsumerLookUpData}
	copy(p.PrivateData[:], e.PrivateData[:])
	told := newEvent(l.id, l.id.uid, i.number, eventConnectRequest, 0, p)
	told.request = i
	i.channel.push(told)
}
