package udp

import (
	"time"

	"github.com/ndklab/ndklab/provider/clock"
)

// DefaultBusyPoll is the time for which a Carrier's goroutine looks for more after it has
// received something, before it sleeps.
const DefaultBusyPoll = 50 * time.Microsecond

// A busyPoll decides how long a goroutine that has received looks for more before it sleeps.
// To be woken costs both ends more, on a processor that was idle, than most
// answers take to come. But looking in vain takes the processor from others. So it looks
// where that has lately been worth it: the goroutine was woken soon after it had gone to
// sleep, or found something while it was looking.
type busyPoll struct {
	most    time.Duration // 0: never
	credit  int           // looks that may be in vain, of maxPollCredit at most; below 0: sleeps until the next
	now     func() time.Duration
	since   time.Duration // when it began to look, 0 if it does not
	last    time.Duration // of the looks
	sleptAt time.Duration
}

const (
	maxPollCredit = 8
	// maxPollTime bounds the time that a look takes. Where it takes longer, somebody else needed
	// the processor.
	maxPollTime = 100 * time.Microsecond
	// sleepsAfterPreemption is the number of short sleeps that there must be until it looks
	// again, after somebody needed the processor.
	sleepsAfterPreemption = 64
)

func newBusyPoll(most time.Duration) busyPoll { return busyPoll{most: most, now: clock.Real().Now} }

// noteArrival takes note of an arrival.
func (s *busyPoll) noteArrival() {
	if s.since != 0 {
		s.credit = min(s.credit+1, maxPollCredit)
		s.since = 0
	}
}

// mayPoll reports whether to look again.
func (s *busyPoll) mayPoll() bool {
	if s.credit <= 0 {
		return false
	}
	now := s.now()
	switch {
	case s.since == 0:
		s.since = now
	case now-s.last > maxPollTime:
		s.credit, s.since = -sleepsAfterPreemption, 0
		return false
	case now-s.since > s.most:
		s.credit -= 2
		s.since = 0
		return false
	}
	s.last = now
	return true
}

// noteSleep and noteWakeup take note of a sleep.
func (s *busyPoll) noteSleep() { s.sleptAt = s.now() }

func (s *busyPoll) noteWakeup() {
	if s.now()-s.sleptAt < 2*s.most {
		s.credit = min(s.credit+1, maxPollCredit)
	}
}
