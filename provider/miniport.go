package provider

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/cm"
	"github.com/ndklab/ndklab/provider/roce"
	"github.com/ndklab/ndklab/provider/roce/mad"
)

// A Config says how a device is started.
type Config struct {
	Carrier Carrier     `json:"-"` // the device's own once NewMiniport has succeeded, which its Close closes
	Clock   clock.Clock `json:"-"`
	Rand    *rand.Rand  `json:"-"` // source of every random number: QPNs, PSNs, IDs
	Info    AdapterInfo // a consumer's limits, to begin with DefaultAdapterInfo
	// Capabilities are the limits of all consumers together, to begin with
	// DefaultCapabilities.
	Capabilities Capabilities
	// Ledger is what processes that share the device have in common; nil for a
	// device of this process alone.
	Ledger *Ledger `json:"-"`
	// GUID identifies the device to its peers, whichever process they have to do
	// with; 0 for a random one.
	GUID uint64
	// Forward and Report are of use to a device that processes share (share.go).
	Forward Forward `json:"-"`
	Report  Report  `json:"-"`
	// GoBackN has the device not offer, or agree to, anything that a foreign peer
	// would not know: a loss has everything behind it sent again.
	GoBackN bool
	// ReorderBuffer is the memory that all queue pairs together may keep packets in that
	// arrive before one that is missing, bytes: 64 KiB to 1 GiB, 0 for
	// DefaultReorderBuffer. What finds no room is dropped as if it were lost.
	ReorderBuffer uint32
	// ReceiveBuffer bounds the bytes of packets that may wait to be received at each address,
	// here and, as far as anybody knows, at the peers: so much the device's queue pairs
	// together may have in flight beyond what their paths hold. 0 means
	// DefaultReceiveBuffer; less counts if the Carrier has less.
	ReceiveBuffer uint32
	// Pend has creates and requests that could finish at once return
	// StatusPending and call back, where they are given a callback: as drivers
	// of hardware do, so that consumers can be tried against both.
	Pend bool
	// Configuration is the device's keywords; nil: nothing is set, as
	// DefaultConfiguration has it.
	Configuration *Configuration
	// QPError is told of queue pairs that go to error otherwise than by their consumer's
	// doing; nil tells nobody. It is called with locks held: it must neither block nor
	// call the device.
	QPError func(QPError) `json:"-"`
	// Log is told of what an administrator should know; nil tells nobody.
	Log func(message string) `json:"-"`
}

// A Miniport is an RDMA device: what NDIS calls a miniport adapter. Consumers
// open instances of it, with OpenAdapter, and have nothing to do with each
// other but that they share its addresses, its ports and its limits.
type Miniport struct {
	life          object // held by the open instances
	carrier       Carrier
	clock         clock.Clock
	info          AdapterInfo
	capabilities  Capabilities
	configuration Configuration
	ledger        *Ledger
	receiveBuffer ReceiveBuffer
	pend          bool
	goBackN       bool
	forward       Forward
	report        Report
	qpError       func(QPError)
	state         ndkState

	regions  tokenTable[region]
	mappings tokenTable[mapping]
	qps      qpTable
	counters counters
	poller   Poller   // carrier, if it is one
	polled   Receiver // for poller's Poll
	delivery delivery
	credit   creditPool
	reorder  reorderBuffer
	closing  atomic.Bool
	failing  atomic.Bool // a walk over the queue pairs is to come: see failQPs

	cmMu sync.Mutex // guards what follows, and the state of connectors and listeners
	// cm is the connection manager; cmTimer runs it at its next deadline.
	cm         *cm.Endpoint
	cmTimer    clock.Timer
	madPSN     uint32 // of the next management datagram
	rand       *rand.Rand
	endpoints  map[netip.AddrPort]*endpoint
	nextPort   uint16 // where the search for a free ephemeral port begins
	connectors map[cm.ID]*Connector
	paths      map[netip.Addr]*path // by the peer's address
	router     cm.Router
	orphans    orphans
	// The end: finish is set while a closing device lingers, for as long as
	// lingerTimer runs at most; closed says that no timer is set any more.
	finish      func()
	lingerTimer clock.Timer
	closed      bool
}

// NewMiniport starts a device. The error says which part of the configuration
// cannot be used.
func NewMiniport(cfg Config) (*Miniport, error) {
	if cfg.Carrier == nil || cfg.Clock == nil || cfg.Rand == nil {
		return nil, errors.New("start adapter: it needs a carrier, a clock and a source of randomness")
	}
	if err := cfg.Info.check(); err != nil {
		return nil, fmt.Errorf("start adapter: %w", err)
	}
	if err := cfg.Capabilities.check(&cfg.Info); err != nil {
		return nil, fmt.Errorf("start adapter: %w", err)
	}
	configuration := DefaultConfiguration()
	if cfg.Configuration != nil {
		configuration = *cfg.Configuration
	}
	if err := configuration.check(); err != nil {
		return nil, fmt.Errorf("start adapter: %w", err)
	}
	if cfg.ReorderBuffer == 0 {
		cfg.ReorderBuffer = DefaultReorderBuffer
	}
	if err := checkLimits([]limit{{"ReorderBuffer", uint64(cfg.ReorderBuffer), leastReorderBuffer, mostReorderBuffer}}); err != nil {
		return nil, fmt.Errorf("start adapter: %w", err)
	}
	ledger := cfg.Ledger
	if ledger == nil {
		ledger = newPrivateLedger()
	}
	m := &Miniport{
		carrier: cfg.Carrier, clock: cfg.Clock, info: cfg.Info, capabilities: cfg.Capabilities,
		configuration: configuration, ledger: ledger, pend: cfg.Pend, goBackN: cfg.GoBackN, rand: cfg.Rand,
		forward: cfg.Forward, report: cfg.Report, qpError: cfg.QPError,
		router: cm.Router{Holder: ledger.PortHolder}, orphans: orphans{},
		counters:   counters{shareCounters: ledger.counters()},
		endpoints:  map[netip.AddrPort]*endpoint{},
		nextPort:   firstEphemeralPort + uint16(cfg.Rand.IntN(lastEphemeralPort-firstEphemeralPort+1)),
		connectors: map[cm.ID]*Connector{}, paths: map[netip.Addr]*path{},
	}
	m.info.Version = InterfaceVersion
	allowed := configuration.NetworkDirect != 0
	m.reorder = reorderBuffer{ledger, cfg.ReorderBuffer}
	m.state.allowed, m.state.wanted, m.state.enabled = allowed, allowed, allowed
	m.state.events.clock = cfg.Clock
	m.life.init(cfg.Clock, 0)
	m.qps.init(uint32(ledger.own), cfg.Rand)
	m.receiveBuffer = newReceiveBuffer(cfg.ReceiveBuffer, cfg.Carrier)
	m.credit.init(int(m.receiveBuffer.Granted), cfg.Clock.Go)
	guid := cfg.GUID
	if guid == 0 {
		guid = cfg.Rand.Uint64() | 1
	}
	m.cm = cm.New(cm.Config{
		GUID: guid, Rand: cfg.Rand, Refuses: m.refuses, MaxMTU: m.maxMTU, Heard: m.heard,
		Share: ledger.own, Track: cfg.Report != nil,
	})
	if p, ok := cfg.Carrier.(Poller); ok {
		m.poller, m.polled = p, polled{m}
		p.Listen(deferrer{m})
	} else {
		cfg.Carrier.Listen(m)
	}
	m.logFrameSizes(cfg.Log)
	return m, nil
}

// Close ends the device. It blocks until every instance is closed, and must not
// be called from a callback.
func (m *Miniport) Close() {
	done := make(chan struct{})
	m.BeginClose(func() { close(done) })
	<-done
}

// BeginClose is Close that calls done instead of blocking: in virtual time
// nobody else would move the time that Close waits for. Of a device that is
// closing it calls done at once.
func (m *Miniport) BeginClose(done func()) {
	if m.closing.Swap(true) {
		done()
		return
	}
	linger := func(any) { m.linger(done) }
	if m.life.close(nil, nil, linger, nil) != StatusPending {
		linger(nil)
	}
}

// lingering bounds how long a closing device waits for its peers to answer
// their disconnect requests. Without the wait the last ones might be lost with
// nobody left to repeat them, and the peers would find out only by timeout.
const lingering = 500 * time.Millisecond

func (m *Miniport) linger(done func()) {
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
	m.finish = func() {
		// Nothing is left to be lost: an error in closing a socket says nothing.
		_ = m.carrier.Close()
		done()
	}
	if m.finishIfQuiet() {
		return
	}
	m.lingerTimer = m.clock.AfterFunc(lingering, func() {
		m.cmMu.Lock()
		defer m.cmMu.Unlock()
		m.finishNow()
	})
}

// finishIfQuiet ends the lingering when no peer has an answer to give. m.cmMu
// is held.
func (m *Miniport) finishIfQuiet() bool {
	if m.finish == nil || m.cm.Disconnecting() > 0 {
		return false
	}
	m.finishNow()
	return true
}

// finishNow ends the lingering. cmMu is held.
func (m *Miniport) finishNow() {
	if m.closed {
		return
	}
	m.closed = true
	for _, t := range []clock.Timer{m.cmTimer, m.lingerTimer} {
		if t != nil {
			t.Stop()
		}
	}
	m.clock.Go(m.finish)
	m.finish = nil
}

// Receive implements Receiver.
func (m *Miniport) Receive(packets []roce.Received) { m.receive(packets, atOnce) }

// receive gives packets to their queue pairs, runs of one queue pair's together.
func (m *Miniport) receive(packets []roce.Received, how manner) {
	m.credit.beginReceiving()
	defer m.credit.endReceiving()
	for len(packets) > 0 {
		number := packets[0].Header.DestQPN
		n := 1
		for n < len(packets) && packets[n].Header.DestQPN == number {
			n++
		}
		run := packets[:n]
		packets = packets[n:]
		if number == mad.QPN {
			m.receiveDatagrams(run)
			continue
		}
		qp := m.qps.get(number)
		if qp == nil {
			m.counters.unknownQP.Add(uint64(n))
			continue
		}
		qp.receive(run, how)
	}
}

// receiveDatagrams gives management datagrams to the connection manager. What each
// leads to is done before the next is looked at, so that a listener's backlog
// counts the requests of one batch, too.
func (m *Miniport) receiveDatagrams(packets []roce.Received) {
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
	now := m.clock.Now()
	for i := range packets {
		p := &packets[i]
		if p.Header.Opcode != roce.UDSendOnly || p.Header.QKey != mad.QKey || !p.Header.InDefaultPartition() {
			m.counters.misdirected.Add(1)
			continue
		}
		if len(p.Payload) != mad.Size {
			m.counters.badLength.Add(1)
			continue
		}
		if !m.handOn(p) {
			m.cm.Handle(now, p.Flow.Local, p.Flow.Remote, p.Payload)
			m.manage(now)
		}
	}
}

// manage moves what the connection manager has to say: datagrams to the
// carrier, events to connectors, its deadline to the timer. It follows every
// call on m.cm. cmMu is held.
func (m *Miniport) manage(now time.Duration) {
	for {
		m.reportChanges()
		m.sendDatagrams()
		event, ok := m.cm.NextEvent()
		if !ok {
			break
		}
		m.handleEvent(event)
	}
	m.counters.strays.Store(m.cm.Strays())
	m.finishIfQuiet()
	deadline, ok := m.cm.Deadline()
	switch {
	case !ok, m.closed:
	case m.cmTimer == nil:
		m.cmTimer = m.clock.AfterFunc(deadline-now, m.manageTimeout)
	default:
		m.cmTimer.Reset(deadline - now)
	}
}

func (m *Miniport) manageTimeout() {
	m.cmMu.Lock()
	defer m.cmMu.Unlock()
	now := m.clock.Now()
	m.cm.HandleTimeout(now)
	m.manage(now)
}

func (m *Miniport) sendDatagrams() {
	for d, ok := m.cm.NextDatagram(); ok; d, ok = m.cm.NextDatagram() {
		packet := [1]roce.Packet{{
			Header: roce.Header{
				Opcode: roce.UDSendOnly, PKey: roce.DefaultPKey, DestQPN: mad.QPN,
				PSN: m.madPSN, QKey: mad.QKey, SourceQPN: mad.QPN,
			},
			Payload: [][]byte{d.MAD[:]},
		}}
		m.madPSN = roce.PSNAdd(m.madPSN, 1)
		flow := roce.Flow{Local: d.Local, Remote: d.Remote, SourcePort: m.carrier.SourcePort(d.Local, mad.QPN)}
		// The carrier fails only when it is closed, and then nobody waits.
		_ = m.carrier.Send(flow, packet[:])
	}
}

// connectorsInOrder is the connectors as they came. cmMu is held.
func (m *Miniport) connectorsInOrder() []*Connector {
	return slices.SortedFunc(maps.Values(m.connectors), func(a, b *Connector) int { return cmp.Compare(a.id, b.id) })
}

// hasAddress reports whether an address is the device's.
func (m *Miniport) hasAddress(address netip.Addr) bool {
	return slices.Contains(m.carrier.Addresses(), address)
}
