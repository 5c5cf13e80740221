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
	"github.com/ndklab/ndklab/provider/clock"
)

// This file is about who receives: a listener's own goroutine, which sleeps while nothing
// arrives, or whoever calls Poll.
//
// While somebody looks, nobody must be woken: a packet that arrives at a socket in Go's
// poller has the kernel wake a thread, at the sender's expense, which on another processor
// takes both from those who would use it. So what Go's poller watches is not the
// socket but an epoll instance with the socket in it, which can be muted: then
// arrivals do not show. It is, unless the goroutine sleeps and nobody polls.

// pollTick is the interval of the ticks that look whether somebody who polled has stopped, without Resume: packets wait for
// one of them, or two at most, and for as long as the clock's timers may be late.
const pollTick = 5 * time.Millisecond

// firstTick is the first interval of one who has just been left alone, and may not be one who polls (soloPoll): each tick that
// finds that they have polled is followed by one twice as long.
const firstTick = 500 * time.Microsecond

// A watch is an epoll instance of one socket.
type watch struct {
	file         *os.File
	raw          syscall.RawConn // of file
	pollsSeen    uint64          // listener.polls at the last tick; listener.turn guards it
	timer        clock.Timer     // of the next tick; nil before the first; listener.turn guards it
	maxTick      time.Duration   // pollTick; tests have others
	tickInterval time.Duration   // the present one, of maxTick at most; listener.turn guards it

	polled atomic.Bool // between the first Poll and Resume

	mu     sync.Mutex // guards what follows, and changes of polled
	socket int        // -1 when closed
	epoll  int
	muted  bool
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
	w.socket, w.epoll, w.maxTick = socket, epoll, pollTick
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

// mute hides arrivals from Go's poller, or shows them again: then those of before, too.
func (w *watch) mute(mute bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.polled.Load() {
		w.setMuted(mute)
	}
}

// setMuted is mute with w.mu held, whoever polls.
func (w *watch) setMuted(muted bool) {
	if w.muted == muted || w.socket < 0 {
		return
	}
	w.muted = muted
	event := unix.EpollEvent{Events: unix.EPOLLIN}
	if muted {
		event.Events = 0
	}
	// It fails for no reason that could arise here: both descriptors are open.
	_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_MOD, w.socket, &event)
}

// beginPolling has the goroutine sleep on, whatever arrives, until a tick finds that nobody polls any more; the first tick comes
// after a time. l.turn is held, so that from then on the goroutine takes nothing.
func (l *listener) beginPolling(tick time.Duration) {
	w := &l.watch
	w.mu.Lock()
	w.polled.Store(true)
	w.setMuted(true)
	w.mu.Unlock()
	w.pollsSeen, w.tickInterval = l.polls, min(tick, w.maxTick)
	l.setTick()
}

// setTick has the next tick come. l.turn is held.
func (l *listener) setTick() {
	w := &l.watch
	if w.timer == nil {
		w.timer = l.timers.AfterFunc(w.tickInterval, l.tick)
	} else {
		w.timer.Reset(w.tickInterval)
	}
}

// resume has arrivals wake the goroutine again, those of before, too.
func (w *watch) resume() {
	if !w.polled.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.polled.Store(false)
	w.setMuted(false)
	// Packets that arrived while it was muted need not show: epoll tells only once of a socket
	// that it had on its list already (ep_modify in fs/eventpoll.c). So the goroutine looks.
	w.wake()
}

// wake ends the goroutine's sleep. It then receives what has arrived.
func (w *watch) wake() { _ = w.file.SetReadDeadline(time.Unix(1, 0)) } // fails when it is closed

// receive delivers to r until the socket is closed, or until another goroutine has taken
// over because r took too long (watchdog).
func (l *listener) receive(r provider.Receiver) {
	deferrer, _ := r.(provider.Deferrer)
	watchdog, sleep := newWatchdog(l, r), newSleep(l, r)
	later := false // something is put off, for a moment
	for {
		n := l.step(r)
		if n == 0 && !later {
			if !l.watch.polled.Load() && l.busyPoll.mayPoll() {
				continue
			}
			var open bool
			if n, open = sleep.wait(); !open {
				return
			}
		}
		if n > 0 {
			l.busyPoll.noteArrival()
		}
		// The one who polls does what is put off, but for what we have received ourselves. When
		// they have stopped, it is left to us.
		if later = false; deferrer == nil || n == 0 && l.watch.polled.Load() {
			continue
		}
		var mine bool
		if later, mine = watchdog.run(deferrer); !mine {
			for later { // whoever has taken over knows nothing of it
				later = deferrer.Delivered()
			}
			return
		}
	}
}

// A sleep is a goroutine that waits for what arrives.
type sleep struct {
	l       *listener
	r       provider.Receiver
	onReady func(uintptr) bool // check; made once, since making it allocates
	woken   bool
	n       int // messages that were there
}

func newSleep(l *listener, r provider.Receiver) *sleep {
	s := &sleep{l: l, r: r}
	s.onReady = s.check
	return s
}

// wait waits until something has arrived, and gives it to r; false when the socket is
// closed. With 0 messages somebody polls, or did.
func (s *sleep) wait() (n int, open bool) {
	s.woken = false
	s.l.busyPoll.noteSleep()
	// The poller keeps an arrival in mind that comes after Read has begun.
	err := s.l.watch.raw.Read(s.onReady)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		// A wake from now on ends the next sleep; those before have us look what has arrived.
		_ = s.l.watch.file.SetReadDeadline(time.Time{}) // fails when it is closed
		return 0, true
	case err != nil:
		return 0, false
	}
	s.l.watch.mute(true)
	return s.n, true
}

// check reports whether something has arrived: Read calls it when it begins, and
// when something shows.
func (s *sleep) check(uintptr) bool {
	l := s.l
	if s.woken {
		l.busyPoll.noteWakeup()
		l.watch.mute(true)
		if s.n = l.step(s.r); s.n > 0 {
			return true
		}
	}
	s.woken = true
	l.watch.mute(false)
	s.n = l.step(s.r)
	return s.n > 0
}

// tick ends polling if nobody has polled since the last one. No thread is woken for it while somebody polls often, who runs it.
func (l *listener) tick() {
	l.turn.Lock()
	defer l.leaveTurn()
	polls := l.polls
	switch {
	case polls != l.watch.pollsSeen:
		l.watch.tickInterval = min(2*l.watch.tickInterval, l.watch.maxTick)
	case l.watch.polled.Load():
		if l.fd >= 0 && readable(l.fd) {
			l.soloPoll.notePacketsWaited()
		}
		l.watch.resume()
	}
	l.watch.pollsSeen = polls
	if l.watch.polled.Load() && l.fd >= 0 {
		l.setTick()
	}
}

// notePoll counts a poll, and returns its number. l.turn is held.
func (l *listener) notePoll() uint64 {
	l.polls++
	return l.polls
}

// advanceAfter has who polls run the ticks that are due, in every clockInterval-th poll. l.turn is not held.
func (l *listener) advanceAfter(poll uint64) {
	if poll%clockInterval == 0 {
		l.advance()
	}
}

// poll receives for whoever polls, and reports whether there was something.
func (l *listener) poll(r provider.Receiver) bool {
	if !l.turn.TryLock() {
		return false
	}
	polls := l.notePoll()
	if !l.watch.polled.Load() {
		l.beginPolling(l.watch.maxTick)
	}
	n := l.stepInTurn(r)
	l.leaveTurn()
	l.advanceAfter(polls)
	return n > 0
}

// maxSteps bounds the looks of one poll on behalf of the goroutine, before it leaves the rest to it: what comes without
// end must not keep whoever polls.
const maxSteps = 16

// soloSteps bounds the looks of a poll whose consumer receives alone: the call costs it more than a look.
const soloSteps = 4

// pollBeside is poll, but has the goroutine receive, too, unless soloPoll decides otherwise. The first message of all is left
// to the goroutine: many listeners, of the adapter's other addresses, never have any, and to look costs a system call.
func (l *listener) pollBeside(r provider.Receiver) (arrived, alone bool) {
	if !l.heard.Load() {
		return false, false
	}
	for range maxSteps {
		if !l.turn.TryLock() {
			return arrived, alone
		}
		polls := l.notePoll()
		missed := l.missed.Load()
		if missed {
			l.missed.Store(false)
		}
		n := l.stepInTurn(r)
		for look := 1; n == 0 && look < soloSteps && l.watch.polled.Load(); look++ {
			n = l.stepInTurn(r)
		}
		if missed && n > 0 {
			l.missed.Store(true) // there may be more
		}
		if !l.watch.polled.Load() && l.soloPoll.notePoll() {
			l.beginPolling(firstTick)
		}
		alone = l.watch.polled.Load()
		l.turn.Unlock()
		l.advanceAfter(polls)
		arrived = arrived || n > 0
		if !l.missed.Load() {
			return arrived, alone
		}
	}
	l.missed.Store(false)
	l.watch.wake()
	return arrived, alone
}

// catchUp receives what has arrived by now. It leaves to the goroutine what comes meanwhile, perhaps without end.
func (l *listener) catchUp(r provider.Receiver) {
	for range maxSteps {
		l.turn.Lock()
		l.missed.Store(false)
		n := l.stepInTurn(r)
		l.turn.Unlock()
		if n == 0 && !l.missed.Load() {
			return
		}
	}
	l.missed.Store(false)
	l.watch.wake()
}

// CatchUp implements provider.Poller.
func (c *Carrier) CatchUp(r provider.Receiver) {
	for _, l := range c.listeners {
		l.catchUp(r)
	}
}

// PollBeside implements provider.Poller.
func (c *Carrier) PollBeside(r provider.Receiver) (arrived, alone bool) {
	alone = true
	for _, l := range c.listeners {
		some, all := l.pollBeside(r)
		arrived, alone = arrived || some, alone && (all || !some)
	}
	return arrived, alone
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
