package workload

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A stream is the active end of a flow of sends, writes or reads, on an adapter instance
// of its own. It has one lane for each QP. This file is its life, lane.go its connections,
// post.go what it posts, and arrive.go what comes of that.
type stream struct {
	spec     Spec
	clock    clock.Clock
	payloads *Payloads // nil: it shares none
	pattern  *pattern
	from     netip.Addr
	to       netip.AddrPort
	done     func(Result)

	adapter *instance
	pd      *provider.PD
	completions
	source  *memory // the pattern, which sends and writes are taken from
	sink    *memory // where reads arrive and, if Measure is Latency, the server's answers
	notices *memory // what the server says of writes, in slots of the lanes; nil if it says nothing

	mu         sync.Mutex // guards what follows
	lanes      []lane
	attempted  int           // lanes whose first connection was asked for
	connected  int           // lanes that have been connected
	started    bool          // all have
	ready      queue         // lanes that may post
	pace       pace          // when
	alarm      clock.Timer   // for that; nil before it is first needed
	sizes      []uint64      // of a sweep, and of any other workload that one; those that are to be done
	step       tally         // of the first of sizes
	total      tally         // of those that are done
	began      time.Duration // when it was started
	unfinished uint64        // messages in flight, as to completions
	unreleased uint64        // and as to the server's word, if that counts
	quiet      silence
	stopped    bool // nothing more is wanted
	broken     bool // it cannot go on
	ending     bool
	progress   Progress // warm-up and all
	series     *series
	result     Result
}

// connectsAtOnce is how many connections a client asks for at a time: a server's node
// need not have room for the requests of thousands.
const connectsAtOnce = 64

// run starts the client of a flow, as Host.Run has it.
func run(m *provider.Miniport, c clock.Clock, payloads *Payloads, spec Spec, from netip.Addr, to netip.AddrPort, done func(Result)) (*stream, error) {
	w := newStream(c, payloads, spec, from, to, done)
	if err := w.start(m); err != nil {
		closeAll(w.objects(), w.adapter, func() {})
		return nil, err
	}
	return w, nil
}

func newStream(c clock.Clock, payloads *Payloads, spec Spec, from netip.Addr, to netip.AddrPort, done func(Result)) *stream {
	w := &stream{
		spec: spec, clock: c, payloads: payloads, pattern: payloads.pattern(&spec), from: from, to: to, done: done,
		lanes: make([]lane, spec.lanes()), ready: newQueue(spec.lanes()), pace: pace{rate: spec.Rate}, sizes: spec.steps(),
	}
	w.completions = completions{clock: c, polling: spec.Polling, take: w.taken}
	slots := spec.slots()
	messages := make([]message, len(w.lanes)*slots)
	for i := range w.lanes {
		w.lanes[i] = lane{stream: w, index: i, messages: messages[i*slots:][:slots:slots]}
	}
	return w
}

// start makes what all lanes share and asks for the first connections.
func (w *stream) start(m *provider.Miniport) (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.ending = err != nil }() // then there is nothing to abort
	var status provider.Status
	w.began = w.clock.Now()
	w.series = newSeries(&w.spec, w.began)
	if w.adapter, err = w.spec.open(m, func() { w.Abort(disabled) }); err != nil {
		return err
	}
	if w.pd, status = w.adapter.CreatePD(nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create PD: %w", status)
	}
	if w.cq, status = w.adapter.CreateCQ(w.spec.cqDepth(), w.notified, nil, nil, nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create CQ: %w", status)
	}
	if w.source, err = register(w.pd, w.pattern.bytes, provider.MRAllowLocalRead); err != nil {
		return err
	}
	if w.spec.Operation == topology.Read || w.spec.answered() {
		if w.sink, err = register(w.pd, w.payloads.sink(&w.spec, w.spec.room()), provider.MRAllowLocalWrite|provider.MRAllowRemoteWrite); err != nil {
			return err
		}
	}
	if n := len(w.lanes) * w.spec.clientReceives(); n > 0 {
		if w.notices, err = register(w.pd, make([]byte, n*noticeLen), provider.MRAllowLocalWrite); err != nil {
			return err
		}
	}
	for w.attempted < min(len(w.lanes), connectsAtOnce) {
		if err := w.attemptNext(); err != nil {
			return err
		}
	}
	return nil
}

// attemptNext asks for the first connection of the next lane. w.mu is held.
func (w *stream) attemptNext() error {
	l := &w.lanes[w.attempted]
	w.attempted++
	l.lost = w.clock.Now()
	err := l.connect()
	if err != nil && w.spec.Reconnect {
		l.putOff(err)
		return nil
	}
	return err
}

// begin is when all lanes are connected. w.mu is held.
func (w *stream) begin() {
	w.started = true
	w.completions.begin()
	w.beginStep()
	w.pump()
}

// beginStep begins the first of the sizes that are left. w.mu is held.
func (w *stream) beginStep() {
	now := w.clock.Now()
	from := now + w.spec.WarmUp
	w.step = tally{size: w.sizes[0], from: from, last: from}
	w.pace.due, w.quiet.since = now, from
	for i := range w.lanes {
		w.ready.push(&w.lanes[i])
	}
}

// endStep ends it, and counts it in the total. w.mu is held.
func (w *stream) endStep() {
	t := &w.step
	w.result.Seconds += (t.last - t.from).Seconds()
	w.result.Messages += t.messages
	w.result.Bytes += t.bytes
	if w.spec.sweeps() {
		w.result.Steps = append(w.result.Steps, t.step())
	}
	w.total.latencies.take(&t.latencies)
	w.sizes = w.sizes[1:]
}

// settle goes on to the next size, or ends, when there is nothing left to do. w.mu is
// held.
func (w *stream) settle() {
	switch {
	case w.ending:
	case w.broken:
		w.end()
	case !w.started || w.unfinished > 0 || w.unreleased > 0 || w.wants(w.clock.Now()):
	case w.stopped || len(w.sizes) == 1:
		w.end()
	default:
		w.endStep()
		w.beginStep()
		w.pump()
	}
}

// Stop has the client post nothing more, and end when what is in flight is done.
func (w *stream) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if !w.ending && !w.started {
		w.end()
		return
	}
	w.settle()
}

// Abort ends the workload before its time. Unless something else failed before,
// its result has the reason.
func (w *stream) Abort(reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail(reason)
}

// fail ends the workload for a failure after which it cannot go on. w.mu is held.
func (w *stream) fail(text string) {
	if w.ending {
		return
	}
	w.broken = true
	w.note(text)
	w.end()
}

// note keeps the first failure.
func (w *stream) note(text string) {
	if w.result.Error == "" {
		w.result.Error = text
	}
}

// mistake counts a message that failed. w.mu is held.
func (w *stream) mistake(now time.Duration, text string) {
	w.result.Errors++
	w.step.errors++
	w.series.failed(now)
	w.note(text)
}

// end closes everything and reports. w.mu is held.
func (w *stream) end() {
	w.ending = true
	now := w.clock.Now()
	if w.alarm != nil {
		w.alarm.Stop()
	}
	if w.started {
		if w.broken {
			w.attend()
			w.quiet.broken(now)
		}
		w.step.errors += w.unfinished
		w.endStep()
	}
	w.conclude(now)
	closed := func() { closeAll(w.objects(), w.adapter, func() { w.done(w.result) }) }
	if w.broken { // a peer that no longer answers is not waited for
		w.clock.Go(closed)
		return
	}
	w.disconnect(closed)
}

// conclude completes the result. w.mu is held.
func (w *stream) conclude(now time.Duration) {
	r := &w.result
	for range w.unfinished {
		w.series.failed(now)
	}
	r.Errors += w.unfinished
	if r.Error != "" && r.Errors == 0 {
		r.Errors = 1 // it failed before there was a message to fail
	}
	r.Completed, r.Recovered, r.Series = w.progress.Messages, w.quiet.longest.Seconds(), w.series.finish(now)
	r.Latency = w.total.latencies.Encode()
}

// disconnect disconnects every lane and then calls closed. w.mu is held.
func (w *stream) disconnect(closed func()) {
	left := newCountdown(w.clock, closed)
	for i := range w.lanes {
		c := w.lanes[i].link
		if c == nil {
			continue
		}
		left.add()
		if c.connector.Disconnect(func(any, provider.Status) { left.done(nil) }, nil) != provider.StatusPending {
			left.done(nil)
		}
	}
	left.done(nil)
}

// objects are those that are to be closed.
func (w *stream) objects() []closer {
	var open []closer
	for i := range w.lanes {
		l := &w.lanes[i]
		if l.timer != nil {
			l.timer.Stop()
		}
		if l.link != nil {
			open = append(open, l.link.objects()...)
		}
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
	p := w.progress
	p.Errors = w.result.Errors
	return p
}
