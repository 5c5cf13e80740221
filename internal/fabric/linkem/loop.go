package linkem

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A loop is the engine at work: one thread that waits for frames, departures and commands,
// and handles whichever comes first. All but commands belongs to that thread.
type loop struct {
	commands commandQueue // of any goroutine
	poller   poller       // waits
	ingress  ingress      // receives, decides and enqueues
	egress   egress       // sends
	links    linkTable    // the links and their states
	fabric   *fabric      // switches with packet buffers; nil: there is none
	trunks   trunks       // the engines of other hosts
	closing  bool         // the thread is to end
}

// An epoch is the instant that all others count from. It lies so far back that no instant
// is negative, also of frames that arrived before the engine began.
type epoch struct {
	time.Time
	dilation
}

// now returns the present instant since the epoch, monotonic.
func (e *epoch) now() time.Duration { return time.Since(e.Time) }

func newLoop(dilated dilation) (*loop, error) {
	memory, err := newPool(budget)
	if err != nil {
		return nil, err
	}
	began := &epoch{time.Now().Add(-2 * maxHandover), dilated}
	l := &loop{}
	l.egress = egress{epoch: began, memory: memory, sender: newSender()}
	l.ingress = newIngress(began, memory, &l.egress)
	l.poller = poller{
		epoch: began, ports: map[int32]*port{}, departures: &l.egress.departures, stream: &l.ingress.stream,
		host: openHost(), early: maxEarly / 2,
	}
	l.links = linkTable{epoch: began, poller: &l.poller, ingress: &l.ingress, egress: &l.egress, byName: map[string]*link{}}
	l.trunks = trunks{epoch: began, poller: &l.poller, ingress: &l.ingress, egress: &l.egress, byName: map[string]*peer{}, byFD: map[int32]*peer{}, timer: -1}
	l.ingress.trunks, l.links.trunks = &l.trunks, &l.trunks
	if l.poller.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if l.commands.eventfd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	if err := l.poller.watch(l.commands.eventfd); err != nil {
		return nil, err
	}
	return l, nil
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
		n, err := l.poller.wait()
		if err != nil {
			return err
		}
		more := false
		for _, e := range l.poller.events[:n] {
			if p := l.poller.ports[e.Fd]; p != nil {
				more = l.ingress.receive(p) || more
			} else if int(e.Fd) == l.commands.eventfd {
				l.runCommands()
			} else {
				l.trunks.take(&e)
			}
		}
		l.poller.more = more
		l.fabric.run()
		l.egress.sendDue()
	}
	return nil
}

// runCommands runs the commands that have come. Each may change links.
func (l *loop) runCommands() {
	for _, f := range l.commands.take() {
		f()
	}
	l.poller.delayKnown = false
}

// end has later commands refused, and runs those that came in time.
func (l *loop) end() {
	l.commands.refuse()
	l.runCommands()
}

// A commandQueue takes functions from any goroutine to the loop's thread.
type commandQueue struct {
	eventfd int // readable while there are functions

	mu    sync.Mutex // guards what follows
	queue []func()
	ended bool // no more are taken
}

var errEnded = errors.New("the engine is ending")

// do has the loop's thread run f, waits for that and returns its error. It returns errEnded
// if the loop has ended.
func (c *commandQueue) do(f func() error) (err error) {
	done := make(chan struct{})
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return errEnded
	}
	c.queue = append(c.queue, func() { err = f(); close(done) })
	c.mu.Unlock()
	// An eventfd refuses a write only when its counter is full, and then it is readable.
	_, _ = unix.Write(c.eventfd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-done
	return err
}

// take returns the functions that wait to be run.
func (c *commandQueue) take() []func() {
	var count [8]byte
	_, _ = unix.Read(c.eventfd, count[:]) // resets it; there is nothing else to learn
	c.mu.Lock()
	defer c.mu.Unlock()
	queue := c.queue
	c.queue = nil
	return queue
}

// refuse takes no more functions.
func (c *commandQueue) refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}
