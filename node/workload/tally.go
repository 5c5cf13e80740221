package workload

import (
	"math"
	"time"
)

// A tally is what a client of sessions has measured so far. What is complete before the
// warm-up is over counts as progress only.
type tally struct {
	of            *Spec
	result        Result
	latencies     Latencies
	warm          Progress      // what was done while warming up
	started, last time.Duration // when it began to measure, and when something was complete
}

func (t *tally) start(spec *Spec, now time.Duration) {
	t.of, t.started = spec, now+spec.WarmUp
	t.last = t.started
}

// wanted is how many messages are to be begun yet, when so many are under way and so many
// are to be done besides those that were asked for.
func (t *tally) wanted(now time.Duration, underWay, more uint64) uint64 {
	count := t.of.Count + more
	done := t.result.Messages + underWay
	switch {
	case now < t.started:
		return math.MaxUint64
	case t.of.Count > 0 && count > done:
		return count - done
	case t.of.Count == 0 && now-t.started < t.of.Duration:
		return math.MaxUint64
	}
	return 0
}

// count counts a message that was begun at an instant and is complete now.
func (t *tally) count(now, begun time.Duration, bytes uint64) {
	if now < t.started {
		t.warm.Messages++
		t.warm.Bytes += bytes
		return
	}
	t.last = now
	t.result.Messages++
	t.result.Bytes += bytes
	t.latencies.record(now - begun)
}

// failed counts a failure, and keeps the first one's reason.
func (t *tally) failed(why string) {
	t.result.Errors++
	if t.result.Error == "" {
		t.result.Error = why
	}
}

// conclude is the result.
func (t *tally) conclude() Result {
	t.result.Seconds = (t.last - t.started).Seconds()
	var err error
	if t.result.Latency, err = t.latencies.encoded(); err != nil {
		t.failed(err.Error())
	}
	return t.result
}

// progress is how far the client is.
func (t *tally) progress() Progress {
	return Progress{
		Messages: t.warm.Messages + t.result.Messages, Bytes: t.warm.Bytes + t.result.Bytes, Errors: t.result.Errors,
	}
}
