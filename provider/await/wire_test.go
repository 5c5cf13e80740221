package await_test

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/await"
	"github.com/ndklab/ndklab/provider/clock"
)

// A wire joins devices in a bubble of testing/synctest, where time is virtual: it passes when
// everything waits.
type wire struct {
	t    *testing.T
	pend bool // of the devices' Config
	time bubbleTime

	mu    sync.Mutex // guards what follows
	plugs map[netip.Addr]*plug
	cut   bool // nothing arrives

	devices map[netip.Addr]*provider.Miniport // that device has started last
}

// bubbleTime is the bubble's time as a Clock, which begins at 0 as a device's clock does.
type bubbleTime struct {
	clock.Clock
	epoch time.Time
}

func (b bubbleTime) Now() time.Duration { return time.Since(b.epoch) }

// latency is the time that packets are on the wire.
const latency = time.Millisecond

// The addresses of the devices.
var (
	clientAddress = netip.MustParseAddr("10.0.0.1")
	serverAddress = netip.MustParseAddr("10.0.0.2")
	service       = netip.AddrPortFrom(serverAddress, 7174)
)

// onWire runs f with a client and a server.
func onWire(t *testing.T, f func(t *testing.T, w *wire, client, server *await.Endpoint)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t)
		client, server := w.endpoint(clientAddress), w.endpoint(serverAddress)
		f(t, w, client, server)
		// Close returns only when everything is closed (NDK-LIFE-21).
		must(t, client.Close())
		must(t, server.Close())
	})
}

func newWire(t *testing.T) *wire {
	return &wire{t: t, time: bubbleTime{clock.Real(), time.Now()}, plugs: map[netip.Addr]*plug{}, devices: map[netip.Addr]*provider.Miniport{}}
}

// device starts a device. Its signature, but for the address, is lease.Open's.
func (w *wire) device(address netip.Addr) func(context.Context) (*provider.Miniport, error) {
	return func(ctx context.Context) (*provider.Miniport, error) {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		device, err := provider.NewMiniport(w.config(address))
		w.mu.Lock()
		w.devices[address] = device
		w.mu.Unlock()
		return device, err
	}
}

func (w *wire) config(address netip.Addr) provider.Config {
	return provider.Config{
		Carrier: &plug{wire: w, address: address}, Clock: w.time, Rand: rand.New(rand.NewPCG(1, uint64(address.As4()[3]))),
		Info: provider.DefaultAdapterInfo(), Capabilities: provider.DefaultCapabilities(), Pend: w.pend,
	}
}

func (w *wire) endpoint(address netip.Addr) *await.Endpoint {
	w.t.Helper()
	e, err := await.Open(w.t.Context(), w.device(address))
	must(w.t, err)
	e.Local = address
	return e
}

// setCut has the wire carry nothing, or everything again.
func (w *wire) setCut(cut bool) {
	w.mu.Lock()
	w.cut = cut
	w.mu.Unlock()
}

// A plug is one device's end of the wire. It implements provider.Carrier.
type plug struct {
	wire    *wire
	address netip.Addr

	receiving sync.Mutex // held while packets are received; guards receiver and verifier
	receiver  provider.Receiver
	verifier  roce.Verifier

	mu     sync.Mutex // guards what follows
	sealer roce.Sealer
	coming [][]byte // in order
}

func (p *plug) Listen(r provider.Receiver) {
	p.receiver = r
	p.wire.mu.Lock()
	p.wire.plugs[p.address] = p
	p.wire.mu.Unlock()
}

func (p *plug) Send(flow roce.Flow, packets []roce.Packet) error {
	p.wire.mu.Lock()
	to, cut := p.wire.plugs[flow.Remote], p.wire.cut
	p.wire.mu.Unlock()
	if to == nil || cut {
		return nil
	}
	for i := range packets {
		p.mu.Lock()
		packet := p.sealer.AppendIP(nil, &flow, 0, &packets[i])
		p.mu.Unlock()
		to.mu.Lock()
		to.coming = append(to.coming, packet)
		to.mu.Unlock()
		time.AfterFunc(latency, to.receive)
	}
	return nil
}

// receive receives the next packet.
func (p *plug) receive() {
	p.receiving.Lock()
	defer p.receiving.Unlock()
	p.mu.Lock()
	packet := p.coming[0]
	p.coming = p.coming[1:]
	p.mu.Unlock()
	var received [1]roce.Received
	if err := p.verifier.DecodeIP(packet, &received[0]); err != nil {
		p.wire.t.Error(err)
	} else if p.receiver != nil {
		p.receiver.Receive(received[:])
	}
}

func (p *plug) Close() error {
	p.wire.mu.Lock()
	if p.wire.plugs[p.address] == p {
		delete(p.wire.plugs, p.address)
	}
	p.wire.mu.Unlock()
	p.receiving.Lock()
	p.receiver = nil
	p.receiving.Unlock()
	return nil
}

func (p *plug) SourcePort(_ netip.Addr, hash uint32) uint16 { return 0xC000 | uint16(hash) }

func (p *plug) Addresses() []netip.Addr { return []netip.Addr{p.address} }

func (p *plug) MTU(netip.Addr) int { return 4200 }

func (p *plug) Reach(_, remote netip.Addr) provider.Status {
	if remote == unreachable {
		return provider.StatusNetworkUnreachable
	}
	return provider.StatusSuccess
}

// unreachable has no route.
var unreachable = netip.MustParseAddr("192.0.2.1")

func (p *plug) ReceiveBuffer() int { return 208 << 10 }

func (p *plug) Counters() map[string]uint64 { return nil }
