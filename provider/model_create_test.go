package provider_test

import (
	"net/netip"
	"slices"

	"github.com/ndklab/ndklab/provider"
)

// equip gives each consumer what it needs to begin with, and connects some.
func (m *model) equip() {
	for _, c := range m.consumers {
		m.createPD(c)
		m.createCQ(c, 64)
		m.createCQ(c, 16)
		mr := m.createMR(c.pds[0], false)
		const va = 0x10000
		half := span{c.arena, 0, arenaSize / 2}
		m.request(&mr.entity, "Register", provider.StatusSuccess, func(done provider.RequestCompletion, context any) provider.Status {
			return mr.Register(&provider.MDL{VirtualAddress: va, Bytes: c.arena.real[:half.n]}, uint64(half.n), 15, done, context)
		})
		mr.region = &modelRegion{token: mr.LocalToken(), pd: mr.pd, base: va, rights: 15, memory: spans{half}}
		c.device.tokens[mr.region.token] = mr.region
		m.initialize(m.createMR(c.pds[0], true), 16, true)
		m.actRegister(m.createMR(c.pds[0], false))
		m.createMW(c.pds[0])
		m.actBuildLAM(c)
		l := m.createListener(c)
		m.actListen(l, uint16(7000+slices.Index(m.consumers, c)))
	}
	m.createSRQ(m.consumers[2].pds[0], 4, 2)
	m.join(m.consumers[0], m.consumers[2])
	m.join(m.consumers[3], m.consumers[1])
}

func (m *model) createPD(c *consumer) {
	if object, ok := create(m, c, "PD", provider.StatusSuccess, c.CreatePD); ok {
		pd := &modelPD{}
		m.add(&pd.entity, c, "PD", pd, object)
		c.pds = append(c.pds, pd)
	}
}

func (m *model) createCQ(c *consumer, depth uint32) *modelCQ {
	want := provider.StatusSuccess
	if depth == 0 || depth > m.info.MaxCqDepth {
		want = provider.StatusInvalidParameter
	}
	q := &modelCQ{}
	object, ok := create(m, c, "CQ", want, func(done provider.CreateCompletion, context any) (*provider.CQ, provider.Status) {
		return c.CreateCQ(depth, q.notification, q, nil, done, context)
	})
	if !ok {
		return nil
	}
	q.init(c, depth, object)
	return q
}

func (m *model) createMR(pd *modelPD, fast bool) *modelMR {
	object, ok := create(m, pd.of, "MR", provider.StatusSuccess, func(done provider.CreateCompletion, context any) (*provider.MR, provider.Status) {
		return pd.object.(*provider.PD).CreateMR(fast, done, context)
	})
	if !ok {
		return nil
	}
	mr := &modelMR{}
	mr.init(pd, fast, object)
	return mr
}

func (m *model) createMW(pd *modelPD) {
	if object, ok := create(m, pd.of, "MW", provider.StatusSuccess, pd.object.(*provider.PD).CreateMW); ok {
		(&modelMW{}).init(pd, object)
	}
}

func (m *model) createSRQ(pd *modelPD, depth, threshold uint32) *modelSRQ {
	want := provider.StatusSuccess
	if depth == 0 || depth > m.info.MaxSrqDepth {
		want = provider.StatusInvalidParameter
	}
	s := &modelSRQ{}
	notification := s.notification
	silent := m.oneIn(4, "no notification")
	if silent {
		notification = nil
	}
	object, ok := create(m, pd.of, "SRQ", want, func(done provider.CreateCompletion, context any) (*provider.SRQ, provider.Status) {
		return pd.object.(*provider.PD).CreateSRQ(depth, modelSGE, threshold, notification, s, nil, done, context)
	})
	if !ok {
		return nil
	}
	s.init(pd, depth, threshold, silent, object)
	return s
}

func (m *model) createQP(pd *modelPD, receiveCQ, initiatorCQ *modelCQ, srq *modelSRQ) *modelQP {
	q := &modelQP{pd: pd, receiveCQ: receiveCQ, initiatorCQ: initiatorCQ, srq: srq}
	want, depth := provider.StatusSuccess, uint32(modelDepth)
	domain := pd.object.(*provider.PD)
	switch {
	case m.oneIn(20, "too deep"):
		want, depth = provider.StatusInvalidParameter, m.info.MaxInitiatorQueueDepth+1
	case srq != nil && srq.pd != pd:
		want = provider.StatusInvalidParameter
	case receiveCQ.failure != provider.StatusSuccess, initiatorCQ.failure != provider.StatusSuccess:
		want = provider.StatusInvalidDeviceState
		if pd.of.device.used["QP"] == pd.of.device.limits["QP"] {
			want = provider.StatusInsufficientResources
		}
	}
	object, ok := create(m, pd.of, "QP", want, func(done provider.CreateCompletion, context any) (*provider.QP, provider.Status) {
		if srq != nil {
			return domain.CreateQPWithSRQ(receiveCQ.CQ, initiatorCQ.CQ, srq.SRQ, q, depth, modelSGE, modelInline, done, context)
		}
		return domain.CreateQP(receiveCQ.CQ, initiatorCQ.CQ, q, modelDepth, depth, modelSGE, modelSGE, modelInline, done, context)
	})
	if !ok {
		return nil
	}
	q.QP = object
	q.teardown = func() {
		q.flush()
		q.conn.flushed()
	}
	antecedents := []*entity{&pd.entity, &receiveCQ.entity, &initiatorCQ.entity}
	if srq != nil {
		antecedents = append(antecedents, &srq.entity)
	}
	m.add(&q.entity, pd.of, "QP", q, object, antecedents...)
	pd.of.qps = append(pd.of.qps, q)
	return q
}

// anyQP makes a queue pair of what there is; nil if that is not possible.
func (m *model) anyQP(c *consumer) *modelQP {
	pd := anyOf(m, "PD", c.pds)
	receiveCQ, initiatorCQ := anyOf(m, "receive CQ", c.cqs), anyOf(m, "initiator CQ", c.cqs)
	if pd == nil || receiveCQ == nil {
		return nil
	}
	var srq *modelSRQ
	if m.coin("with SRQ") {
		srq = anyOf(m, "SRQ", c.srqs)
	}
	return m.createQP(pd, receiveCQ, initiatorCQ, srq)
}

func (m *model) createListener(c *consumer) *modelListener {
	l := &modelListener{}
	object, ok := create(m, c, "listener", provider.StatusSuccess, func(done provider.CreateCompletion, context any) (*provider.Listener, provider.Status) {
		return c.CreateListener(func(context any, object *provider.Connector) {
			if context != l {
				m.t.Fatal("wrong context")
			}
			l.alive("connect event")
			l.delivered = append(l.delivered, object)
		}, l, done, context)
	})
	if !ok {
		return nil
	}
	l.Listener = object
	l.teardown = func() {
		if l.port != 0 {
			c.device.endpoints[l.port].listener = nil
		}
	}
	l.leave = func() {
		if l.port != 0 {
			c.device.unclaim(l.port)
		}
	}
	m.add(&l.entity, c, "listener", l, object)
	c.listeners = append(c.listeners, l)
	return l
}

func (m *model) createShared(c *consumer, port uint16) *modelShared {
	want := provider.StatusSuccess
	if c.device.endpoints[port] != nil {
		want = provider.StatusSharingViolation
	}
	object, ok := create(m, c, "shared endpoint", want, func(done provider.CreateCompletion, context any) (*provider.SharedEndpoint, provider.Status) {
		return c.CreateSharedEndpoint(netip.AddrPortFrom(addresses[c.device.n], port), done, context)
	})
	if !ok {
		return nil
	}
	s := &modelShared{SharedEndpoint: object, port: object.LocalAddress().Port(), destinations: map[netip.AddrPort]*modelConn{}}
	s.leave = func() { c.device.unclaim(s.port) }
	m.add(&s.entity, c, "shared endpoint", s, object)
	c.device.claim(s.port).shared = s
	c.shared = append(c.shared, s)
	return s
}

func (m *model) createConnector(c *consumer) *modelConn {
	object, ok := create(m, c, "connector", provider.StatusSuccess, c.CreateConnector)
	if !ok {
		return nil
	}
	n := &modelConn{}
	n.init(c, object)
	return n
}

// actCreate makes an object.
func (m *model) actCreate(c *consumer) {
	port := pick(m, "port", []uint16{0, 7000, 7001, 7002, 7003, 8000})
	switch pd := anyOf(m, "PD", c.pds); pick(m, "kind", []string{"QP", "MR", "FRMR", "MW", "PD", "CQ", "SRQ", "connector", "listener", "shared endpoint"}) {
	case "QP":
		m.anyQP(c)
	case "PD":
		m.createPD(c)
	case "CQ":
		m.createCQ(c, pick(m, "depth", []uint32{64, 3, 5, 0, 65}))
	case "connector":
		m.createConnector(c)
	case "listener":
		m.actListen(m.createListener(c), port)
	case "shared endpoint":
		m.createShared(c, port)
	case "MR":
		if pd != nil {
			m.createMR(pd, false)
		}
	case "FRMR":
		if pd != nil {
			m.createMR(pd, true)
		}
	case "MW":
		if pd != nil {
			m.createMW(pd)
		}
	case "SRQ":
		if pd != nil {
			m.createSRQ(pd, pick(m, "depth", []uint32{4, 1, 8, 0, 9}), pick(m, "threshold", []uint32{0, 1, 3}))
		}
	}
}
