package workload

import (
	"math"
	"time"

	"github.com/ndklab/ndklab/internal/histogram"
)

// An account holds what a client is to do, and what it has done so far.
type account struct {
	order    *Spec
	started  bool // begin has been called
	stopped  bool // nothing more is begun
	finished bool // the result is complete
	underWay int  // messages that are begun and have not come to their end
	// messages and bytes are those that have completed with success, with those of the
	// warm-up.
	messages, bytes uint64
	step            measurement // of the size that is being done: of a sweep one after the other
	total           Latencies   // of the steps that are done
	series          *series
	quiet           silence
	result          Result
}

// newAccount returns the account of a client that is started now.
func newAccount(s *Spec, now time.Duration) account {
	return account{order: s, series: newSeries(s, now)}
}

// begin begins a step, in which messages have a size at most: its warm-up begins now.
func (a *account) begin(now time.Duration, size uint64) {
	from := now + a.order.WarmUp
	a.step = measurement{size: size, from: from, last: from}
	a.quiet.since = from
	a.started = true
}

// endStep ends the step, and adds it to the result.
func (a *account) endStep() {
	t, r := &a.step, &a.result
	r.Seconds += (t.last - t.from).Seconds()
	r.Messages += t.messages
	r.Bytes += t.bytes
	if a.order.sweeps() {
		r.Steps = append(r.Steps, t.step())
	}
	a.total.take(&t.latencies)
}

// wanted returns how many messages are to be begun yet.
func (a *account) wanted(now time.Duration) uint64 {
	t := &a.step
	switch {
	case a.stopped:
	case now < t.from: // warming up
		return math.MaxUint64
	case a.order.Count > t.begun:
		return a.order.Count - t.begun
	case a.order.Count == 0 && now-t.from < a.order.Duration:
		return math.MaxUint64
	}
	return 0
}

// deadline returns when a client stops that has a duration and no count; 0 if that is not
// known yet, or Stop has been called.
func (a *account) deadline() time.Duration {
	if !a.started || a.order.Count > 0 || a.stopped {
		return 0
	}
	return a.step.from + a.order.Duration
}

// warm reports whether a message that is begun now is of the warm-up.
func (a *account) warm(now time.Duration) bool { return now < a.step.from }

// begun takes a message that is begun now. It could have been begun at the instant due.
func (a *account) begun(now, due time.Duration) {
	a.attend(due)
	a.underWay++
	if !a.warm(now) {
		a.step.begun++
	}
}

// attend has a silence begin no earlier than there was something to do: if nothing is under
// way, that is at the instant due.
func (a *account) attend(due time.Duration) {
	if a.underWay == 0 {
		a.quiet.since = max(a.quiet.since, due)
	}
}

// ended takes a message that has come to its end now, with success or without.
func (a *account) ended(now time.Duration) {
	a.underWay--
	a.quiet.broken(now)
}

// completed counts a message that has come to its end now, with success, and took so long.
// It counts as measured unless it is of the warm-up.
func (a *account) completed(now time.Duration, size uint64, took time.Duration, warm bool) {
	a.messages++
	a.bytes += size
	a.series.completed(now, size, took)
	if !warm {
		a.step.completed(now, size, took)
	}
}

// failed counts a failure, and keeps the reason of the first.
func (a *account) failed(now time.Duration, why string) {
	a.result.Errors++
	a.step.errors++
	a.series.failed(now)
	a.note(why)
}

// note keeps the first reason of a failure.
func (a *account) note(why string) {
	if a.result.Error == "" {
		a.result.Error = why
	}
}

// giveUp has nothing that is under way come to its end, and nothing more be begun.
func (a *account) giveUp(now time.Duration) {
	if a.underWay > 0 {
		a.quiet.broken(now)
	}
	a.underWay, a.stopped = 0, true
}

// finish completes the result and returns it. The first call counts.
func (a *account) finish(now time.Duration) Result {
	r := &a.result
	if a.finished {
		return *r
	}
	a.finished = true
	if a.started {
		a.endStep()
	}
	r.Completed, r.Recovered, r.Series = a.messages, a.quiet.longest.Seconds(), a.series.finish(now)
	r.Latency = a.total.Encode()
	return *r
}

// progress returns how far the client is.
func (a *account) progress() Progress {
	return Progress{Messages: a.messages, Bytes: a.bytes, Errors: a.result.Errors}
}

// latency returns the latencies so far, without those of the warm-up, by bounds in nanoseconds.
func (a *account) latency(bounds []int64) histogram.Bars {
	b := a.total.histogram.Bars(bounds)
	b.Add(a.step.latencies.histogram.Bars(bounds))
	return b
}

// A measurement holds what a client measures of messages of one size or, where each has its own,
// of all.
type measurement struct {
	size      uint64        // of the step of a sweep
	from      time.Duration // when it began, and the warm-up before it was over
	last      time.Duration // when the last message completed; from if none has
	begun     uint64        // messages
	messages  uint64        // completed with success
	bytes     uint64        // payload of those
	errors    uint64
	latencies Latencies
}

// completed takes a message that has completed with success.
func (t *measurement) completed(now time.Duration, size uint64, latency time.Duration) {
	t.last = now
	t.messages++
	t.bytes += size
	t.latencies.Record(latency)
}

// step returns the measurement as a step of a sweep.
func (t *measurement) step() Step {
	return Step{
		Size: t.size, Messages: t.messages, Errors: t.errors, Seconds: (t.last - t.from).Seconds(), Latency: t.latencies.Encode(),
	}
}

// A silence is the longest time in which nothing completed while there was something to
// do.
type silence struct {
	since   time.Duration // when something completed or, if later, there began to be something to do
	longest time.Duration
}

// broken ends a silence, or finds that it lasts still.
func (s *silence) broken(now time.Duration) {
	s.longest = max(s.longest, now-s.since)
	s.since = max(s.since, now)
}
