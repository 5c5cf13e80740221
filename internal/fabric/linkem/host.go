package linkem

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A host is how busy the machine's processors are.
type host struct {
	idle       func() (time.Duration, error) // how long all have been idle, in sum
	processors int

	since time.Duration // when idle was asked last
	was   time.Duration // what it said
	busy  bool          // the processors were, until then
}

// The host is looked at every hostWindow, in which the kernel's counting in
// hundredths of a second still tells something. It is saturated once its
// processors are idle for less than hostFull of the time, and no more when they
// are for over hostSpare: relieved a little, it stays saturated, lest it becomes so
// again and again.
//
// Where links delay anyway, a rest costs least, and what counts is whether there is a
// processor for the thread alone: it is saturated from less than delayedFull idle
// processors until there are delayedSpare. RDMA WRITEs through 1 ms and 10 Gb/s leave 0.4
// to 0.6 of two idle while the thread wakes for each departure, and 0.5 to 0.8 while it
// rests, when they are faster. Without a delay who waits for answers would be held up
// most: TCP had 8.7 Gb/s instead of 10.
const (
	hostWindow   = 100 * time.Millisecond
	hostFull     = 0.1
	hostSpare    = 0.3
	delayedFull  = 0.6
	delayedSpare = 1.0
)

// openHost opens what tells of this machine. Where that is missing no host is
// ever saturated.
func openHost() host {
	return host{idle: openUptime(), processors: runtime.NumCPU()}
}

// saturated reports whether the processors are busy, at an instant that never goes
// back. It begins to watch when it is first asked, and again when it has not been
// asked for some time. delayed says that all links delay.
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
