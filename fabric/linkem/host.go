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
const (
	hostWindow = 100 * time.Millisecond
	hostFull   = 0.1
	hostSpare  = 0.3
)

// openHost opens what tells of this machine. Where that is missing no host is
// ever saturated.
func openHost() host {
	return host{idle: openUptime(), processors: runtime.NumCPU()}
}

// saturated reports whether the processors are busy, at an instant that never goes
// back. It begins to watch when it is first asked, and again when it has not been
// asked for some time.
func (h *host) saturated(now time.Duration) bool {
	length := now - h.since
	if length < hostWindow {
		return h.busy
	}
	idle, err := h.idle()
	if err != nil {
		h.since, h.busy = now, false
		return false
	}
	limit := hostFull
	if h.busy {
		limit = hostSpare
	}
	share := float64(idle-h.was) / float64(length) / float64(h.processors)
	h.busy = length < 2*hostWindow && share < limit
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
