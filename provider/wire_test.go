package provider_test

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
)

// A wire joins carriers in real time: packets go through channels from one
// goroutine to another, and each so many is lost.
type wire struct {
	sending func([]roce.Packet) // called by Send, if set before the wire is used
	lose    uint64              // one in so many packets that do not belong to connection management; 0: none

	mu      sync.RWMutex
	ends    map[netip.Addr]*wireEnd
	carried atomic.Uint64
}

func newWire(lose uint64) *wire { return &wire{lose: lose, ends: map[netip.Addr]*wireEnd{}} }

// A wireEnd is one carrier. A goroutine of its own delivers.
type wireEnd struct {
	wire    *wire
	address netip.Addr
	queue   chan roce.Received
	stop    chan struct{}
	closed  atomic.Bool
	running sync.WaitGroup
}

func (w *wire) attach(address netip.Addr) *wireEnd {
	e := &wireEnd{wire: w, address: address, queue: make(chan roce.Received, 256), stop: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends[address] = e
	return e
}

func (e *wireEnd) Listen(r provider.Receiver) {
	e.running.Go(func() {
		for {
			select {
			case <-e.stop:
				return
			case p := <-e.queue:
				packets := []roce.Received{p}
				for len(packets) < 16 && len(e.queue) > 0 {
					packets = append(packets, <-e.queue)
				}
				r.Receive(packets)
			}
		}
	})
}

func (e *wireEnd) Send(flow roce.Flow, packets []roce.Packet) error {
	if e.closed.Load() {
		return errors.New("closed")
	}
	w := e.wire
	if w.sending != nil {
		w.sending(packets)
	}
	w.mu.RLock()
	to := w.ends[flow.Remote]
	w.mu.RUnlock()
	if to == nil {
		return nil
	}
	for i := range packets {
		p := &packets[i]
		if w.lose > 0 && p.Header.Opcode != roce.UDSendOnly && w.carried.Add(1)%w.lose == 0 {
			continue
		}
		received := roce.Received{
			Flow: roce.Flow{Local: flow.Remote, Remote: flow.Local, SourcePort: flow.SourcePort}, Header: p.Header,
		}
		for _, piece := range p.Payload {
			received.Payload = append(received.Payload, piece...)
		}
		select {
		case to.queue <- received:
		default: // lost: the queue is full
		}
	}
	return nil
}

func (e *wireEnd) SourcePort(netip.Addr, uint32) uint16  { return 0xC000 }
func (e *wireEnd) Addresses() []netip.Addr               { return []netip.Addr{e.address} }
func (e *wireEnd) MTU(netip.Addr) int                    { return mtu }
func (e *wireEnd) Reach(_, _ netip.Addr) provider.Status { return success }
func (e *wireEnd) ReceiveBuffer() int                    { return 256 << 10 }
func (e *wireEnd) Counters() map[string]uint64           { return nil }

func (e *wireEnd) Close() error {
	e.closed.Store(true)
	close(e.stop)
	e.running.Wait()
	return nil
}
