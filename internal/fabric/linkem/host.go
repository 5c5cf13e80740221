package linkem

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A host measures how busy the machine's processors are.
type host struct {
	idle       func() (time.Duration, error) // how long all have been idle, in sum
	processors int

	since time.Duration // when idle was asked last
	was   time.Duration // what it said
	busy  bool          // the processors were, until then
}

// The host is measured every hostWindow, over which the kernel's counting in hundredths of a
// second is precise enough. It is saturated once its processors are idle for less than
// hostFull of the time, until they are for over hostSpare. The gap between the two keeps it
// from changing all the time, since coalescing relieves it a little.
//
// Where every link delays, coalescing costs least, and the question is whether there is a
// processor for the thread alone: the host is saturated from less than delayedFull idle
// processors until there are delayedSpare. Without a delay the same bounds would hold up a
// sender that waits for answers.
const (
	hostWindow   = 100 * time.Millisecond
	hostFull     = 0.1
	hostSpare    = 0.3
	delayedFull  = 0.6
	delayedSpare = 1.0
)

// openHost returns the host that this process runs on. It is never saturated where the
// kernel does not report idle time.
func openHost() host {
	return host{idle: openUptime(), processors: runtime.NumCPU()}
}

// saturated reports whether the processors are busy, at an instant that never goes
// back. It begins to watch when it is first asked, and again when it has not been
// asked for some time. delayed is true if all links delay.
func (h *host) saturated(now time.Duration, delayed bool) bool {
	length := now - h.since
	if length < hostWindow {
		return h.busy
	}
	idle, err := h.idle()
	if err != nil {
		h.since, h.busy = now, false
		return false
	}
	full, spare := hostFull*float64(h.processors), hostSpare*float64(h.processors)
	if delayed {
		full, spare = delayedFull, delayedSpare
	}
	if h.busy {
		full = spare
	}
	h.busy = length < 2*hostWindow && float64(idle-h.was)/float64(length) < full
	h.since, h.was = now, idle
	return h.busy
}

// openUptime opens /proc/uptime, to read its second number (proc_uptime(5)).
func openUptime() func() (time.Duration, error) {
	fd, err := unix.Open("/proc/uptime", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return func() (time.Duration, error) { return 0, err }
	}
	var text [64]byte
	return func() (time.Duration, error) {
		n, err := unix.Pread(fd, text[:], 0)
		if err != nil {
			return 0, fmt.Errorf("/proc/uptime: %w", err)
		}
		_, idle, _ := bytes.Cut(bytes.TrimSpace(text[:n]), []byte(" "))
		seconds, err := strconv.ParseFloat(string(idle), 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/uptime: %w", err)
		}
		return time.Duration(seconds * float64(time.Second)), nil
	}
}
