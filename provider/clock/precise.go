package clock

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/provider/descriptor"
)

// Precise returns a clock that tells the time of c and is woken as precisely as can be. It is for waits of which each
// microsecond counts, such as those between the packets of a queue pair that sends at a rate of its own. Each wake-up
// of a real one costs a system call more than one of c.
//
// A clock of another package has a method Precise to take part; one that has none is as precise as it is.
func Precise(c Clock) Clock {
	if p, ok := c.(interface{ Precise() Clock }); ok {
		return p.Precise()
	}
	return c
}

// Precise implements what the function Precise asks for.
func (realClock) Precise() Clock { return preciseClock{} }

// lateness bounds the lateness of Go's timers on Linux: the runtime waits for them in epoll_wait, whose unit is the
// millisecond (netpoll_epoll.go). Waits of that or more are left to them, and those that are over.
const lateness = time.Millisecond

// A preciseClock is the real clock, but that its short waits end within some tens of microseconds: the kernel's
// high-resolution timer has a descriptor become readable, which wakes the runtime at once.
//
// A timer that is set again and again for longer waits, as that of a retransmission is, costs no system call; one for a short
// wait costs one only if it is due before all others.
type preciseClock struct{ realClock }

// AfterFunc implements Clock.
func (preciseClock) AfterFunc(d time.Duration, f func()) Timer {
	t := &preciseTimer{f: f}
	t.Reset(d)
	return t
}

// A preciseTimer is one of Go's for a long wait, and an event of theAlarm for a short one. At most one of them is pending.
type preciseTimer struct {
	f func()

	mu    sync.Mutex // guards what follows; locked before theAlarm's
	long  *time.Timer
	short Timer // locked by theAlarm
}

// Stop implements Timer.
func (t *preciseTimer) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stop()
}

func (t *preciseTimer) stop() bool {
	pending := t.long != nil && t.long.Stop()
	return t.short != nil && theAlarm.stop(t.short) || pending
}

// Reset implements Timer.
func (t *preciseTimer) Reset(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	pending := t.stop()
	switch {
	case 0 < d && d < lateness && theAlarm.set(&t.short, d, t.f):
	case t.long == nil:
		t.long = time.AfterFunc(d, t.f)
	default:
		t.long.Reset(d)
	}
	return pending
}

// An alarm runs functions at instants, each in a goroutine of its own. Its zero value opens the kernel's timer when the
// first function is to be run, which from then on is the process's.
type alarm struct {
	mu     sync.Mutex // guards what follows
	queue  *Virtual   // of the functions; it stands at the instant up to which they have been run, or later
	timer  int        // descriptor of the kernel's timer, which ring reads; -1: the kernel has none to give
	setFor time.Duration
	isSet  bool // for setFor
}

// theAlarm is that of the process.
var theAlarm alarm

// set has f run d from now, by a timer that it makes or, if it is not pending, sets again. It returns false if the kernel has no
// timer.
func (a *alarm) set(t *Timer, d time.Duration, f func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.queue == nil {
		a.open()
	}
	if a.timer < 0 {
		return false
	}
	a.advance()
	if *t == nil {
		*t = a.queue.AfterFunc(d, func() { go f() })
	} else {
		(*t).Reset(d)
	}
	a.wind()
	return true
}

// stop stops a timer. The kernel's stays as it is: it costs less that it runs once in vain than to set it each time.
func (a *alarm) stop(t Timer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return t.Stop()
}

// open opens the kernel's timer.
func (a *alarm) open() {
	a.queue = NewVirtual()
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		a.timer = -1 // Go's timers will do, though later
		return
	}
	descriptor.Note(fd)
	a.timer = fd
	go a.ring(os.NewFile(uintptr(fd), "timerfd"))
}

// ring runs what is due each time that the kernel's timer expires.
func (a *alarm) ring(timer *os.File) {
	defer timer.Close()
	expirations := make([]byte, 8)
	for {
		if _, err := timer.Read(expirations); err != nil {
			return // somebody has closed all descriptors, those of the device's sockets included
		}
		a.mu.Lock()
		a.isSet = false
		a.advance()
		a.wind()
		a.mu.Unlock()
	}
}

// advance runs what is due.
func (a *alarm) advance() {
	now := Real().Now()
	for at, ok := a.queue.Next(); ok && at <= now; at, ok = a.queue.Next() {
		a.queue.Step()
	}
	a.queue.Advance(now)
}

// wind sets the kernel's timer for what is due next, unless it is set for then or earlier.
func (a *alarm) wind() {
	at, ok := a.queue.Next()
	if !ok || a.isSet && a.setFor <= at {
		return
	}
	wait := max(at-a.queue.Now(), 1) // 0 would stop it
	// It fails for no such arguments.
	_ = unix.TimerfdSettime(a.timer, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(wait))}, nil)
	a.setFor, a.isSet = at, true
}
