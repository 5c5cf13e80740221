package soak

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
	"github.com/ndklab/ndklab/provider"
)

// A listener waits for peers on behalf of an instance's consumer.
type listener struct {
	*provider.Listener
	since  time.Duration // when it last began to accept
	paused bool
}

// servicePort is the port at which consumers listen, if they do.
const servicePort = 7000

// listen has the instance's consumer wait for peers, at one of its addresses each
// time.
func (l *instance) listen() {
	if l.listener != nil {
		return
	}
	n := &listener{since: l.run.Clock.Now()}
	n.Listener = keep(l, must(l.adapter.CreateListener(func(_ any, c *provider.Connector) { l.requested(c) }, nil, nil, nil)))
	address := netip.AddrPortFrom(trial.Pick(l.run.Rand, l.host.addresses), servicePort)
	if status := n.Listen(address, nil, nil); status == provider.StatusSharingViolation {
		// Connections that came to the port before hold it yet.
		l.close(n.Listener, nil)
		return
	} else if status != provider.StatusSuccess {
		l.run.Fail("requests end as they should", "%v: Listen %v", l, status)
	}
	l.listener = n
	l.run.Logf("%v listens at %v", l, address)
}

// stopListening has the instance's consumer not be there for a while.
func (l *instance) stopListening() {
	r, n := l.run, l.listener
	if n == nil {
		l.listen()
		return
	}
	n.since = 1 << 62
	if r.Chance(0.5) {
		r.Coverage.Count("listener closed")
		l.listener = nil
		l.close(n.Listener, nil)
		return
	}
	r.Coverage.Count("listener paused")
	n.paused = true
	n.ControlConnectEvents(true)
	r.Later(50*time.Millisecond, func() {
		n.paused, n.since = false, r.Clock.Now()
		n.ControlConnectEvents(false)
	})
}

// dial begins a connection to a random host.
func (l *instance) dial() {
	r := l.run
	to := trial.Pick(r.Rand, r.hosts)
	source, destination := trial.Pick(r.Rand, l.host.addresses), trial.Pick(r.Rand, to.addresses)
	if to.instance != nil && to.instance.listener != nil && r.Chance(0.95) {
		if at, status := to.instance.listener.LocalAddress(); status == provider.StatusSuccess {
			destination = at.Addr()
		}
	}
	for i := 0; source.Is4() != destination.Is4(); i++ {
		if i == len(l.host.addresses) {
			return
		}
		source = l.host.addresses[i]
	}
	e := l.newEnd()
	e.active, e.target = true, to
	e.connector = must(l.adapter.CreateConnector(nil, nil))
	e.createQP()
	name := binary.BigEndian.AppendUint64(nil, uint64(e.number))
	r.Logf("%v connects to %v", e, to.number)
	answered := func(_ any, status provider.Status) { e.answered(status) }
	e.destination = netip.AddrPortFrom(destination, servicePort)
	inbound, outbound := uint32(r.Rand.IntN(20)), uint32(r.Rand.IntN(20))
	var status provider.Status
	if e.shares = l.endpoint != nil && l.endpoint.LocalAddress().Addr() == source && r.Chance(0.5); e.shares {
		r.Coverage.Count("connection from a shared endpoint")
		status = e.connector.ConnectWithSharedEndpoint(e.qp, l.endpoint, e.destination, inbound, outbound, name, answered, nil)
	} else {
		status = e.connector.Connect(e.qp, netip.AddrPortFrom(source, 0), e.destination, inbound, outbound, name, answered, nil)
	}
	switch loopback := l.host.plan.info.AdapterFlags&provider.AdapterLoopbackConnections != 0; {
	case status == provider.StatusPending && (to != l.host || loopback):
		e.stage = connecting
	case status == provider.StatusHostUnreachable && to == l.host && !loopback:
		e.stage = failed
		e.closeAtOnce()
	case status == provider.StatusAddressAlreadyExists && e.shares && l.leadsTo(e):
		e.stage = failed
		e.closeAtOnce()
	default:
		r.Fail("requests end as they should", "%v: Connect %v", e, status)
	}
}

// leadsTo reports whether another end than e connects, or once did and is not
// closed, from the shared endpoint to where e is to.
func (l *instance) leadsTo(e *end) bool {
	return slices.ContainsFunc(l.ends, func(o *end) bool {
		return o != e && o.shares && o.destination == e.destination && o.stage != failed
	})
}

// answered follows Connect.
func (c *connection) answered(status provider.Status) {
	e := c.end
	r := e.run
	r.Logf("%v: Connect %v", e, status)
	r.Coverage.Count("Connect " + status.String())
	if e.tearing {
		return
	}
	switch {
	case status == provider.StatusSuccess:
		e.stage = replied
		e.qpn = e.qp.Number()
		e.recordPeer(r.endOf(e.connector))
		r.Later(r.decisionTime(), e.complete)
		return
	case status == provider.StatusConnectionRefused && e.mayBeRefused():
	case status == provider.StatusIOTimeout && e.mayBeSilent(e.begunAt):
	default:
		r.Fail("requests end as they should", "%v: Connect %v", e, status)
	}
	e.stage = failed
	e.tearDown()
}

// mayBeRefused reports whether a peer that was asked may have said no: because
// its consumer did, because nobody listened at some time meanwhile or at that
// address, or because the host has started anew.
func (c *connection) mayBeRefused() bool {
	e := c.end
	if slices.ContainsFunc(e.run.ends, func(p *end) bool { return p.peer == e && (p.tearing || p.stage == failed) }) {
		return true
	}
	if e.instance.number > 1 {
		return true // by its peers, for one of before
	}
	l := e.target.instance
	if l == nil || l.listener == nil || l.listener.since >= e.begunAt || l.closing {
		return true
	}
	at, status := l.listener.LocalAddress()
	remote, _ := e.connector.PeerAddress()
	return status != provider.StatusSuccess || at != remote
}

// endOf returns the end whose number a connector's peer has sent.
func (r *run) endOf(c *provider.Connector) *end {
	var data [256]byte
	n := uint32(len(data))
	var inbound, outbound uint32
	if status := c.GetConnectionData(&inbound, &outbound, data[:], &n); status != provider.StatusSuccess {
		r.Fail("requests end as they should", "GetConnectionData %v", status)
	}
	number := binary.BigEndian.Uint64(data[:])
	if number >= uint64(len(r.ends)) {
		r.Fail("private data arrives", "an end is %#x", number)
	}
	return r.ends[number]
}

// recordPeer records the peer of an active end in the model, and fails the run if the two disagree.
func (c *connection) recordPeer(p *end) {
	e := c.end
	if p.peer != e {
		e.run.Fail("private data arrives", "%v has been accepted by %v, which has another peer", e, p)
	}
	e.peer = p
	e.mtu = min(e.maxPayload(), p.maxPayload())
	p.mtu = e.mtu
	local, _ := e.connector.LocalAddress()
	e.remote, p.remote = e.destination.Addr(), local.Addr()
	e.limits()
	if e.outbound > p.inbound || p.outbound > e.inbound {
		e.run.Fail("read limits agree", "%v has %d in %d out, %v %d in %d out", e, e.inbound, e.outbound, p, p.inbound, p.outbound)
	}
}

// limits reads the effective read limits.
func (c *connection) limits() {
	e := c.end
	n := uint32(0)
	if status := e.connector.GetConnectionData(&e.inbound, &e.outbound, nil, &n); status != provider.StatusSuccess {
		e.run.Fail("requests end as they should", "%v: GetConnectionData %v", e, status)
	}
}

// maxPayload returns the largest payload of a packet at the end's address.
func (c *connection) maxPayload() int64 {
	e := c.end
	local, _ := e.connector.LocalAddress()
	for _, a := range e.instance.device.ActiveAddresses() {
		if a.Address == local.Addr() {
			return int64(a.FrameSize)
		}
	}
	e.run.Fail("connections have addresses", "%v: %v", e, local)
	return 0
}

// decisionTime returns how long a consumer takes to decide: mostly not long, but sometimes
// longer than the peer is patient.
func (r *run) decisionTime() time.Duration {
	if r.Chance(0.1) {
		return 3 * time.Second
	}
	return time.Millisecond
}

// complete establishes what the peer has accepted, or refuses it after all.
func (c *connection) complete() {
	e := c.end
	r := e.run
	if e.tearing || e.instance.dead || e.instance.closing {
		return
	}
	if r.Chance(0.05) {
		status := e.connector.Reject([]byte("no"))
		r.Coverage.Count("Reject of a reply " + status.String())
		e.stage = failed
		e.tearDown()
		return
	}
	status := e.connector.CompleteConnectEx(func(_ any, reason uint32) { e.disconnected(reason) }, nil, nil, nil)
	r.Logf("%v: CompleteConnect %v", e, status)
	r.Coverage.Count("CompleteConnect " + status.String())
	switch {
	case status == provider.StatusSuccess:
		e.instance.connects++
		e.stage = established
	case status == provider.StatusConnectionAborted || status == provider.StatusIOTimeout:
		if !e.mayBeSilent(e.begunAt) {
			r.Fail("requests end as they should", "%v: CompleteConnect %v", e, status)
		}
		e.stage = failed
		e.tearDown()
	default:
		r.Fail("requests end as they should", "%v: CompleteConnect %v", e, status)
	}
}

// requested takes a connection request that a listener delivers.
func (l *instance) requested(c *provider.Connector) {
	e := l.newEnd()
	e.connector, e.stage = c, requested
	if l.closing || l.dead {
		e.closeAtOnce()
		return
	}
	e.peer = l.run.endOf(c)
	if p := e.peer; p.target != l.host || !p.active {
		l.run.Fail("private data arrives", "%v is delivered to %v", p, l)
	}
	l.run.Logf("%v is asked by %v", e, e.peer)
	if p := e.peer; p.stage == connecting {
		p.peer = e // until it hears otherwise
	}
	l.run.Later(l.run.decisionTime(), e.decide)
}

// decide answers a request.
func (c *connection) decide() {
	e := c.end
	r := e.run
	if e.tearing || e.instance.dead || e.instance.closing {
		return
	}
	if r.Chance(0.1) {
		r.Coverage.Count("request refused")
		e.stage = failed
		if r.Chance(0.5) {
			e.connector.Reject([]byte("no"))
		}
		e.tearDown()
		return
	}
	e.createQP()
	name := binary.BigEndian.AppendUint64(nil, uint64(e.number))
	e.stage = accepting
	status := e.connector.AcceptEx(e.qp, uint32(r.Rand.IntN(20)), uint32(r.Rand.IntN(20)), name,
		func(_ any, reason uint32) { e.disconnected(reason) }, nil,
		func(_ any, status provider.Status) { e.accepted(status) }, nil)
	switch {
	case status == provider.StatusPending:
		e.limits()
	case status == provider.StatusConnectionAborted && e.abandoned():
		e.stage = failed
		e.tearDown()
	default:
		r.Fail("requests end as they should", "%v: Accept %v", e, status)
	}
}

// abandoned reports whether the active end may not want, or know, the connection
// any more.
func (c *connection) abandoned() bool {
	e := c.end
	p := e.peer
	return e.instance.number > 1 || // the peer takes it for one of before
		p.stage != connecting || p.peer != e || e.mayBeSilent(e.begunAt)
}

// accepted follows Accept.
func (c *connection) accepted(status provider.Status) {
	e := c.end
	r := e.run
	r.Logf("%v: Accept %v", e, status)
	r.Coverage.Count("Accept " + status.String())
	switch {
	case status == provider.StatusSuccess:
		e.instance.accepts++
		if e.peer.stage != established {
			r.Fail("only what both want is established", "%v: its peer has not completed the connection", e)
		}
		e.stage = established
	case status == provider.StatusCancelled && e.connectorClosed:
		e.stage = failed
	case (status == provider.StatusConnectionAborted || status == provider.StatusIOTimeout) && (e.tearing || e.abandoned()):
		e.stage = failed
		e.tearDown()
	default:
		r.Fail("requests end as they should", "%v: Accept %v", e, status)
	}
}
