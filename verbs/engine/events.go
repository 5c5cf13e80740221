package main

import "C"

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// An outbox has the events for one of the library's sockets. Some hundred wait in the socket, as many as the kernel has
// room for, and the others here, in order. None is lost, however late the program reads.
type outbox struct {
	fd int

	mu       sync.Mutex // guards what follows; taken with queue pairs' locks held
	waiting  []event    // oldest first
	held     bool       // by the library: nothing is to be sent
	draining bool       // there is a goroutine that sends what waits
}

// An event is about the object with a cookie.
type event struct {
	cookie  uint64
	message []byte
}

var (
	// outboxes are those of all sockets, by descriptor. One of a socket that is closed is empty, and its
	// descriptor's next socket's.
	outboxes sync.Map // int to *outbox

	drainedMu sync.Mutex
	drained   = map[*outbox]struct{}{} // in which events wait, also while they are held; guarded by drainedMu
)

func outboxOf(fd int) *outbox {
	if o, ok := outboxes.Load(fd); ok {
		return o.(*outbox)
	}
	o, _ := outboxes.LoadOrStore(fd, &outbox{fd: fd})
	return o.(*outbox)
}

// put sends an event, now or when there is room. It does not wait.
func (o *outbox) put(e event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) == 0 && !o.held && o.send(e) {
		return
	}
	o.waiting = append(o.waiting, e)
	drainedMu.Lock()
	drained[o] = struct{}{}
	drainedMu.Unlock()
	o.startDrain()
}

// startDrain starts the goroutine that sends waiting events. o.mu is held.
func (o *outbox) startDrain() {
	if !o.draining && !o.held && len(o.waiting) > 0 {
		o.draining = true
		go o.drain()
	}
}

// send sends an event, and reports false if there is no room. One for a program that has closed its end is dropped.
func (o *outbox) send(e event) bool {
	return unix.Send(o.fd, e.message, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) != unix.EAGAIN
}

// drainWait bounds a wait for room that has become needless.
const drainWait = 100 * time.Millisecond

// drain sends waiting events until there are none.
func (o *outbox) drain() {
	for {
		// An error is for send to find.
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(o.fd), Events: unix.POLLOUT}}, int(drainWait/time.Millisecond))
		if o.step() {
			return
		}
	}
}

// step sends the events that there is room for, and reports whether drain is to end.
func (o *outbox) step() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for !o.held && n < len(o.waiting) && o.send(o.waiting[n]) {
		n++
	}
	o.waiting = slices.Delete(o.waiting, 0, n)
	if len(o.waiting) > 0 && !o.held {
		return false
	}
	o.draining = false
	if len(o.waiting) > 0 {
		return true // until it is held no longer
	}
	o.waiting = nil
	drainedMu.Lock()
	delete(drained, o)
	drainedMu.Unlock()
	return true
}

// remove drops the events that are to be dropped.
func (o *outbox) remove(drop func(event) bool) {
	o.mu.Lock()
	o.waiting = slices.DeleteFunc(o.waiting, drop)
	o.mu.Unlock()
}

//export engineHoldEvents
func engineHoldEvents(fd, hold C.int) C.int {
	o := outboxOf(int(fd))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = hold != 0
	o.startDrain()
	return 0
}

// forget drops the events of an object that is gone: the library removes those that wait in its sockets.
func forget(cookie uint64) {
	drainedMu.Lock()
	boxes := make([]*outbox, 0, len(drained))
	for o := range drained {
		boxes = append(boxes, o)
	}
	drainedMu.Unlock()
	for _, o := range boxes {
		o.remove(func(e event) bool { return e.cookie == cookie })
	}
}
