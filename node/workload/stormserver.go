package workload

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A harbour is the server of Connect. It accepts every connection and, with Verify,
// compares the message that it carries and sends it back.
type harbour struct {
	acceptor
	pattern *pattern
	memory  *memory // where messages arrive, with Verify: a slot for each connection
	slots   []int   // of memory, that are free
}

func serveStorm(m *provider.Miniport, c clock.Clock, spec Spec, at netip.AddrPort) (server, error) {
	s := &harbour{acceptor: acceptor{base: base{spec: spec, clock: c, device: m}, privateLen: numberLen}}
	// A client that has lost connections may have new ones before the server has found
	// out about the old.
	s.most = 2*spec.connections() + spec.Depth
	s.meet = func(private []byte) (guest, error) {
		return &visit{harbour: s, number: binary.BigEndian.Uint64(private), slot: -1}, nil
	}
	needs := func(info provider.AdapterInfo) []need { return spec.stormNeeds(info, m, s.most) }
	return s, s.listen(at, needs, 2, s.prepare)
}

// prepare makes what messages arrive in.
func (s *harbour) prepare() (err error) {
	if !s.spec.Verify {
		return nil
	}
	s.pattern, s.slots = newPattern(&s.spec), free(s.most)
	s.memory, err = s.register(make([]byte, uint64(s.most)*s.spec.Size), provider.MRAllowLocalWrite)
	return err
}

// A visit is the server's session on one connection.
type visit struct {
	harbour *harbour
	conn    *conn
	number  uint64
	slot    int // of the harbour's memory; -1: none
}

func (v *visit) room() room { return room{receives: 1, requests: 1, sges: 1} }

func (v *visit) consent() ([]byte, uint32, uint32) { return nil, 0, 0 }

// prepare implements session.
func (v *visit) prepare(c *conn) error {
	v.conn = c
	s := v.harbour
	if !s.spec.Verify {
		return nil
	}
	last := len(s.slots) - 1
	v.slot, s.slots = s.slots[last], s.slots[:last]
	if status := c.qp.Receive(nil, []provider.SGE{s.memory.sge(uint64(v.slot)*s.spec.Size, s.spec.Size)}); status != provider.StatusSuccess {
		return fmt.Errorf("post receive: %w", status)
	}
	return nil
}

// begin implements session.
func (v *visit) begin() {}

// handle implements session: the message goes back as it came.
func (v *visit) handle(r *provider.ResultEx) {
	if r.Status != provider.StatusSuccess || r.Type != provider.OperationTypeReceive {
		return // the client finds out, too
	}
	s := v.harbour
	length := uint64(r.BytesTransferred)
	at := uint64(v.slot) * s.spec.Size
	if got := s.memory.bytes[at:][:length]; bytes.Equal(got, s.pattern.message(v.number)) {
		s.result.Verified++
	} else {
		s.result.Mismatches++
		s.note(fmt.Sprintf("connection %d: %s", v.number, s.pattern.mismatch(v.number, got)))
	}
	if status := v.conn.qp.Send(nil, []provider.SGE{s.memory.sge(at, length)}, provider.OpSilentSuccess); status != provider.StatusSuccess {
		s.note(fmt.Sprintf("connection %d: answer: %v", v.number, status))
	}
}

// objects implements session.
func (v *visit) objects() []closer { return nil }

// closed implements session.
func (v *visit) closed() {
	if v.slot >= 0 {
		v.harbour.slots = append(v.harbour.slots, v.slot)
	}
}
