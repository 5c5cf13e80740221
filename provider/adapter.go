package provider

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/cm"
	"github.com/ndklab/ndklab/provider/rc"
	"github.com/ndklab/ndklab/provider/roce"
	"github.com/ndklab/ndklab/provider/roce/mad"
)

// A Config says how an adapter is opened.
type Config struct {
	Carrier Carrier // the adapter's own once Open has succeeded, which its Close closes
	Clock   clock.Clock
	Rand    *rand.Rand  // source of every random number: QPNs, PSNs, IDs
	Info    AdapterInfo // limits, to begin with DefaultAdapterInfo
}

// An Adapter is an open RDMA adapter.
type Adapter struct {
	object
	carrier Carrier
	info    AdapterInfo

	regions  regionTable
	qps      qpTable
	counters counters
	busy     atomic.Int64 // queue pairs whose peer owes an answer

	cmMu sync.Mutex // guards what follows, and the state of connectors and listeners
	// cm is the connection manager; cmTimer runs it at its next deadline.
	cm         *cm.Endpoint
	cmTimer    clock.Timer
	madPSN     uint32 // of the next management datagram
	rand       *rand.Rand
	endpoints  map[netip.AddrPort]*endpoint
	nextPort   uint16 // where the search for a free ephemeral port begins
	connectors map[cm.ID]*Connector
	// The end: finish is set while a closing adapter lingers, for as long as
	// lingerTimer runs at most; closed says that no timer is set any more.
	finish      func()
	lingerTimer clock.Timer
	closed      bool
}

// Open opens an adapter. The error says which part of the configuration cannot
// be used.
func Open(cfg Config) (*Adapter, error) {
	if cfg.Carrier == nil || cfg.Clock == nil || cfg.Rand == nil {
		return nil, errors.New("open adapter: it needs a carrier, a clock and a source of randomness")
	}
	if err := cfg.Info.check(); err != nil {
		return nil, fmt.Errorf("open adapter: %w", err)
	}
	a := &Adapter{
		carrier: cfg.Carrier, info: cfg.Info, rand: cfg.Rand,
		endpoints:  map[netip.AddrPort]*endpoint{},
		nextPort:   firstEphemeralPort + uint16(cfg.Rand.IntN(lastEphemeralPort-firstEphemeralPort+1)),
		connectors: map[cm.ID]*Connector{},
	}
	a.init(cfg.Clock, ObjectTypeAdapter)
	a.qps.next = firstQPN + cfg.Rand.Uint32N(lastQPN-firstQPN+1)
	a.cm = cm.New(cm.Config{GUID: cfg.Rand.Uint64() | 1, Rand: cfg.Rand, Accepts: a.accepts})
	cfg.Carrier.Listen(a)
	return a, nil
}

// check reports limits that the interface or the wire rules out.
func (i *AdapterInfo) check() error {
	for _, limit := range []struct {
		name     string
		got      uint64
		min, max uint64
	}{
		{"MaxRegistrationSize", i.MaxRegistrationSize, 1, 1 << 48},
		{"FRMRPageCount", uint64(i.FRMRPageCount), 16, 1 << 20}, // NDK-INFO-03
		{"MaxInitiatorRequestSge", uint64(i.MaxInitiatorRequestSge), 1, 256},
		{"MaxReceiveRequestSge", uint64(i.MaxReceiveRequestSge), 1, 256},
		{"MaxReadRequestSge", uint64(i.MaxReadRequestSge), 1, uint64(i.MaxInitiatorRequestSge)}, // T58
		{"MaxTransferLength", uint64(i.MaxTransferLength), 1, rc.MaxMessage},
		{"MaxInlineDataSize", uint64(i.MaxInlineDataSize), 0, 65536},
		{"MaxInboundReadLimit", uint64(i.MaxInboundReadLimit), 0, 255}, // 8 bits in REQ and REP
		{"MaxOutboundReadLimit", uint64(i.MaxOutboundReadLimit), 0, 255},
		{"MaxReceiveQueueDepth", uint64(i.MaxReceiveQueueDepth), 1, 1 << 20},
		{"MaxInitiatorQueueDepth", uint64(i.MaxInitiatorQueueDepth), 1, 1 << 20},
		{"MaxCqDepth", uint64(i.MaxCqDepth), 1, 1 << 26},
		{"MaxCallerData", uint64(i.MaxCallerData), 0, mad.ConsumerPrivateData},
		{"MaxCalleeData", uint64(i.MaxCalleeData), 0, mad.REJPrivateData},
	} {
		if limit.got < limit.min || limit.got > limit.max {
			return fmt.Errorf("%s is %d, must be %d to %d", limit.name, limit.got, limit.min, limit.max)
		}
	}
	return nil
}

// QueryAdapterInfo is the adapter's limits.
func (a *Adapter) QueryAdapterInfo() (AdapterInfo, Status) { return a.info, StatusSuccess }

// Close closes the adapter. It blocks until every object made on it is closed
// and every callback has returned, and must not be called from a callback
// (NDK-LIFE-21).
func (a *Adapter) Close() {
	done := make(chan struct{})
	a.BeginClose(func() { close(done) })
	<-done
}

// BeginClose is Close that calls done instead of blocking: in virtual time
// nobody else would move the time that Close waits for.
func (a *Adapter) BeginClose(done func()) {
	linger := func(any) { a.linger(done) }
	if a.close(nil, nil, linger, nil) != StatusPending {
		linger(nil)
	}
}

// lingering bounds how long a closing adapter waits for its peers to answer
// their disconnect requests. Without the wait the last ones might be lost with
// nobody left to repeat them, and the peers would find out only by timeout.
const lingering = 500 * time.Millisecond

func (a *Adapter) linger(done func()) {
	a.cmMu.Lock()
	defer a.cmMu.Unlock()
	a.finish = func() {
		// Nothing is left to be lost: an error in closing a socket says nothing.
		_ = a.carrier.Close()
		done()
	}
	if a.finishIfQuiet() {
		return
	}
	a.lingerTimer = a.clock.AfterFunc(lingering, func() {
		a.cmMu.Lock()
		defer a.cmMu.Unlock()
		a.finishNow()
	})
}

// finishIfQuiet ends the lingering when no peer has an answer to give. a.cmMu
// is held.
func (a *Adapter) finishIfQuiet() bool {
	if a.finish == nil || a.cm.Disconnecting() > 0 {
		return false
	}
	a.finishNow()
	return true
}

// finishNow ends the lingering. a.cmMu is held.
func (a *Adapter) finishNow() {
	if a.closed {
		return
	}
	a.closed = true
	for _, t := range []clock.Timer{a.cmTimer, a.lingerTimer} {
		if t != nil {
			t.Stop()
		}
	}
	a.clock.Go(a.finish)
	a.finish = nil
}

// Receive implements Receiver: packets go to their queue pairs, runs of one
// queue pair's together.
func (a *Adapter) Receive(packets []roce.Received) {
	for len(packets) > 0 {
		number := packets[0].Header.DestQPN
		n := 1
		for n < len(packets) && packets[n].Header.DestQPN == number {
			n++
		}
		run := packets[:n]
		packets = packets[n:]
		if number == mad.QPN {
			a.receiveDatagrams(run)
			continue
		}
		qp := a.qps.get(number)
		if qp == nil {
			a.counters.unknownQP.Add(uint64(n))
			continue
		}
		qp.receive(run)
	}
}

// receiveDatagrams gives management datagrams to the connection manager.
func (a *Adapter) receiveDatagrams(packets []roce.Received) {
	a.cmMu.Lock()
	defer a.cmMu.Unlock()
	now := a.clock.Now()
	for i := range packets {
		p := &packets[i]
		if p.Header.Opcode == roce.UDSendOnly && p.Header.QKey == mad.QKey {
			a.cm.Handle(now, p.Flow.Local, p.Flow.Remote, p.Payload)
		}
	}
	a.manage(now)
}

// manage moves what the connection manager has to say: datagrams to the
// carrier, events to connectors, its deadline to the timer. It follows every
// call on a.cm. a.cmMu is held.
func (a *Adapter) manage(now time.Duration) {
	for {
		a.sendDatagrams()
		event, ok := a.cm.NextEvent()
		if !ok {
			break
		}
		a.handleEvent(event)
	}
	a.finishIfQuiet()
	deadline, ok := a.cm.Deadline()
	switch {
	case !ok, a.closed:
	case a.cmTimer == nil:
		a.cmTimer = a.clock.AfterFunc(deadline-now, a.manageTimeout)
	default:
		a.cmTimer.Reset(deadline - now)
	}
}

func (a *Adapter) manageTimeout() {
	a.cmMu.Lock()
	defer a.cmMu.Unlock()
	now := a.clock.Now()
	a.cm.HandleTimeout(now)
	a.manage(now)
}

func (a *Adapter) sendDatagrams() {
	for d, ok := a.cm.NextDatagram(); ok; d, ok = a.cm.NextDatagram() {
		packet := [1]roce.Packet{{
			Header: roce.Header{
				Opcode: roce.UDSendOnly, PKey: roce.DefaultPKey, DestQPN: mad.QPN,
				PSN: a.madPSN, QKey: mad.QKey, SourceQPN: mad.QPN,
			},
			Payload: [][]byte{d.MAD[:]},
		}}
		a.madPSN = roce.PSNAdd(a.madPSN, 1)
		flow := roce.Flow{Local: d.Local, Remote: d.Remote, SourcePort: a.carrier.SourcePort(d.Local, mad.QPN)}
		// The carrier fails only when it is closed, and then nobody waits.
		_ = a.carrier.Send(flow, packet[:])
	}
}

// credit is how many bytes a queue pair may have in flight beyond what its path
// holds. All ends are stocked alike, so what our own receive buffer was granted is
// the best guess at what the peers' were; queue pairs that have something in
// flight share it, since they may all lead to one peer. counted says that the one
// asking is among them.
func (a *Adapter) credit(counted bool) int {
	sharing := a.busy.Load()
	if !counted {
		sharing++
	}
	return a.carrier.ReceiveBuffer() / int(max(1, sharing))
}

// hasAddress reports whether an address is the adapter's.
func (a *Adapter) hasAddress(address netip.Addr) bool {
	return slices.Contains(a.carrier.Addresses(), address)
}
