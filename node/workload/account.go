package workload

import (
	"math"
	"time"
)

// An account is what a client of sessions is to do, and what it has done so far.
type account struct {
	count     uint64        // messages that are to be completed; 0: until the duration has passed
	duration  time.Duration // from began
	stopped   bool          // nothing more is begun
	result    Result
	latencies Latencies
	series    *series
	quiet     silence
	began     time.Duration // when there was something to do
	last      time.Duration // when something was completed
	underWay  int           // messages that are begun and have not come to their end
	ended     uint64        // messages that have
}

// newAccount is that of a client that is started now.
func newAccount(s *Spec, now time.Duration) account {
	return account{count: s.Count, duration: s.Duration, series: newSeries(s, now), began: now, last: now}
}

// begin is when the client can begin to do something.
func (a *account) begin(now time.Duration) { a.began, a.last = now, now }

// wanted is how many messages are to be begun yet.
func (a *account) wanted(now time.Duration) uint64 {
	switch so := a.ended + uint64(a.underWay); {
	case a.stopped:
	case a.count > so:
		return a.count - so
	case a.count == 0 && now-a.began < a.duration:
		return math.MaxUint64
	}
	return 0
}

// begun takes a message that is begun now.
func (a *account) begun(now time.Duration) {
	if a.underWay++; a.underWay == 1 {
		a.quiet.since = now
	}
}

// completed takes a message that was begun at an instant and has come to its end now,
// with success.
func (a *account) completed(now, begun time.Duration, bytes uint64) {
	a.endOne(now)
	a.result.Messages++
	a.result.Bytes += bytes
	a.latencies.Record(now - begun)
	a.series.completed(now, bytes, now-begun)
}

// wrong takes a message that has come to its end now, but not as it should.
func (a *account) wrong(now time.Duration, why string) {
	a.endOne(now)
	a.failed(now, why)
}

func (a *account) endOne(now time.Duration) {
	a.underWay--
	a.ended++
	a.quiet.broken(now)
	a.last = now
}

// failed takes a failure, and keeps the first one's reason.
func (a *account) failed(now time.Duration, why string) {
	a.result.Errors++
	a.series.failed(now)
	if a.result.Error == "" {
		a.result.Error = why
	}
}

// giveUp is when nothing that is under way will come to its end.
func (a *account) giveUp(now time.Duration) {
	if a.underWay > 0 {
		a.quiet.broken(now)
	}
	a.underWay, a.stopped = 0, true
}

// conclude is the result.
func (a *account) conclude(now time.Duration) Result {
	r := a.result
	r.Completed, r.Seconds, r.Recovered, r.Series = r.Messages, (a.last - a.began).Seconds(), a.quiet.longest.Seconds(), a.series.finish(now)
	r.Latency = a.latencies.Encode()
	return r
}

// progress is how far the client is.
func (a *account) progress() Progress {
	return Progress{Messages: a.result.Messages, Bytes: a.result.Bytes, Errors: a.result.Errors}
}
