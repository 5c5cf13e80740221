package workload

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A target is the passive end of a flow of sends, writes or reads, on an adapter instance
// of its own. It serves one connection of each lane or, with Reconnect, the newest. This
// file is its life and its connections, receive.go what arrives.
type target struct {
	spec     Spec
	clock    clock.Clock
	payloads *Payloads // nil: it shares none
	pattern  *pattern
	adapter  *instance
	pd       *provider.PD
	completions
	srq      *provider.SRQ // nil: each QP has its own receives
	listener *provider.Listener
	memory   *memory // what the client writes to, reads from or, in slots, sends into
	source   *memory // what answers are taken from; nil if there are none
	notices  *memory // written notices from the client, in slots; nil if there are none

	mu       sync.Mutex // guards what follows
	lanes    []arrival
	receives []receive // by slot
	dirty    []*served // connections whose clients are to be told what is compared
	stopped  bool
	closed   bool                 // everything is
	waiting  []func(ServerResult) // for that
	result   ServerResult
}

// An arrival is the server's end of a lane.
type arrival struct {
	index    int
	link     *served             // nil: none yet, or the last one is being closed
	coming   *provider.Connector // asks to take its place
	closing  bool
	received uint64 // the index of the message that is next
	seen     uint64 // messages below are verified
}

// served is a connection.
type served struct {
	lane      *arrival
	hello     hello
	connector *provider.Connector
	qp        *provider.QP
	dirty     bool // it is in target.dirty
}

// receive is a place for what the client sends: the context of a posted receive.
type receive struct {
	slot uint64
}

// serve makes the server of a flow listen, as Host.Serve has it.
func serve(m *provider.Miniport, c clock.Clock, payloads *Payloads, spec Spec, at netip.AddrPort) (*target, error) {
	s := &target{spec: spec, clock: c, payloads: payloads, pattern: payloads.pattern(&spec), lanes: make([]arrival, spec.lanes())}
	s.completions = completions{clock: c, polling: spec.Polling, take: s.taken}
	for i := range s.lanes {
		s.lanes[i].index = i
	}
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
	if s.cq, status = s.adapter.CreateCQ(s.spec.cqDepth(), s.notified, nil, nil, nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create CQ: %w", status)
	}
	if err := s.makeMemory(); err != nil {
		return err
	}
	if err := s.makeReceives(); err != nil {
		return err
	}
	if s.listener, status = s.adapter.CreateListener(s.connecting, nil, nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create listener: %w", status)
	}
	if status := s.listener.Listen(at, nil, nil); status != provider.StatusSuccess {
		return status
	}
	s.completions.begin()
	return nil
}

func (s *target) makeMemory() (err error) {
	switch s.spec.Operation {
	case topology.Read:
		s.memory, err = register(s.pd, s.pattern.bytes, provider.MRAllowRemoteRead)
	case topology.Write:
		s.memory, err = register(s.pd, s.payloads.sink(&s.spec, s.spec.room()), provider.MRAllowRemoteWrite)
	default:
		s.memory, err = register(s.pd, s.payloads.sink(&s.spec, s.spec.room()), provider.MRAllowLocalWrite)
	}
	if err == nil && s.spec.answered() {
		s.source, err = register(s.pd, s.pattern.bytes, provider.MRAllowLocalRead)
	}
	return err
}

// makeReceives makes the places for what is received: as many as all lanes post or,
// if they share them, as an SRQ has room for.
func (s *target) makeReceives() (err error) {
	n := uint32(s.spec.lanes() * s.spec.serverReceives())
	if n == 0 {
		return nil
	}
	if s.spec.SRQ {
		n = min(n, s.adapter.Info().MaxSrqDepth)
		var status provider.Status
		if s.srq, status = s.pd.CreateSRQ(n, 1, 0, nil, nil, nil, nil, nil); status != provider.StatusSuccess {
			return fmt.Errorf("create SRQ: %w", status)
		}
	}
	s.receives = make([]receive, n)
	if s.spec.announces() {
		if s.notices, err = register(s.pd, make([]byte, n*noticeLen), provider.MRAllowLocalWrite); err != nil {
			return err
		}
	}
	for i := range s.receives {
		s.receives[i].slot = uint64(i)
		if s.srq == nil {
			continue
		}
		if err := s.postReceive(nil, &s.receives[i]); err != nil {
			return err
		}
	}
	return nil
}

// connecting is the event of the listener.
func (s *target) connecting(_ any, connector *provider.Connector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.consider(connector)
}

// consider takes a request for a lane that has no connection and, with Reconnect, for one
// that has, whose client has given that up then. It refuses any other. s.mu is held.
func (s *target) consider(connector *provider.Connector) {
	private, err := privateData(connector, helloLen) // an error may be that the client has given up already
	h, ok := decodeHello(private)
	if err != nil || s.stopped || !ok || h.lane >= uint32(len(s.lanes)) {
		connector.Close(nil, nil)
		return
	}
	lane := &s.lanes[h.lane]
	busy := lane.link != nil || lane.closing
	switch {
	case busy && !s.spec.Reconnect:
		connector.Close(nil, nil)
	case busy:
		if lane.coming != nil {
			lane.coming.Close(nil, nil)
		}
		lane.coming = connector
		s.retire(lane)
	default:
		s.admit(&served{lane: lane, hello: h, connector: connector})
	}
}

// retire closes the connection of a lane, and then takes the request that waits. s.mu is
// held.
func (s *target) retire(lane *arrival) {
	if lane.closing {
		return
	}
	lane.closing = true
	s.drain()
	old := lane.link
	lane.link = nil
	closeEach(s.clock, old.objects(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.stopped {
			return
		}
		s.drain() // so that the CQ has room for what the next connection completes
		lane.closing = false
		connector := lane.coming
		lane.coming = nil
		s.consider(connector)
	})
}

// admit makes a request the lane's connection. s.mu is held.
func (s *target) admit(c *served) {
	c.lane.link = c
	c.lane.received = c.hello.next
	if err := s.accept(c); err != nil {
		s.trouble(fmt.Sprintf("accept: %v", err))
		c.connector.Reject(nil)
	}
}

// accept answers the request. s.mu is held.
func (s *target) accept(c *served) error {
	slots := uint32(s.spec.slots())
	var status provider.Status
	if s.srq != nil {
		c.qp, status = s.pd.CreateQPWithSRQ(s.cq, s.cq, s.srq, c, 2*slots, 1, s.spec.inline(), nil, nil)
	} else {
		c.qp, status = s.pd.CreateQP(s.cq, s.cq, c, slots, 2*slots, 1, 1, s.spec.inline(), nil, nil)
	}
	if status != provider.StatusSuccess {
		return fmt.Errorf("create QP: %w", status)
	}
	if s.srq == nil {
		for i := range s.spec.serverReceives() {
			if err := s.postReceive(c, &s.receives[c.lane.index*int(slots)+i]); err != nil {
				return err
			}
		}
	}
	accepted := func(_ any, status provider.Status) {
		if status != provider.StatusSuccess {
			s.mu.Lock()
			s.trouble(fmt.Sprintf("accept: %v", status))
			s.mu.Unlock()
		}
	}
	inbound, outbound := s.adapter.reads()
	private := grant{token: s.memory.mr.RemoteToken()}.encode()
	if status := c.connector.Accept(c.qp, inbound, outbound, private, nil, nil, accepted, nil); !status.Succeeded() {
		return status
	}
	return nil
}

// fail notes the first failure. s.mu is held.
func (s *target) fail(text string) {
	if s.result.Error == "" {
		s.result.Error = text
	}
}

// trouble notes a failure of a connection, unless the client is to make another one then.
// s.mu is held.
func (s *target) trouble(text string) {
	if !s.spec.Reconnect {
		s.fail(text)
	}
}

// Stop ends the server, whatever it is in the middle of, and calls done with
// what it found when everything is closed. It may be called again.
func (s *target) Stop(done func(ServerResult)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		result := s.result
		s.clock.Go(func() { done(result) })
		return
	}
	s.waiting = append(s.waiting, done)
	if s.stopped {
		return
	}
	s.stopped = true
	if s.cq != nil {
		s.drain()
	}
	objects := s.objects()
	s.clock.Go(func() { closeAll(objects, s.adapter, s.end) })
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
	for i := range s.lanes {
		lane := &s.lanes[i]
		if lane.link != nil {
			open = append(open, lane.link.objects()...)
		}
		if lane.coming != nil {
			open = append(open, lane.coming)
		}
	}
	if s.listener != nil {
		open = append(open, s.listener)
	}
	if s.srq != nil {
		open = append(open, s.srq)
	}
	for _, m := range []*memory{s.notices, s.source, s.memory} {
		open = append(open, m.closers()...)
	}
	if s.cq != nil {
		open = append(open, s.cq)
	}
	if s.pd != nil {
		open = append(open, s.pd)
	}
	return open
}

// objects are those that are to be closed.
func (c *served) objects() []closer {
	open := []closer{c.connector}
	if c.qp != nil {
		open = append(open, c.qp)
	}
	return open
}
