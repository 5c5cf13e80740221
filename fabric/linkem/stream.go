package linkem

import (
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
	return l.stream.goesOn(now) && l.host.saturated(now) && !l.more && (len(l.departures) == 0 || l.departures[0].release > now)
}

// rest sleeps, and says what events there are then.
func (l *loop) rest() (events int, err error) {
	l.timeout = unix.NsecToTimespec(int64(rest))
	// It fails only if a signal ends the sleep early, which does no harm.
	_, _, _ = unix.Syscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&l.timeout)), 0, 0, 0)
	return l.look()
}
