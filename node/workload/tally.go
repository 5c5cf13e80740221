package workload

import "time"

// A tally is what a client measures of messages of one size or, where each has its own,
// of all.
type tally struct {
	size      uint64        // of the step of a sweep
	from      time.Duration // when it began, and the warm-up before it was over
	last      time.Duration // when the last message completed; from if none has
	posted    uint64        // messages
	messages  uint64        // completed with success
	bytes     uint64        // payload of those
	errors    uint64
	latencies Latencies
}

// completed takes a message that has completed with success.
func (t *tally) completed(now time.Duration, size uint64, latency time.Duration) {
	t.last = now
	t.messages++
	t.bytes += size
	t.latencies.Record(latency)
}

// step is the tally as a step of a sweep.
func (t *tally) step() Step {
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
