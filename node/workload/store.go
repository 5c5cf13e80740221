package workload

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A store is the server of Storage. It does what requests ask for, several at once, each
// in memory of its own, which is all there is of a disk.
//
// It grants a new connection one credit, and with every answer one more than was used,
// until Depth of them are granted.
type store struct {
	acceptor
	pattern *pattern
	lines   []*keeping // the connection of each of the client's lines; nil: there is none
}

func serveStorage(m *provider.Miniport, c clock.Clock, spec Spec, at netip.AddrPort) (server, error) {
	s := &store{acceptor: acceptor{base: newBase(m, c, spec), privateLen: lineNumberLen}}
	s.lines = make([]*keeping, spec.lanes())
	s.most = 2 * spec.lanes() // of each line one and the one before it, which is being closed
	s.meet = s.greet
	// A transfer has a request that moves data, and one that answers; and there are
	// receives.
	return s, s.listen(at, s.needs, 3*spec.Depth, s.prepare)
}

func (s *store) needs(info provider.AdapterInfo) []need {
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

func (s *store) prepare() error {
	if s.spec.Verify {
		s.pattern = newPattern(&s.spec)
	}
	return nil
}

// greet makes the session of a line's new connection. It ends the one that the line had:
// the client has given that up.
func (s *store) greet(private []byte) (guest, error) {
	line := binary.BigEndian.Uint32(private)
	if int(line) >= len(s.lines) {
		return nil, fmt.Errorf("the client asks for line %d of %d", line, len(s.lines))
	}
	if before := s.lines[line]; before != nil {
		before.conn.drop()
	}
	k := &keeping{store: s}
	s.lines[line] = k
	return k, nil
}

// A keeping is the server's session on one connection.
type keeping struct {
	store     *store
	conn      *conn
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

// transferRoom is how much of the messages' memory a transfer has: for a request, and
// behind it for an answer.
const transferRoom = loanRequestLen + loanAnswerLen

func (k *keeping) room() room {
	depth := uint32(k.store.spec.Depth)
	return room{receives: depth, requests: 2 * depth}
}

func (k *keeping) consent() ([]byte, uint32, uint32) {
	_, outbound := k.store.adapter.reads()
	k.granted = 1
	return binary.BigEndian.AppendUint32(nil, k.granted), 0, outbound
}

// prepare implements session.
func (k *keeping) prepare(c *conn) (err error) {
	k.conn = c
	s := k.store
	depth := s.spec.Depth
	if k.data, err = register(s.pd, make([]byte, uint64(depth)*s.spec.Size), provider.MRAllowLocalWrite|provider.MRReadSink); err != nil {
		return err
	}
	if k.messages, err = register(s.pd, make([]byte, depth*transferRoom), provider.MRAllowLocalWrite); err != nil {
		return err
	}
	k.transfers, k.places, k.idle = make([]transfer, depth), make([]place, depth), free(depth)
	for i := range k.transfers {
		k.transfers[i].index, k.places[i].index = i, i
		if err := c.post(k.requestAt(i), &k.places[i]); err != nil {
			return err
		}
	}
	return nil
}

func (k *keeping) requestAt(i int) provider.SGE {
	return k.messages.sge(uint64(i*transferRoom), loanRequestLen)
}

func (k *keeping) answerAt(i int) provider.SGE {
	return k.messages.sge(uint64(i*transferRoom+loanRequestLen), loanAnswerLen)
}

// begin implements session.
func (k *keeping) begin() {}

// handle implements session.
func (k *keeping) handle(r *provider.ResultEx) {
	t, _ := r.RequestContext.(*transfer)
	switch {
	case r.Status == provider.StatusCancelled: // the connection is over, as its disconnect event tells
	case r.Status != provider.StatusSuccess && t != nil:
		k.fail(fmt.Sprintf("request %d, under token %#x: %v", t.request.number, t.request.token, r.Status))
	case r.Status != provider.StatusSuccess:
		k.fail(r.Status.Error())
	case r.Type == provider.OperationTypeReceive:
		k.hear(r.RequestContext.(*place).index, r.BytesTransferred)
	case r.Type == provider.OperationTypeRead:
		t.wrong = !k.right(t)
		k.answer(t)
	case r.Type == provider.OperationTypeSend:
		k.next(t)
	}
}

// fail ends the connection for a reason that the client does not know. With Reconnect it
// may have another one then.
func (k *keeping) fail(why string) {
	if !k.store.spec.Reconnect {
		k.store.note(why)
	}
	k.conn.fail(why)
}

// hear takes a request that has arrived in one of the places for requests.
func (k *keeping) hear(place int, length uint32) {
	at := k.requestAt(place)
	request := decodeLoanRequest(k.messages.bytes[at.VirtualAddress:][:loanRequestLen])
	switch {
	case length != loanRequestLen || uint64(request.size) > k.store.spec.Size:
		k.fail(fmt.Sprintf("a request of %d bytes that makes no sense", length))
	case k.granted == 0:
		k.fail(fmt.Sprintf("request %d came without a credit", request.number))
	default:
		k.granted--
		if err := k.conn.post(at, &k.places[place]); err != nil {
			k.fail(err.Error())
			return
		}
		if last := len(k.idle) - 1; last >= 0 {
			t := &k.transfers[k.idle[last]]
			k.idle = k.idle[:last]
			k.do(t, request)
		} else {
			k.waiting = append(k.waiting, request)
		}
	}
}

// do begins to do a request.
func (k *keeping) do(t *transfer, request loanRequest) {
	t.request, t.wrong = request, false
	size := uint64(request.size)
	data := []provider.SGE{k.data.sge(uint64(t.index)*k.store.spec.Size, size)}
	switch {
	case size == 0:
		k.answer(t)
	case request.kind&reads == 0:
		k.posted(t, k.conn.qp.Read(t, data, request.address, request.token, 0))
	default:
		if k.store.spec.Verify {
			copy(k.memoryOf(t), k.store.pattern.message(request.number))
		}
		// The answer comes behind what is written, so it need not wait.
		if k.posted(t, k.conn.qp.Write(t, data, request.address, request.token, provider.OpSilentSuccess)) {
			k.answer(t)
		}
	}
}

// memoryOf is what a transfer's request is about.
func (k *keeping) memoryOf(t *transfer) []byte {
	return k.data.bytes[uint64(t.index)*k.store.spec.Size:][:t.request.size]
}

// right compares what the client has written.
func (k *keeping) right(t *transfer) bool {
	s, r := k.store, &t.request
	if !s.spec.Verify {
		return true
	}
	got := k.memoryOf(t)
	if uint64(r.size) == s.spec.sizeOf(r.number) && bytes.Equal(got, s.pattern.message(r.number)[:r.size]) {
		return true
	}
	s.note(s.pattern.difference(r.number, got))
	return false
}

// answer says that a request is done. Unless the client does it itself, its token ends.
func (k *keeping) answer(t *transfer) {
	credits := min(2, uint32(k.store.spec.Depth)-k.granted)
	k.granted += credits
	message := k.answerAt(t.index)
	answer := loanAnswer{loan: t.request.loan, credits: credits, wrong: t.wrong}
	answer.encode(k.messages.bytes[message.VirtualAddress:])
	sgl := []provider.SGE{message}
	if t.request.size > 0 && t.request.kind&keeps == 0 {
		k.posted(t, k.conn.qp.SendAndInvalidate(t, sgl, 0, t.request.token))
	} else {
		k.posted(t, k.conn.qp.Send(t, sgl, 0))
	}
}

// posted is whether something was posted for a transfer; if not, the connection ends.
func (k *keeping) posted(t *transfer, status provider.Status) bool {
	if status == provider.StatusSuccess {
		return true
	}
	if k.conn.stage == up {
		k.fail(fmt.Sprintf("request %d: %v", t.request.number, status))
	}
	return false
}

// next has a transfer whose answer is acknowledged do the next request.
func (k *keeping) next(t *transfer) {
	if len(k.waiting) == 0 {
		k.idle = append(k.idle, t.index)
		return
	}
	request := k.waiting[0]
	k.waiting = k.waiting[1:]
	k.do(t, request)
}

// waits implements session.
func (k *keeping) waits() bool { return false }

// objects implements session.
func (k *keeping) objects() []closer { return append(k.data.closers(), k.messages.closers()...) }

// closed implements session.
func (k *keeping) closed() {
	for i, of := range k.store.lines {
		if of == k {
			k.store.lines[i] = nil
		}
	}
}
