package workload

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A stream is the active end of a flow of sends, writes or reads, on an adapter instance
// of its own.
type stream struct {
	spec    Spec
	clock   clock.Clock
	pattern *pattern
	done    func(Result)

	adapter   *instance
	pd        *provider.PD
	cq        *provider.CQ
	qp        *provider.QP
	connector *provider.Connector
	source    *memory // the pattern, which sends and writes are taken from
	sink      *memory // where reads arrive, in slots
	notices   *memory // what the server says of writes, in slots

	mu        sync.Mutex // guards what follows
	grant     grant
	messages  []message // by slot
	posted    uint64    // messages posted so far
	finished  uint64    // messages completed so far, either way
	released  uint64    // messages whose slots at the server are free again
	heard     uint64    // notices from the server
	started   time.Duration
	last      time.Duration // when the last message completed
	broken    bool          // the connection has failed: nothing more is posted
	ending    bool
	connected bool // or failed to
	stopped   bool // nothing more is wanted
	latency   Latencies
	result    Result
	results   [64]provider.ResultEx // scratch of completed
}

// message is a message in flight: the context of its request.
type message struct {
	index  uint64
	posted time.Duration
}

// run starts the client of a flow, as Host.Run has it.
func run(m *provider.Miniport, c clock.Clock, spec Spec, from netip.Addr, to netip.AddrPort, done func(Result)) (*stream, error) {
	w := newClient(c, spec, done)
	if err := w.connect(m, from, to); err != nil {
		closeAll(w.objects(), w.adapter, func() {})
		return nil, err
	}
	return w, nil
}

func newClient(c clock.Clock, spec Spec, done func(Result)) *stream {
	return &stream{
		spec: spec, clock: c, pattern: newPattern(&spec), done: done,
		messages: make([]message, spec.slots()),
	}
}

func (w *stream) connect(m *provider.Miniport, from netip.Addr, to netip.AddrPort) (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.ending = err != nil }() // then there is nothing to abort
	var status provider.Status
	slots := uint32(w.spec.slots())
	if w.adapter, err = w.spec.open(m, func() { w.Abort(disabled) }); err != nil {
		return err
	}
	if w.pd, status = w.adapter.CreatePD(nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create PD: %w", status)
	}
	if w.cq, status = w.adapter.CreateCQ(4*slots, w.completed, nil, nil, nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create CQ: %w", status)
	}
	if w.qp, status = w.pd.CreateQP(w.cq, w.cq, nil, slots, 2*slots, 1, 1, noticeLen, nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create QP: %w", status)
	}
	if w.source, err = register(w.pd, w.pattern.bytes, provider.MRAllowLocalRead); err != nil {
		return err
	}
	if w.spec.Operation == topology.Read {
		if w.sink, err = register(w.pd, make([]byte, uint64(slots)*w.spec.Size), provider.MRAllowLocalWrite); err != nil {
			return err
		}
	}
	if w.notices, err = register(w.pd, make([]byte, slots*noticeLen), provider.MRAllowLocalWrite); err != nil {
		return err
	}
	for slot := range uint64(slots) {
		if err := w.postReceive(slot); err != nil {
			return err
		}
	}
	if w.connector, status = w.adapter.CreateConnector(nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create connector: %w", status)
	}
	inbound, outbound := w.adapter.reads()
	if status := w.connector.Connect(w.qp, netip.AddrPortFrom(from, 0), to, inbound, outbound, nil, w.answered, nil); !status.Succeeded() {
		return status
	}
	return nil
}

func (w *stream) postReceive(slot uint64) error {
	sge := []provider.SGE{w.notices.sge(slot*noticeLen, noticeLen)}
	if status := w.qp.Receive(nil, sge); status != provider.StatusSuccess {
		return fmt.Errorf("post receive: %w", status)
	}
	return nil
}

// answered is the completion of Connect.
func (w *stream) answered(_ any, status provider.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ending {
		return
	}
	if status != provider.StatusSuccess {
		w.fail(fmt.Sprintf("connect: %v", status))
	} else if err := w.establish(); err != nil {
		w.fail(fmt.Sprintf("connect: %v", err))
	}
	w.connected = true
	w.started = w.clock.Now()
	w.last = w.started
	w.cq.Arm(provider.NotifyAny)
	w.advance()
}

func (w *stream) establish() error {
	private := make([]byte, 256)
	length := uint32(len(private))
	if status := w.connector.GetConnectionData(nil, nil, private, &length); status != provider.StatusSuccess {
		return status
	}
	var err error
	if w.grant, err = decodeGrant(private[:length]); err != nil {
		return err
	}
	if status := w.connector.CompleteConnect(w.disconnected, nil, nil, nil); status != provider.StatusSuccess {
		return status
	}
	return nil
}

// disconnected is the peer's doing: the server's node is gone.
func (w *stream) disconnected(any) { w.Abort("the server disconnected") }

// Stop has the client post nothing more, and end when what is in flight is done.
func (w *stream) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.connected {
		w.advance()
	}
}

// Abort ends the workload before its time. Unless something else failed before,
// its result has the reason.
func (w *stream) Abort(reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ending {
		return
	}
	w.fail(reason)
	w.qp.Flush()
	w.advance()
}

// completed is the CQ's notification.
func (w *stream) completed(any, provider.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	for n := len(w.results); n == len(w.results); {
		n = w.cq.ResultsEx(w.results[:])
		for i := range w.results[:n] {
			w.handle(now, &w.results[i])
		}
	}
	if !w.ending {
		w.cq.Arm(provider.NotifyAny)
		w.advance()
	}
}

// handle takes a completion. w.mu is held.
func (w *stream) handle(now time.Duration, r *provider.ResultEx) {
	m, isMessage := r.RequestContext.(*message)
	switch {
	case !isMessage && r.Status == provider.StatusSuccess && r.Type == provider.OperationTypeReceive:
		w.hear()
	case r.Status != provider.StatusSuccess:
		if isMessage {
			w.finished++
			w.result.Errors++
			w.fail(fmt.Sprintf("message %d: %v", m.index, r.Status))
		} else if r.Status != provider.StatusCancelled {
			w.fail(fmt.Sprintf("notice: %v", r.Status))
		}
	case isMessage:
		w.finished++
		w.last = now
		w.latency.record(now - m.posted)
		if text := w.compare(m); text != "" {
			w.result.Errors++
			w.note(text)
			return
		}
		w.result.Messages++
		w.result.Bytes += w.spec.Size
	}
}

// compare holds a read against the pattern; it returns what is wrong with it.
func (w *stream) compare(m *message) string {
	if w.spec.Operation != topology.Read || !w.spec.Verify {
		return ""
	}
	slot := m.index % uint64(len(w.messages))
	got := w.sink.bytes[slot*w.spec.Size:][:w.spec.Size]
	if bytes.Equal(got, w.pattern.message(m.index)) {
		return ""
	}
	return w.pattern.difference(m.index, got)
}

// hear takes the server's word on which messages it has compared.
func (w *stream) hear() {
	slot := w.heard % uint64(len(w.messages))
	w.heard++
	w.released = binary.BigEndian.Uint64(w.notices.bytes[slot*noticeLen:]) + 1
	if err := w.postReceive(slot); err != nil && !w.broken {
		w.fail(err.Error())
	}
}

// announces reports whether the server is told of each message, and says when
// it has compared it: a write says nothing to the other end by itself.
func (w *stream) announces() bool { return w.spec.Operation == topology.Write && w.spec.Verify }

// advance posts what may be posted, and ends the workload when all is done.
// w.mu is held.
func (w *stream) advance() {
	for !w.broken && w.wants() && w.posted-w.finished < uint64(w.spec.Depth) {
		if w.announces() && w.posted-w.released >= uint64(len(w.messages)) {
			break // every slot at the server is waiting to be compared
		}
		if status := w.post(); status != provider.StatusSuccess {
			w.result.Errors++
			w.fail(fmt.Sprintf("post message %d: %v", w.posted, status))
		}
	}
	over := w.broken || !w.wants() && (!w.announces() || w.released == w.posted)
	if over && w.finished == w.posted && !w.ending {
		w.ending = true
		w.end()
	}
}

// wants reports whether another message is to be posted.
func (w *stream) wants() bool {
	if w.stopped {
		return false
	}
	if w.spec.Count > 0 {
		return w.posted < w.spec.Count
	}
	return w.clock.Now()-w.started < w.spec.Duration
}

// post posts the next message. w.mu is held.
func (w *stream) post() provider.Status {
	slot := w.posted % uint64(len(w.messages))
	m := &w.messages[slot]
	m.index, m.posted = w.posted, w.clock.Now()
	source := []provider.SGE{w.source.sge(w.pattern.offset(m.index), w.spec.Size)}
	remote := w.grant.address
	var status provider.Status
	switch w.spec.Operation {
	case topology.Read:
		sink := []provider.SGE{w.sink.sge(slot*w.spec.Size, w.spec.Size)}
		status = w.qp.Read(m, sink, remote+w.pattern.offset(m.index), w.grant.token, 0)
	case topology.Write:
		status = w.qp.Write(m, source, remote+slot*w.spec.Size, w.grant.token, 0)
	default:
		status = w.qp.Send(m, source, 0)
	}
	if status != provider.StatusSuccess {
		return status
	}
	w.posted++
	if w.announces() {
		notice := binary.BigEndian.AppendUint64(nil, m.index)
		sge := []provider.SGE{{Length: noticeLen, Inline: notice}}
		return w.qp.Send(nil, sge, provider.OpInline|provider.OpSilentSuccess)
	}
	return provider.StatusSuccess
}

// fail notes a failure after which the workload cannot go on. w.mu is held.
func (w *stream) fail(text string) {
	w.broken = true
	w.note(text)
}

// note keeps the first failure.
func (w *stream) note(text string) {
	if w.result.Error == "" {
		w.result.Error = text
	}
}

// end closes everything and reports. w.mu is held.
func (w *stream) end() {
	r := &w.result
	if r.Error != "" && r.Errors == 0 {
		r.Errors = 1 // it failed before there was a message to fail
	}
	r.Seconds = (w.last - w.started).Seconds()
	var err error
	if r.Latency, err = w.latency.encoded(); err != nil {
		w.note(err.Error())
	}
	closed := func() { closeAll(w.objects(), w.adapter, func() { w.done(w.result) }) }
	disconnected := func(any, provider.Status) { closed() }
	// A peer that no longer answers is not waited for.
	if w.broken || w.connector.Disconnect(disconnected, nil) != provider.StatusPending {
		w.clock.Go(closed)
	}
}

// objects are those that are to be closed.
func (w *stream) objects() []closer {
	var open []closer
	if w.connector != nil {
		open = append(open, w.connector)
	}
	if w.qp != nil {
		open = append(open, w.qp)
	}
	for _, m := range []*memory{w.notices, w.sink, w.source} {
		open = append(open, m.closers()...)
	}
	if w.cq != nil {
		open = append(open, w.cq)
	}
	if w.pd != nil {
		open = append(open, w.pd)
	}
	return open
}

// Progress is how far the client is.
func (w *stream) Progress() Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Progress{Messages: w.result.Messages, Bytes: w.result.Bytes, Errors: w.result.Errors}
}
