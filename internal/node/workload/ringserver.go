package workload

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// An inbox is the server of an AllReduce: where the messages arrive that the rank before
// sends, for the rank on the same host. That takes them in their order when it can.
type inbox struct {
	acceptor
	sum sum

	// Guarded by endpoint.mu.
	rank    *rank   // nil: it has not begun, or has ended
	from    *inflow // the connection from the rank before; nil: there has been none
	refuses bool    // the rank has failed, which the one before is to know
}

// serveRing starts an inbox. Its rank may be nil, and come later.
func serveRing(m *provider.Miniport, c clock.Clock, spec Spec, w *rank, at netip.AddrPort) (server, error) {
	s := &inbox{acceptor: acceptor{endpoint: newEndpoint(m, c, &spec), most: 2}, sum: newSum(&spec)}
	if w != nil {
		s.mu = w.mu
	}
	s.owner = s
	s.newSession = func([]byte) (serverSession, error) {
		if s.refuses {
			return nil, errors.New("the rank has failed")
		}
		s.from = &inflow{inbox: s}
		return s.from, nil
	}
	if err := s.listen(at, s.needs, cqEntries(s.most, spec.Ranks), nil); err != nil {
		return nil, err
	}
	if w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.broken && !w.over && w.inbox == nil {
			s.attach(w)
		}
	}
	return s, nil
}

func (s *inbox) needs(info provider.AdapterInfo) []need {
	return []need{
		{"MaxReceiveQueueDepth", uint64(s.spec.Ranks), uint64(info.MaxReceiveQueueDepth)},
		{"MaxRegistrationSize", uint64(s.spec.Ranks * s.sum.messageLen()), info.MaxRegistrationSize},
	}
}

// refuse ends the connection from the rank before, or refuses it.
func (s *inbox) refuse() {
	s.refuses = true
	s.dropAll()
}

// lost implements owner.
func (s *inbox) lost(c *connection, why string) {
	if f := c.session.(*inflow); s.rank != nil && f == s.from && !f.complete() {
		s.rank.fail("the rank before: " + why)
	}
}

// Stop implements server. The rank before may be done while the rank here has yet to take
// what it has sent: that stays.
func (s *inbox) Stop(done func(ServerResult)) {
	s.mu.Lock()
	if w := s.rank; w != nil && (s.from == nil || !s.from.complete()) {
		w.fail("its server was ended")
		w.inbox, s.rank = nil, nil
	}
	s.mu.Unlock()
	s.acceptor.Stop(done)
}

// attach has the rank on this host take what arrives, and what has arrived already.
func (s *inbox) attach(w *rank) {
	s.rank, w.inbox, s.refuses = w, s, false
	if s.from != nil && s.from.conn.stage == closing {
		s.from = nil // it is of an earlier run
	}
}

// next returns the next message for the rank, until that releases it; false if there is none.
func (s *inbox) next() (message []byte, ok bool) {
	f := s.from
	if f == nil || f.taken == f.arrived {
		return nil, false
	}
	return f.message(f.taken), true
}

// release has the place of that message receive another one.
func (s *inbox) release() {
	f := s.from
	place := int(f.taken % uint64(len(f.lengths)))
	f.taken++
	if f.conn.stage != up {
		return
	}
	if err := f.conn.postReceive(f.place(place), nil); err != nil {
		f.conn.fail(err.Error())
	}
}

// An inflow is the inbox's session on the connection from the rank before.
type inflow struct {
	bareSession
	inbox   *inbox
	conn    *connection
	memory  *memory  // a place for each message, in turn
	lengths []uint32 // of the messages there
	arrived uint64   // messages
	taken   uint64   // of those, by the rank
}

// shape implements serverSession.
func (f *inflow) shape() qpShape { return probed(f.inbox.spec.Ranks, 1) }

// acceptance implements serverSession.
func (f *inflow) acceptance() terms { return terms{} }

// prepare implements session.
func (f *inflow) prepare(c *connection) (err error) {
	f.conn = c
	s := f.inbox
	f.lengths = make([]uint32, s.spec.Ranks)
	if f.memory, err = register(s.pd, make([]byte, s.spec.Ranks*s.sum.messageLen()), provider.MRAllowLocalWrite); err != nil {
		return err
	}
	for i := range f.lengths {
		if err := c.postReceive(f.place(i), nil); err != nil {
			return err
		}
	}
	return nil
}

// place returns the memory in which a message arrives.
func (f *inflow) place(i int) provider.SGE {
	length := uint64(f.inbox.sum.messageLen())
	return f.memory.sge(uint64(i)*length, length)
}

// handle implements session.
func (f *inflow) handle(_ time.Duration, r provider.ResultEx) {
	switch {
	case r.Status != provider.StatusSuccess:
		f.conn.fail(r.Status.Error())
	default:
		f.lengths[f.arrived%uint64(len(f.lengths))] = r.BytesTransferred
		f.arrived++
		if f.inbox.rank != nil {
			f.inbox.rank.proceed()
		}
	}
}

// message returns a message that has arrived, by its number.
func (f *inflow) message(number uint64) []byte {
	i := int(number % uint64(len(f.lengths)))
	return f.memory.bytes[f.place(i).VirtualAddress:][:f.lengths[i]]
}

// complete reports whether the last message of the last round has arrived.
func (f *inflow) complete() bool {
	if f.arrived == 0 {
		return false
	}
	message := f.message(f.arrived - 1)
	return len(message) >= ringHeader && f.arrived%uint64(f.inbox.sum.steps()) == 0 &&
		marks(binary.BigEndian.Uint32(message[8:]))&last != 0
}

// objects implements session.
func (f *inflow) objects() []closer { return f.memory.closers() }
