package provider_test

import (
	"net/netip"
	"slices"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// actConnect connects to a place on a device, from a port or a shared endpoint.
// Requests that are not delivered to a listener are refused; nobody answers from
// nowhere.
func (m *model) actConnect(c *modelConn, q *modelQP, source netip.AddrPort, s *modelShared, destination netip.AddrPort) {
	m.settle()
	in, out := pick(m, "inbound", []uint32{16, 1, 0, 99}), pick(m, "outbound", []uint32{16, 1, 0, 99})
	private := m.private()
	d := c.of.device
	var reasons []provider.Status
	add := func(s provider.Status, wrong bool) {
		if wrong {
			reasons = append(reasons, s)
		}
	}
	add(provider.StatusInvalidDeviceState, c.state != stateIdle)
	add(provider.StatusInvalidBufferSize, len(private) > modelPrivate)
	if s != nil {
		source = netip.AddrPortFrom(addresses[d.n], s.port)
		add(provider.StatusInvalidParameter, s.of != c.of)
		add(provider.StatusAddressAlreadyExists, s.destinations[destination] != nil)
	} else {
		add(provider.StatusInvalidAddress, source.Addr() != addresses[d.n])
		add(provider.StatusSharingViolation, d.endpoints[source.Port()] != nil)
		if e := d.endpoints[source.Port()]; e != nil && e.shared != nil {
			add(provider.StatusAddressAlreadyExists, e.shared.destinations[destination] != nil)
		}
	}
	if status := c.take(q); status != provider.StatusSuccess {
		reasons = append(reasons, status)
	}
	call := m.call(&c.entity, "Connect")
	if s != nil {
		call.returned = c.ConnectWithSharedEndpoint(q.QP, s.SharedEndpoint, destination, in, out, private, call.done, &call.async)
	} else {
		call.returned = c.Connect(q.QP, source, destination, in, out, private, call.done, &call.async)
	}
	m.logf("%s: connect %s from %v to %v: %v", c.name, q.name, source, destination, call.returned)
	if len(reasons) > 0 {
		call.want = reasons
		m.settle()
		return
	}
	m.is(call.what, call.returned, provider.StatusPending)
	local, status := c.LocalAddress()
	m.is("LocalAddress", status, provider.StatusSuccess)
	c.use(q)
	c.port, c.remote, c.request = local.Port(), destination, call
	if s != nil {
		if c.shared != s {
			c.shared = s
			c.dependOn(&s.entity)
		}
		s.destinations[destination] = c
		c.endpoint = d.endpoints[s.port]
		c.endpoint.references++
	} else {
		if d.endpoints[c.port] != nil {
			m.t.Fatalf("port %d is in use", c.port)
		}
		c.endpoint = d.claim(c.port)
	}
	c.inbound, c.outbound = min(in, 16), min(out, 16)
	c.enter(stateConnecting)
	m.deliver(c, private)
	m.settle()
}

// deliver has a connection request arrive.
func (m *model) deliver(c *modelConn, private []byte) {
	to := slices.Index(addresses[:], c.remote.Addr())
	if to < 0 { // nobody is there
		if m.coin("wait") && !slices.ContainsFunc(m.conns(), func(o *modelConn) bool { return o != c && o.state.attempting() }) {
			c.backToIdle(provider.StatusIOTimeout)
		}
		return
	}
	e := m.devices[to].endpoints[c.remote.Port()]
	if e == nil || e.listener == nil || e.listener.paused {
		c.backToIdle(provider.StatusConnectionRefused)
		return
	}
	l := e.listener
	if !m.w.clock.RunUntil(func() bool { return len(l.delivered) > 0 }, time.Minute) {
		m.t.Fatalf("%s: no connect event", l.name)
	}
	object := l.delivered[0]
	l.delivered = l.delivered[1:]
	p := &modelConn{}
	p.init(l.of, object, &l.entity)
	p.enter(stateRequested)
	p.peer, c.peer = c, p
	p.port, p.remote = l.port, netip.AddrPortFrom(addresses[c.of.device.n], c.port)
	p.inbound, p.outbound = c.outbound, c.inbound
	m.checkData(p, private)
}

// checkData compares what a connector says of its connection.
func (m *model) checkData(c *modelConn, private []byte) {
	var in, out, n uint32
	m.is("GetConnectionData", c.GetConnectionData(&in, &out, nil, &n), provider.StatusSuccess)
	data := make([]byte, n)
	m.is("GetConnectionData", c.GetConnectionData(nil, nil, data, &n), provider.StatusSuccess)
	if in != c.inbound || out != c.outbound || string(data[:min(len(data), len(private))]) != string(private) {
		m.t.Fatalf("%s: limits %d and %d, want %d and %d; data %x, want %x", c.name, in, out, c.inbound, c.outbound, data, private)
	}
	local, _ := c.LocalAddress()
	remote, _ := c.PeerAddress()
	if want := netip.AddrPortFrom(addresses[c.of.device.n], c.port); local != want || remote != c.remote {
		m.t.Fatalf("%s: from %v to %v, want %v and %v", c.name, local, remote, want, c.remote)
	}
}

// private is private data, now and then too much.
func (m *model) private() []byte {
	return make([]byte, pick(m, "private data", []int{0, 1, modelPrivate, 0, 7, modelPrivate, 2, 3, modelPrivate + 1}))
}

// actAccept accepts, or fails to.
func (m *model) actAccept(c *modelConn, q *modelQP) {
	m.settle()
	in, out := pick(m, "inbound", []uint32{16, 1, 0, 99}), pick(m, "outbound", []uint32{16, 1, 0, 99})
	private := m.private()
	var reasons []provider.Status
	switch c.state {
	case stateAborted:
		reasons = append(reasons, provider.StatusConnectionAborted)
	case stateRequested:
		if status := c.take(q); status != provider.StatusSuccess {
			reasons = append(reasons, status)
		}
	default:
		reasons = append(reasons, provider.StatusInvalidDeviceState)
	}
	if len(private) > modelPrivate {
		reasons = append(reasons, provider.StatusInvalidBufferSize)
	}
	call := m.call(&c.entity, "Accept")
	event, context := m.event(c)
	if m.coin("Ex") {
		var ex provider.DisconnectEventEx
		if event != nil {
			ex = func(context any, _ uint32) { event(context) }
		}
		call.returned = c.AcceptEx(q.QP, in, out, private, ex, context, call.done, &call.async)
	} else {
		call.returned = c.Accept(q.QP, in, out, private, event, context, call.done, &call.async)
	}
	m.logf("%s: accept with %s: %v", c.name, q.name, call.returned)
	switch {
	case len(reasons) > 0:
		call.want = reasons
	default:
		m.is(call.what, call.returned, provider.StatusPending)
		c.use(q)
		q.state = qpReady
		c.request = call
		c.endpoint = c.of.device.endpoints[c.port]
		c.endpoint.references++
		c.inbound, c.outbound = min(c.inbound, in), min(c.outbound, out)
		c.enter(stateAccepting)
		if c.perhaps {
			c.perhaps = false
			c.gaveUp()
			break
		}
		p := c.other()
		p.inbound, p.outbound = min(p.inbound, c.outbound), min(p.outbound, c.inbound)
		p.enter(stateReplied)
		p.resolve(provider.StatusSuccess)
		m.settle()
		m.checkData(p, private)
	}
	m.settle()
}

// event is a disconnect event, or none.
func (m *model) event(c *modelConn) (provider.DisconnectEvent, any) {
	wants := !m.oneIn(5, "no event")
	if c.state == stateRequested || c.state == stateReplied {
		c.wantsEvent = wants
	}
	if !wants {
		return nil, nil
	}
	return func(context any) {
		if context != c {
			m.t.Fatal("wrong context")
		}
		c.alive("disconnect event")
		c.events++
	}, c
}

// actComplete establishes a connection.
func (m *model) actComplete(c *modelConn) {
	m.settle()
	wanted := c.wantsEvent
	event, context := m.event(c)
	want := provider.StatusConnectionInvalid
	switch c.state {
	case stateReplied:
		want = provider.StatusSuccess
	case stateAborted:
		want = provider.StatusConnectionAborted
	default:
		c.wantsEvent = wanted
	}
	call := m.call(&c.entity, "CompleteConnect", want)
	call.returned = c.CompleteConnect(event, context, call.done, &call.async)
	m.logf("%s: %s: %v, want %v", c.name, call.what, call.returned, want)
	if want == provider.StatusSuccess {
		failed := c.qp.state == qpError
		if !failed {
			c.qp.state = qpReady
		}
		c.enter(stateEstablished)
		if !c.perhaps {
			c.peer.enter(stateEstablished)
			c.peer.resolve(provider.StatusSuccess)
		}
		if failed {
			c.lost()
		}
	}
	m.settle()
}

// actReject refuses a request, or the peer's consent.
func (m *model) actReject(c *modelConn) {
	m.settle()
	private := m.private()
	var reasons []provider.Status
	switch c.state {
	case stateAborted:
		reasons = append(reasons, provider.StatusConnectionAborted)
	case stateRequested, stateReplied:
		if len(private) > modelPrivate {
			reasons = append(reasons, provider.StatusInvalidBufferSize)
		}
	default:
		reasons = append(reasons, provider.StatusInvalidDeviceState)
	}
	status := c.Reject(private)
	m.logf("%s: reject: %v", c.name, status)
	switch {
	case len(reasons) > 0:
		m.is("Reject", status, reasons...)
	default:
		m.is("Reject", status, provider.StatusSuccess)
		c.leaveQP()
		c.enter(stateRefused)
		c.perhaps = false
		c.other().gaveUp()
	}
	m.settle()
}

// actDisconnect ends a connection.
func (m *model) actDisconnect(c *modelConn) {
	m.settle()
	call := m.call(&c.entity, "Disconnect", provider.StatusSuccess)
	call.returned = c.Disconnect(call.done, &call.async)
	m.logf("%s: disconnect: %v", c.name, call.returned)
	switch c.state {
	case stateEstablished:
		c.enter(stateEnded)
		c.other().disconnected()
		c.leaveQP()
	case stateEnded:
		c.leaveQP()
	default:
		call.want = []provider.Status{provider.StatusConnectionInvalid}
	}
	m.overruns()
	m.settle()
}

// actListen has a listener listen.
func (m *model) actListen(l *modelListener, port uint16) {
	m.settle()
	d := l.of.device
	want := provider.StatusSuccess
	switch {
	case l.port != 0:
		want = provider.StatusInvalidDeviceState
	case d.endpoints[port] != nil:
		want = provider.StatusSharingViolation
	}
	m.request(&l.entity, "Listen", want, func(done provider.RequestCompletion, context any) provider.Status {
		return l.Listen(netip.AddrPortFrom(addresses[d.n], port), done, context)
	})
	if want == provider.StatusSuccess {
		local, _ := l.LocalAddress()
		if l.port = local.Port(); port != 0 && l.port != port || d.endpoints[l.port] != nil {
			m.t.Fatalf("%s: port %d, asked for %d", l.name, l.port, port)
		}
		d.claim(l.port).listener = l
	}
	m.settle()
}
