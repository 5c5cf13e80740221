package provider_test

import (
	"net/netip"
	"slices"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// step has a consumer do something.
func (m *model) step() {
	m.giveUpOld()
	type action struct {
		weight int
		f      func(*consumer)
	}
	actions := []action{
		{30, m.actBurst},
		{24, func(c *consumer) {
			if q := anyOf(m, "QP", c.qps); q != nil {
				m.actReceive(q, nil)
			}
		}},
		{10, func(c *consumer) {
			if s := anyOf(m, "SRQ", c.srqs); s != nil {
				m.actReceive(nil, s)
			}
		}},
		{8, func(c *consumer) {
			if q := anyOf(m, "CQ", c.cqs); q != nil {
				m.settle()
				m.poll(q, pick(m, "capacity", []int{100, 1, 3}), m.coin("Ex"))
			}
		}},
		{6, func(c *consumer) {
			if q := anyOf(m, "CQ", c.cqs); q != nil {
				m.actArm(q)
			}
		}},
		{4, func(c *consumer) {
			if q := anyOf(m, "CQ", c.cqs); q != nil {
				m.actResize(q)
			}
		}},
		{3, func(c *consumer) {
			if s := anyOf(m, "SRQ", c.srqs); s != nil {
				m.actModify(s)
			}
		}},
		{8, m.actJoin},
		{10, m.actConnection},
		{2, func(c *consumer) {
			if q := anyOf(m, "QP", c.qps); q != nil {
				m.actFlush(q)
			}
		}},
		{14, m.actCreate},
		{8, m.actMemory},
		{6, m.actClose},
		{2, func(c *consumer) {
			if l := anyOf(m, "listener", c.listeners); l != nil {
				m.settle()
				l.paused = !l.paused
				l.ControlConnectEvents(l.paused)
				m.logf("%s: pause %v", l.name, l.paused)
			}
		}},
		{1, m.actState},
	}
	var weighted []func(*consumer)
	for _, a := range actions {
		for range a.weight {
			weighted = append(weighted, a.f)
		}
	}
	f := weighted[m.below(len(weighted), "action")]
	f(m.consumers[m.below(len(m.consumers), "consumer")])
}

// A modelObject has the method that all objects of the model have.
type modelObject interface{ ent() *entity }

func (e *entity) ent() *entity { return e }

// anyOf is one of the objects that are open; nil if there is none.
func anyOf[T modelObject](m *model, label string, from []T) (none T) {
	var open []T
	for _, o := range from {
		if o.ent().closing == nil {
			open = append(open, o)
		}
	}
	if len(open) == 0 {
		return none
	}
	return pick(m, label, open)
}

// every is the objects of one kind that are not gone.
func every[T any](m *model) (all []T) {
	for _, e := range m.entities {
		if o, ok := e.self.(T); ok {
			all = append(all, o)
		}
	}
	return all
}

func (m *model) qps() []*modelQP             { return every[*modelQP](m) }
func (m *model) cqs() []*modelCQ             { return every[*modelCQ](m) }
func (m *model) srqs() []*modelSRQ           { return every[*modelSRQ](m) }
func (m *model) conns() []*modelConn         { return every[*modelConn](m) }
func (m *model) listeners() []*modelListener { return every[*modelListener](m) }

// flushed has a connection's other end wait for a queue pair that does not
// answer any more.
func (c *modelConn) flushed() {
	if c != nil && c.state == stateEstablished && c.qp.state == qpError {
		if p := c.other(); p != nil {
			p.qp.unanswered()
		}
	}
}

// actMemory does something with a region or a mapping.
func (m *model) actMemory(c *consumer) {
	mr := anyOf(m, "MR", c.mrs)
	switch what := m.below(5, "memory"); {
	case what == 0:
		m.actBuildLAM(c)
	case mr == nil:
	case what == 1:
		m.actDeregister(mr)
	case mr.fast && what < 4:
		m.actInitialize(mr)
	default:
		m.actRegister(mr)
	}
}

// actClose closes an object, antecedents first or last as it comes.
func (m *model) actClose(c *consumer) {
	m.settle()
	if open := m.closable(c); len(open) > 0 {
		m.close(pick(m, "close", open))
	}
}

// closable returns the entities that a consumer, or any if c is nil, can close.
func (m *model) closable(c *consumer) (open []*entity) {
	for _, e := range m.entities {
		if (c == nil || e.of == c) && e.closing == nil && !m.inUseByBlocked(e) {
			open = append(open, e)
		}
	}
	return open
}

// inUseByBlocked reports whether a request that waits uses an object's memory.
func (m *model) inUseByBlocked(e *entity) bool {
	switch o := e.self.(type) {
	case *modelMR:
		return m.blockedOn(o.region) || o.grant != nil && m.blockedOn(o.grant.region)
	case *modelMW:
		return m.blockedOn(o.grant.region)
	case *modelLAM:
		return slices.ContainsFunc(m.qps(), func(q *modelQP) bool { return len(q.blocked) > 0 })
	}
	return false
}

// actFlush flushes a queue pair.
func (m *model) actFlush(q *modelQP) {
	m.settle()
	m.logf("%s: flush", q.name)
	q.Flush()
	q.flush()
	q.conn.flushed()
	m.overruns()
	m.settle()
}

// actState disables NDK, for as long as the consumers are there.
func (m *model) actState(c *consumer) {
	d := c.device
	if d.disabled = d.disabled || m.oneIn(4, "disable"); !d.disabled {
		return
	}
	m.logf("device %d: disable", d.n)
	m.is("SetState", d.SetState(false), provider.StatusSuccess)
	if m.coin("enable") { // which waits for the instances
		m.is("SetState", d.SetState(true), provider.StatusSuccess)
	}
	_, status := d.OpenAdapter(anyVersion)
	m.is("OpenAdapter", status, provider.StatusAdapterNotReady)
}

// giveUpOld closes connectors that have been connecting for long, before they
// time out.
func (m *model) giveUpOld() {
	for _, c := range m.conns() {
		if c.closing == nil && c.state.attempting() && m.w.clock.Now()-c.since > 10*time.Second {
			m.close(&c.entity)
		}
	}
}

// join connects two consumers with new queue pairs; nil if that is not possible.
func (m *model) join(from, to *consumer) (a, b *modelQP) {
	l := anyOf(m, "listener", to.listeners)
	if l == nil || l.port == 0 || l.paused {
		return nil, nil
	}
	a, b = m.anyQP(from), m.anyQP(to)
	c := m.createConnector(from)
	if a == nil || b == nil || c == nil {
		return nil, nil
	}
	m.actConnect(c, a, netip.AddrPortFrom(addresses[from.device.n], 0), nil, netip.AddrPortFrom(addresses[to.device.n], l.port))
	if c.state == stateConnecting {
		m.actAccept(c.peer, b)
	}
	if c.state == stateReplied {
		m.actComplete(c)
	}
	return a, b
}

func (m *model) actJoin(c *consumer) {
	if to := m.consumers[m.below(len(m.consumers), "to")]; to != c {
		m.join(c, to)
	}
}

// actConnection does something with a connector.
func (m *model) actConnection(c *consumer) {
	q := anyOf(m, "QP", c.qps)
	n := anyOf(m, "connector", c.conns)
	if n == nil || q == nil {
		return
	}
	likely := map[connState]string{
		stateIdle: "connect", stateRequested: "accept", stateReplied: "complete", stateEstablished: "disconnect", stateEnded: "disconnect",
	}[n.state]
	what := pick(m, "what", []string{likely, likely, likely, "reject", "connect", "accept", "complete", "disconnect", "reject"})
	switch what {
	case "connect":
		source := netip.AddrPortFrom(addresses[c.device.n], pick(m, "source port", []uint16{0, 0, 9000, 7000}))
		if m.oneIn(15, "foreign") {
			source = netip.AddrPortFrom(addresses[1-c.device.n], 0)
		}
		var s *modelShared
		if m.coin("shared") {
			s = anyOf(m, "shared endpoint", m.consumers[m.below(4, "whose")].shared)
		}
		to := pick(m, "to", m.consumers)
		destination := netip.AddrPortFrom(addresses[to.device.n], pick(m, "port", []uint16{7000, 7001, 7002, 7003, 8000}))
		if l := anyOf(m, "listener", to.listeners); l != nil && to != c && !m.oneIn(4, "any port") {
			destination = netip.AddrPortFrom(addresses[to.device.n], l.port)
		}
		if m.oneIn(10, "nowhere") {
			destination = nowhere
		}
		if e := m.devices[to.device.n].endpoints[destination.Port()]; e != nil && e.listener != nil && e.listener.of == c {
			return // whose completions could mix
		}
		m.actConnect(n, q, source, s, destination)
	case "accept":
		m.actAccept(n, q)
	case "complete":
		m.actComplete(n)
	case "reject":
		m.actReject(n)
	case "disconnect":
		m.actDisconnect(n)
	}
}

// actBurst posts some requests to several queue pairs, of which all but the first
// are likely to be connected.
func (m *model) actBurst(c *consumer) {
	q := anyOf(m, "QP", c.qps)
	for range 1 + m.below(6, "more requests") {
		if q == nil || m.oneIn(3, "another QP") {
			var ready []*modelQP
			for _, o := range m.qps() {
				if o.connected && o.closing == nil {
					ready = append(ready, o)
				}
			}
			if len(ready) == 0 {
				continue
			}
			q = pick(m, "connected QP", ready)
		}
		m.actPost(q)
	}
}
