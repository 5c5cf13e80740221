package provider_test

import (
	"net/netip"
	"slices"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// A connState is the state of a connector.
type connState int

const (
	stateIdle       connState = iota
	stateConnecting           // the listener's consumer has not decided
	stateReplied              // and has accepted
	stateRequested            // delivered by a listener
	stateAccepting
	stateEstablished
	stateEnded
	stateAborted // the peer gave up before it was connected
	stateRefused // by us
)

// A modelEndpoint is a port in use.
type modelEndpoint struct {
	references int
	listener   *modelListener
	shared     *modelShared
}

// A modelConn describes a connector as the model knows it.
type modelConn struct {
	entity
	*provider.Connector
	state             connState
	since             time.Duration
	port              uint16 // local
	remote            netip.AddrPort
	endpoint          *modelEndpoint // nil if it holds none
	shared            *modelShared
	qp                *modelQP
	peer              *modelConn
	inbound, outbound uint32
	request           *call // Connect or Accept under way
	// perhaps says that the peer has given up, and that a lost packet may have
	// kept us from hearing of it.
	perhaps            bool
	wantsEvent         bool
	events, wantEvents int
}

// A modelListener describes a listener as the model knows it.
type modelListener struct {
	entity
	*provider.Listener
	port      uint16 // 0 before it listens
	paused    bool
	delivered []*provider.Connector
}

// A modelShared describes a shared endpoint as the model knows it.
type modelShared struct {
	entity
	*provider.SharedEndpoint
	port         uint16
	destinations map[netip.AddrPort]*modelConn
}

func (c *modelConn) init(of *consumer, object *provider.Connector, antecedents ...*entity) {
	c.Connector = object
	c.teardown = c.onClose
	c.leave = func() { c.unclaim() }
	of.m.add(&c.entity, of, "connector", c, object, antecedents...)
	of.conns = append(of.conns, c)
}

// claim takes a port into use, which must be free.
func (d *modelDevice) claim(port uint16) *modelEndpoint {
	e := &modelEndpoint{references: 1}
	d.endpoints[port] = e
	return e
}

// unclaim gives up a reference.
func (d *modelDevice) unclaim(port uint16) {
	e := d.endpoints[port]
	if e.references--; e.references == 0 {
		delete(d.endpoints, port)
	}
}

// unclaim gives the connector's reference up.
func (c *modelConn) unclaim() {
	if c.endpoint != nil {
		c.of.device.unclaim(c.port)
		c.endpoint = nil
	}
}

func (s connState) attempting() bool { return s >= stateConnecting && s <= stateAccepting }

// enter moves to a state and counts what that means (NDK-CNT-01 to 06).
func (c *modelConn) enter(s connState) {
	counters := &c.of.device.counters
	switch {
	case c.state == stateEstablished:
		counters.ActiveConnection--
		c.qp.connected = false
	case s == stateEstablished:
		counters.ActiveConnection++
		if c.state == stateReplied {
			counters.Connect++
		} else {
			counters.Accept++
		}
		c.qp.connected = c.qp.state == qpReady
	case c.state.attempting() && !s.attempting():
		counters.ConnectFailure++
	}
	live := func(s connState) bool { return s.attempting() || s == stateEstablished }
	if live(c.state) && !live(s) && c.shared != nil && c.shared.destinations[c.remote] == c {
		delete(c.shared.destinations, c.remote)
	}
	c.state, c.since = s, c.m.w.clock.Now()
}

// resolve says how the request under way ends.
func (c *modelConn) resolve(want ...provider.Status) {
	if c.request != nil {
		c.request.want = want
		c.request = nil
	}
}

// leaveQP ends the use of the queue pair: one that was to be connected and was
// not can be used again.
func (c *modelConn) leaveQP() {
	switch q := c.qp; {
	case q == nil, q.conn != c:
	case q.state == qpInit:
		q.conn = nil
	default:
		q.flush()
	}
}

// backToIdle is after a Connect that failed; the connector may try again.
func (c *modelConn) backToIdle(why provider.Status) {
	c.enter(stateIdle)
	c.leaveQP()
	c.unclaim()
	c.peer = nil
	c.resolve(why)
}

// ended is the end of an established connection, of which the consumer is told.
func (c *modelConn) ended() {
	c.enter(stateEnded)
	if c.wantsEvent {
		c.wantEvents++
	}
}

// broken is an end by error.
func (c *modelConn) broken() {
	c.ended()
	c.of.device.counters.ConnectionError++
}

// disconnected is an end by the peer: what is pending stays (NDK-DISC-03).
func (c *modelConn) disconnected() {
	if c != nil && c.state == stateEstablished {
		c.ended()
		c.qp.halted = true
	}
}

// lost is the end of the connector's queue pair.
func (c *modelConn) lost() {
	switch c.state {
	case stateEstablished:
		c.broken()
		c.other().disconnected()
	case stateAccepting:
		c.enter(stateAborted)
		c.resolve(provider.StatusConnectionAborted)
		c.other().gaveUp()
	}
}

// gaveUp has a connector find that its peer has given up while they connected.
func (c *modelConn) gaveUp() {
	if c == nil {
		return
	}
	switch c.state {
	case stateConnecting: // the passive side's connector is closed
		c.backToIdle(provider.StatusConnectionRefused)
	case stateAccepting: // the REP is repeated, and then the peer says so again
		c.enter(stateAborted)
		c.leaveQP()
		c.resolve(provider.StatusConnectionAborted)
	case stateReplied, stateRequested:
		if c.m.lossy {
			c.perhaps = true
			return
		}
		c.enter(stateAborted)
		c.leaveQP()
	}
}

// settleHearsay finds out whether a connector has heard that its peer gave up.
func (m *model) settleHearsay(c *modelConn) {
	if !c.perhaps || slices.ContainsFunc(c.of.device.Connections(), func(e provider.ConnectionEntry) bool {
		return e.Local.Port() == c.port && e.Remote == c.remote
	}) {
		return
	}
	m.logf("%s: has heard that its peer gave up", c.name)
	c.perhaps = false
	if c.state == stateEstablished { // the peer says that it knows of no connection
		c.broken()
		c.qp.halted = true
		return
	}
	c.enter(stateAborted)
	c.leaveQP()
}

// other is the other end, nil if there is none or it has turned to another.
func (c *modelConn) other() *modelConn {
	if c.peer == nil || c.peer.peer != c {
		return nil
	}
	return c.peer
}

// onClose does what a close does at once.
func (c *modelConn) onClose() {
	peer := c.other()
	before := c.state
	c.perhaps = false
	c.enter(stateEnded)
	c.leaveQP()
	c.resolve(provider.StatusCancelled)
	switch {
	case before.attempting():
		peer.gaveUp()
	case before == stateEstablished:
		peer.disconnected()
	}
}

// take returns the status that keeps a queue pair from being connected,
// StatusSuccess if nothing does.
func (c *modelConn) take(q *modelQP) provider.Status {
	switch {
	case q == nil, q.of != c.of:
		return provider.StatusInvalidParameter
	case q.state != qpInit, q.conn != nil && q.conn != c:
		return provider.StatusConnectionActive
	}
	return provider.StatusSuccess
}

// use makes a queue pair the connector's.
func (c *modelConn) use(q *modelQP) {
	q.conn = c
	if c.qp != q {
		c.qp = q
		c.dependOn(&q.entity)
	}
}
