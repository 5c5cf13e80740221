package verbs

import (
	"net/netip"
	"sync"
	"syscall"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/transport"
	"github.com/ndklab/ndklab/internal/provider/uc"
	"github.com/ndklab/ndklab/internal/provider/ud"
)

// Capacity has the room of a queue pair (ibv_qp_cap).
type Capacity struct{ SendDepth, ReceiveDepth, SendSGEs, ReceiveSGEs, Inline int }

// A QPConfig is fixed when a queue pair is made.
type QPConfig struct {
	Type      QPType
	SendCQ    *CQ
	ReceiveCQ *CQ
	SRQ       *SRQ // nil: it has receives of its own
	Capacity  Capacity
	SignalAll bool // every request makes a completion
	Cookie    any  // the consumer's
}

// Attributes are those of a queue pair (ibv_qp_attr).
type Attributes struct {
	State, CurrentState    QPState // the second: which the consumer believes the first to be
	PathMTU                int     // payload bytes per packet
	QKey                   uint32
	ReceivePSN, SendPSN    uint32
	DestQPN                uint32
	Access                 Access
	Address                Address
	PKeyIndex              uint16
	DrainNotify            bool
	MaxReads, MaxDestReads uint8
	MinRNRTimer            uint8
	Port                   uint8
	Timeout, RetryCount    uint8
	RNRRetry               uint8
}

// An Address says where packets go, and which of our addresses they come from (ibv_ah_attr).
type Address struct {
	Remote       netip.Addr
	GIDIndex     int
	Port         uint8
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32
	ServiceLevel uint8
}

// A QP is a queue pair.
type QP struct {
	pd     *PD
	config QPConfig
	lock   sync.Locker     // of channel or unreliable
	pair   *transport.Pair // likewise

	channel    transport.Channel    // of RC
	unreliable transport.Unreliable // of UC and UD; one of the next two is its machine's
	uc         *uc.QP
	ud         *ud.QP

	// The lock is not held where attaching is: packets that arrive may wait for the lock, and are waited for.
	attaching sync.Mutex   // guards groups
	groups    []netip.Addr // that it is attached to

	// The lock guards what follows.
	receives   *rc.ReceiveQueue // nil with an SRQ
	written    written
	state      QPState
	attributes Attributes
	local      netip.Addr // Address.GIDIndex's
	tags       tags
	notifying  bool   // EventSendQueueDrained is to be raised
	lastWQE    bool   // EventLastWQEReached has been
	reason     string // why it is in error by itself, of which has been told (reportError); "" if it is not
	destroyed  bool
	datagrams  []ud.Completion // scratch of Settle
	messages   []rc.Completion // likewise
}

// leastInline is the number of bytes that a request may have inline in any case. Programs send their first few so without
// asking for room (rdma_xclient of librdmacm), since hardware has room in the place of a list of memory.
const leastInline = 32

// CreateQP makes a queue pair in Reset. The capacities that it has may be larger than those asked for.
func (pd *PD) CreateQP(config QPConfig) (*QP, error) {
	c := pd.context
	if config.Type != RC && config.Type != UC && config.Type != UD {
		return nil, syscall.EOPNOTSUPP
	}
	if config.SendCQ == nil || config.ReceiveCQ == nil || config.SRQ != nil && config.SRQ.pd.context != c {
		return nil, syscall.EINVAL
	}
	l, limits := &config.Capacity, &c.limits
	for _, of := range []struct {
		n    *int
		most uint32
	}{{&l.SendDepth, limits.WorkRequests}, {&l.ReceiveDepth, limits.WorkRequests}, {&l.SendSGEs, limits.SGEs}, {&l.ReceiveSGEs, limits.SGEs}, {&l.Inline, limits.Inline}} {
		if *of.n < 0 || uint32(*of.n) > of.most {
			return nil, syscall.EINVAL
		}
	}
	l.SendDepth, l.SendSGEs, l.ReceiveSGEs = max(1, l.SendDepth), max(1, l.SendSGEs), max(1, l.ReceiveSGEs)
	l.Inline = max(l.Inline, leastInline)
	if err := c.take(&c.inUse.qps, c.limits.QPs); err != nil {
		return nil, err
	}
	qp := &QP{pd: pd, config: config}
	qp.written.qp = qp
	qp.lock, qp.pair = &qp.unreliable, &qp.unreliable.Pair
	if config.Type == RC {
		qp.lock, qp.pair = &qp.channel, &qp.channel.Pair
		qp.channel.Init(c.transport, qp.machineConfig(), model{qp})
	} else {
		qp.unreliable.Init(c.transport, machine{qp})
	}
	if !c.transport.Add(qp.pair) {
		c.give(&c.inUse.qps)
		return nil, syscall.ENOMEM
	}
	if config.Type != RC {
		qp.resetUnreliable()
	}
	pd.holds.Add(1)
	config.SendCQ.holds.Add(1)
	config.ReceiveCQ.holds.Add(1)
	if config.SRQ != nil {
		config.SRQ.holds.Add(1)
	}
	c.mu.Lock()
	c.qps[qp], pd.qps[qp] = struct{}{}, struct{}{}
	c.mu.Unlock()
	return qp, nil
}

// machineConfig returns the configuration of a new state machine of the queue pair, with a queue of receives that is new, too.
func (qp *QP) machineConfig() rc.Config {
	l := &qp.config.Capacity
	cfg := rc.Config{
		SendDepth: l.SendDepth, MaxSGE: l.SendSGEs, MaxInline: l.Inline,
		Memory: view{qp}, Place: place, Early: qp.pd.context.device.EarlyMemory(),
	}
	if space := qp.pd.context.space; space != nil {
		cfg.Place, cfg.Placed = space.NewPlacer()
	}
	if qp.config.SRQ != nil {
		cfg.Receives, cfg.SharedReceives = qp.config.SRQ, true
		return cfg
	}
	qp.receives = rc.NewReceiveQueue(max(1, l.ReceiveDepth), l.ReceiveSGEs)
	cfg.Receives = ownReceives{qp}
	return cfg
}

func (qp *QP) resetUnreliable() {
	if qp.config.Type == UC {
		qp.uc = uc.NewQP(qp.machineConfig())
	} else {
		qp.ud = ud.NewQP(qp.machineConfig(), qp.Number(), qp.pd.context.mtu())
	}
}

// mtu returns the largest payload of a packet from any of the device's addresses.
func (c *Context) mtu() int {
	most := 256
	for _, gid := range c.GIDs() {
		most = max(most, gid.MTU)
	}
	return most
}

// Number returns the queue pair's number on the wire.
func (qp *QP) Number() uint32 { return qp.pair.Number() }

// Type returns the queue pair's kind.
func (qp *QP) Type() QPType { return qp.config.Type }

// Capacity returns the room of the queue pair.
func (qp *QP) Capacity() Capacity { return qp.config.Capacity }

// Cookie returns the consumer's cookie (QPConfig).
func (qp *QP) Cookie() any { return qp.config.Cookie }

// Destroy ends the queue pair. Posted requests and receives make no completion; entries that are queued on its CQs stay.
// EBUSY while it is attached to a multicast group.
func (qp *QP) Destroy() error {
	c := qp.pd.context
	qp.attaching.Lock()
	attached := len(qp.groups) > 0
	qp.attaching.Unlock()
	if attached {
		return syscall.EBUSY
	}
	c.mu.Lock()
	delete(c.qps, qp)
	delete(qp.pd.qps, qp)
	c.count(&c.inUse.qps, -1)
	c.mu.Unlock()
	qp.lock.Lock()
	qp.destroyed, qp.written.queues, qp.written.watchesSends = true, nil, false
	qp.flush()
	qp.lock.Unlock()
	if qp.config.Type == RC {
		qp.channel.Retire()
	} else {
		c.transport.Remove(qp.pair)
	}
	qp.config.SendCQ.holds.Add(-1)
	qp.config.ReceiveCQ.holds.Add(-1)
	if qp.config.SRQ != nil {
		qp.config.SRQ.holds.Add(-1)
	}
	qp.pd.holds.Add(-1)
	return nil
}

// Query returns the queue pair's attributes as they are.
func (qp *QP) Query() (Attributes, QPConfig) {
	qp.lock.Lock()
	defer qp.lock.Unlock()
	a := qp.attributes
	a.State, a.CurrentState = qp.state, qp.state
	return a, qp.config
}

// flush takes the state machine to its error state. The lock is held.
func (qp *QP) flush() {
	switch qp.config.Type {
	case RC:
		if qp.channel.QP.State() == rc.Init {
			qp.flushReceives()
		}
		qp.channel.QP.Flush()
		qp.channel.Progress(qp.pd.context.clock.Now())
	case UC:
		qp.uc.Flush()
		qp.unreliable.Progress()
	case UD:
		qp.ud.Flush()
		qp.unreliable.Progress()
	}
}

// flushReceives completes the receives of a queue pair that was never connected. The lock is held.
func (qp *QP) flushReceives() {
	var r rc.Receive
	for qp.receives != nil && qp.receives.Take(&r) {
		qp.complete(&rc.Completion{Op: rc.OpReceive, Status: rc.Flushed, Context: r.Context}, 0, 0)
	}
}
