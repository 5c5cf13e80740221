package udp

import "time"

// A soloPoll decides whether a consumer that polls is to receive alone. One that polls all the time is: whom nobody wakes
// loses no time to anybody. But a consumer may also look at its memory alone, for what a peer writes there, and never call
// again: for it the carrier's goroutine has to receive, whatever it did before. The difference shows when nobody helps: a
// consumer that has polled often for a period is left alone, first for a moment, then for longer. When packets have
// had to wait for it, it is not alone again for a while, which doubles each time that it was alone for less.
//
// listener.turn guards it.
type soloPoll struct {
	now     func() time.Duration
	began   time.Duration // the present period
	polls   int           // in it
	since   time.Duration // when the consumer was last left alone
	until   time.Duration // when it may be again
	penalty time.Duration
}

const (
	// soloPeriod is the time for which a consumer is watched. One that polls often polls at least soloPolls times then.
	soloPeriod = time.Millisecond
	soloPolls  = 32
	// clockInterval is every how many polls.
	clockInterval = 16

	firstPenalty = 100 * time.Millisecond
	maxPenalty   = time.Minute
)

// notePoll takes note of a poll, and reports whether the consumer is to receive alone from now on.
func (b *soloPoll) notePoll() (alone bool) {
	b.polls++
	if b.polls%clockInterval != 0 {
		return false
	}
	now := b.now()
	length := now - b.began
	if length < soloPeriod {
		return false
	}
	alone = b.polls >= soloPolls && length < 2*soloPeriod && now >= b.until
	b.began, b.polls = now, 0
	if alone {
		b.since = now
	}
	return alone
}

// notePacketsWaited takes note that packets have waited for a consumer that was alone.
func (b *soloPoll) notePacketsWaited() {
	now := b.now()
	if now-b.since >= b.penalty {
		b.penalty = 0 // it was worth it
	}
	b.penalty = min(max(firstPenalty, 2*b.penalty), maxPenalty)
	b.until = now + b.penalty
}
