package linkem

import (
	"fmt"
	"math"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A poller waits for frames, commands and departures. It belongs to the loop's thread.
type poller struct {
	*epoch
	fd         int             // epoll instance
	ports      map[int32]*port // that frames are taken from, by descriptor
	departures *departures
	fabric     *fabric // nil: there is none
	stream     *stream
	host       host

	more   bool          // frames were left at a port
	early  time.Duration // how long before a departure to wake up
	credit time.Duration // for polling
	waited time.Duration // when the last wait began
	polled bool          // the last wait polled

	delayKnown bool          // leastDelay is that of the links as they are
	leastDelay time.Duration // what every packet takes that arrives at a port, or less

	events  [64]unix.EpollEvent
	timeout unix.Timespec // of wait

	old  bool           // the kernel has no epoll_pwait2(2), which Linux 5.11 brought
	self [1]unix.PollFd // the epoll instance, for ppoll(2)
}

// A thread cannot be woken on time, only early or late. It sleeps until early
// before a departure and polls from then on. early follows the lateness seen:
// it grows fast and shrinks slowly, so that most wake-ups are in time. Polling
// takes a processor from the nodes. It is bounded each time by maxEarly, and
// altogether to a share of the time by a credit that is spent on it. Without
// credit packets leave late by what waking up takes.
//
// A sleep costs processor time by itself (timer, switch to another task and back). One
// that is shorter than wakeCost saves nothing, and polling instead costs no credit.
const (
	wakeCost   = 15 * time.Microsecond
	maxEarly   = 40 * time.Microsecond
	minEarly   = time.Microsecond
	earlyGrow  = 8
	earlyDecay = 128
	pollShare  = 5 // one part in
	maxCredit  = time.Millisecond
)

// watch has wait return when a descriptor is readable.
func (w *poller) watch(fd int) error {
	if err := unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// add has frames taken from a port.
func (w *poller) add(p *port) error {
	if err := w.watch(p.fd); err != nil {
		return err
	}
	w.ports[int32(p.fd)] = p
	return nil
}

// remove ends what add began, if it did.
func (w *poller) remove(p *port) error {
	if w.ports[int32(p.fd)] != p {
		return nil
	}
	delete(w.ports, int32(p.fd))
	if err := unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, p.fd, nil); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// wait returns when there are events, whose number it returns, or when a departure
// is near.
func (w *poller) wait() (events int, err error) {
	began := w.now()
	if w.polled {
		w.credit -= began - w.waited
	} else {
		w.credit = min(maxCredit, w.credit+(began-w.waited)/pollShare)
	}
	w.waited, w.polled = began, false
	if w.coalesces(began) {
		return w.sleep(coalesceTime)
	}
	due, ok := w.next()
	if !ok {
		if w.framesCanWait() {
			return w.sleep(coalesceTime)
		}
		return w.block(nil)
	}
	left := due - began
	// The kernel may stretch a wait by a thousandth (fs/select.c,
	// select_estimate_accuracy) unless the thread has real-time priority.
	sleep := left - left/512 - min(w.early, max(w.credit, 0))
	if sleep <= min(w.early, wakeCost) {
		w.polled = sleep <= 0 && left > 0
		return w.look()
	}
	if w.framesCanWait() {
		sleep = min(sleep, coalesceTime)
		events, err = w.sleep(sleep)
		w.adapt(w.now() - began - sleep)
		return events, err
	}
	w.timeout = unix.NsecToTimespec(int64(sleep))
	events, err = w.block(&w.timeout)
	if events == 0 && err == nil {
		w.adapt(w.now() - began - sleep)
	}
	return events, err
}

// adapt sets early after a sleep that ended late by so much.
func (w *poller) adapt(late time.Duration) {
	if late > w.early {
		w.early = min(maxEarly, w.early+(late-w.early)/earlyGrow)
	} else {
		w.early = max(minEarly, w.early-(w.early-late)/earlyDecay)
	}
}

// coalesces reports whether the thread sleeps for coalesceTime rather than until the next
// frame or departure.
func (w *poller) coalesces(now time.Duration) bool {
	due, ok := w.next()
	return w.stream.goesOn(now) && w.fabric == nil && w.host.saturated(now, w.delayed()) && !w.more && (!ok || due > now)
}

// next returns when something is due next; false if nothing is.
func (w *poller) next() (due time.Duration, ok bool) {
	due, ok = w.fabric.deadline()
	if w.departures.Len() > 0 {
		if first := w.departures.First().release; !ok || first < due {
			return first, true
		}
	}
	return due, ok
}

// framesCanWait reports whether frames that arrive can wait for coalesceTime: during a
// stream, where every link delays them by longer. Then the thread wakes for departures
// alone, and packets leave as punctually as if it woke for each frame.
func (w *poller) framesCanWait() bool {
	return w.stream.runs && w.fabric == nil && !w.more && w.delayed()
}

// delayed reports whether every link delays packets by more than coalesceTime.
func (w *poller) delayed() bool {
	if !w.delayKnown {
		w.delayKnown, w.leastDelay = true, math.MaxInt64
		for _, p := range w.ports {
			for _, n := range p.line.link.lines {
				least := w.machine(n.model.LeastDelay())
				if n.link.peer != nil {
					least -= n.link.peer.offset.Trip() // some of it goes by on the way to the other host
				}
				w.leastDelay = min(w.leastDelay, least)
			}
		}
	}
	return w.leastDelay > coalesceTime
}

// sleep sleeps, and returns how many events there are then.
//
// The Go scheduler is not told: it would have another thread take this one's turn and
// give it back each time, and wake one more to see to that.
func (w *poller) sleep(d time.Duration) (events int, err error) {
	w.timeout = unix.NsecToTimespec(int64(d))
	// It fails only if a signal ends the sleep early, which does no harm.
	_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&w.timeout)), 0, 0, 0)
	return w.look()
}

// block waits for events until the timeout, if there is one, which is not the same afterwards.
func (w *poller) block(timeout *unix.Timespec) (int, error) {
	if w.old {
		return w.blockByPoll(timeout)
	}
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(w.fd), uintptr(unsafe.Pointer(&w.events[0])), uintptr(len(w.events)),
		uintptr(unsafe.Pointer(timeout)), 0, 0)
	if errno == unix.ENOSYS {
		w.old = true
		return w.blockByPoll(timeout)
	}
	return countEvents(n, errno)
}

// blockByPoll is block by ppoll(2), whose timeout is as fine, and another system call.
func (w *poller) blockByPoll(timeout *unix.Timespec) (int, error) {
	w.self[0] = unix.PollFd{Fd: int32(w.fd), Events: unix.POLLIN}
	n, _, errno := unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&w.self[0])), 1, uintptr(unsafe.Pointer(timeout)), 0, 0, 0)
	if n, err := countEvents(n, errno); n == 0 || err != nil {
		return 0, err
	}
	return w.look()
}

// look returns how many events there are. It never blocks, so that the Go scheduler
// need not be told.
func (w *poller) look() (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(w.fd), uintptr(unsafe.Pointer(&w.events[0])), uintptr(len(w.events)), 0, 0, 0)
	return countEvents(n, errno)
}

func countEvents(n uintptr, errno unix.Errno) (int, error) {
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	}
	return 0, fmt.Errorf("wait for frames: %w", errno)
}
