package udp

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/provider"
)

// This file is about who receives: a listener's own goroutine, which sleeps while nothing
// arrives, or whoever calls Poll.
//
// While somebody looks, nobody must be woken: a packet that arrives at a socket in Go's
// poller has the kernel wake a thread, at the sender's expense, which on another processor
// takes both from those who would use it. So what Go's poller watches is not the
// socket but an epoll instance with the socket in it, which can be hushed: then
// arrivals do not show. It is, unless the goroutine sleeps and nobody polls.

// pollTick is how long packets may wait for somebody who polled and has stopped, without
// Resume.
const pollTick = 5 * time.Millisecond

// A watch is an epoll instance of one socket.
type watch struct {
	file *os.File
	raw  syscall.RawConn // of file
	seen uint64          // listener.polls at the last tick; of the goroutine that runs receive
	tick time.Duration   // pollTick; tests have others

	polled atomic.Bool // between the first Poll and Resume

	mu     sync.Mutex // guards what follows, and changes of polled
	socket int        // -1 when closed
	epoll  int
	hushed bool
}

// open watches a socket.
func (w *watch) open(socket int) error {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err = unix.SetNonblock(epoll, true); err == nil { // else os.NewFile leaves it alone
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, socket, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	if err != nil {
		return errors.Join(os.NewSyscallError("epoll_ctl", err), unix.Close(epoll))
	}
	w.socket, w.epoll, w.tick = socket, epoll, pollTick
	w.file = os.NewFile(uintptr(epoll), "epoll of a UDP socket")
	w.raw, err = w.file.SyscallConn()
	return err
}

// close ends a sleep for good.
func (w *watch) close() error {
	w.mu.Lock()
	w.socket = -1
	w.mu.Unlock()
	return w.file.Close()
}

// hush has arrivals not show, or show again: then those of before, too.
func (w *watch) hush(hush bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.polled.Load() {
		w.setHushed(hush)
	}
}

// setHushed is hush with w.mu held, whoever polls.
func (w *watch) setHushed(hush bool) {
	if w.hushed == hush || w.socket < 0 {
		return
	}
	w.hushed = hush
	event := unix.EpollEvent{Events: unix.EPOLLIN}
	if hush {
		event.Events = 0
	}
	// It fails for no reason that could arise here: both descriptors are open.
	_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_MOD, w.socket, &event)
}

// beginPolling has the goroutine sleep on, whatever arrives, but for ticks. listener.turn is
// held, so that from then on the goroutine takes nothing.
func (w *watch) beginPolling() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.polled.Store(true)
	w.setHushed(true)
	_ = w.file.SetReadDeadline(time.Now().Add(w.tick)) // fails when it is closed
}

// resume has the goroutine woken by what arrives, or has.
func (w *watch) resume() {
	if !w.polled.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.polled.Store(false)
	w.setHushed(false)
	// What arrived while it was hushed need not show: epoll tells only once of a socket that it
	// had on its list already (ep_modify in fs/eventpoll.c). So the goroutine looks.
	_ = w.file.SetReadDeadline(time.Unix(1, 0))
}

// receive delivers to r until the socket is closed, or until another goroutine has taken
// over because r took too long (relief).
func (l *listener) receive(r provider.Receiver) {
	deferrer, _ := r.(provider.Deferrer)
	relief, sleep := newRelief(l, r), newSleep(l, r)
	later := false // something is put off, for a moment
	for {
		n := l.step(r)
		if n == 0 && !later {
			if !l.watch.polled.Load() && l.spin.goesOn() {
				continue
			}
			var open bool
			if n, open = sleep.wait(); !open {
				return
			}
		}
		if n > 0 {
			l.spin.arrived()
		}
		// Whoever polls does what is put off, but for what we have received ourselves. When they
		// have stopped, it is left to us.
		if later = false; deferrer == nil || n == 0 && l.watch.polled.Load() {
			continue
		}
		var mine bool
		if later, mine = relief.deliver(deferrer); !mine {
			for later { // whoever has taken over knows nothing of it
				later = deferrer.Delivered()
			}
			return
		}
	}
}

// A sleep is a goroutine that waits for what arrives.
type sleep struct {
	l     *listener
	r     provider.Receiver
	look  func(uintptr) bool // lookAround; made once, since making it allocates
	woken bool
	n     int // messages that were there
}

func newSleep(l *listener, r provider.Receiver) *sleep {
	s := &sleep{l: l, r: r}
	s.look = s.lookAround
	return s
}

// wait waits until something has arrived, and gives it to r; false when the socket is
// closed. With 0 messages somebody polls, or did.
func (s *sleep) wait() (n int, open bool) {
	s.woken = false
	s.l.spin.sleeps()
	// The poller keeps an arrival in mind that comes after Read has begun.
	err := s.l.watch.raw.Read(s.look)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.l.tick()
		return 0, true
	case err != nil:
		return 0, false
	}
	s.l.watch.hush(true)
	return s.n, true
}

// lookAround reports whether something has arrived: Read calls it when it begins, and
// when something shows.
func (s *sleep) lookAround(uintptr) bool {
	l := s.l
	if s.woken {
		l.spin.woken()
		l.watch.hush(true)
		if s.n = l.step(s.r); s.n > 0 {
			return true
		}
	}
	s.woken = true
	l.watch.hush(false)
	s.n = l.step(s.r)
	return s.n > 0
}

// tick ends polling if nobody has polled since the last one.
func (l *listener) tick() {
	l.turn.Lock()
	polls := l.polls
	l.turn.Unlock()
	if polls == l.watch.seen {
		l.watch.resume()
	}
	l.watch.seen = polls
	l.watch.mu.Lock() // lest a deadline that beginPolling sets just now is taken away
	defer l.watch.mu.Unlock()
	deadline := time.Time{}
	if l.watch.polled.Load() {
		deadline = time.Now().Add(l.watch.tick)
	}
	_ = l.watch.file.SetReadDeadline(deadline)
}

// poll receives for whoever polls, and reports whether there was something.
func (l *listener) poll(r provider.Receiver) bool {
	if !l.turn.TryLock() {
		return false
	}
	l.polls++
	if !l.watch.polled.Load() {
		l.watch.beginPolling()
	}
	n := l.stepInTurn(r)
	l.turn.Unlock()
	return n > 0
}

// Poll implements provider.Poller.
func (c *Carrier) Poll(r provider.Receiver) (arrived bool) {
	for _, l := range c.listeners {
		arrived = l.poll(r) || arrived
	}
	return arrived
}

// Resume implements provider.Poller.
func (c *Carrier) Resume() {
	for _, l := range c.listeners {
		l.watch.resume()
	}
}
