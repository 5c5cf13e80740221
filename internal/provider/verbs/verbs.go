// Package verbs is the object model of libibverbs in Go: contexts, protection domains, memory regions and
// windows, completion queues, shared receive queues, address handles and queue pairs of reliable and
// unreliable connections and of datagrams, with the states and attributes of IBTA Vol. 1, chapters 10 and 11.
//
// It stands beside NDKPI (package provider), not on it: the two differ in states, statuses and tokens. They
// share the device: numbers, ports, limits, timers, what may be in flight, and the processes that have a part
// of it. So a program that is written to verbs and one that is written to NDKPI may talk to each other.
//
// The C libraries call it, and it may be called from Go. Errors are syscall.Errno, as the manual pages of
// libibverbs name them. Methods may be called from any goroutine; those of one queue pair wait for each other.
//
// Start reading at Open, then QP.
package verbs

import (
	"cmp"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/gsi"
	"github.com/ndklab/ndklab/internal/provider/token"
	"github.com/ndklab/ndklab/internal/provider/transport"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// A Context is an open device (ibv_open_device).
type Context struct {
	device    *provider.Miniport
	clock     clock.Clock
	transport *transport.Device
	manager   *gsi.Manager
	events    func(Event)
	limits    Limits
	regions   token.Table[region]
	space     Space // whose all memory is; nil: this process's

	mu     sync.Mutex // guards what follows
	inUse  inUse
	closed bool
	fatal  bool // the device has failed
	qps    map[*QP]struct{}

	unsubscribe func() // from the device's state
	unlist      func() // from its queue pairs
}

// inUse counts the objects of a context by kind.
type inUse struct{ pds, mrs, mws, cqs, srqs, qps, ahs uint32 }

// Limits bound what a context may have of anything.
type Limits struct {
	QPs, CQs, MRs, MWs, PDs, SRQs, AHs uint32
	WorkRequests                       uint32 // of a queue
	SGEs                               uint32 // of a work request
	Inline                             uint32 // bytes of a work request
	CQEs                               uint32 // of a CQ
	Reads                              uint32 // and atomics, of a queue pair, in either direction
}

// DefaultLimits returns the limits of a context that asks for no others.
func DefaultLimits() Limits {
	return Limits{
		QPs: 131072, CQs: 65536, MRs: 1 << 20, MWs: 1 << 20, PDs: 32768, SRQs: 32768, AHs: 1 << 20,
		WorkRequests: 32768, SGEs: 32, Inline: 928, CQEs: 4 << 20, Reads: 128,
	}
}

// An EventType is an asynchronous event's, numbered as ibv_event_type.
type EventType uint8

// The events.
const (
	EventCQError EventType = iota
	EventQPFatal
	EventQPRequestError
	EventQPAccessError
	EventCommunicationEstablished
	EventSendQueueDrained
	EventPathMigrated
	EventPathMigrationError
	EventDeviceFatal
	EventPortActive
	EventPortError
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQError
	EventSRQLimitReached
	EventLastWQEReached
	EventClientReregister
	EventGIDChange
)

// An Event is something that happened to an object outside of any request: one of the fields but Type is set, or
// none where it concerns the port or the device.
type Event struct {
	Type EventType
	CQ   *CQ
	QP   *QP
	SRQ  *SRQ
}

// Open opens a device. events is called with every asynchronous event, with locks held: it must neither block
// nor call the context.
func Open(device *provider.Miniport, limits Limits, events func(Event)) (*Context, error) {
	c := &Context{
		device: device, clock: device.Clock(), transport: device.Transport(), manager: device.Manager(),
		events: events, limits: limits, qps: map[*QP]struct{}{},
	}
	c.unsubscribe = device.Subscribe(func(provider.NetEvent) {
		if device.Failed() {
			c.fail()
		}
	})
	if device.Failed() {
		c.unsubscribe()
		return nil, syscall.EIO
	}
	c.unlist = device.ListQueuePairs(c.listQPs)
	device.Hold(provider.Objects{Instances: 1})
	return c, nil
}

// A Space is the memory that is not this process's own. Its methods are those of foreign.Space; NewPlacer makes what of
// rc.Config copies to it for one queue pair.
type Space interface {
	NewPlacer() (place func(ranges [][]byte, data []byte) (ok bool), placed func() (ok bool))
	Fetch(packets []roce.Packet) (done func(), there int, lost bool)
}

// Use has all memory of the context, which has no objects yet, be that of a space. A device has one for all of its
// contexts.
func (c *Context) Use(s Space) {
	c.space, c.transport.Fetch = s, s.Fetch
}

// Close ends the context with all that was made in it and is left.
func (c *Context) Close() error {
	c.unsubscribe()
	for _, qp := range c.openQPs(func(*QP) bool { return true }) {
		qp.detachAll()
		if err := qp.Destroy(); err != nil {
			return err
		}
	}
	c.unlist()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.device.Hold(provider.Objects{}.Less(c.inUse.objects(1)))
	}
	return nil
}

// fail has the context do as a device that has failed: its queue pairs go to error, nothing more can be made.
func (c *Context) fail() {
	c.mu.Lock()
	told := c.fatal
	c.fatal = true
	c.mu.Unlock()
	if !told {
		c.events(Event{Type: EventDeviceFatal})
		c.end(c.openQPs(func(*QP) bool { return true }))
	}
}

// openQPs returns the queue pairs that are not destroyed and of which of holds.
func (c *Context) openQPs(of func(*QP) bool) (qps []*QP) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for qp := range c.qps {
		if of(qp) {
			qps = append(qps, qp)
		}
	}
	slices.SortFunc(qps, func(a, b *QP) int { return cmp.Compare(a.Number(), b.Number()) })
	return qps
}

// end takes queue pairs to error that are not to blame.
func (c *Context) end(qps []*QP) {
	for _, qp := range qps {
		qp.lock.Lock()
		if !qp.destroyed && qp.state != Error {
			qp.raise(EventQPFatal)
			qp.state = Error
			qp.flush()
		}
		qp.lock.Unlock()
	}
}

// failed reports whether the device has failed.
func (c *Context) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fatal
}

// take counts one more object of a kind: ENOMEM if there would be too many.
func (c *Context) take(n *uint32, limit uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fatal {
		return syscall.EIO
	}
	if *n >= limit {
		return syscall.ENOMEM
	}
	c.count(n, 1)
	return nil
}

func (c *Context) give(n *uint32) {
	c.mu.Lock()
	c.count(n, -1)
	c.mu.Unlock()
}

// count adds to a number of objects, also to what the device has in use. mu is held.
func (c *Context) count(n *uint32, by int32) {
	before := c.inUse.objects(0)
	*n += uint32(by)
	if !c.closed { // what is left then is counted no more
		c.device.Hold(c.inUse.objects(0).Less(before))
	}
}

// objects returns the counts as the device keeps them, of so many instances.
func (u *inUse) objects(instances int32) provider.Objects {
	return provider.Objects{
		Instances: instances, QPs: int32(u.qps), CQs: int32(u.cqs), MRs: int32(u.mrs), PDs: int32(u.pds), MWs: int32(u.mws), SRQs: int32(u.srqs),
	}
}

// A GID is an address of the device, as the index that it has in the table (ibv_gid_entry). All are of RoCEv2.
type GID struct {
	Address netip.Addr
	MTU     int // largest payload of a packet, bytes
}

// GIDs returns the device's table of GIDs.
func (c *Context) GIDs() []GID {
	var gids []GID
	for _, a := range c.device.ActiveAddresses() {
		gids = append(gids, GID{a.Address, a.FrameSize})
	}
	return gids
}
