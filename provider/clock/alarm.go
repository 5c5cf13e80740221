package clock

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/priority"
	"github.com/ndklab/ndklab/internal/provider/descriptor"
)

// An alarm runs functions at instants, each in a goroutine of its own: the kernel's high-resolution timer has a descriptor
// become readable, which wakes the runtime at once. Its zero value opens that timer when the first function is to be run, and it
// is the process's from then on.
type alarm struct {
	mu     sync.Mutex // guards what follows
	queue  priority.Queue[*event]
	opened bool
	timer  *os.File    // the kernel's timer, which ring reads
	fd     int         // timer's descriptor
	late   *time.Timer // in its place where the kernel has none to give, or the runtime cannot wait for it; else nil
	setFor time.Duration
	isSet  bool // for setFor
}

// theAlarm is that of the process.
var theAlarm alarm

// An event is a function that is to run. The lock of the queue that it is in guards at and place.
type event struct {
	f     func()
	at    time.Duration // by Real
	place priority.Place
}

// Before implements priority.Item.
func (e *event) Before(other *event) bool { return e.at < other.at }

// Place implements priority.Item.
func (e *event) Place() *priority.Place { return &e.place }

// takeDue takes out the first event if it is due at an instant, and returns its function; nil if none is.
func takeDue(queue *priority.Queue[*event], now time.Duration) (f func()) {
	if queue.Len() == 0 || queue.First().at > now {
		return nil
	}
	e := queue.First()
	queue.Remove(e)
	return e.f
}

// set has an event's function run at an instant, and not at another one that it was set for.
func (a *alarm) set(e *event, at time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.at = at
	a.queue.Put(e)
	a.wind()
}

// stop takes an event out, and reports whether it was pending. The kernel's timer stays as it is: it costs less that it runs once
// in vain than to set it each time.
func (a *alarm) stop(e *event) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	pending := e.place.Queued()
	a.queue.Remove(e)
	return pending
}

// settle has the kernel's timer not run before something is due: whoever has put an event off calls it, to whom a run in vain is
// dearer than a system call.
func (a *alarm) settle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.isSet:
	case a.queue.Len() == 0:
		a.isSet = false
		a.setTimer(0)
	case a.queue.First().at > a.setFor:
		a.isSet = false
		a.wind()
	}
}

// wind sets the kernel's timer for what is due next, unless it is set for then or earlier. The lock is held.
func (a *alarm) wind() {
	if a.queue.Len() == 0 {
		return
	}
	at := a.queue.First().at
	if a.isSet && a.setFor <= at {
		return
	}
	if !a.opened {
		a.open()
	}
	a.setFor, a.isSet = at, true
	a.setTimer(max(at-Real().Now(), 1))
}

// setTimer sets the kernel's timer, or its substitute, after a wait; 0 stops it. The lock is held.
func (a *alarm) setTimer(wait time.Duration) {
	switch {
	case a.late == nil:
		// It fails for no such arguments.
		_ = unix.TimerfdSettime(a.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(wait))}, nil)
	case wait == 0:
		a.late.Stop()
	default:
		a.late.Reset(wait)
	}
}

// open opens the kernel's timer. The lock is held.
func (a *alarm) open() {
	a.opened = true
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		a.replace()
		return
	}
	descriptor.Note(fd)
	a.fd, a.timer = fd, os.NewFile(uintptr(fd), "timerfd")
	go a.ring()
}

// replace has a timer of Go's take the place of the kernel's, though it is later. The lock is held.
func (a *alarm) replace() { a.late = time.AfterFunc(time.Hour, a.expire) }

// ring runs what is due each time that the kernel's timer expires. If the runtime cannot wait for that, as where the user has no room
// in epoll for another descriptor (max_user_watches), it leaves all to a timer of Go's. The descriptor stays as it is: somebody may
// have closed it, and its number be another's.
func (a *alarm) ring() {
	expirations := make([]byte, 8)
	for {
		if _, err := a.timer.Read(expirations); err != nil {
			break
		}
		a.expire()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replace()
	a.isSet = false
	a.wind()
}

// expire runs what is due.
func (a *alarm) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isSet = false
	now := Real().Now()
	for f := takeDue(&a.queue, now); f != nil; f = takeDue(&a.queue, now) {
		go f()
	}
	a.wind()
}
