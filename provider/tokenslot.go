package provider

import (
	"slices"
	"sync"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/token"
)

// A tokenSlot is the entry in the table of regions that an FRMR or a window has. Its
// region comes and goes with the requests FastRegister, Bind and
// Invalidate.
//
// Each registration has a token with a key of its own, which the consumer can
// have as soon as it is posted, so that it can tell the peer in a SEND that
// follows. It is valid from when the request is performed, in its queue's order.
// A request makes sense or not, depending on the requests that were posted before
// it and are not performed yet: see willBeRegistered.
type tokenSlot struct {
	miniport *Miniport

	mu      sync.Mutex // guards what follows
	token   uint32     // the newest; 0 as long as there is no entry
	region  *region    // in effect, nil for none
	pending tokenChanges
	closed  bool
}

// A tokenChange is a request for a slot that is posted and not performed: to have a
// region, or to have none.
type tokenChange struct {
	slot   *tokenSlot
	qp     *QP
	pd     *PD // of the slot
	region *region
	// read is the token that a READ with local invalidate ends; 0 for other
	// requests.
	read uint32
}

// allocate takes an entry of the table of regions, unless the slot has one.
func (g *tokenSlot) allocate() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.willBeRegistered() || g.closed {
		return StatusInvalidDeviceState
	}
	if g.token != 0 {
		return StatusSuccess
	}
	token, ok := g.miniport.regions.Take()
	if !ok {
		return StatusInsufficientResources
	}
	g.token = token
	g.setEmpty()
	return StatusSuccess
}

// setEmpty leaves a region in the slot that no token is valid for, by which the
// slot can be found. g.mu is held.
func (g *tokenSlot) setEmpty() { g.miniport.regions.Set(g.token, &region{slot: g}) }

// newestToken returns the newest token, 0 for none.
func (g *tokenSlot) newestToken() uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.token
}

// willBeRegistered reports whether there will be a region when all that is posted has
// been performed. g.mu is held.
func (g *tokenSlot) willBeRegistered() bool {
	if n := len(g.pending); n > 0 {
		return g.pending[n-1].region != nil
	}
	return g.region != nil
}

// close ends the token; the object, whose slot it is, is held until nobody uses
// the bytes. Requests that are still pending will do nothing.
func (g *tokenSlot) close(o *object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, c := range g.pending {
		c.region.releaseMemory()
	}
	g.pending = nil
	if g.token == 0 {
		return
	}
	g.miniport.regions.Give(g.token)
	r := g.region
	g.region = nil
	r.releaseMemory()
	if r == nil || r.users.TryLock() {
		return
	}
	o.hold()
	o.clock.Go(func() {
		r.users.Lock() // for good
		o.release()
	})
}

// endToken ends the token that is in effect. From now on the queue pair that ends
// it reports nothing until nobody uses the bytes any more. g.mu and the queue
// pair's are held.
func (g *tokenSlot) endToken(by *QP) {
	r := g.region
	g.region = nil
	g.setEmpty() // which also lets go of the memory
	r.releaseMemory()
	by.memory.endUse(r)
	if !r.users.TryLock() {
		by.drain.add(by, r)
	}
}

// postChange queues a request that changes a slot, unless status, which is what
// a look at its parameters has found, says that it is wrong.
func (qp *QP) postChange(op rc.Op, context any, c *tokenChange, status Status, flags, allowed OpFlags) Status {
	qp.channel.Lock()
	defer qp.channel.Unlock()
	status = qp.queueChange(op, context, c, status, flags, allowed)
	if status != StatusSuccess {
		c.region.releaseMemory()
	}
	if status != StatusSuccess || flags&OpDefer == 0 {
		qp.progress()
	}
	return status
}

func (qp *QP) queueChange(op rc.Op, context any, c *tokenChange, status Status, flags, allowed OpFlags) Status {
	switch {
	case flags&^allowed != 0:
		return StatusInvalidParameter
	case !qp.connected || qp.channel.QP.State() != rc.Ready:
		return StatusConnectionInvalid
	case status != StatusSuccess:
		return status
	case c.pd != qp.pd:
		return StatusInvalidParameter
	}
	g := c.slot
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return StatusInvalidParameter
	case c.region != nil && g.willBeRegistered():
		return StatusInvalidParameter // ndkpi.md T71
	case c.region == nil && !g.willBeRegistered():
		return StatusInvalidDeviceRequest // NDK-INV-03
	}
	err := qp.channel.QP.Post(&rc.Request{
		Op: op, Context: context, Local: c,
		Silent: flags&OpSilentSuccess != 0, Fence: flags&OpReadFence != 0,
	})
	if err != nil {
		return postStatus(err)
	}
	if c.region != nil {
		g.token = token.Next(g.token)
		c.region.token = g.token
	}
	c.qp = qp
	qp.changes.add(c)
	return StatusSuccess
}

// tokenChanges are posted and not performed, in order. Those of a slot are guarded by its mu, those of a queue pair by
// its lock.
type tokenChanges []*tokenChange

// add notes a change of a queue pair, whose changes are t, as pending. c.slot.mu is held.
func (t *tokenChanges) add(c *tokenChange) {
	c.slot.pending = append(c.slot.pending, c)
	*t = append(*t, c)
}

// remove takes c out. The change that is over is nearly always the oldest, so that no
// walk through the others is needed: a queue may hold many thousands.
func (t *tokenChanges) remove(c *tokenChange) {
	switch i := slices.Index(*t, c); {
	case i < 0: // closing the slot took it out
	case i > 0 || len(*t) == 1: // an only one leaves its place to the next
		*t = slices.Delete(*t, i, i+1)
	default:
		(*t)[0] = nil
		*t = (*t)[1:]
	}
}

// drop forgets the changes of a queue pair that will never be performed because it has ended.
func (t *tokenChanges) drop() {
	for len(*t) > 0 {
		c := (*t)[0]
		c.slot.mu.Lock()
		c.removePending()
		if !c.slot.closed {
			c.region.releaseMemory()
		}
		c.slot.mu.Unlock()
	}
}

// removePending notes that a change is not pending any more. c.slot.mu is held.
func (c *tokenChange) removePending() {
	c.slot.pending.remove(c)
	c.qp.changes.remove(c)
}

// Perform implements rc.LocalOperation. The queue pair's lock is held.
func (c *tokenChange) Perform() rc.Status {
	g := c.slot
	g.mu.Lock()
	defer g.mu.Unlock()
	c.removePending()
	switch {
	case g.closed: // what is closed grants nothing; its regions have been let go
	case c.region == nil:
		if g.region == nil {
			return rc.BadOperation // the peer was faster
		}
		g.endToken(c.qp)
	case g.region != nil:
		c.region.releaseMemory()
		return rc.BadOperation
	default:
		g.region = c.region
		g.miniport.regions.Set(c.region.token, c.region)
	}
	return rc.Success
}

// Invalidate ends the token of an FRMR or a window when all earlier requests are
// complete. It is StatusInvalidDeviceRequest if the token has ended, such as by
// the peer. When it completes nobody uses the memory through it any more.
func (qp *QP) Invalidate(context any, mrOrMW Object, flags OpFlags) Status {
	c, status := &tokenChange{}, StatusInvalidParameter // also of a registered region: NDK-INV-02
	switch o := mrOrMW.(type) {
	case *MR:
		if o != nil && o.fastRegister {
			c, status = &tokenChange{slot: &o.slot, pd: o.pd}, StatusSuccess
		}
	case *MW:
		if o != nil {
			c, status = &tokenChange{slot: &o.slot, pd: o.pd}, StatusSuccess
		}
	}
	return qp.postChange(rc.OpInvalidate, context, c, status, flags, opFlagsOfEveryRequest)
}

// A drain holds back what a queue pair has to report until nobody uses the regions whose tokens it has ended. The
// users are other queue pairs, each for as long as it holds its lock, so that to wait for them with a lock held might
// be for ever. It is guarded by the queue pair's lock.
type drain struct {
	regions  int // whose memory is still in use
	heldBack []rc.Completion
}

// add waits for the users of a region, whose token the queue pair has ended.
func (d *drain) add(qp *QP, r *region) {
	d.regions++
	qp.hold()
	qp.clock.Go(func() {
		r.users.Lock() // for good
		qp.channel.Lock()
		d.regions--
		if d.regions == 0 {
			qp.complete(d.heldBack)
			d.heldBack = nil
		}
		qp.channel.Unlock()
		qp.release()
	})
}
