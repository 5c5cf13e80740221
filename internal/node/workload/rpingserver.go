package workload

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/internal/node/workload/rping"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// An rpingServer is the server of Rping.
type rpingServer struct{ acceptor }

func serveRping(m *provider.Miniport, c clock.Clock, spec Spec, at netip.AddrPort) (server, error) {
	// Of each connection there may be the one before it, which the client has given up.
	s := &rpingServer{acceptor{endpoint: newEndpoint(m, c, &spec), most: 2 * spec.channels()}}
	s.newSession = func([]byte) (serverSession, error) { return &ponger{server: s}, nil }
	if err := spec.textFits(); err != nil {
		return nil, err
	}
	needs := func(info provider.AdapterInfo) []need {
		return spec.rpingNeeds(info, info.MaxOutboundReadLimit, "MaxOutboundReadLimit")
	}
	return s, s.listen(at, needs, cqEntries(s.most, rpingEntries), nil)
}

// A ponger is the server's session on one connection.
type ponger struct {
	bareSession
	server   *rpingServer
	conn     *connection
	text     *memory
	messages *memory      // one to send, which says nothing, and one to receive
	reads    bool         // the text is there, and the next buffer is for the answer
	lent     rping.Buffer // the next one, while the text is not ours; of size 0: none
	busy     bool         // the text is on its way, in either direction
}

// shape implements serverSession.
func (p *ponger) shape() qpShape { return probed(rpingReceives, rpingRequests) }

// acceptance implements serverSession.
func (p *ponger) acceptance() terms { return terms{outbound: 1} }

// prepare implements session.
func (p *ponger) prepare(c *connection) (err error) {
	p.conn = c
	s := p.server
	if p.text, err = register(s.pd, make([]byte, s.spec.Size), provider.MRAllowLocalWrite|provider.MRReadSink); err != nil {
		return err
	}
	if p.messages, err = register(s.pd, make([]byte, 2*rping.MessageLen), provider.MRAllowLocalWrite); err != nil {
		return err
	}
	return p.expect()
}

func (p *ponger) expect() error {
	return p.conn.postReceive(p.messages.sge(rping.MessageLen, rping.MessageLen), nil)
}

// handle implements session.
func (p *ponger) handle(_ time.Duration, r provider.ResultEx) {
	switch {
	case r.Status != provider.StatusSuccess:
		p.fail(r.Status.Error())
	case r.Type == provider.OperationTypeReceive:
		lent := rping.DecodeBuffer(p.messages.bytes[rping.MessageLen:])
		if r.BytesTransferred != rping.MessageLen || uint64(lent.Size) != p.server.spec.Size {
			p.fail(fmt.Sprintf("the client lent %d bytes, expected %d", lent.Size, p.server.spec.Size))
			return
		}
		if err := p.expect(); err != nil {
			p.fail(err.Error())
			return
		}
		p.lent = lent
		p.move()
	case r.Type == provider.OperationTypeRead:
		p.busy, p.reads = false, true
		p.tell()
	case r.Type == provider.OperationTypeWrite:
		p.busy = false
		p.move() // the client may have begun another round
	}
}

// move reads the text from what the client has lent, or writes it there.
func (p *ponger) move() {
	if p.lent.Size == 0 || p.busy {
		return
	}
	from := p.lent
	p.lent, p.busy = rping.Buffer{}, true
	text := []provider.SGE{p.text.sge(0, uint64(from.Size))}
	if !p.reads {
		p.posted(p.conn.qp.Read(nil, text, from.Address, from.Token, 0))
		return
	}
	p.reads = false
	p.posted(p.conn.qp.Write(nil, text, from.Address, from.Token, 0))
	p.tell()
}

// tell tells the client that the server has done its part.
func (p *ponger) tell() {
	if p.conn.stage == up {
		p.posted(p.conn.qp.Send(nil, []provider.SGE{p.messages.sge(0, rping.MessageLen)}, provider.OpSilentSuccess))
	}
}

func (p *ponger) posted(status provider.Status) {
	if status != provider.StatusSuccess {
		p.fail(status.Error())
	}
}

// fail ends the connection for a reason that the client may not know.
func (p *ponger) fail(why string) {
	p.server.note(why)
	p.conn.fail(why)
}

// objects implements session.
func (p *ponger) objects() []closer { return append(p.text.closers(), p.messages.closers()...) }
