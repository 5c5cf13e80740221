package workload

import (
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A stream is the client of a flow of sends, writes or reads: an exchange in which a request
// is a message. It has a pipeline for each channel. This file is its life, post.go what it
// posts, and complete.go what comes of that.
type stream struct {
	exchange
	pattern *pattern
	source  *memory // the pattern, which sends and writes are taken from
	sink    *memory // where reads arrive and, if Measure is Latency, the server's answers
	notices *memory // what the server says of writes, in slots of the pipelines; nil if it says nothing

	// Guarded by endpoint.mu.
	pipelines  []pipeline
	ready      queue       // pipelines that may post
	pace       pace        // when
	alarm      clock.Timer // for that; nil before it is first needed
	size       int         // which of Spec.steps is being done
	unreleased uint64      // messages in flight as to the server's word, if that counts
}

// A pipeline has messages with numbers of their own, which are posted in order on a channel.
// It is the session of each of the channel's connections, one after the other.
type pipeline struct {
	bareSession
	stream   *stream
	channel  *channel
	messages []message // by slot
	posted   uint64    // messages that were posted
	next     uint64    // the message to post next; below posted where it is posted again
	finished uint64    // messages that have completed, either way
	counted  uint64    // messages that have completed for the first time
	released uint64    // messages whose slots at the server are free again
	queued   bool      // it is in the stream's queue

	// Of the connection:
	grant   grant
	arrived uint64 // receives that have completed
}

// runStream starts the client of a flow, as Host.Run does.
func runStream(m *provider.Miniport, c clock.Clock, payloads *Payloads, spec Spec, from netip.Addr, to netip.AddrPort, done func(Result)) (*stream, error) {
	w := newStream(m, c, payloads, spec, from, to, done)
	return w, w.run(payloads)
}

func newStream(m *provider.Miniport, c clock.Clock, payloads *Payloads, spec Spec, from netip.Addr, to netip.AddrPort, done func(Result)) *stream {
	w := &stream{
		exchange: newExchange(m, c, payloads.spec(&spec), from, to, done), pattern: payloads.pattern(&spec),
		pipelines: make([]pipeline, spec.channels()), ready: newQueue(spec.channels()), pace: pace{rate: spec.Rate},
	}
	slots := spec.slots()
	messages := make([]message, len(w.pipelines)*slots)
	for i := range w.pipelines {
		w.pipelines[i] = pipeline{stream: w, messages: messages[i*slots:][:slots:slots]}
	}
	return w
}

// run makes what all channels have in common, and asks for the first connections.
func (w *stream) run(payloads *Payloads) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.open(w, w.spec.messageNeeds, uint64(w.spec.cqDepth()), func() error { return w.prepare(payloads) }); err != nil {
		return err
	}
	err := w.connectChannels()
	if err != nil {
		w.cancel()
	}
	return err
}

func (w *stream) prepare(payloads *Payloads) (err error) {
	if w.source, err = w.register(w.pattern.bytes, provider.MRAllowLocalRead); err != nil {
		return err
	}
	if w.spec.Operation == topology.Read || w.spec.answered() {
		if w.sink, err = w.register(payloads.sink(w.spec, w.spec.room()), provider.MRAllowLocalWrite|provider.MRAllowRemoteWrite); err != nil {
			return err
		}
	}
	if n := len(w.channels) * w.spec.clientReceives(); n > 0 {
		w.notices, err = w.register(make([]byte, n*noticeLen), provider.MRAllowLocalWrite)
	}
	return err
}

// session implements work.
func (w *stream) session(ch *channel) clientSession {
	p := &w.pipelines[ch.index]
	p.channel, p.arrived = ch, 0
	return p
}

// start implements work.
func (w *stream) start(now time.Duration) {
	w.await()
	w.beginStep(now)
}

// beginStep begins the size that is next.
func (w *stream) beginStep(now time.Duration) {
	w.begin(now, w.spec.stepSize(w.size))
	w.pace.due = now
	for i := range w.pipelines {
		w.ready.push(&w.pipelines[i])
	}
}

// complete implements work. It goes on to the next size when one is done.
func (w *stream) complete(now time.Duration) bool {
	for !w.broken {
		switch {
		case !w.started:
			return w.stopped
		case w.underWay > 0 || w.unreleased > 0 || w.wanted(now) > 0:
			return false
		case w.stopped || w.size+1 == w.spec.steps():
			w.conclude(now)
			return true
		}
		w.endStep()
		w.size++
		w.beginStep(now)
		w.proceed()
	}
	return false
}

// retry implements work: the pipeline posts again what may not have arrived.
func (w *stream) retry(s clientSession) {
	p := s.(*pipeline)
	p.next = p.finished
	if !w.spec.announces() {
		return
	}
	// A write that is complete need not be one that the server has heard of, nor the other
	// way round.
	p.next = min(p.finished, p.released)
	w.underWay += int(p.finished - p.next)
	w.unreleased += p.released - p.next
	p.finished, p.released = p.next, p.next
}

// abandon implements work.
func (w *stream) abandon(now time.Duration, why string) {
	w.note(why)
	if w.started {
		w.attend(w.pace.due)
		w.quiet.broken(now)
	}
	for range w.underWay {
		w.failed(now, why)
	}
	w.giveUp(now)
	w.result.Errors = max(1, w.result.Errors) // it may have failed before there was a message to fail
	w.conclude(now)
}

// conclude completes the result: what the connections take to end is no part of it.
func (w *stream) conclude(now time.Duration) {
	if w.alarm != nil {
		w.alarm.Stop()
	}
	w.finish(now)
}

// of implements clientSession.
func (p *pipeline) of() *channel { return p.channel }

// request implements clientSession.
func (p *pipeline) request() (qpShape, terms) {
	w := p.stream
	h := hello{channel: uint32(p.channel.index), next: p.next}
	if w.sink != nil {
		h.address, h.token = w.spec.channelRoom()*uint64(p.channel.index), w.sink.mr.RemoteToken()
	}
	slots := uint32(w.spec.slots())
	inbound, outbound := w.adapter.reads()
	return qpShape{receives: slots, requests: 2 * slots, inline: w.spec.inline()}, terms{inbound, outbound, h.encode()}
}

// prepare implements session.
func (p *pipeline) prepare(c *connection) error {
	for slot := range uint64(p.stream.spec.clientReceives()) {
		if err := p.postReceive(c, slot); err != nil {
			return err
		}
	}
	return nil
}

// postReceive posts the receive of a slot: for an answer, or for a notice.
func (p *pipeline) postReceive(c *connection, slot uint64) error {
	w := p.stream
	if w.spec.answersBySend() {
		return c.postReceive(w.sink.sge(w.spec.place(p.channel.index, slot), w.spec.Size), nil)
	}
	return c.postReceive(w.notices.sge((uint64(p.channel.index*w.spec.slots())+slot)*noticeLen, noticeLen), nil)
}

// begin implements session.
func (p *pipeline) begin() {
	private, err := p.channel.conn.acceptance(grantLen)
	if err != nil {
		p.channel.conn.fail("connect: " + err.Error())
		return
	}
	p.grant = decodeGrant(private)
	p.channel.noteConnected()
	if p.stream.started {
		p.stream.ready.push(p)
	}
}
