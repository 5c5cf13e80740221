package provider

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/internal/provider/gsi"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/internal/provider/sharing"
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
	// Share describes what processes that share the device have in common (package lease); nil
	// for a device of this process alone.
	Share *sharing.Config `json:"-"`
	// GUID identifies the device to its peers, whichever process they have to do
	// with; 0 for a random one.
	GUID uint64
	// GoBackN has the device not offer, or agree to, anything that a foreign peer
	// would not know: a loss has everything behind it sent again.
	GoBackN bool
	// ReorderBuffer is the memory that all queue pairs together may keep packets in that
	// arrive before one that is missing, bytes: 64 KiB to 1 GiB, 0 for
	// DefaultReorderBuffer. Packets that find no room are dropped as if they were lost.
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
	// Congestion says how fast queue pairs of reliable connections send. The zero value leaves it to their windows.
	Congestion congestion.Config
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
//
// Each part has its own lock, or needs none; what stands here beside them is fixed when
// the device starts, or atomic.
type Miniport struct {
	life object // held by the open instances
	ndkState
	receiving
	paths
	counters
	listers

	clock         clock.Clock
	info          AdapterInfo
	capabilities  Capabilities
	configuration Configuration
	ledger        *sharing.Ledger
	receiveBuffer ReceiveBuffer
	reorder       reorderBuffer
	pend          bool
	offer         mad.ECE // to a peer, when a connection is asked for
	qpError       func(QPError)

	regions  regionTable
	mappings token.Table[mapping]
	closing  atomic.Bool
	failing  atomic.Bool // a walk over the queue pairs is to come: see failQPs

	// The manager's lock guards the manager, linger, rand, and the state of connectors and listeners.
	manager *gsi.Manager
	linger  linger
	rand    *rand.Rand
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
	if err := cfg.Congestion.Validate(); err != nil {
		return nil, fmt.Errorf("start adapter: %w", err)
	}
	if cfg.ReorderBuffer == 0 {
		cfg.ReorderBuffer = DefaultReorderBuffer
	}
	if err := checkLimits([]limit{{"ReorderBuffer", uint64(cfg.ReorderBuffer), leastReorderBuffer, mostReorderBuffer}}); err != nil {
		return nil, fmt.Errorf("start adapter: %w", err)
	}
	if cfg.Share == nil {
		cfg.Share = &sharing.Config{Ledger: sharing.NewPrivate(cfg.Carrier.Addresses())}
	}
	ledger := cfg.Share.Ledger
	own := ledger.Counters()
	if ledger.Own == 0 {
		for local, rate := range cfg.Congestion.LineRates {
			ledger.SetLineRate(local, rate)
		}
	}
	m := &Miniport{
		clock: cfg.Clock, info: cfg.Info, capabilities: cfg.Capabilities,
		configuration: configuration, ledger: ledger, pend: cfg.Pend, rand: cfg.Rand, qpError: cfg.QPError,
		counters: counters{own}, reorder: reorderBuffer{ledger, cfg.ReorderBuffer},
		receiveBuffer: newReceiveBuffer(cfg.ReceiveBuffer, cfg.Carrier),
		paths: paths{
			carrier: cfg.Carrier, frameSize: int(configuration.NetworkDirectRoCEFrameSize),
			loopback: cfg.Info.AdapterFlags&AdapterLoopbackConnections != 0,
		},
	}
	m.info.Version = InterfaceVersion
	if !cfg.GoBackN {
		m.offer = offered
	}
	allowed := configuration.NetworkDirect != 0
	m.allowed, m.wanted, m.enabled = allowed, allowed, allowed
	m.events.clock = cfg.Clock
	m.life.init(cfg.Clock, 0)
	firstPort := gsi.AnyPort(cfg.Rand)
	_, system := cfg.Carrier.(Poller) // a call of the system's costs it more than a packet
	m.transport = transport.New(transport.Config{
		Carrier: cfg.Carrier, Clock: cfg.Clock, Rand: cfg.Rand, Share: uint32(ledger.Own), Credit: int(m.receiveBuffer.Granted), Gather: system,
		Congestion: cfg.Congestion, Pause: pausesOf(ledger), LineRate: ledger.LineRate,
		Traffic:   transport.Traffic{InOctets: &own.InOctets, OutOctets: &own.OutOctets, InFrames: &own.InFrames, OutFrames: &own.OutFrames},
		Datagrams: func(packets []roce.Received) { m.manager.Receive(packets) },
	})
	guid := cfg.GUID
	if guid == 0 {
		guid = cfg.Rand.Uint64() | 1
	}
	m.manager = gsi.New(gsi.Config{
		Carrier: cfg.Carrier, Clock: cfg.Clock, Rand: cfg.Rand, Ports: ledger, GUID: guid, Share: ledger.Own, FirstPort: firstPort,
		Forward: cfg.Share.Forward, Report: cfg.Share.Report, Failed: m.Failed, MaxMTU: m.maxMTU, Heard: m.transport.LastHeard,
		ReleaseNumber: m.transport.ReleaseNumber, Progressed: m.linger.endIfQuiet,
	})
	m.linger.manager, m.linger.clock, m.linger.carrier = m.manager, cfg.Clock, cfg.Carrier
	m.listen(cfg.Carrier)
	m.logFrameSizes(cfg.Log)
	return m, nil
}

// SetLineRate sets the rate of the line at a local address, at which congestion control has queue pairs begin that are connected
// from now on, in all processes that share the device: bits per second, 0: it is unknown.
func (m *Miniport) SetLineRate(local netip.Addr, rate uint64) { m.ledger.SetLineRate(local, rate) }

// pausesOf returns the pauses that a ledger has entries for.
func pausesOf(l *sharing.Ledger) func(local netip.Addr, dscp uint8) transport.Pause {
	return func(local netip.Addr, dscp uint8) transport.Pause {
		if p := l.PauseOf(local, dscp); p != nil {
			return p
		}
		return nil
	}
}
