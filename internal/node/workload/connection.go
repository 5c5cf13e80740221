package workload

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// A session does the work of an end on one connection. Its methods are called with the
// endpoint's lock held.
type session interface {
	// prepare makes what the connection needs before it is established: its receives above
	// all.
	prepare(c *connection) error
	// begin is called when the connection is established.
	begin()
	// handle takes a completion of the connection's QP, which was there at the instant now.
	// There is none before begin, and none that is cancelled: the disconnect event tells
	// that the connection is over.
	handle(now time.Duration, r provider.ResultEx)
	// waits reports whether the peer has something to do.
	waits() bool
	// objects returns what the session has made, to be closed with the QP.
	objects() []closer
	// closed is called when all of that is closed.
	closed()
}

// A bareSession posts nothing by itself, expects nothing of the peer, and has nothing to
// close. Sessions embed it.
type bareSession struct{}

func (bareSession) prepare(*connection) error { return nil }
func (bareSession) begin()                    {}
func (bareSession) waits() bool               { return false }
func (bareSession) objects() []closer         { return nil }
func (bareSession) closed()                   {}

// A connection belongs to an endpoint from when it is asked for until everything of it is
// closed. The endpoint's lock guards it.
type connection struct {
	endpoint    *endpoint
	next, prev  *connection // in endpoint.conns
	session     session
	qp          *provider.QP
	connector   *provider.Connector
	stage       stage
	established bool // it has been up
	probing     bool // a probe is under way
	// early holds completions of what the peer has sent before the connection was up here.
	// nil: there are none.
	early *[]provider.ResultEx
}

// connections are those of an endpoint, from the oldest.
type connections struct {
	first, last *connection
	count       int
}

func (l *connections) add(c *connection) {
	if c.prev = l.last; c.prev == nil {
		l.first = c
	} else {
		c.prev.next = c
	}
	l.last = c
	l.count++
}

// remove removes a connection. A loop that is at it still finds the next ones.
func (l *connections) remove(c *connection) {
	if c.prev == nil {
		l.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	l.count--
}

// A reclaimer is a session that sees the completions which handle does not: those that are
// cancelled, and those that come while the connection is being closed.
type reclaimer interface{ reclaim(r provider.ResultEx) }

// A stage tells how far a connection is.
type stage uint8

const (
	connecting    stage = iota
	up                  // it is established
	disconnecting       // Disconnect is under way
	closing             // only its owner is still to be told, when it is closed
)

// A qpShape holds what a QP has room for: receives, requests, and bytes that are sent inline.
// The receives may come from an SRQ.
type qpShape struct {
	receives, requests, inline uint32
	srq                        *provider.SRQ
}

// probed returns the shape of a QP for so many receives and requests, and a probe.
func probed(receives, requests int) qpShape {
	return qpShape{receives: uint32(receives), requests: uint32(requests) + 1}
}

// requestsFit returns the need of connections with so many requests in flight, and a probe.
func requestsFit(info provider.AdapterInfo, requests int) need {
	return need{"MaxInitiatorQueueDepth", uint64(requests) + 1, uint64(info.MaxInitiatorQueueDepth)}
}

// newConnection makes a connection's QP, and has its session prepare. When that fails, the
// connection that it returns is being closed.
func (e *endpoint) newConnection(s session, shape qpShape) (*connection, error) {
	c := &connection{endpoint: e, session: s}
	e.conns.add(c)
	var status provider.Status
	if shape.srq != nil {
		c.qp, status = e.pd.CreateQPWithSRQ(e.cq, e.cq, shape.srq, c, shape.requests, 1, shape.inline, nil, nil)
	} else {
		c.qp, status = e.pd.CreateQP(e.cq, e.cq, c, shape.receives, shape.requests, 1, 1, shape.inline, nil, nil)
	}
	if status != provider.StatusSuccess {
		c.drop()
		return c, fmt.Errorf("create QP: %w", e.explained(status))
	}
	if err := s.prepare(c); err != nil {
		c.drop()
		return c, err
	}
	return c, nil
}

// explained adds to a status which limit of all consumers together it is about, if it is
// about one.
func (e *endpoint) explained(status provider.Status) error {
	switch status {
	case provider.StatusInsufficientResources:
		return fmt.Errorf("%w: the adapter has a MaxQpCount of %d, in use are %d", status, e.maxQPs, e.device.Usage().Qps)
	case provider.StatusTooManyAddresses:
		return fmt.Errorf("%w: every port is in use of those that connections of one address are made from", status)
	}
	return status
}

// connect asks the peer for the connection. When that fails, the connection is being closed.
func (c *connection) connect(from netip.Addr, to netip.AddrPort, p terms) error {
	var status provider.Status
	if c.connector, status = c.endpoint.adapter.CreateConnector(nil, nil); status != provider.StatusSuccess {
		c.drop()
		return fmt.Errorf("create connector: %w", status)
	}
	status = c.connector.Connect(c.qp, netip.AddrPortFrom(from, 0), to, p.inbound, p.outbound, p.private, c.answered, nil)
	if !status.Succeeded() {
		c.drop()
		return fmt.Errorf("connect: %w", c.endpoint.explained(status))
	}
	return nil
}

// terms has the values that an end tells its peer when it connects or accepts: the number
// of READs that may be in progress in either direction, and private data.
type terms struct {
	inbound, outbound uint32
	private           []byte
}

// answered is the completion of Connect.
func (c *connection) answered(_ any, status provider.Status) {
	if status == provider.StatusSuccess {
		c.endpoint.mu.Lock()
		if c.stage == connecting {
			status = c.connector.CompleteConnect(c.disconnected, nil, nil, nil)
		}
		c.endpoint.mu.Unlock()
	}
	c.decided("connect", status)
}

// accept accepts a peer's request for the connection. When that fails, the connection is
// being closed.
func (c *connection) accept(connector *provider.Connector, p terms) error {
	c.connector = connector
	accepted := func(_ any, status provider.Status) { c.decided("accept", status) }
	if status := connector.Accept(c.qp, p.inbound, p.outbound, p.private, c.disconnected, nil, accepted, nil); !status.Succeeded() {
		c.drop()
		return fmt.Errorf("accept: %w", status)
	}
	return nil
}

// postReceive posts a receive.
func (c *connection) postReceive(sge provider.SGE, context any) error {
	sgl := [1]provider.SGE{sge}
	if status := c.qp.Receive(context, sgl[:]); status != provider.StatusSuccess {
		return fmt.Errorf("post receive: %w", status)
	}
	return nil
}

// decided tells the session, or the owner, whether the connection is established.
func (c *connection) decided(what string, status provider.Status) {
	e := c.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.stage != connecting {
		return
	}
	early := c.early
	c.early = nil
	if status == provider.StatusSuccess {
		c.stage, c.established = up, true
		c.session.begin()
	} else {
		c.fail(fmt.Sprintf("%s: %v", what, status))
	}
	if early != nil {
		now := e.clock.Now()
		for i := range *early {
			c.completed(now, &(*early)[i])
		}
	}
	e.owner.advance()
}

// completed takes a completion of the QP, which was there at the instant now.
func (c *connection) completed(now time.Duration, r *provider.ResultEx) {
	isProbe := r.RequestContext == probe
	switch {
	case isProbe && c.stage == up:
		c.probeAnswered(r.Status)
	case isProbe:
	case c.stage == connecting:
		if c.early == nil {
			c.early = new([]provider.ResultEx)
		}
		*c.early = append(*c.early, *r)
	case c.stage != closing && r.Status != provider.StatusCancelled:
		c.session.handle(now, *r)
	default:
		if s, ok := c.session.(reclaimer); ok {
			s.reclaim(*r)
		}
	}
}

// disconnected is the disconnect event: the peer has ended the connection, or is gone.
func (c *connection) disconnected(any) {
	e := c.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over {
		e.drain() // what came before it
	}
	if c.stage == connecting || c.stage == up {
		c.fail(peerDisconnected)
	}
	e.owner.advance()
}

// peerDisconnected is the reason of a connection that the peer has ended.
const peerDisconnected = "the peer disconnected"

// fail closes a connection that is of no use any more, and tells the owner.
func (c *connection) fail(why string) {
	c.drop()
	c.endpoint.owner.lost(c, why)
}

// disconnect ends the connection in good order.
func (c *connection) disconnect() {
	c.stage = disconnecting
	ended := func(any, provider.Status) {
		c.endpoint.mu.Lock()
		defer c.endpoint.mu.Unlock()
		if c.stage == disconnecting {
			c.drop()
		}
	}
	if c.connector.Disconnect(ended, nil) != provider.StatusPending {
		c.drop()
	}
}

// drop closes everything of the connection, whatever it is in the middle of, and then tells
// the owner that it is gone.
func (c *connection) drop() {
	if c.stage == closing {
		return
	}
	c.stage = closing
	e := c.endpoint
	e.closing++
	var objects []closer
	if c.connector != nil {
		objects = append(objects, c.connector)
	}
	if c.qp != nil {
		objects = append(objects, c.qp)
	}
	objects = append(objects, c.session.objects()...)
	closeEach(e.clock, objects, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.conns.remove(c)
		e.closing--
		if !e.over {
			e.drain() // so that the CQ never has entries of more connections than there are
		}
		c.session.closed()
		e.owner.gone(c)
		e.owner.advance()
	})
}

// probe probes the peer if the session waits for it.
func (c *connection) probe() {
	if c.stage != up || c.probing || !c.session.waits() {
		return
	}
	c.probing = true
	if status := c.qp.Write(probe, nil, 0, 0, 0); status != provider.StatusSuccess {
		c.probeAnswered(status)
	}
}

// probeAnswered takes the completion of a probe.
func (c *connection) probeAnswered(status provider.Status) {
	c.probing = false
	if status != provider.StatusSuccess && status != provider.StatusCancelled {
		c.fail(fmt.Sprintf("no answer from the peer has arrived: %v", status))
	}
}

// privateData returns what a peer has sent with its request for a connection, or with its
// acceptance of one.
func privateData(connector *provider.Connector) ([]byte, error) {
	data := make([]byte, 256)
	length := uint32(len(data))
	if status := connector.GetConnectionData(nil, nil, data, &length); status != provider.StatusSuccess {
		return nil, fmt.Errorf("private data: %w", status)
	}
	return data[:length], nil
}

// longEnough returns an error if private data has not n bytes at least.
func longEnough(private []byte, n int) error {
	if len(private) < n {
		return fmt.Errorf("the peer's private data has %d bytes, not %d", len(private), n)
	}
	return nil
}

// acceptance returns the private data with which the peer has accepted the connection: n
// bytes at least.
func (c *connection) acceptance(n int) ([]byte, error) {
	private, err := privateData(c.connector)
	if err == nil {
		err = longEnough(private, n)
	}
	return private, err
}
