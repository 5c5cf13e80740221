package udp

import (
	"time"

	"github.com/ndklab/ndklab/provider/clock"
)

// DefaultBusyPoll is how long a Carrier's goroutine looks for more after it has received
// something, before it sleeps.
const DefaultBusyPoll = 50 * time.Microsecond

// A spin decides how long a goroutine that has received looks for more before it sleeps.
// To be woken costs both ends some 30 us on a processor that was idle, more than most
// answers take to come. But looking in vain takes the processor from others. So it looks
// where that has lately been worth it: the goroutine was woken soon after it had gone to
// sleep, or found something while it was looking.
type spin struct {
	most    time.Duration // 0: never
	credit  int           // looks that may be in vain, of spinCredit at most; below 0: sleeps until the next
	now     func() time.Duration
	since   time.Duration // when it began to look, 0 if it does not
	last    time.Duration // of the looks
	sleptAt time.Duration
}

const (
	spinCredit = 8
	// away is how long a look may take. Where it takes longer, somebody else needed the
	// processor.
	away = 100 * time.Microsecond
	// restrained is how many short sleeps there must be until it looks again, after
	// somebody needed the processor.
	restrained = 64
)

func newSpin(most time.Duration) spin { return spin{most: most, now: clock.Real().Now} }

// arrived takes note of an arrival.
func (s *spin) arrived() {
	if s.since != 0 {
		s.credit = min(s.credit+1, spinCredit)
		s.since = 0
	}
}

// goesOn reports whether to look again.
func (s *spin) goesOn() bool {
	if s.credit <= 0 {
		return false
	}
	now := s.now()
	switch {
	case s.since == 0:
		s.since = now
	case now-s.last > away:
		s.credit, s.since = -restrained, 0
		return false
	case now-s.since > s.most:
		s.credit -= 2
		s.since = 0
		return false
	}
	s.last = now
	return true
}

// sleeps and woken take note of a sleep.
func (s *spin) sleeps() { s.sleptAt = s.now() }

func (s *spin) woken() {
	if s.now()-s.sleptAt < 2*s.most {
		s.credit = min(s.credit+1, spinCredit)
	}
}
