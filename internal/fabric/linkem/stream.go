package linkem

import (
	"math"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rest is how long the thread sleeps at a time while much arrives and the host has
// no processor to spare. Then it takes all that has come and sends all that is due.
//
// Being woken for each frame, it is there at once, but a wake-up costs it some 30
// us of processor time on a virtual machine, and as much the sender or receiver
// that it takes the processor from. Where those two have too little of it, resting
// carries more. RDMA WRITEs of 64 KiB on two processors that others use, too;
// processor time in ms per Gbit, the engine's and with sender and receiver, and
// what came of it:
//
//	         unimpaired            rate of 10 Gb/s
//	woken    106  301  4.4 Gb/s    161  383  3.2 Gb/s
//	resting   68  218  6.2 Gb/s     77  220  5.8 Gb/s
//
// The price is that packets leave up to a rest late. Without a stream, or with a
// processor idle, nobody pays it.
const rest = 200 * time.Microsecond

// A stream is how much arrives at all ports together.
type stream struct {
	since time.Duration // when the window began
	bytes int           // that arrived in it
	runs  bool          // in the window before
}

// What arrives is a stream if it is at least so many bytes over a window. That is
// long enough that no single message is one.
const (
	streamWindow = 500 * time.Microsecond
	streamBytes  = 128 << 10 // 2 Gb/s
)

// goesOn reports whether there is a stream, at an instant that never goes back.
func (s *stream) goesOn(now time.Duration) bool {
	if length := now - s.since; length >= streamWindow {
		s.runs = float64(s.bytes)/float64(length) >= streamBytes/float64(streamWindow)
		s.since, s.bytes = now, 0
	}
	return s.runs
}

// rests reports whether the thread had better rest than wait.
func (l *loop) rests(now time.Duration) bool {
	return l.stream.goesOn(now) && l.host.saturated(now, l.delayed()) && !l.more && (len(l.departures) == 0 || l.departures[0].release > now)
}

// rest sleeps, and says what events there are then.
func (l *loop) rest() (events int, err error) { return l.sleep(rest) }

// patient reports whether frames that arrive can wait for a rest: during a stream, and
// where every link delays them by longer. Then the thread wakes for departures alone, and
// packets leave as punctually as if it woke for each frame. At 1 ms and 10 Gb/s, as
// above but on a machine of its own, never resting:
//
//	woken for frames   120 ms per Gbit, the engine's   6.7 Gb/s   late by 50 us at the median
//	patient             87                             8.2        53
func (l *loop) patient() bool { return l.stream.runs && !l.more && l.delayed() }

// delayed reports whether every link delays packets by more than a rest.
func (l *loop) delayed() bool {
	if !l.known {
		l.known, l.leastDelay = true, l.ports.leastDelay()
	}
	return l.leastDelay > rest
}

// leastDelay is what every packet takes that arrives at one of the ports, or less.
func (s ports) leastDelay() time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, p := range s {
		least = min(least, p.line.model.LeastDelay())
	}
	return least
}

// sleep sleeps, and says what events there are then.
//
// The Go scheduler is not told: it would have another thread take this one's turn and
// give it back each time, and one more wake up to see to that, for 3 ms of processor
// time per Gbit.
func (l *loop) sleep(d time.Duration) (events int, err error) {
	l.timeout = unix.NsecToTimespec(int64(d))
	// It fails only if a signal ends the sleep early, which does no harm.
	_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&l.timeout)), 0, 0, 0)
	return l.look()
}
