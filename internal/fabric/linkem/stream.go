package linkem

import "time"

// coalesceTime is the length of each sleep of the thread while much arrives and the host has
// no processor to spare. After it the thread takes all that has come and sends all that is
// due, as an adapter does that coalesces interrupts.
//
// A thread that is woken for each frame is there at once, but each wake-up costs processor
// time, the thread's and that of the sender or receiver that it takes the processor from.
// Where those have too little of it, sleeping for a fixed time carries more
// (bench/README.md). The price is that packets leave up to coalesceTime late. Nobody pays
// it without a stream, or while a processor is idle.
const coalesceTime = 200 * time.Microsecond

// A stream measures how much arrives at all ports together. It belongs to the loop's thread.
type stream struct {
	since time.Duration // when the window began
	bytes int           // that arrived in it
	runs  bool          // in the window before
}

// Frames that arrive are a stream if they have at least streamBytes over a window. The window
// is long enough that no single message is one.
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
