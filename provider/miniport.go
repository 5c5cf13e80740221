package provider

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/provider/gsi"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/token"
	"github.com/ndklab/ndklab/internal/provider/transport"
	"github.com/ndklab/ndklab/provider/clock"
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
	qpError       func(QPError)
	state         ndkState

	regions   token.Table[region]
	mappings  token.Table[mapping]
	transport *transport.Device
	counters  counters
	poller    Poller   // carrier, if it is one
	polled    Receiver // for poller's Poll
	reorder   reorderBuffer
	closing   atomic.Bool
	listers   listers
	failing   atomic.Bool // a walk over the queue pairs is to come: see failQPs

	manager *gsi.Manager // its lock guards what follows, and the state of connectors and listeners
	rand    *rand.Rand
	// The end: finish is set while a closing device lingers, for as long as
	// lingerTimer runs at most; finished says that nobody waits any more.
	finish      func()
	lingerTimer clock.Timer
	finished    bool
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
		qpError:  cfg.QPError,
		counters: counters{shareCounters: ledger.counters()},
	}
	m.info.Version = InterfaceVersion
	allowed := configuration.NetworkDirect != 0
	m.reorder = reorderBuffer{ledger, cfg.ReorderBuffer}
	m.state.allowed, m.state.wanted, m.state.enabled = allowed, allowed, allowed
	m.state.events.clock = cfg.Clock
	m.life.init(cfg.Clock, 0)
	m.receiveBuffer = newReceiveBuffer(cfg.ReceiveBuffer, cfg.Carrier)
	firstPort := gsi.AnyPort(cfg.Rand)
	m.transport = transport.New(transport.Config{
		Carrier: cfg.Carrier, Clock: cfg.Clock, Rand: cfg.Rand, Share: uint32(ledger.own), Credit: int(m.receiveBuffer.Granted),
		Traffic:   transport.Traffic{InOctets: &m.counters.inOctets, OutOctets: &m.counters.outOctets, InFrames: &m.counters.inFrames, OutFrames: &m.counters.outFrames},
		Datagrams: func(packets []roce.Received) { m.manager.Receive(packets) },
	})
	guid := cfg.GUID
	if guid == 0 {
		guid = cfg.Rand.Uint64() | 1
	}
	m.manager = gsi.New(gsi.Config{
		Carrier: cfg.Carrier, Clock: cfg.Clock, Rand: cfg.Rand, Ports: ledger, GUID: guid, Share: ledger.own, FirstPort: firstPort,
		Forward: cfg.Forward, Report: cfg.Report, Failed: m.Failed, MaxMTU: m.maxMTU, Heard: m.transport.LastHeard,
		ReleaseNumber: m.transport.ReleaseNumber, Progressed: func() { m.finishIfQuiet() },
	})
	if p, ok := cfg.Carrier.(Poller); ok {
		m.poller, m.polled = p, pollReceiver{m}
		p.Listen(deferredReceiver{m})
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
	linger := func(any) { m.waitForQuiet(done) }
	if m.life.close(nil, nil, linger, nil) != StatusPending {
		linger(nil)
	}
}

// lingering bounds how long a closing device waits for its peers to answer
// their disconnect requests. Without the wait the last ones might be lost with
// nobody left to repeat them, and the peers would find out only by timeout.
const lingering = 500 * time.Millisecond

func (m *Miniport) waitForQuiet(done func()) {
	m.manager.Lock()
	defer m.manager.Unlock()
	m.finish = func() {
		// Nothing is left to be lost: an error in closing a socket says nothing.
		_ = m.carrier.Close()
		done()
	}
	if m.finishIfQuiet() {
		return
	}
	m.lingerTimer = m.clock.AfterFunc(lingering, func() {
		m.manager.Lock()
		defer m.manager.Unlock()
		m.finishNow()
	})
}

// finishIfQuiet ends the lingering when no peer has an answer to give. The manager's
// lock is held.
func (m *Miniport) finishIfQuiet() bool {
	if m.finish == nil || m.manager.CM.Disconnecting() > 0 {
		return false
	}
	m.finishNow()
	return true
}

// finishNow ends the lingering. The manager's lock is held.
func (m *Miniport) finishNow() {
	if m.finished {
		return
	}
	m.finished = true
	m.manager.Close()
	if m.lingerTimer != nil {
		m.lingerTimer.Stop()
	}
	m.clock.Go(m.finish)
	m.finish = nil
}

// Receive implements Receiver.
func (m *Miniport) Receive(packets []roce.Received) { m.transport.Receive(packets, transport.AtOnce) }
