package workload

import (
	"bytes"
	"fmt"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/internal/node/workload/rping"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// An rpingClient is the client of Rping. A message is a round of rping (package rping): the
// server READs a text that it is lent, and WRITEs it back to where it is told. The client
// always compares the text that comes back.
type rpingClient struct {
	requests
	texts    *memory // of each channel, lent to be read
	answers  *memory // of each channel, lent to be written to
	messages *memory // of each channel, one to send and one to receive
}

func runRping(m *provider.Miniport, c clock.Clock, spec Spec, from netip.Addr, to netip.AddrPort, done func(Result)) (client, error) {
	w := &rpingClient{requests: requests{exchange: newExchange(m, c, &spec, from, to, done)}}
	if err := spec.textFits(); err != nil {
		return nil, err
	}
	needs := func(info provider.AdapterInfo) []need {
		return w.spec.rpingNeeds(info, info.MaxInboundReadLimit, "MaxInboundReadLimit")
	}
	if err := w.run(w, needs, rpingEntries, w.prepare); err != nil {
		return nil, err
	}
	return w, nil
}

// The room in a QP of either end, and the number of entries of the CQ that it may take.
const (
	rpingReceives = 1
	rpingRequests = 4
	rpingEntries  = rpingReceives + rpingRequests
)

// textFits checks whether rping can have texts of the workload's size.
func (s *Spec) textFits() error {
	if s.Size < rping.MinSize || s.Size > rping.MaxSize {
		return fmt.Errorf("size %d, rping has texts of %d to %d bytes", s.Size, rping.MinSize, rping.MaxSize)
	}
	return nil
}

// rpingNeeds returns the limits that an end of an Rping needs, of which that of READs is
// another one for each end.
func (s *Spec) rpingNeeds(info provider.AdapterInfo, reads uint32, limit string) []need {
	return []need{
		requestsFit(info, rpingRequests),
		{"MaxTransferLength", s.Size, uint64(info.MaxTransferLength)},
		{"MaxRegistrationSize", uint64(s.channels()) * s.Size, info.MaxRegistrationSize},
		{limit, 1, uint64(reads)},
	}
}

// prepare makes what all channels have in common.
func (w *rpingClient) prepare() (err error) {
	channels := uint64(w.spec.channels())
	if w.texts, err = w.register(make([]byte, channels*w.spec.Size), provider.MRAllowRemoteRead); err != nil {
		return err
	}
	if w.answers, err = w.register(make([]byte, channels*w.spec.Size), provider.MRAllowRemoteWrite); err != nil {
		return err
	}
	w.messages, err = w.register(make([]byte, channels*2*rping.MessageLen), provider.MRAllowLocalWrite)
	return err
}

// session implements work.
func (w *rpingClient) session(ch *channel) clientSession { return &pinger{client: w, channel: ch} }

// A pinger is the client's session on one connection.
type pinger struct {
	bareSession
	client  *rpingClient
	channel *channel
	conn    *connection

	busy   bool // a round is under way
	number uint64
	made   time.Duration
	step   pingStep
	sent   bool // this step's message is acknowledged, and its memory free
	heard  bool // and answered
}

// A pingStep names what a client has sent in a round.
type pingStep uint8

const (
	lentText   pingStep = iota // which the server reads
	lentAnswer                 // which it writes to
)

// of implements clientSession.
func (p *pinger) of() *channel { return p.channel }

// request implements clientSession.
func (p *pinger) request() (qpShape, terms) {
	return probed(rpingReceives, rpingRequests), terms{inbound: 1}
}

// prepare implements session.
func (p *pinger) prepare(c *connection) error {
	p.conn = c
	return p.expect()
}

// expect posts the receive of the server's next message.
func (p *pinger) expect() error {
	return p.conn.postReceive(p.client.messages.sge(p.at(rping.MessageLen)*2+rping.MessageLen, rping.MessageLen), nil)
}

// at returns where the channel's part begins of memory that has so many bytes for each.
func (p *pinger) at(size uint64) uint64 { return uint64(p.channel.index) * size }

func (p *pinger) text() []byte {
	return p.client.texts.bytes[p.at(p.client.spec.Size):][:p.client.spec.Size]
}

func (p *pinger) answer() []byte {
	return p.client.answers.bytes[p.at(p.client.spec.Size):][:p.client.spec.Size]
}

// begin implements session.
func (p *pinger) begin() { p.channel.noteConnected() }

// ready implements requester.
func (p *pinger) ready() bool { return !p.busy }

// ask implements requester.
func (p *pinger) ask(number uint64) provider.Status {
	p.busy, p.number, p.made = true, number, p.client.clock.Now()
	rping.Fill(p.text(), int(number))
	clear(p.answer())
	return p.lend(lentText, p.client.texts)
}

// lend lends the server the channel's part of memory.
func (p *pinger) lend(step pingStep, m *memory) provider.Status {
	size := p.client.spec.Size
	p.step, p.sent, p.heard = step, false, false
	message := p.client.messages.sge(p.at(rping.MessageLen)*2, rping.MessageLen)
	rping.Buffer{Address: p.at(size), Token: m.mr.RemoteToken(), Size: uint32(size)}.Encode(p.client.messages.bytes[message.VirtualAddress:])
	return p.conn.qp.Send(nil, []provider.SGE{message}, 0)
}

// unanswered implements requester.
func (p *pinger) unanswered() []uint64 {
	if p.busy {
		return []uint64{p.number}
	}
	return nil
}

// handle implements session.
func (p *pinger) handle(_ time.Duration, r provider.ResultEx) {
	switch {
	case r.Status != provider.StatusSuccess:
		p.conn.fail(fmt.Sprintf("round %d: %v", p.number, r.Status))
		return
	case r.Type == provider.OperationTypeReceive:
		p.heard = true
		if err := p.expect(); err != nil {
			p.conn.fail(err.Error())
			return
		}
	default:
		p.sent = true
	}
	switch {
	case !p.sent || !p.heard:
	case p.step == lentText:
		if status := p.lend(lentAnswer, p.client.answers); status != provider.StatusSuccess {
			p.conn.fail(fmt.Sprintf("round %d: %v", p.number, status))
		}
	case p.busy:
		p.busy = false
		p.client.answered(p.made, p.client.spec.Size, p.difference())
	}
}

// difference returns how the answer differs from the text; "" if it does not.
func (p *pinger) difference() string {
	text, answer := p.text(), p.answer()
	if bytes.Equal(text, answer) {
		return ""
	}
	for i := range text {
		if answer[i] != text[i] {
			return fmt.Sprintf("round %d: byte %d came back as %#02x, sent was %#02x", p.number, i, answer[i], text[i])
		}
	}
	return ""
}

// waits implements session.
func (p *pinger) waits() bool { return p.busy }
