package workload

import (
	"container/list"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// This file is what both ends of Connect, Storage, AllReduce and Rping are made of:
// connections that come and go on one adapter instance, each with a session, which is
// what an end does on it.

// A session is what an end does on one connection. Its calls are made with the end's lock
// held.
type session interface {
	// prepare makes what the connection needs before it is there: its receives above all.
	prepare(c *conn) error
	// begin is called when the connection is there.
	begin()
	// handle takes a completion of the connection's QP. There is none before begin.
	handle(r *provider.ResultEx)
	// waits reports whether the peer has something to do.
	waits() bool
	// objects are those that the session has made, to be closed with the QP.
	objects() []closer
	// closed is called when all of that is closed.
	closed()
}

// An owner is the end that connections belong to. Its calls are made with its lock held.
type owner interface {
	// lost tells that a connection could not be made, or has ended without being asked to.
	// It is being closed already.
	lost(c *conn, why string)
	// gone tells that everything of a connection is closed.
	gone(c *conn)
	// advance is called after all else: it does what there is to do now.
	advance()
}

// A base is what an end has: an instance of the adapter, a domain, and one CQ for all of
// its connections.
type base struct {
	spec    Spec
	clock   clock.Clock
	device  *provider.Miniport
	owner   owner
	adapter *instance
	pd      *provider.PD
	cq      *provider.CQ
	shared  []closer // what all connections use, closed when the last one is
	maxQPs  uint32   // that the device has for all consumers

	mu      *sync.Mutex               // guards what follows, and all that the end and its sessions have
	conns   list.List                 // of *conn, from the oldest; those being closed, too
	leaving int                       // of those: being closed
	over    bool                      // nothing is heard any more
	results [atOnce]provider.ResultEx // scratch of drain
}

// newBase makes what an end begins with.
func newBase(m *provider.Miniport, c clock.Clock, spec Spec) base {
	return base{spec: spec, clock: c, device: m, mu: new(sync.Mutex)}
}

// open opens the instance. disable is called, with no lock held, when the device asks for
// it to be closed. There will be so many connections at once, each with so many entries of
// the CQ, and one for the probe.
func (b *base) open(needs func(provider.AdapterInfo) []need, conns, each int, disable func()) error {
	entries := uint64(conns) * uint64(each+1)
	fits := func(info provider.AdapterInfo) error {
		all := append(needs(info), need{"MaxCqDepth", entries, uint64(info.MaxCqDepth)})
		return satisfied(all)
	}
	b.maxQPs = b.device.Attributes().Capabilities.MaxQpCount
	var err error
	var status provider.Status
	if b.adapter, err = openInstance(b.device, fits, disable); err != nil {
		return err
	}
	if b.pd, status = b.adapter.CreatePD(nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create PD: %w", status)
	}
	if b.cq, status = b.adapter.CreateCQ(uint32(entries), b.notified, nil, nil, nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create CQ: %w", status)
	}
	b.cq.Arm(provider.NotifyAny)
	return nil
}

// register registers memory of the whole end.
func (b *base) register(bytes []byte, flags provider.MRFlags) (*memory, error) {
	m, err := register(b.pd, bytes, flags)
	if err == nil {
		b.shared = append(b.shared, m.mr)
	}
	return m, err
}

// notified is the CQ's notification.
func (b *base) notified(any, provider.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	b.drain()
	b.cq.Arm(provider.NotifyAny)
	b.owner.advance()
}

// drain hands every completion that there is to its session. b.mu is held.
func (b *base) drain() {
	for n := len(b.results); n == len(b.results); {
		n = b.cq.ResultsEx(b.results[:])
		for i := range b.results[:n] {
			r := &b.results[i]
			switch c := r.QPContext.(*conn); {
			case r.RequestContext == probe && c.stage == up:
				c.answeredProbe(r.Status)
			case r.RequestContext == probe:
			case c.stage == making:
				c.early = append(c.early, *r)
			case c.stage == up, c.stage == ending:
				c.session.handle(r)
			}
		}
	}
}

// soon has the owner advance, later.
func (b *base) soon() {
	b.clock.Go(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.owner.advance()
	})
}

// end closes what belongs to all connections, of which none is left, and calls done when
// everything is closed. objects are closed first. b.mu is held.
func (b *base) end(done func(), objects ...closer) {
	b.over = true
	objects = append(objects, b.shared...)
	if b.cq != nil {
		objects = append(objects, b.cq)
	}
	if b.pd != nil {
		objects = append(objects, b.pd)
	}
	b.clock.Go(func() { closeAll(objects, b.adapter, done) })
}

// A conn is a connection of an end, from when it is asked for until everything of it is
// closed. The end's lock guards it.
type conn struct {
	of          *base
	place       *list.Element // in of.conns
	session     session
	qp          *provider.QP
	connector   *provider.Connector
	stage       stage
	established bool // it has been there
	probed      bool // a probe is under way
	// early are completions of what the peer has sent as soon as the connection was there
	// for it.
	early []provider.ResultEx
}

// A stage is how far a connection is.
type stage uint8

const (
	making  stage = iota
	up            // it is there
	ending        // Disconnect is under way
	closing       // of its end only that it is closed is still to be told
)

// room is what a connection's QP has room for.
type room struct{ receives, requests uint32 }

// requestsFit is the need of connections with so many requests in flight, and a probe.
func requestsFit(info provider.AdapterInfo, requests int) need {
	return need{"MaxInitiatorQueueDepth", uint64(requests) + 1, uint64(info.MaxInitiatorQueueDepth)}
}

// newConn begins with a connection: it makes its QP, and has its session prepare. What
// there is of it when that fails is being closed.
func (b *base) newConn(s session, r room) (*conn, error) {
	c := &conn{of: b, session: s}
	c.place = b.conns.PushBack(c)
	var status provider.Status
	c.qp, status = b.pd.CreateQP(b.cq, b.cq, c, r.receives, r.requests+1, 1, 1, 0, nil, nil) // and one for the probe
	if status != provider.StatusSuccess {
		c.drop()
		return c, fmt.Errorf("create QP: %w", b.explained(status))
	}
	if err := s.prepare(c); err != nil {
		c.drop()
		return c, err
	}
	return c, nil
}

// explained says which limit a status is about, where it is one of all consumers
// together.
func (b *base) explained(status provider.Status) error {
	switch status {
	case provider.StatusInsufficientResources:
		return fmt.Errorf("%w: the adapter has a MaxQpCount of %d, in use are %d", status, b.maxQPs, b.device.Usage().Qps)
	case provider.StatusTooManyAddresses:
		return fmt.Errorf("%w: every port is in use of those that connections of one address are made from", status)
	}
	return status
}

// connect asks the peer for the connection. private is what it is told.
func (c *conn) connect(from netip.Addr, to netip.AddrPort, inbound, outbound uint32, private []byte) error {
	var status provider.Status
	if c.connector, status = c.of.adapter.CreateConnector(nil, nil); status != provider.StatusSuccess {
		c.drop()
		return fmt.Errorf("create connector: %w", status)
	}
	status = c.connector.Connect(c.qp, netip.AddrPortFrom(from, 0), to, inbound, outbound, private, c.answered, nil)
	if !status.Succeeded() {
		c.drop()
		return fmt.Errorf("connect: %w", c.of.explained(status))
	}
	return nil
}

// answered is the completion of Connect.
func (c *conn) answered(_ any, status provider.Status) {
	if status == provider.StatusSuccess {
		c.of.mu.Lock()
		if c.stage == making {
			status = c.connector.CompleteConnect(c.disconnected, nil, nil, nil)
		}
		c.of.mu.Unlock()
	}
	c.decided("connect", status)
}

// accept accepts a request of the peer's, or says why it cannot.
func (c *conn) accept(connector *provider.Connector, inbound, outbound uint32, private []byte) error {
	c.connector = connector
	accepted := func(_ any, status provider.Status) { c.decided("accept", status) }
	if status := connector.Accept(c.qp, inbound, outbound, private, c.disconnected, nil, accepted, nil); !status.Succeeded() {
		c.drop()
		return fmt.Errorf("accept: %w", status)
	}
	return nil
}

// post posts a receive.
func (c *conn) post(sge provider.SGE, context any) error {
	if status := c.qp.Receive(context, []provider.SGE{sge}); status != provider.StatusSuccess {
		return fmt.Errorf("post receive: %w", status)
	}
	return nil
}

// decided tells the session, or the owner, whether the connection is there.
func (c *conn) decided(what string, status provider.Status) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.stage != making {
		return
	}
	if status == provider.StatusSuccess {
		c.stage, c.established = up, true
		c.session.begin()
		for i := range c.early {
			if c.stage == up {
				c.session.handle(&c.early[i])
			}
		}
		c.early = nil
	} else {
		c.fail(fmt.Sprintf("%s: %v", what, status))
	}
	c.of.owner.advance()
}

// disconnected is the peer's doing, or its end.
func (c *conn) disconnected(any) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if !c.of.over {
		c.of.drain() // what came before it
	}
	if c.stage == making || c.stage == up {
		c.fail("the peer disconnected")
	}
	c.of.owner.advance()
}

// privateData is the first n bytes of what a peer told with its request or its consent.
func privateData(connector *provider.Connector, n int) ([]byte, error) {
	data := make([]byte, 256)
	length := uint32(len(data))
	if status := connector.GetConnectionData(nil, nil, data, &length); status != provider.StatusSuccess {
		return nil, fmt.Errorf("private data: %w", status)
	}
	if int(length) < n {
		return nil, fmt.Errorf("the peer's private data has %d bytes, not %d", length, n)
	}
	return data[:n], nil
}

// fail closes a connection that is of no use any more, and tells the owner.
func (c *conn) fail(why string) {
	c.drop()
	c.of.owner.lost(c, why)
}

// disconnect ends the connection in good order.
func (c *conn) disconnect() {
	c.stage = ending
	ended := func(any, provider.Status) {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		if c.stage == ending {
			c.drop()
		}
	}
	if c.connector.Disconnect(ended, nil) != provider.StatusPending {
		c.drop()
	}
}

// drop closes everything of the connection, whatever it is in the middle of. The owner
// hears of it again when that has happened.
func (c *conn) drop() {
	if c.stage == closing {
		return
	}
	c.stage = closing
	c.of.leaving++
	var objects []closer
	if c.connector != nil {
		objects = append(objects, c.connector)
	}
	if c.qp != nil {
		objects = append(objects, c.qp)
	}
	objects = append(objects, c.session.objects()...)
	closeEach(c.of.clock, objects, func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.conns.Remove(c.place)
		c.of.leaving--
		if !c.of.over {
			c.of.drain() // so that the CQ never has entries of more connections than there are
		}
		c.session.closed()
		c.of.owner.gone(c)
		c.of.owner.advance()
	})
}

// A client that waits for its server, and has sent nothing that is not acknowledged, would
// never know that there is no server any more. So it probes: it writes nothing, which the
// server's adapter acknowledges whatever the server is at. It takes an adapter 4 s to give
// up one that does not.

// probe is the context of a probe.
var probe any = new(byte)

// probeInterval is how long a client waits, at most twice, until it probes.
const probeInterval = time.Second

// watch has the end probe from now on.
func (b *base) watch() {
	b.clock.AfterFunc(probeInterval, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.over {
			return
		}
		for e := b.conns.Front(); e != nil; e = e.Next() {
			c := e.Value.(*conn)
			if c.stage == up && !c.probed && c.session.waits() {
				c.probed = true
				if status := c.qp.Write(probe, nil, 0, 0, 0); status != provider.StatusSuccess {
					c.answeredProbe(status)
				}
			}
		}
		b.owner.advance()
		b.watch()
	})
}

// answeredProbe takes the answer to a probe.
func (c *conn) answeredProbe(status provider.Status) {
	c.probed = false
	if status != provider.StatusSuccess && status != provider.StatusCancelled {
		c.fail(fmt.Sprintf("no answer from the peer has arrived: %v", status))
	}
}

// dropAll drops every connection. b.mu is held.
func (b *base) dropAll() {
	for e := b.conns.Front(); e != nil; e = e.Next() {
		e.Value.(*conn).drop()
	}
}
