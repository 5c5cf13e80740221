package workload

import (
	"math"
	"time"
)

// An account is what a client of sessions is to do and what it has done so far.
type account struct {
	count         uint64        // messages that are to be completed; 0: until the duration has passed
	duration      time.Duration // from started
	result        Result
	latencies     Latencies
	started, last time.Duration // when the client began, and when it completed something
	stopped       bool          // nothing more is begun
}

func newAccount(s *Spec, now time.Duration) account {
	return account{count: s.Count, duration: s.Duration, started: now, last: now}
}

// wanted is how many messages are to be begun yet when so many are under way.
func (a *account) wanted(now time.Duration, underWay uint64) uint64 {
	switch done := a.result.Messages + underWay; {
	case a.stopped:
	case a.count > done:
		return a.count - done
	case a.count == 0 && now-a.started < a.duration:
		return math.MaxUint64
	}
	return 0
}

// completed counts a message that was begun at an instant and is complete now.
func (a *account) completed(now, begun time.Duration, bytes uint64) {
	a.last = now
	a.result.Messages++
	a.result.Bytes += bytes
	a.latencies.record(now - begun)
}

// failed counts a failure, and keeps the first one's reason.
func (a *account) failed(why string) {
	a.result.Errors++
	if a.result.Error == "" {
		a.result.Error = why
	}
}

// conclude is the result.
func (a *account) conclude() Result {
	a.result.Seconds = (a.last - a.started).Seconds()
	var err error
	if a.result.Latency, err = a.latencies.encoded(); err != nil {
		a.failed(err.Error())
	}
	return a.result
}

// progress is how far the client is.
func (a *account) progress() Progress {
	return Progress{Messages: a.result.Messages, Bytes: a.result.Bytes, Errors: a.result.Errors}
}
