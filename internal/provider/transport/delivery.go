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
// wait until the acknowledgement is made, which the peer waits for less: of a ping-pong's
// half round trip of 3 us it would take 0.7. An answer that the peer may refuse, which
// would end the connection, does wait (rc.QP.HoldAcknowledgement); and what is still owed
// when the connection ends is told before.
//
// What was put off by Receive is done by Delivered, of whichever goroutine. What was put off
// by a consumer that polls is done by itself, when it answers, behind that, or has found its CQ
// empty again; or by Delivered when it has stopped polling.
//
// While a lot of data comes in, acknowledgements are put off a little longer, until there is
// a pause or a good deal to acknowledge: each has the peer complete requests and post others,
// which is the cheaper the more there are at once. Of WRITEs of 64 KiB every message was
// acknowledged for itself, which took each end a tenth of its time.
type Delivery struct {
	mu        sync.Mutex // guards what follows
	callbacks []func()
	owing     []*Channel    // that owe their peer an acknowledgement
	bytes     int           // that arrived since somebody owes one
	last      time.Duration // when some last did

	owed   atomic.Int32 // len(owing), to be read without the lock
	timing atomic.Bool  // AcknowledgeSoon or AcknowledgeLater has set a timer
}

const (
	// bulk is from how many bytes on a delivery counts as a lot, and enough is how many are
	// acknowledged in any case, of the megabyte that a peer sends at most on a short path.
	bulk   = 32 << 10
	enough = 256 << 10
	// pause is how long nothing arrives when it was all: what a batch of 64 KiB takes.
	pause = 10 * time.Microsecond
	// soon is how long what is put off may wait for a consumer that does not come back.
	soon = 100 * time.Microsecond
	// later is how long it may wait for one that has come back all the time. It is many of its polls, so that a timer
	// costs such a consumer nothing.
	later = time.Millisecond
)

// Call has run be called by Device.Delivered.
func (d *Delivery) Call(run func()) {
	d.mu.Lock()
	d.callbacks = append(d.callbacks, run)
	d.mu.Unlock()
}

// owe has the queue pair, to which so many bytes have just come, acknowledge later.
func (d *Delivery) owe(c *Channel, bytes int, now time.Duration) {
	d.mu.Lock()
	if !c.owing.Swap(true) {
		d.owing = append(d.owing, c)
		d.owed.Store(int32(len(d.owing)))
	}
	d.bytes += bytes
	d.last = now
	d.mu.Unlock()
}

// due reports whether it is time to acknowledge what is owed.
func (d *Delivery) due(c clock.Clock) bool {
	d.mu.Lock()
	bytes, last := d.bytes, d.last
	d.mu.Unlock()
	return bytes < bulk || bytes >= enough || c.Now()-last >= pause
}

// nextCallbacks takes the newest of the callbacks; nil if there are none.
func (d *Delivery) nextCallbacks() func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	return takeLast(&d.callbacks)
}

// nextOwing takes the newest of the queue pairs; nil if there are none.
func (d *Delivery) nextOwing() *Channel {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := takeLast(&d.owing)
	if c != nil {
		c.owing.Store(false)
	}
	d.owed.Store(int32(len(d.owing)))
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

// AcknowledgeIfDue has the queue pairs acknowledge that owe it, if it is time, and reports
// whether some still do.
func (d *Device) AcknowledgeIfDue() (later bool) {
	if d.Delivery.owed.Load() == 0 {
		return false
	}
	if !d.Delivery.due(d.Clock) {
		return true
	}
	d.Acknowledge()
	return false
}

// AcknowledgeSoon is AcknowledgeIfDue for a consumer that may not come back to what is not due yet.
func (d *Device) AcknowledgeSoon() {
	if d.AcknowledgeIfDue() {
		d.acknowledgeAfter(soon)
	}
}

// AcknowledgeLater leaves what is owed to a consumer that comes back all the time, but not for long: it may have turned
// to something else, and its peer to waiting.
func (d *Device) AcknowledgeLater() {
	if d.Delivery.owed.Load() > 0 {
		d.acknowledgeAfter(later)
	}
}

func (d *Device) acknowledgeAfter(wait time.Duration) {
	if d.Delivery.timing.Swap(true) {
		return
	}
	d.Clock.AfterFunc(wait, func() {
		d.Delivery.timing.Store(false)
		d.Acknowledge()
	})
}

// Acknowledge has the queue pairs acknowledge that owe it.
func (d *Device) Acknowledge() {
	for c := d.Delivery.nextOwing(); c != nil; c = d.Delivery.nextOwing() {
		c.Acknowledge()
	}
}

// Delivered does what was put off, without anything held, and reports whether something is still put off,
// for some microseconds.
func (d *Device) Delivered() bool {
	for run := d.Delivery.nextCallbacks(); run != nil; run = d.Delivery.nextCallbacks() {
		run()
	}
	return d.AcknowledgeIfDue()
}

// A Manner is who handles packets, and so what is put off.
type Manner uint8

const (
	AtOnce     Manner = iota // a Carrier that knows of no Delivered: nothing is put off
	Deferred                 // a Poller's goroutine
	ByConsumer               // a consumer's: only acknowledgements are
)
