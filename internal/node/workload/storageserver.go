package workload

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A storageServer is the server of Storage. It does what requests ask for, several at once, each
// in memory of its own, which is all there is of a disk.
//
// It grants a new connection one credit, and with every answer one more than was used,
// until Depth of them are granted.
type storageServer struct {
	acceptor
	pattern *pattern
	current []*borrower // the session of each of the client's channels; nil: there is none
}

func serveStorage(m *provider.Miniport, c clock.Clock, spec Spec, at netip.AddrPort) (server, error) {
	s := &storageServer{acceptor: acceptor{endpoint: newEndpoint(m, c, &spec)}}
	s.current = make([]*borrower, spec.channels())
	s.most = 2 * spec.channels() // of each channel one and the one before it, which is being closed
	s.newSession = s.newBorrower
	// A transfer has a request that moves data, and one that answers; and there are
	// receives.
	return s, s.listen(at, s.needs, cqEntries(s.most, 3*spec.Depth), s.prepare)
}

func (s *storageServer) needs(info provider.AdapterInfo) []need {
	depth := uint64(s.spec.Depth)
	return []need{
		requestsFit(info, 2*s.spec.Depth),
		{"MaxReceiveQueueDepth", depth, uint64(info.MaxReceiveQueueDepth)},
		{"MaxTransferLength", s.spec.Size, uint64(info.MaxTransferLength)},
		{"MaxRegistrationSize", depth * max(s.spec.Size, transferRoom), info.MaxRegistrationSize},
		{"MaxOutboundReadLimit", 1, uint64(info.MaxOutboundReadLimit)},
		{"MaxCalleeData", creditsLen, uint64(info.MaxCalleeData)},
	}
}

func (s *storageServer) prepare() error {
	if s.spec.Verify {
		s.pattern = newPattern(s.spec)
	}
	return nil
}

// newBorrower makes the session of a channel's next connection. It ends the connection that
// the channel had: the client has given that up.
func (s *storageServer) newBorrower(private []byte) (serverSession, error) {
	if err := longEnough(private, channelNumberLen); err != nil {
		return nil, err
	}
	channel := binary.BigEndian.Uint32(private)
	if int(channel) >= len(s.current) {
		return nil, fmt.Errorf("the client asks for line %d of %d", channel, len(s.current))
	}
	if before := s.current[channel]; before != nil && before.conn != nil {
		before.conn.drop()
	}
	b := &borrower{server: s}
	s.current[channel] = b
	return b, nil
}

// A borrower is the server's session on one connection.
type borrower struct {
	bareSession
	server    *storageServer
	conn      *connection
	data      *memory // of each transfer a piece of Size
	messages  *memory // of each transfer a request as it arrives, and an answer
	transfers []transfer
	places    []place
	idle      []int         // transfers that are not under way
	waiting   []loanRequest // that came when none was idle
	granted   uint32        // requests that the client may make
}

// A transfer does one request at a time.
type transfer struct {
	index   int
	request loanRequest
	wrong   bool // what was written is not what it should be
}

// transferRoom is the size of a transfer's part of the messages' memory: for a request, and
// behind it for an answer.
const transferRoom = loanRequestLen + loanAnswerLen

// shape implements serverSession.
func (b *borrower) shape() qpShape {
	depth := b.server.spec.Depth
	return probed(depth, 2*depth)
}

// acceptance implements serverSession.
func (b *borrower) acceptance() terms {
	_, outbound := b.server.adapter.reads()
	b.granted = 1
	return terms{outbound: outbound, private: binary.BigEndian.AppendUint32(nil, b.granted)}
}

// prepare implements session.
func (b *borrower) prepare(c *connection) (err error) {
	b.conn = c
	s := b.server
	depth := s.spec.Depth
	if b.data, err = register(s.pd, make([]byte, uint64(depth)*s.spec.Size), provider.MRAllowLocalWrite|provider.MRReadSink); err != nil {
		return err
	}
	if b.messages, err = register(s.pd, make([]byte, depth*transferRoom), provider.MRAllowLocalWrite); err != nil {
		return err
	}
	b.transfers, b.places, b.idle = make([]transfer, depth), make([]place, depth), free(depth)
	for i := range b.transfers {
		b.transfers[i].index, b.places[i].index = i, i
		if err := c.postReceive(b.requestAt(i), &b.places[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *borrower) requestAt(i int) provider.SGE {
	return b.messages.sge(uint64(i*transferRoom), loanRequestLen)
}

func (b *borrower) answerAt(i int) provider.SGE {
	return b.messages.sge(uint64(i*transferRoom+loanRequestLen), loanAnswerLen)
}

// handle implements session.
func (b *borrower) handle(_ time.Duration, r provider.ResultEx) {
	t, _ := r.RequestContext.(*transfer)
	switch {
	case r.Status != provider.StatusSuccess && t != nil:
		b.fail(fmt.Sprintf("request %d, under token %#x: %v", t.request.number, t.request.token, r.Status))
	case r.Status != provider.StatusSuccess:
		b.fail(r.Status.Error())
	case r.Type == provider.OperationTypeReceive:
		b.hear(r.RequestContext.(*place).index, r.BytesTransferred)
	case r.Type == provider.OperationTypeRead:
		t.wrong = !b.right(t)
		b.answer(t)
	case r.Type == provider.OperationTypeSend:
		b.next(t)
	}
}

// fail ends the connection for a reason that the client does not know. With Reconnect it
// may have another one then.
func (b *borrower) fail(why string) {
	b.server.trouble(why)
	b.conn.fail(why)
}

// hear takes a request that has arrived in one of the places for requests.
func (b *borrower) hear(place int, length uint32) {
	at := b.requestAt(place)
	request := decodeLoanRequest(b.messages.bytes[at.VirtualAddress:][:loanRequestLen])
	switch {
	case length != loanRequestLen || uint64(request.size) > b.server.spec.Size:
		b.fail(fmt.Sprintf("a request of %d bytes that makes no sense", length))
	case b.granted == 0:
		b.fail(fmt.Sprintf("request %d came without a credit", request.number))
	default:
		b.granted--
		if err := b.conn.postReceive(at, &b.places[place]); err != nil {
			b.fail(err.Error())
			return
		}
		if last := len(b.idle) - 1; last >= 0 {
			t := &b.transfers[b.idle[last]]
			b.idle = b.idle[:last]
			b.do(t, request)
		} else {
			b.waiting = append(b.waiting, request)
		}
	}
}

// do begins to do a request.
func (b *borrower) do(t *transfer, request loanRequest) {
	t.request, t.wrong = request, false
	size := uint64(request.size)
	data := []provider.SGE{b.data.sge(uint64(t.index)*b.server.spec.Size, size)}
	switch {
	case size == 0:
		b.answer(t)
	case request.kind&reads == 0:
		b.posted(t, b.conn.qp.Read(t, data, request.address, request.token, 0))
	default:
		if b.server.spec.Verify {
			copy(b.memoryOf(t), b.server.pattern.message(request.number))
		}
		// The answer comes behind what is written, so it need not wait.
		if b.posted(t, b.conn.qp.Write(t, data, request.address, request.token, provider.OpSilentSuccess)) {
			b.answer(t)
		}
	}
}

// memoryOf returns what a transfer's request is about.
func (b *borrower) memoryOf(t *transfer) []byte {
	return b.data.bytes[uint64(t.index)*b.server.spec.Size:][:t.request.size]
}

// right compares what the client has written.
func (b *borrower) right(t *transfer) bool {
	s, r := b.server, &t.request
	if !s.spec.Verify {
		return true
	}
	got := b.memoryOf(t)
	if uint64(r.size) == s.spec.sizeOf(r.number) && bytes.Equal(got, s.pattern.message(r.number)[:r.size]) {
		return true
	}
	s.note(s.pattern.difference(r.number, got))
	return false
}

// answer says that a request is done. Unless the client does it itself, its token ends.
func (b *borrower) answer(t *transfer) {
	credits := min(2, uint32(b.server.spec.Depth)-b.granted)
	b.granted += credits
	message := b.answerAt(t.index)
	answer := loanAnswer{loan: t.request.loan, credits: credits, wrong: t.wrong}
	answer.encode(b.messages.bytes[message.VirtualAddress:])
	sgl := []provider.SGE{message}
	if t.request.size > 0 && t.request.kind&keeps == 0 {
		b.posted(t, b.conn.qp.SendAndInvalidate(t, sgl, 0, t.request.token))
	} else {
		b.posted(t, b.conn.qp.Send(t, sgl, 0))
	}
}

// posted reports whether something was posted for a transfer; if not, the connection ends.
func (b *borrower) posted(t *transfer, status provider.Status) bool {
	if status == provider.StatusSuccess {
		return true
	}
	if b.conn.stage == up {
		b.fail(fmt.Sprintf("request %d: %v", t.request.number, status))
	}
	return false
}

// next has a transfer whose answer is acknowledged do the next request.
func (b *borrower) next(t *transfer) {
	if len(b.waiting) == 0 {
		b.idle = append(b.idle, t.index)
		return
	}
	request := b.waiting[0]
	b.waiting = slices.Delete(b.waiting, 0, 1) // it keeps its memory
	b.do(t, request)
}

// objects implements session.
func (b *borrower) objects() []closer { return append(b.data.closers(), b.messages.closers()...) }

// closed implements session.
func (b *borrower) closed() {
	for i, of := range b.server.current {
		if of == b {
			b.server.current[i] = nil
		}
	}
}
