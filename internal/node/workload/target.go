package workload

import (
	"fmt"
	"net/netip"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A target is the server of a flow of sends, writes or reads. It has one connection for each
// of the client's channels or, with Spec.Reconnect, the newest. This file is its life and its
// connections, receive.go what arrives.
type target struct {
	acceptor
	pattern *pattern
	srq     *provider.SRQ // nil: each QP has its own receives
	memory  *memory       // what the client writes to, reads from or, in slots, sends into
	source  *memory       // what answers are taken from; nil if there are none
	notices *memory       // written notices from the client, in slots; nil if there are none

	// Guarded by endpoint.mu.
	arrivals []arrival
	receives []receive  // by slot
	behind   []*arrival // whose clients are to be told what is compared
}

// An arrival takes the messages of one of the client's channels. It is the session of each of
// the channel's connections, one after the other.
type arrival struct {
	bareSession
	target *target
	index  int
	taken  bool        // it has a connection, or will have
	conn   *connection // nil: there is none
	hello  hello
	next   uint64 // the index of the message that is next
	seen   uint64 // messages below are verified
	behind bool   // it is in target.behind
}

// A receive is a place for what the client sends, and the context of a posted receive.
type receive struct {
	slot uint64
}

// serveMessages makes the server of a flow listen, as Host.Serve does.
func serveMessages(m *provider.Miniport, c clock.Clock, payloads *Payloads, spec Spec, at netip.AddrPort) (*target, error) {
	s := &target{pattern: payloads.pattern(&spec), arrivals: make([]arrival, spec.channels())}
	for i := range s.arrivals {
		s.arrivals[i] = arrival{target: s, index: i}
	}
	// A channel has its next connection when the last one is closed.
	s.acceptor = acceptor{endpoint: newEndpoint(m, c, payloads.spec(&spec)), most: spec.channels() + 1, newSession: s.newArrival}
	s.owner = s
	return s, s.listen(at, spec.messageNeeds, uint64(spec.cqDepth()), func() error { return s.prepare(payloads) })
}

func (s *target) prepare(payloads *Payloads) error {
	if err := s.makeMemory(payloads); err != nil {
		return err
	}
	return s.makeReceives()
}

func (s *target) makeMemory(payloads *Payloads) (err error) {
	switch s.spec.Operation {
	case topology.Read:
		s.memory, err = s.register(s.pattern.bytes, provider.MRAllowRemoteRead)
	case topology.Write:
		s.memory, err = s.register(payloads.sink(s.spec, s.spec.room()), provider.MRAllowRemoteWrite)
	default:
		s.memory, err = s.register(payloads.sink(s.spec, s.spec.room()), provider.MRAllowLocalWrite)
	}
	if err == nil && s.spec.answered() {
		s.source, err = s.register(s.pattern.bytes, provider.MRAllowLocalRead)
	}
	return err
}

// makeReceives makes the places for what is received: as many as all channels post or,
// if they share them, as an SRQ has room for.
func (s *target) makeReceives() (err error) {
	n := uint32(s.spec.channels() * s.spec.serverReceives())
	if n == 0 {
		return nil
	}
	if s.spec.SRQ {
		n = min(n, s.adapter.Info().MaxSrqDepth)
		var status provider.Status
		if s.srq, status = s.pd.CreateSRQ(n, 1, 0, nil, nil, nil, nil, nil); status != provider.StatusSuccess {
			return fmt.Errorf("create SRQ: %w", status)
		}
		s.shared = append(s.shared, s.srq)
	}
	s.receives = make([]receive, n)
	if s.spec.announces() {
		if s.notices, err = s.register(make([]byte, n*noticeLen), provider.MRAllowLocalWrite); err != nil {
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

// newArrival returns the session of a connection that a client asks for. It accepts one for
// a channel that has none and, with Reconnect, for one that has, whose client has given that
// up then: it closes the connection that there is first. It refuses any other.
func (s *target) newArrival(private []byte) (serverSession, error) {
	h, ok := decodeHello(private)
	if !ok || h.channel >= uint32(len(s.arrivals)) {
		return nil, errStranger
	}
	a := &s.arrivals[h.channel]
	switch {
	case !a.taken:
		a.taken, a.hello, a.next = true, h, h.next
		return a, nil
	case !s.spec.Reconnect:
		return nil, errStranger
	}
	if a.conn != nil && a.conn.stage != closing {
		s.drain()
		a.conn.drop()
	}
	return nil, errLater
}

// lost implements owner.
func (s *target) lost(c *connection, why string) {
	if !c.established {
		s.trouble(why)
	}
}

// advance implements owner.
func (s *target) advance() {
	s.acknowledgeAll()
	s.acceptor.advance()
}

// shape implements serverSession.
func (a *arrival) shape() qpShape {
	slots := uint32(a.target.spec.slots())
	return qpShape{receives: slots, requests: 2 * slots, inline: a.target.spec.inline(), srq: a.target.srq}
}

// acceptance implements serverSession.
func (a *arrival) acceptance() terms {
	s := a.target
	inbound, outbound := s.adapter.reads()
	return terms{inbound, outbound, grant{token: s.memory.mr.RemoteToken()}.encode()}
}

// prepare implements session.
func (a *arrival) prepare(c *connection) error {
	s := a.target
	a.conn = c
	if s.srq != nil {
		return nil
	}
	for i := range s.spec.serverReceives() {
		if err := s.postReceive(c, &s.receives[a.index*s.spec.slots()+i]); err != nil {
			return err
		}
	}
	return nil
}

// closed implements session. A connection that ends before it is established is a failure.
func (a *arrival) closed() {
	if a.conn != nil && !a.conn.established {
		a.target.trouble(fmt.Sprintf("accept: %v", provider.StatusCancelled))
	}
	a.taken, a.conn = false, nil
}
