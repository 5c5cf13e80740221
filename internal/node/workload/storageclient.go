package workload

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A storageClient is the client of Storage. A request is under way from when its memory is
// registered until it is answered and the memory is the client's alone again, which is its
// latency.
type storageClient struct {
	requests
	pattern *pattern
	window  uint64 // the longest that a window may be, bytes; 0: there are none
	fast    uint64 // the longest that a fast registration may be, bytes

	lent     *memory      // what the server reads and writes: a place of pages for each loan
	pages    provider.LAM // of it
	messages *memory      // requests and answers: of each channel, one of both for each loan
}

// loanSize returns how much memory a loan has, in bytes: whole pages.
func (w *storageClient) loanSize() uint64 {
	return (w.spec.Size + provider.PageSize - 1) &^ (provider.PageSize - 1)
}

func runStorage(m *provider.Miniport, c clock.Clock, spec Spec, from netip.Addr, to netip.AddrPort, done func(Result)) (client, error) {
	w := &storageClient{requests: requests{exchange: newExchange(m, c, &spec, from, to, done)}}
	// A loan is registered, sent and invalidated, and answered.
	if err := w.run(w, w.needs, 4*spec.Depth, w.prepare); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *storageClient) needs(info provider.AdapterInfo) []need {
	s, all := w.spec, w.device.Attributes().Capabilities
	loans := uint64(s.channels() * s.Depth)
	w.fast = uint64(info.FRMRPageCount) * provider.PageSize
	if all.MaxMwCount > 0 {
		w.window = info.MaxWindowSize
	}
	needs := []need{
		requestsFit(info, 3*s.Depth),
		{"MaxReceiveQueueDepth", uint64(s.Depth), uint64(info.MaxReceiveQueueDepth)},
		{"MaxRegistrationSize", max(loans*w.loanSize(), loans*loanRoom), info.MaxRegistrationSize},
		{"MaxInboundReadLimit", 1, uint64(info.MaxInboundReadLimit)},
		{"MaxCallerData", channelNumberLen, uint64(info.MaxCallerData)},
		{"MaxMrCount", loans + 2, uint64(all.MaxMrCount)},
	}
	if w.window > 0 {
		needs = append(needs, need{"MaxMwCount", loans, uint64(all.MaxMwCount)})
	}
	if s.Size > w.window {
		needs = append(needs, need{"FRMRPageCount", w.loanSize() / provider.PageSize, uint64(info.FRMRPageCount)})
	}
	return needs
}

// loanRoom is the size of a loan's part of the messages' memory, and answerAt is the offset
// in that part at which its answer arrives; its request comes first.
const (
	answerAt = loanRequestLen
	loanRoom = loanRequestLen + loanAnswerLen
)

// prepare makes what all channels have in common.
func (w *storageClient) prepare() (err error) {
	loans := uint64(w.spec.channels() * w.spec.Depth)
	if w.spec.Verify {
		w.pattern = newPattern(w.spec)
	}
	if w.messages, err = w.register(make([]byte, loans*loanRoom), provider.MRAllowLocalWrite); err != nil {
		return err
	}
	if w.lent, err = w.register(make([]byte, loans*w.loanSize()), provider.MRAllowLocalWrite); err != nil {
		return err
	}
	length := uint64(len(w.lent.bytes))
	lamSize := uint32(16 + 8*(length/provider.PageSize+1)) // of a LAM: a header, and 8 bytes for each page
	var fbo uint32
	if status := w.adapter.BuildLAM(&provider.MDL{Bytes: w.lent.bytes}, length, nil, nil, &w.pages, &lamSize, &fbo); status != provider.StatusSuccess {
		return fmt.Errorf("map %d bytes: %w", length, status)
	}
	w.shared = append(w.shared, mapped{w.adapter.Adapter, &w.pages})
	return nil
}

// mapped is memory that is mapped, which its end has to give back.
type mapped struct {
	adapter *provider.Adapter
	lam     *provider.LAM
}

// Close implements closer.
func (m mapped) Close(provider.CloseCompletion, any) provider.Status {
	m.adapter.ReleaseLAM(m.lam)
	return provider.StatusSuccess
}

// kindOf returns the kind of a request. Memory that is too long for a window is lent by a
// fast registration, and the other way round.
func (w *storageClient) kindOf(number, size uint64) kind {
	k := kind(number) & (reads | windows | keeps)
	switch {
	case size > w.window:
		k &^= windows
	case size > w.fast:
		k |= windows
	}
	return k
}

// session implements work.
func (w *storageClient) session(ch *channel) clientSession { return &lender{client: w, channel: ch} }

// A lender is the client's session on one connection.
type lender struct {
	bareSession
	client  *storageClient
	channel *channel
	conn    *connection
	loans   []loan
	places  []place
	idle    []int // loans that are not under way
	credits uint32
}

// A place tells where a message arrives, as the context of its receive.
type place struct{ index int }

// A loan is memory that the server may borrow for one request at a time.
type loan struct {
	mr *provider.MR
	mw *provider.MW // nil: the adapter has none
	at uint64       // where its memory begins in the client's

	// Of the request that is under way, if one is:
	busy     bool
	request  loanRequest
	made     time.Duration
	sent     bool // the request is
	answered bool
	returned bool // the server can access the memory no more
	wrong    bool // the server got something else than it should
}

// of implements clientSession.
func (b *lender) of() *channel { return b.channel }

// request implements clientSession.
func (b *lender) request() (qpShape, terms) {
	depth := b.client.spec.Depth
	inbound, _ := b.client.adapter.reads()
	return probed(depth, 3*depth), terms{inbound: inbound, private: binary.BigEndian.AppendUint32(nil, uint32(b.channel.index))}
}

// prepare implements session.
func (b *lender) prepare(c *connection) error {
	b.conn = c
	w := b.client
	b.loans, b.places = make([]loan, w.spec.Depth), make([]place, w.spec.Depth)
	b.idle = free(len(b.loans))
	for i := range b.loans {
		l := &b.loans[i]
		l.at = b.of64(i) * w.loanSize()
		var status provider.Status
		if l.mr, status = w.pd.CreateMR(true, nil, nil); status != provider.StatusSuccess {
			return fmt.Errorf("create memory region: %w", status)
		}
		pages := uint32(max(1, min(w.loanSize(), w.fast)/provider.PageSize))
		if status := l.mr.InitializeFastRegister(pages, true, nil, nil); status != provider.StatusSuccess {
			return fmt.Errorf("initialize fast registration of %d pages: %w", pages, status)
		}
		if w.window > 0 {
			if l.mw, status = w.pd.CreateMW(nil, nil); status != provider.StatusSuccess {
				return fmt.Errorf("create memory window: %w", status)
			}
		}
		b.places[i].index = i
		if err := c.postReceive(b.answerOf(i), &b.places[i]); err != nil {
			return err
		}
	}
	return nil
}

// of64 returns a loan's index among those of all channels.
func (b *lender) of64(i int) uint64 { return uint64(b.channel.index*b.client.spec.Depth + i) }

// requestOf and answerOf return the places of a loan's messages; answers arrive in the order
// in which their receives are posted, whichever loan they are about.
func (b *lender) requestOf(i int) provider.SGE {
	return b.client.messages.sge(b.of64(i)*loanRoom, loanRequestLen)
}

func (b *lender) answerOf(i int) provider.SGE {
	return b.client.messages.sge(b.of64(i)*loanRoom+answerAt, loanAnswerLen)
}

// begin implements session.
func (b *lender) begin() {
	private, err := b.conn.acceptance(creditsLen)
	if err != nil {
		b.conn.fail(err.Error())
		return
	}
	b.credits = binary.BigEndian.Uint32(private)
	b.channel.noteConnected()
}

// ready implements requester.
func (b *lender) ready() bool { return b.credits > 0 && len(b.idle) > 0 }

// ask implements requester.
func (b *lender) ask(number uint64) provider.Status {
	w := b.client
	last := len(b.idle) - 1
	i := b.idle[last]
	b.idle = b.idle[:last]
	b.credits--
	l := &b.loans[i]
	size := w.spec.sizeOf(number)
	*l = loan{
		mr: l.mr, mw: l.mw, at: l.at, busy: true, made: w.clock.Now(),
		request: loanRequest{number: number, address: l.at, size: uint32(size), loan: uint32(i), kind: w.kindOf(number, size)},
	}
	if status := b.lend(l); status != provider.StatusSuccess {
		return status
	}
	message := b.requestOf(i)
	l.request.encode(w.messages.bytes[message.VirtualAddress:])
	return b.conn.qp.Send(l, []provider.SGE{message}, 0)
}

// lend gives the server the right to the memory of a loan.
func (b *lender) lend(l *loan) provider.Status {
	w, r := b.client, &l.request
	size := uint64(r.size)
	if size == 0 {
		return provider.StatusSuccess
	}
	rights := provider.OpAllowRemoteWrite
	if r.kind&reads == 0 {
		rights = provider.OpAllowRemoteRead
		if w.spec.Verify {
			copy(w.memoryOf(l), w.pattern.message(r.number))
		}
	}
	var status provider.Status
	if r.kind&windows != 0 {
		status = b.conn.qp.Bind(nil, w.lent.mr, l.mw, l.at, size, rights|provider.OpSilentSuccess)
		r.token = l.mw.RemoteToken()
	} else {
		pages := w.pages.Pages[l.at/provider.PageSize:][:(size+provider.PageSize-1)/provider.PageSize]
		status = b.conn.qp.FastRegister(nil, l.mr, pages, 0, size, l.at, rights|provider.OpSilentSuccess)
		r.token = l.mr.RemoteToken()
	}
	return status
}

// memoryOf returns what a loan's request is about.
func (w *storageClient) memoryOf(l *loan) []byte { return w.lent.bytes[l.at:][:l.request.size] }

// unanswered implements requester.
func (b *lender) unanswered() []uint64 {
	var numbers []uint64
	for i := range b.loans {
		if l := &b.loans[i]; l.busy {
			numbers = append(numbers, l.request.number)
		}
	}
	slices.SortFunc(numbers, cmp.Compare)
	return numbers
}

// handle implements session.
func (b *lender) handle(_ time.Duration, r provider.ResultEx) {
	l, _ := r.RequestContext.(*loan)
	switch {
	case r.Status != provider.StatusSuccess && l != nil:
		b.conn.fail(fmt.Sprintf("request %d: %v", l.request.number, r.Status))
		return
	case r.Status != provider.StatusSuccess:
		b.conn.fail(fmt.Sprintf("%v of type %#x", r.Status, uint32(r.Type)))
		return
	case r.Type == provider.OperationTypeSend:
		l.sent = true
	case r.Type == provider.OperationTypeInvalidate:
		l.returned = true
	default:
		if l = b.hear(r.RequestContext.(*place).index, r); l == nil {
			return
		}
	}
	if l.sent && l.answered && l.returned {
		b.settle(l)
	}
}

// hear takes the answer that has arrived in one of the places for answers. It returns the
// loan that it is about, nil if it makes no sense.
func (b *lender) hear(place int, r provider.ResultEx) *loan {
	w := b.client
	sge := b.answerOf(place)
	answer := decodeLoanAnswer(w.messages.bytes[sge.VirtualAddress:][:loanAnswerLen])
	if err := b.conn.postReceive(sge, &b.places[place]); err != nil {
		b.conn.fail(err.Error())
		return nil
	}
	if r.BytesTransferred != loanAnswerLen || int(answer.loan) >= len(b.loans) || !b.loans[answer.loan].busy || b.loans[answer.loan].answered {
		b.conn.fail(fmt.Sprintf("an answer of %d bytes to no request", r.BytesTransferred))
		return nil
	}
	l := &b.loans[answer.loan]
	l.answered, l.wrong = true, answer.wrong
	b.credits += answer.credits
	lent, keep := l.request.size > 0, l.request.kind&keeps != 0
	ended := r.Type == provider.OperationTypeReceiveAndInvalidate && uint32(r.TypeSpecificCompletionOutput) == l.request.token
	switch {
	case ended != (lent && !keep):
		b.conn.fail(fmt.Sprintf("request %d: the answer has not ended just its token %#x", l.request.number, l.request.token))
		return nil
	case lent && keep:
		var object provider.Object = l.mr
		if l.request.kind&windows != 0 {
			object = l.mw
		}
		if status := b.conn.qp.Invalidate(l, object, 0); status != provider.StatusSuccess {
			b.conn.fail(fmt.Sprintf("request %d: invalidate: %v", l.request.number, status))
			return nil
		}
	default:
		l.returned = true
	}
	return l
}

// settle takes the end of a loan's request.
func (b *lender) settle(l *loan) {
	w := b.client
	var why string
	switch r := &l.request; {
	case l.wrong:
		why = fmt.Sprintf("message %d was wrong at the server", r.number)
	case w.spec.Verify && r.kind&reads != 0:
		if got := w.memoryOf(l); !bytes.Equal(got, w.pattern.message(r.number)[:r.size]) {
			why = w.pattern.difference(r.number, got)
		}
	}
	l.busy = false
	b.idle = append(b.idle, int(l.request.loan))
	w.answered(l.made, uint64(l.request.size), why)
}

// waits implements session.
func (b *lender) waits() bool { return len(b.idle) < len(b.loans) }

// objects implements session.
func (b *lender) objects() []closer {
	var all []closer
	for i := range b.loans {
		if mw := b.loans[i].mw; mw != nil {
			all = append(all, mw)
		}
		if mr := b.loans[i].mr; mr != nil {
			all = append(all, mr)
		}
	}
	return all
}
