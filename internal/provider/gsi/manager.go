// Package gsi drives the connection manager behind a device's QP 1, its general service interface (IBTA Vol. 1, 13).
// It moves datagrams between the state machine (package cm) and the carrier. It keeps the ports in use. It tells whoever
// has a connection, or listens, what becomes of it.
//
// It does not know what a connection is to a consumer: that is the object model's, NDKPI's (package provider) or
// verbs'.
//
// Where processes share a device, share 0 is its owner's. All management datagrams arrive there and are forwarded. The
// owner ends the connections of processes that died (share.go).
//
// Start reading at Manager.
package gsi

import (
	"iter"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/provider/cm"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/provider/clock"
)

// A Carrier has those methods of provider.Carrier that the manager calls.
type Carrier interface {
	Send(flow roce.Flow, packets []roce.Packet) error
	SourcePort(local netip.Addr, hash uint32) uint16
	Addresses() []netip.Addr
}

// Ports are the ports that processes which share the device have taken from each other.
type Ports interface {
	// ClaimPort takes a port for this process; false if another has it.
	ClaimPort(netip.AddrPort) bool
	// ReleasePort gives a port of this process's up.
	ReleasePort(netip.AddrPort)
	// PortHolder returns the share that has a port.
	PortHolder(netip.AddrPort) (share int, ok bool)
}

// A Conversation takes the events of a connection. Its methods are called with the manager's lock held.
type Conversation interface {
	// HandleEvent takes an event of the connection.
	HandleEvent(cm.Event)
}

// A Listener takes connection requests. Its methods are called with the manager's lock held.
type Listener interface {
	// Refuses returns why a request is not to be delivered, 0 if it is.
	Refuses() mad.Reason
	// Deliver takes a request. Refuses has just said nothing against it.
	Deliver(cm.ConnectRequest)
}

// LookUps takes the look-ups of a datagram service. Its methods are called with the manager's lock held.
type LookUps interface {
	// RefusesLookUp returns the answer to a look-up that is not to be delivered; with cm.LookUpIgnored there is none.
	RefusesLookUp() mad.SIDRStatus
	// DeliverLookUp takes a look-up. RefusesLookUp has just said nothing against it.
	DeliverLookUp(cm.LookUpRequest)
}

// A Config says how a Manager is started.
type Config struct {
	Carrier Carrier
	Clock   clock.Clock
	Rand    *rand.Rand
	Ports   Ports
	GUID    uint64
	Share   int // of this process
	// FirstPort is the ephemeral port that is tried first. AnyPort draws it, so that a device that has started anew does
	// not use those that were in use last.
	FirstPort uint16
	// Forward forwards a management datagram, which is lent, to the process that has a share, and
	// reports whether there is one; nil in a process that forwards nothing. Report is told
	// of each connection when it begins, when it changes and, as Closed, when nobody need tell the peer
	// anything any more: before the peer is; nil tells nobody. They are called with the lock held.
	Forward func(share int, flow roce.Flow, datagram []byte) bool
	Report  func(cm.Record)
	// Failed reports whether the device has failed: then nobody listens.
	Failed func() bool
	// MaxMTU and Heard are cm.Config's. ReleaseNumber ends a connection's hold on a queue pair's number.
	// Progressed is called, with the lock held, whenever something may have ended.
	MaxMTU        func(local netip.Addr) uint8
	Heard         func(remote netip.Addr, sentAt time.Duration) (at time.Duration, behind bool)
	ReleaseNumber func(number uint32)
	Progressed    func()
}

// A Manager is a device's connection management. The lock guards all of it, and the state of
// conversations and listeners.
type Manager struct {
	sync.Mutex
	CM *cm.Endpoint // Progress is to follow every call that may change something

	config        Config
	timer         clock.Timer // runs CM at its next deadline
	closed        bool        // no timer is set any more
	datagramPSN   uint32      // of the next management datagram
	endpoints     map[netip.AddrPort]*Endpoint
	nextPort      uint16 // where the search for a free ephemeral port begins
	conversations map[cm.ID]Conversation
	router        cm.Router
	takeovers     takeovers

	// Foreign, BadLength and Strays count datagrams that arrived: that were not of connection management, that had
	// another length, and that were of nobody's connection.
	Foreign, BadLength, Strays atomic.Uint64
}

// New starts connection management.
func New(cfg Config) *Manager {
	m := &Manager{
		config: cfg, endpoints: map[netip.AddrPort]*Endpoint{}, conversations: map[cm.ID]Conversation{},
		nextPort: cfg.FirstPort, router: cm.Router{Holder: cfg.Ports.PortHolder}, takeovers: takeovers{},
	}
	m.CM = cm.New(cm.Config{
		GUID: cfg.GUID, Rand: cfg.Rand, Refuses: m.refuses, RefusesLookUp: m.refusesLookUp, MaxMTU: cfg.MaxMTU, Heard: cfg.Heard,
		Share: cfg.Share, Track: cfg.Report != nil,
	})
	return m
}

// Close has no timer be set any more. The lock is held.
func (m *Manager) Close() {
	m.closed = true
	if m.timer != nil {
		m.timer.Stop()
	}
}

// Receive takes management datagrams, which are lent. It carries out all that one leads to before it looks at the next,
// so that a listener's backlog counts the requests of one batch, too. The lock is not held.
func (m *Manager) Receive(packets []roce.Received) {
	m.Lock()
	defer m.Unlock()
	now := m.config.Clock.Now()
	for i := range packets {
		p := &packets[i]
		if p.Header.Opcode != roce.UDSendOnly || p.Header.QKey != mad.QKey || !p.Header.InDefaultPartition() {
			m.Foreign.Add(1)
			continue
		}
		if len(p.Payload) != mad.Size {
			m.BadLength.Add(1)
			continue
		}
		if !m.forward(p) {
			m.CM.Handle(now, p.Flow.Local, p.Flow.Remote, p.Payload)
			m.Progress(now)
		}
	}
}

// Progress carries out what the state machine asks for: it sends datagrams, tells conversations of events, and sets the
// timer to the next deadline. The lock is held.
func (m *Manager) Progress(now time.Duration) {
	for {
		m.reportChanges()
		m.sendDatagrams()
		event, ok := m.CM.NextEvent()
		if !ok {
			break
		}
		m.handle(event)
	}
	m.Strays.Store(m.CM.Strays())
	m.config.Progressed()
	deadline, ok := m.CM.Deadline()
	switch {
	case !ok, m.closed:
	case m.timer == nil:
		m.timer = m.config.Clock.AfterFunc(deadline-now, m.timeout)
	default:
		m.timer.Reset(deadline - now)
	}
}

func (m *Manager) timeout() {
	m.Lock()
	defer m.Unlock()
	now := m.config.Clock.Now()
	m.CM.HandleTimeout(now)
	m.Progress(now)
}

func (m *Manager) sendDatagrams() {
	carrier := m.config.Carrier
	for d, ok := m.CM.NextDatagram(); ok; d, ok = m.CM.NextDatagram() {
		packet := [1]roce.Packet{{
			Header: roce.Header{
				Opcode: roce.UDSendOnly, PKey: roce.DefaultPKey, DestQPN: mad.QPN,
				PSN: m.datagramPSN, QKey: mad.QKey, SourceQPN: mad.QPN,
			},
			Payload: [][]byte{d.MAD[:]},
		}}
		m.datagramPSN = roce.PSNAdd(m.datagramPSN, 1)
		flow := roce.Flow{Local: d.Local, Remote: d.Remote, SourcePort: carrier.SourcePort(d.Local, mad.QPN)}
		// The carrier fails only when it is closed, and then nobody waits.
		_ = carrier.Send(flow, packet[:])
	}
}

// handle tells a conversation or listener of an event.
func (m *Manager) handle(event cm.Event) {
	switch e := event.(type) {
	case cm.ConnectRequest:
		m.endpoints[e.Local].Listener.Deliver(e) // which refuses has just found there
		return
	case cm.LookUpRequest:
		m.endpoints[e.Local].LookUps.DeliverLookUp(e)
		return
	case cm.TimewaitOver:
		m.config.ReleaseNumber(e.QPN)
	}
	id := event.Of()
	if c := m.conversations[id]; c != nil {
		c.HandleEvent(event)
	}
	if _, ended := event.(cm.DisconnectDone); ended {
		m.noteEnd(id)
	}
}

// Join has c be told of what becomes of a connection, until Leave. The lock is held.
func (m *Manager) Join(id cm.ID, c Conversation) { m.conversations[id] = c }

// Leave ends Join. Another connection may get the ID. The lock is held.
func (m *Manager) Leave(id cm.ID) { delete(m.conversations, id) }

// Conversations returns every conversation by its connection, in the order of the IDs, in which they came. The lock
// is held.
func (m *Manager) Conversations() iter.Seq2[cm.ID, Conversation] {
	return func(yield func(cm.ID, Conversation) bool) {
		for _, id := range slices.Sorted(maps.Keys(m.conversations)) {
			if !yield(id, m.conversations[id]) {
				return
			}
		}
	}
}
