package transport

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
)

// A Delivery lists what is put off while packets are handled that a Poller delivers:
// consumers' callbacks, which need not be taken to another goroutine, as nothing is held
// afterwards, and acknowledgements. The consumer mostly answers, and its answer need not
// wait until the acknowledgement is made, for which the peer need not wait. An answer that the peer may refuse, which
// would end the connection, does wait (rc.QP.HoldAcknowledgement); and an acknowledgement that is
// still put off when the connection ends goes out before.
//
// Delivered does what Receive put off, in whichever goroutine it is called. A consumer that polls
// does itself what it put off, behind its answer or when it has found its CQ empty again; or
// Delivered does it when the consumer has stopped polling.
//
// While a lot of data comes in, acknowledgements are put off a little longer, until there is
// a pause or a good deal to acknowledge: each has the peer complete requests and post others,
// which is the cheaper the more there are at once.
type Delivery struct {
	mu             sync.Mutex // guards what follows
	callbacks      []func()
	unacknowledged []*Channel    // that have an acknowledgement to send
	bytes          int           // that arrived since the first of them
	last           time.Duration // when the last of them arrived
	timer          clock.Timer   // acknowledges at due; nil before it was first set
	due            time.Duration

	count atomic.Int32 // len(unacknowledged), to be read without the lock
	wait  atomic.Int64 // nanoseconds for which timer was set; 0: it is not; written with the lock, but for 0
}

const (
	// bulkBytes is the least number of bytes of a delivery that counts as a lot. After maxUnacknowledged an acknowledgement
	// is sent in any case: a peer sends a megabyte at most on a short path.
	bulkBytes         = 32 << 10
	maxUnacknowledged = 256 << 10
	// quietTime is the pause after which nothing more is expected: a batch of 64 KiB takes as long.
	quietTime = 10 * time.Microsecond
	// shortAckDelay bounds the wait for a consumer that may not come back, but for how late a timer is that nobody drives any more.
	shortAckDelay = 100 * time.Microsecond
	// longAckDelay bounds the wait for one that has come back all the time. It is many of its polls, so that a timer costs
	// such a consumer nothing.
	longAckDelay = time.Millisecond
)

// Call queues run, which Device.Delivered calls.
func (d *Delivery) Call(run func()) {
	d.mu.Lock()
	d.callbacks = append(d.callbacks, run)
	d.mu.Unlock()
}

// queueAcknowledgement puts off the acknowledgement of a queue pair to which so many bytes have just come.
func (d *Delivery) queueAcknowledgement(c *Channel, bytes int, now time.Duration) {
	d.mu.Lock()
	if !c.ackQueued.Swap(true) {
		d.unacknowledged = append(d.unacknowledged, c)
		d.count.Store(int32(len(d.unacknowledged)))
	}
	d.bytes += bytes
	d.last = now
	d.mu.Unlock()
}

// acknowledgementDue reports whether it is time to send the acknowledgements that are put off.
func (d *Delivery) acknowledgementDue(c clock.Clock) bool {
	d.mu.Lock()
	bytes, last := d.bytes, d.last
	d.mu.Unlock()
	return bytes < bulkBytes || bytes >= maxUnacknowledged || c.Now()-last >= quietTime
}

// nextCallback takes the newest of the callbacks; nil if there are none.
func (d *Delivery) nextCallback() func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	return takeLast(&d.callbacks)
}

// nextUnacknowledged takes the newest of the queue pairs; nil if there are none.
func (d *Delivery) nextUnacknowledged() *Channel {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := takeLast(&d.unacknowledged)
	if c != nil {
		c.ackQueued.Store(false)
	}
	d.count.Store(int32(len(d.unacknowledged)))
	d.bytes = 0
	return c
}

func takeLast[T any](list *[]T) (t T) {
	last := len(*list) - 1
	if last < 0 {
		return t
	}
	t, (*list)[last] = (*list)[last], t
	*list = (*list)[:last]
	return t
}

// AcknowledgeIfDue sends the acknowledgements that are put off, if it is time, and reports
// whether some still are.
func (d *Device) AcknowledgeIfDue() (later bool) {
	if d.Delivery.count.Load() == 0 {
		return false
	}
	if !d.Delivery.acknowledgementDue(d.Clock) {
		return true
	}
	d.Acknowledge()
	return false
}

// AcknowledgeSoon sends the acknowledgements that are put off if it is time, and otherwise soon: the consumer may not come
// back.
func (d *Device) AcknowledgeSoon() {
	if d.AcknowledgeIfDue() {
		d.acknowledgeAfter(shortAckDelay)
	}
}

// AcknowledgeLater leaves the acknowledgements to a consumer that comes back all the time, but not for long: it may have turned
// to something else, and its peer to waiting.
func (d *Device) AcknowledgeLater() {
	if d.Delivery.count.Load() > 0 {
		d.acknowledgeAfter(longAckDelay)
	}
}

// acknowledgeAfter sends the acknowledgements that are put off after a wait, or earlier if that was asked for before.
func (d *Device) acknowledgeAfter(wait time.Duration) {
	q := &d.Delivery
	if set := q.wait.Load(); set > 0 && set <= int64(wait) {
		return
	}
	due := d.Clock.Now() + wait
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.wait.Load() > 0 && q.due <= due {
		return
	}
	q.due = due
	q.wait.Store(int64(wait))
	if q.timer == nil {
		q.timer = d.driven.AfterFunc(wait, d.acknowledgeWhenDue)
	} else {
		q.timer.Reset(wait)
	}
}

// acknowledgeWhenDue runs when the timer of acknowledgeAfter expires.
func (d *Device) acknowledgeWhenDue() {
	d.Delivery.wait.Store(0)
	d.Acknowledge()
}

// Acknowledge sends the acknowledgements that are put off.
func (d *Device) Acknowledge() {
	for c := d.Delivery.nextUnacknowledged(); c != nil; c = d.Delivery.nextUnacknowledged() {
		c.Acknowledge()
	}
}

// Delivered does what was put off, without anything held, and reports whether something is still put off,
// for some microseconds.
func (d *Device) Delivered() bool {
	for run := d.Delivery.nextCallback(); run != nil; run = d.Delivery.nextCallback() {
		run()
	}
	return d.AcknowledgeIfDue()
}

// A Mode says on which goroutine packets are handled, and so what is put off.
type Mode uint8

const (
	AtOnce     Mode = iota // a Carrier that knows of no Delivered: nothing is put off
	Deferred               // a Poller's goroutine
	ByConsumer             // a consumer's: only acknowledgements are
)
