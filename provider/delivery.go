package provider

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/roce"
)

// A delivery is what is put off while packets are handled that a Poller delivers:
// consumers' callbacks, which need not be taken to another goroutine, as nothing is held
// afterwards, and acknowledgements. The consumer mostly answers, and its answer need not
// wait until the acknowledgement is made, which the peer waits for less: of a ping-pong's
// half round trip of 3 us it would take 0.7. An answer that the peer may refuse, which
// would end the connection, does wait (rc.QP.HoldAcknowledgement); and what is still owed
// when the connection ends is told before.
//
// What was put off by Receive is done by Delivered, of whichever goroutine. What was put off
// by a consumer that polls is done by itself, when it has found its CQ empty again, or
// by Delivered when it has stopped polling.
//
// While a lot of data comes in, acknowledgements are put off a little longer, until there is
// a pause or a good deal to acknowledge: each has the peer complete requests and post others,
// which is the cheaper the more there are at once. Of WRITEs of 64 KiB every message was
// acknowledged for itself, which took each end a tenth of its time.
type delivery struct {
	mu        sync.Mutex // guards what follows
	callbacks []*callbacks
	owing     []*QP         // that owe their peer an acknowledgement
	bytes     int           // that arrived since somebody owes one
	last      time.Duration // when some last did

	owed atomic.Int32 // len(owing), to be read without the lock
}

const (
	// bulk is from how many bytes on a delivery counts as a lot, and enough is how many are
	// acknowledged in any case, of the megabyte that a peer sends at most on a short path.
	bulk   = 32 << 10
	enough = 256 << 10
	// pause is how long nothing arrives when it was all: what a batch of 64 KiB takes.
	pause = 10 * time.Microsecond
)

// call has the callbacks run by Delivered.
func (d *delivery) call(c *callbacks) {
	d.mu.Lock()
	d.callbacks = append(d.callbacks, c)
	d.mu.Unlock()
}

// owe has the queue pair, to which so many bytes have just come, acknowledge later.
func (d *delivery) owe(qp *QP, bytes int, now time.Duration) {
	d.mu.Lock()
	if !qp.owing.Swap(true) {
		d.owing = append(d.owing, qp)
		d.owed.Store(int32(len(d.owing)))
	}
	d.bytes += bytes
	d.last = now
	d.mu.Unlock()
}

// due reports whether it is time to acknowledge what is owed.
func (d *delivery) due(c clock.Clock) bool {
	d.mu.Lock()
	bytes, last := d.bytes, d.last
	d.mu.Unlock()
	return bytes < bulk || bytes >= enough || c.Now()-last >= pause
}

// nextCallbacks takes the newest of the callbacks; nil if there are none.
func (d *delivery) nextCallbacks() *callbacks {
	d.mu.Lock()
	defer d.mu.Unlock()
	return takeLast(&d.callbacks)
}

// nextOwing takes the newest of the queue pairs; nil if there are none.
func (d *delivery) nextOwing() *QP {
	d.mu.Lock()
	defer d.mu.Unlock()
	qp := takeLast(&d.owing)
	if qp != nil {
		qp.owing.Store(false)
	}
	d.owed.Store(int32(len(d.owing)))
	d.bytes = 0
	return qp
}

func takeLast[T any](list *[]*T) *T {
	last := len(*list) - 1
	if last < 0 {
		return nil
	}
	t := (*list)[last]
	(*list)[last] = nil
	*list = (*list)[:last]
	return t
}

// acknowledgeIfDue has the queue pairs acknowledge that owe it, if it is time, and reports
// whether some still do.
func (m *Miniport) acknowledgeIfDue() (later bool) {
	if m.delivery.owed.Load() == 0 {
		return false
	}
	if !m.delivery.due(m.clock) {
		return true
	}
	m.acknowledge()
	return false
}

// acknowledge has the queue pairs acknowledge that owe it.
func (m *Miniport) acknowledge() {
	for qp := m.delivery.nextOwing(); qp != nil; qp = m.delivery.nextOwing() {
		qp.acknowledge()
	}
}

// A deferrer is the Miniport as the goroutines of a Poller see it.
type deferrer struct{ m *Miniport }

func (d deferrer) Receive(packets []roce.Received) { d.m.receive(packets, deferred) }

func (d deferrer) Delivered() bool {
	for c := d.m.delivery.nextCallbacks(); c != nil; c = d.m.delivery.nextCallbacks() {
		c.run()
	}
	return d.m.acknowledgeIfDue()
}

// A polled is the Miniport as a consumer's goroutine sees it that polls. It may hold
// what its callbacks take, so that these run elsewhere.
type polled struct{ m *Miniport }

func (p polled) Receive(packets []roce.Received) { p.m.receive(packets, byConsumer) }

// poll receives on a consumer's goroutine.
func (m *Miniport) poll() (arrived bool) {
	if m.poller == nil {
		return false
	}
	m.acknowledgeIfDue()
	return m.poller.Poll(m.polled)
}

// stopPolling has the Poller's own goroutines receive again.
func (m *Miniport) stopPolling() {
	if m.poller != nil {
		m.acknowledge()
		m.poller.Resume()
	}
}

// A manner is who handles packets, and so what is put off.
type manner uint8

const (
	atOnce     manner = iota // a Carrier that knows of no Delivered: nothing is put off
	deferred                 // a Poller's goroutine
	byConsumer               // a consumer's: only acknowledgements are
)
