package workload

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// A target is the passive end of a flow of sends, writes or reads, on an adapter instance
// of its own. It serves one connection.
type target struct {
	spec     Spec
	pattern  *pattern
	adapter  *instance
	pd       *provider.PD
	cq       *provider.CQ
	listener *provider.Listener
	memory   *memory // what the client writes to, reads from or, in slots, sends into
	notices  *memory // written notices from the client, in slots

	mu        sync.Mutex // guards what follows
	connector *provider.Connector
	qp        *provider.QP
	received  uint64                // messages, or notices of them
	results   [64]provider.ResultEx // scratch of drain
	stopped   bool
	closed    bool                 // everything is
	waiting   []func(ServerResult) // for that
	result    ServerResult
}

// noticeLen is the length of the messages by which the ends of a verified write
// workload keep each other informed: the index of a message, big-endian. The
// client says that it has written it, the server that all up to it are compared
// and their slots free.
const noticeLen = 8

// serve makes the server of a flow listen, as Host.Serve has it.
func serve(m *provider.Miniport, spec Spec, at netip.AddrPort) (*target, error) {
	s := &target{spec: spec, pattern: newPattern(&spec)}
	if err := s.listen(m, at); err != nil {
		s.Stop(func(ServerResult) {})
		return nil, err
	}
	return s, nil
}

func (s *target) listen(m *provider.Miniport, at netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var status provider.Status
	var err error
	if s.adapter, err = s.spec.open(m, s.disable); err != nil {
		return err
	}
	if s.pd, status = s.adapter.CreatePD(nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create PD: %w", status)
	}
	if s.cq, status = s.adapter.CreateCQ(uint32(4*s.spec.slots()), s.completed, nil, nil, nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create CQ: %w", status)
	}
	if s.memory, err = s.makeMemory(); err != nil {
		return err
	}
	if s.notices, err = register(s.pd, make([]byte, s.spec.slots()*noticeLen), provider.MRAllowLocalWrite); err != nil {
		return err
	}
	if s.listener, status = s.adapter.CreateListener(s.connecting, nil, nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create listener: %w", status)
	}
	if status := s.listener.Listen(at, nil, nil); status != provider.StatusSuccess {
		return status
	}
	s.cq.Arm(provider.NotifyAny)
	return nil
}

func (s *target) makeMemory() (*memory, error) {
	room := uint64(s.spec.slots()) * s.spec.Size
	switch s.spec.Operation {
	case topology.Read:
		return register(s.pd, s.pattern.bytes, provider.MRAllowRemoteRead)
	case topology.Write:
		return register(s.pd, make([]byte, room), provider.MRAllowRemoteWrite)
	default:
		return register(s.pd, make([]byte, room), provider.MRAllowLocalWrite)
	}
}

// connecting accepts the first request and refuses any other.
func (s *target) connecting(_ any, connector *provider.Connector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connector != nil || s.stopped {
		connector.Close(func(any) {}, nil)
		return
	}
	s.connector = connector
	if err := s.accept(); err != nil {
		s.fail(fmt.Sprintf("accept: %v", err))
		connector.Reject(nil)
	}
}

// accept answers the request. s.mu is held.
func (s *target) accept() error {
	slots := uint32(s.spec.slots())
	qp, status := s.pd.CreateQP(s.cq, s.cq, nil, slots, slots, 1, 1, noticeLen, nil, nil)
	if status != provider.StatusSuccess {
		return fmt.Errorf("create QP: %w", status)
	}
	s.qp = qp
	for slot := range uint64(slots) {
		if err := s.postReceive(slot); err != nil {
			return err
		}
	}
	accepted := func(_ any, status provider.Status) {
		if status != provider.StatusSuccess {
			s.mu.Lock()
			s.fail(fmt.Sprintf("accept: %v", status))
			s.mu.Unlock()
		}
	}
	inbound, outbound := s.adapter.reads()
	private := grant{token: s.memory.mr.RemoteToken()}.encode()
	if status := s.connector.Accept(qp, inbound, outbound, private, nil, nil, accepted, nil); !status.Succeeded() {
		return status
	}
	return nil
}

// postReceive posts the receive of a slot. s.mu is held.
func (s *target) postReceive(slot uint64) error {
	sge := s.notices.sge(slot*noticeLen, noticeLen)
	if s.spec.Operation == topology.Send {
		sge = s.memory.sge(slot*s.spec.Size, s.spec.Size)
	}
	if status := s.qp.Receive(nil, []provider.SGE{sge}); status != provider.StatusSuccess {
		return fmt.Errorf("post receive: %w", status)
	}
	return nil
}

// completed is the CQ's notification.
func (s *target) completed(any, provider.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.drain()
	s.cq.Arm(provider.NotifyAny)
}

// drain handles every completion there is: each is a message, or the notice of
// one, and they come in the order in which the client posted. s.mu is held.
func (s *target) drain() {
	before := s.received
	for n := len(s.results); n == len(s.results); {
		n = s.cq.ResultsEx(s.results[:])
		for i := range s.results[:n] {
			r := &s.results[i]
			switch {
			case r.Status == provider.StatusCancelled:
				// The connection is over.
			case r.Status != provider.StatusSuccess:
				s.fail(fmt.Sprintf("receive: %v", r.Status))
			case r.Type == provider.OperationTypeReceive:
				s.take(uint64(r.BytesTransferred))
			}
		}
	}
	if s.received != before && s.spec.Operation == topology.Write && !s.stopped {
		s.acknowledge()
	}
}

// take handles message number s.received. s.mu is held.
func (s *target) take(length uint64) {
	index := s.received
	s.received++
	slot := index % uint64(s.spec.slots())
	switch s.spec.Operation {
	case topology.Write:
		notice := s.notices.bytes[slot*noticeLen:][:noticeLen]
		if told := binary.BigEndian.Uint64(notice); told != index {
			s.fail(fmt.Sprintf("message %d was announced as %d", index, told))
		}
	case topology.Send:
		if length != s.spec.Size {
			s.fail(fmt.Sprintf("message %d has %d bytes, not %d", index, length, s.spec.Size))
		}
	}
	if s.spec.Verify {
		s.verify(index, s.memory.bytes[slot*s.spec.Size:][:s.spec.Size])
	}
	if s.stopped {
		return
	}
	if err := s.postReceive(slot); err != nil {
		s.fail(err.Error())
	}
}

func (s *target) verify(index uint64, got []byte) {
	if bytes.Equal(got, s.pattern.message(index)) {
		s.result.Verified++
		return
	}
	s.result.Mismatches++
	s.fail(s.pattern.difference(index, got))
}

// acknowledge tells the client that every slot up to the last message's is
// compared. s.mu is held.
func (s *target) acknowledge() {
	notice := binary.BigEndian.AppendUint64(nil, s.received-1)
	sge := []provider.SGE{{Length: noticeLen, Inline: notice}}
	if status := s.qp.Send(nil, sge, provider.OpInline|provider.OpSilentSuccess); status != provider.StatusSuccess &&
		status != provider.StatusConnectionInvalid { // the client may be gone already
		s.fail(fmt.Sprintf("post acknowledgement: %v", status))
	}
}

// fail notes the first failure. s.mu is held.
func (s *target) fail(text string) {
	if s.result.Error == "" {
		s.result.Error = text
	}
}

// Stop ends the server, whatever it is in the middle of, and calls done with
// what it found when everything is closed. It may be called again.
func (s *target) Stop(done func(ServerResult)) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		done(s.result)
		return
	}
	s.waiting = append(s.waiting, done)
	if s.stopped {
		s.mu.Unlock()
		return
	}
	s.stopped = true
	if s.cq != nil {
		s.drain()
	}
	objects := s.objects()
	s.mu.Unlock()
	closeAll(objects, s.adapter, s.end)
}

// disable is the device's wish that its instances be closed.
func (s *target) disable() {
	s.mu.Lock()
	s.fail(disabled)
	s.mu.Unlock()
	s.Stop(func(ServerResult) {})
}

// end is when everything is closed.
func (s *target) end() {
	s.mu.Lock()
	s.closed = true
	waiting, result := s.waiting, s.result
	s.mu.Unlock()
	for _, done := range waiting {
		done(result)
	}
}

// objects are those that are to be closed. s.mu is held.
func (s *target) objects() []closer {
	var open []closer
	if s.connector != nil {
		open = append(open, s.connector)
	}
	if s.qp != nil {
		open = append(open, s.qp)
	}
	if s.listener != nil {
		open = append(open, s.listener)
	}
	open = append(open, s.notices.closers()...)
	open = append(open, s.memory.closers()...)
	if s.cq != nil {
		open = append(open, s.cq)
	}
	if s.pd != nil {
		open = append(open, s.pd)
	}
	return open
}
