package linkem

import (
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"golang.org/x/sys/unix"
)

// A loop is the engine at work: one thread that waits for frames, departures
// and commands, whichever comes first. All but the relays and the command queue
// belongs to that thread.
type loop struct {
	relays relays // no business of the thread's
	poll   int    // epoll instance
	wake   int    // eventfd: there are commands

	mu       sync.Mutex // guards commands and ended
	commands []func()
	ended    bool

	epoch      time.Time // so that no instant is negative, also of frames from before
	links      map[string]*link
	ports      ports
	departures departures
	early      time.Duration // how long before a departure to wake up
	credit     time.Duration // for polling
	waited     time.Duration // when the last wait began
	polled     bool          // the last wait polled
	stream     stream
	leastDelay time.Duration // of all ports together, if known
	known      bool          // since the last command
	host       host
	more       bool // frames were left at a port

	events   [64]unix.EpollEvent
	timeout  unix.Timespec // of wait
	receiver *frame.Receiver
	staging  [receiveBatch]*buffer // where the receiver puts frames
	sender   *sender
	pool     *pool
	spare    []*held          // for reuse
	runs     []run            // of the frame at hand
	verdicts []impair.Verdict // on its packets, if somebody taps its link
	offset   int64            // ns from the loop's epoch to that of the wall clock, when frames were last received
	packet   impair.Packet
	identity impair.Identity // of packet, if it is RoCEv2
	recorder *recorder       // nil: nobody asked
	losses   losses          // the last ones
	log      *impair.Log     // that links replay; nil: none
	closing  bool
}

// ports are the ports that frames are taken from, by descriptor.
type ports map[int32]*port

// receiveBatch bounds the frames received at once: few enough to stay in the
// processor's cache between receiving and sending.
const receiveBatch = 8

// A thread cannot be woken on time, only early or late. It sleeps until early
// before a departure and polls from then on. early follows the lateness seen:
// it grows fast and shrinks slowly, so that most wake-ups are in time. Polling
// takes a processor from the nodes, so that it is bounded: each time by
// maxEarly, and altogether to a share of the time by a credit that is spent on
// it. Without credit packets leave late by what waking up takes, 5 to 40 us.
//
// A sleep costs the processor up to 20 us by itself on a virtual machine (timer,
// switch to another task and back), so that one that is shorter saves nothing:
// polling instead costs no credit.
const (
	wakeCost   = 15 * time.Microsecond
	maxEarly   = 40 * time.Microsecond
	minEarly   = time.Microsecond
	earlyGrow  = 8
	earlyDecay = 128
	pollShare  = 5 // one part in
	maxCredit  = time.Millisecond
)

func newLoop() (*loop, error) {
	memory, err := newPool(budget)
	if err != nil {
		return nil, err
	}
	l := &loop{
		epoch: time.Now().Add(-2 * maxHandover), links: map[string]*link{}, ports: ports{},
		early: maxEarly / 2, host: openHost(), sender: newSender(), pool: memory,
	}
	buffers := make([][]byte, receiveBatch)
	for i := range l.staging {
		l.staging[i] = l.pool.get()
		buffers[i] = l.staging[i].bytes
	}
	l.receiver = frame.NewReceiver(buffers)
	if l.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	if err := l.watch(l.wake); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *loop) watch(fd int) error {
	if err := unix.EpollCtl(l.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// now is the present instant since the loop's epoch, monotonic.
func (l *loop) now() time.Duration { return time.Since(l.epoch) }

// do has the loop run f and waits for that. It is false if the loop has ended.
func (l *loop) do(f func()) bool {
	done := make(chan struct{})
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return false
	}
	l.commands = append(l.commands, func() { f(); close(done) })
	l.mu.Unlock()
	l.ring()
	<-done
	return true
}

// ring wakes the thread.
func (l *loop) ring() {
	// An eventfd refuses a write only when its counter is full: awake enough.
	_, _ = unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// run is the thread. It ends after a command has set closing.
func (l *loop) run() error {
	runtime.LockOSThread() // for good
	defer l.end()
	// Timers without slack, for the loop's thread alone.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	for !l.closing {
		n, err := l.wait()
		if err != nil {
			return err
		}
		l.more = false
		for _, e := range l.events[:n] {
			if p := l.ports[e.Fd]; p != nil {
				l.more = l.receive(p) || l.more
			} else if int(e.Fd) == l.wake {
				l.obey()
			}
		}
		// Some, not all, so that a backlog does not keep frames from being received.
		for range 4 {
			if len(l.departures) == 0 || l.departures[0].release > l.now() {
				break
			}
			l.send(l.departures[0])
		}
	}
	return nil
}

// end has later commands refused, and runs those that came in time.
func (l *loop) end() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.obey()
}

// obey runs the commands.
func (l *loop) obey() {
	var count [8]byte
	_, _ = unix.Read(l.wake, count[:]) // resets it; there is nothing else to learn
	l.mu.Lock()
	commands := l.commands
	l.commands = nil
	l.mu.Unlock()
	for _, f := range commands {
		f()
	}
	l.known = false
}

// wait returns when there are events, whose number it says, or when a departure
// is near.
func (l *loop) wait() (events int, err error) {
	began := l.now()
	if l.polled {
		l.credit -= began - l.waited
	} else {
		l.credit = min(maxCredit, l.credit+(began-l.waited)/pollShare)
	}
	l.waited, l.polled = began, false
	if l.rests(began) {
		return l.rest()
	}
	if len(l.departures) == 0 {
		if l.patient() {
			return l.rest()
		}
		return l.block(nil)
	}
	left := l.departures[0].release - began
	// The kernel may stretch a wait by a thousandth (fs/select.c,
	// select_estimate_accuracy) unless the thread has real-time priority.
	sleep := left - left/512 - min(l.early, max(l.credit, 0))
	if sleep <= min(l.early, wakeCost) {
		l.polled = sleep <= 0 && left > 0
		return l.look()
	}
	if l.patient() {
		sleep = min(sleep, rest)
		events, err = l.sleep(sleep)
		l.adapt(l.now() - began - sleep)
		return events, err
	}
	l.timeout = unix.NsecToTimespec(int64(sleep))
	events, err = l.block(&l.timeout)
	if events == 0 && err == nil {
		l.adapt(l.now() - began - sleep)
	}
	return events, err
}

// adapt takes note that a sleep ended late by so much.
func (l *loop) adapt(late time.Duration) {
	if late > l.early {
		l.early = min(maxEarly, l.early+(late-l.early)/earlyGrow)
	} else {
		l.early = max(minEarly, l.early-(l.early-late)/earlyDecay)
	}
}

// block waits for events until the timeout, if there is one.
func (l *loop) block(timeout *unix.Timespec) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.poll), uintptr(unsafe.Pointer(&l.events[0])), uintptr(len(l.events)),
		uintptr(unsafe.Pointer(timeout)), 0, 0)
	return outcome(n, errno)
}

// look says what events there are. It never blocks, which the Go scheduler
// need not be told.
func (l *loop) look() (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.poll), uintptr(unsafe.Pointer(&l.events[0])), uintptr(len(l.events)), 0, 0, 0)
	return outcome(n, errno)
}

func outcome(n uintptr, errno unix.Errno) (int, error) {
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	}
	return 0, fmt.Errorf("epoll_pwait: %w", errno)
}
