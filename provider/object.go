package provider

import (
	"slices"
	"sync"

	"github.com/ndklab/ndklab/internal/provider/sharing"
	"github.com/ndklab/ndklab/internal/provider/transport"
	"github.com/ndklab/ndklab/provider/clock"
)

// object is the part that all NDK objects have in common: their place among
// antecedents and successors, and their end (ndkpi.md 1.2).
//
// An object is held by its successors, by its requests that are under way and
// by its callbacks that are in progress. A close that finds it held pends until
// the last hold is gone; then the close completion runs, and only after that has
// returned are the object's own antecedents let go (NDK-LIFE-13).
type object struct {
	clock       clock.Clock
	header      Header
	antecedents []*object
	ledger      *sharing.Ledger // where counted is counted; nil if nowhere

	mu      sync.Mutex // guards holds, closing and done
	holds   int32
	closing bool
	counted sharing.Resource
	done    func() // what ends a close that pends; nil before
}

// init makes the object a successor of antecedents. The first is the parent, whose
// version it has.
func (o *object) init(c clock.Clock, typ ObjectType, antecedents ...*object) {
	o.clock, o.header = c, Header{ObjectType: typ}
	if len(antecedents) > 0 {
		o.header.Version = antecedents[0].header.Version
	}
	for _, a := range antecedents {
		o.addAntecedent(a)
	}
}

// addAntecedent is for relations that start after creation. Not concurrently
// with itself.
func (o *object) addAntecedent(a *object) {
	a.hold()
	o.mu.Lock()
	o.antecedents = append(o.antecedents, a)
	o.mu.Unlock()
}

// reserve counts the object among those that the device has a limited number of;
// false if there would be too many.
func (o *object) reserve(m *Miniport, r sharing.Resource, limit uint32) bool {
	if !m.ledger.Take(r, 1, limit) {
		return false
	}
	o.ledger, o.counted = m.ledger, r
	return true
}

// Header returns the object's header.
func (o *object) Header() *Header { return &o.header }

// Type returns the kind of object.
func (o *object) Type() ObjectType { return o.header.ObjectType }

// Version returns the interface version that the object implements: that of the
// instance it was made on.
func (o *object) Version() Version { return o.header.Version }

// QueryExtension answers a consumer that asks for what goes beyond the interface; there
// is no such thing (NDK-VER-13).
func (o *object) QueryExtension(GUID, Version, *ExtensionInterface) Status { return StatusNotSupported }

func (o *object) hold() {
	o.mu.Lock()
	o.holds++
	o.mu.Unlock()
}

// holdOpen is hold for a new callback: refused once the object is closing, as
// then no further callback may start.
func (o *object) holdOpen() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing {
		return false
	}
	o.holds++
	return true
}

// open reports whether the object's close has not been called. A consumer has no
// business with one that is not (ndkpi.md 1.5). Functions that would do harm to
// others then, by what they take or give back a second time, refuse it, and so do
// those that make more.
func (o *object) open() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.closing
}

func (o *object) release() {
	o.mu.Lock()
	o.holds--
	if o.holds > 0 || o.done == nil {
		o.mu.Unlock()
		return
	}
	done := o.done
	o.done = nil
	o.mu.Unlock()
	o.clock.Go(done)
}

// close ends the object. teardown, which may be nil, starts flushing and
// cancelling what is pending; it runs within the call, with the object already
// closing, and may release holds. finish, which may be nil, runs when nothing
// holds the object any more. A nil completion tells nobody: a close has no
// status by which to refuse it. Nor has it one for a consumer that closes again:
// it finds that there is nothing left to do.
func (o *object) close(teardown, finish func(), completion CloseCompletion, context any) Status {
	o.mu.Lock()
	if o.closing {
		o.mu.Unlock()
		return StatusSuccess
	}
	o.closing = true
	o.holds++ // the close itself, until teardown is through
	o.mu.Unlock()
	if teardown != nil {
		teardown()
	}
	o.mu.Lock()
	o.holds--
	if o.holds > 0 {
		o.done = func() {
			o.end(finish)
			if completion != nil {
				completion(context)
			}
			o.releaseAntecedents()
		}
		o.mu.Unlock()
		return StatusPending
	}
	o.mu.Unlock()
	o.end(finish)
	o.releaseAntecedents()
	return StatusSuccess
}

// end runs finish, which may be nil, and takes the object out of the ledger's count.
// It is called when nothing holds the object any more.
func (o *object) end(finish func()) {
	if finish != nil {
		finish()
	}
	if o.ledger != nil {
		o.ledger.Give(o.counted, 1)
	}
}

// releaseAntecedents releases the antecedents of a closed object.
func (o *object) releaseAntecedents() {
	o.mu.Lock()
	antecedents := o.antecedents
	o.antecedents = nil
	o.mu.Unlock()
	for _, a := range antecedents {
		a.release()
	}
}

// callbacks runs functions one after the other, in the order they were added,
// never from within add and with no lock held. It keeps one object's callbacks
// serialised while those of others go on.
type callbacks struct {
	clock clock.Clock

	mu      sync.Mutex // guards what follows
	queue   []func()
	running bool
	loop    func() // run; made once, since making it allocates
}

// add has f run soon: when what is being delivered has been handled, if d is not nil, or
// by a goroutine of its own.
func (c *callbacks) add(f func(), d *transport.Delivery) {
	c.mu.Lock()
	c.queue = append(c.queue, f)
	start := !c.running
	c.running = true
	if c.loop == nil {
		c.loop = c.run
	}
	c.mu.Unlock()
	switch {
	case !start:
	case d != nil:
		d.Call(c.loop)
	default:
		c.clock.Go(c.loop)
	}
}

func (c *callbacks) run() {
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.running = false
			c.mu.Unlock()
			return
		}
		f := c.queue[0]
		c.queue = slices.Delete(c.queue, 0, 1)
		c.mu.Unlock()
		f()
	}
}
