package workload

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A stormServer is the server of Connect. It accepts every connection, and sends back what
// each of them carries.
type stormServer struct {
	acceptor
	memory *memory // where messages arrive: a slot for each connection
	slots  []int   // of memory, that are free
}

func serveStorm(m *provider.Miniport, c clock.Clock, spec Spec, at netip.AddrPort) (server, error) {
	s := &stormServer{acceptor: acceptor{endpoint: newEndpoint(m, c, &spec)}}
	// The client may have the place of a connection for another one before the server has
	// closed it.
	s.most = spec.channels() + spec.Depth
	s.newSession = func([]byte) (serverSession, error) { return &visit{server: s, slot: -1}, nil }
	return s, s.listen(at, s.stormNeeds(numberLen*s.most), cqEntries(s.most, stormEntries), s.registerMemory)
}

// registerMemory makes and registers the memory that messages arrive in.
func (s *stormServer) registerMemory() (err error) {
	s.slots = free(s.most)
	s.memory, err = s.register(make([]byte, s.most*numberLen), provider.MRAllowLocalWrite)
	return err
}

// A visit is the server's session on one connection.
type visit struct {
	bareSession
	server *stormServer
	conn   *connection
	slot   int // of the server's memory; -1: none as yet
}

// shape implements serverSession.
func (v *visit) shape() qpShape { return probed(1, 1) }

// acceptance implements serverSession.
func (v *visit) acceptance() terms { return terms{} }

// prepare implements session.
func (v *visit) prepare(c *connection) error {
	v.conn = c
	last := len(v.server.slots) - 1
	v.slot, v.server.slots = v.server.slots[last], v.server.slots[:last]
	return c.postReceive(v.message(), nil)
}

func (v *visit) message() provider.SGE {
	return v.server.memory.sge(uint64(v.slot)*numberLen, numberLen)
}

// handle implements session: the message goes back as it came. A failure concerns the client,
// too.
func (v *visit) handle(_ time.Duration, r provider.ResultEx) {
	if r.Status != provider.StatusSuccess || r.Type != provider.OperationTypeReceive {
		return
	}
	if status := v.conn.qp.Send(nil, []provider.SGE{v.message()}, provider.OpSilentSuccess); status != provider.StatusSuccess {
		v.conn.fail(fmt.Sprintf("send: %v", status))
	}
}

// closed implements session.
func (v *visit) closed() {
	if v.slot >= 0 {
		v.server.slots = append(v.server.slots, v.slot)
	}
}
