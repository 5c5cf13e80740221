package transport

import (
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider/clock"
)

// A counting carrier counts the packets that it is given.
type counting struct{ packets int }

func (c *counting) Send(_ roce.Flow, packets []roce.Packet) error {
	c.packets += len(packets)
	return nil
}
func (*counting) SourcePort(netip.Addr, uint32) uint16 { return 0 }

// An idle model does nothing.
type idle struct{ Model }

func (idle) Sent()                  {}
func (idle) Settle([]rc.Completion) {}
func (idle) Watch(bool) bool        { return false }

// Ample memory has what anybody asks for.
type ample struct{ rc.Memory }

func (ample) Remote(dst [][]byte, _ uint32, _ uint64, length uint32, _ rc.Access) ([][]byte, bool) {
	return append(dst, make([]byte, length)), true
}

var here, there = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")

// A lasting pause has no end.
type lasting struct{}

func (lasting) Active() bool    { return true }
func (lasting) WhenOver(func()) {}

// newChannel returns a channel that is connected to nobody who answers; pause may be nil.
func newChannel(t *testing.T, pause Pause) (*Channel, *counting, *clock.Virtual) {
	t.Helper()
	carrier, c := new(counting), clock.NewVirtual()
	traffic := Traffic{new(atomic.Uint64), new(atomic.Uint64), new(atomic.Uint64), new(atomic.Uint64)}
	d := New(Config{
		Carrier: carrier, Clock: c, Rand: rand.New(rand.NewPCG(1, 2)), Credit: 1 << 20, Traffic: traffic,
		LineRate: func(netip.Addr) uint64 { return 0 }, Pause: func(netip.Addr, uint8) Pause { return pause },
	})
	ch := new(Channel)
	ch.Init(d, config(), idle{})
	if !d.Add(&ch.Pair) {
		t.Fatal("there is no number")
	}
	connect(t, ch)
	return ch, carrier, c
}

func config() rc.Config {
	return rc.Config{SendDepth: 4, MaxSGE: 1, Receives: rc.NewReceiveQueue(1, 1), Memory: ample{}}
}

func connect(t *testing.T, ch *Channel) {
	t.Helper()
	err := ch.Connect(Peer{Local: here, Remote: there}, rc.Connection{
		RemoteQPN: 7, MTU: 1024, SendPSN: 100, ReceivePSN: 100, InitiatorDepth: 1, ResponderResources: 1,
		AckTimeout: time.Second, RetryCount: 7, RNRRetryCount: 7, Rights: rc.AllowRead | rc.AllowWrite,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// asks returns the peer's READ of so many bytes.
func asks(length uint32) []roce.Received {
	p := roce.Received{Header: roce.Header{Opcode: roce.ReadRequest, PSN: 100, PKey: roce.DefaultPKey, DMALength: length, AckReq: true}}
	p.Flow.Local, p.Flow.Remote = here, there
	return []roce.Received{p}
}

// TestLongReadLetsOthersGoOn: who receives a READ of very much data sends some of it, and the rest when others had their turn.
func TestLongReadLetsOthersGoOn(t *testing.T) {
	const packets = 5 * mostBatches * batchSize / 2
	ch, carrier, c := newChannel(t, nil)
	ch.Receive(asks(packets*1024), AtOnce)
	if carrier.packets != mostBatches*batchSize {
		t.Errorf("%d packets are sent at once, want %d", carrier.packets, mostBatches*batchSize)
	}
	c.Run(0)
	if carrier.packets != packets {
		t.Errorf("%d packets are sent, want %d", carrier.packets, packets)
	}
}

// TestResetForgetsPath: a channel that is connected anew does not take what it knew of its last path for news of the next.
func TestResetForgetsPath(t *testing.T) {
	ch, _, _ := newChannel(t, nil)
	ch.Lock()
	defer ch.Unlock()
	path := ch.path
	path.roundTrip.Store(int64(5 * time.Millisecond))
	path.slow.Store(1)
	ch.Progress(0)
	ch.slow = 1
	ch.Reset(config())
	connect(t, ch)
	if ch.Progress(0); ch.path != path || path.roundTrip.Load() != int64(5*time.Millisecond) || path.slow.Load() != 1 {
		t.Errorf("the round trip of the path is %v, and it is slow by %d", time.Duration(path.roundTrip.Load()), path.slow.Load())
	}
}

// TestNobodyAsksForIt: an acknowledgement that waits is not put off where nobody asks for those that are.
func TestNobodyAsksForIt(t *testing.T) {
	for how, want := range map[Mode]int32{AtOnce: 0, Deferred: 1} {
		ch, _, _ := newChannel(t, lasting{})
		p := asks(0)
		p[0].Header.Opcode = roce.WriteOnly
		ch.Receive(p, how)
		if !ch.QP.AcknowledgementPending() || ch.device.Delivery.count.Load() != want {
			t.Errorf("mode %d: %d acknowledgements are put off, want %d", how, ch.device.Delivery.count.Load(), want)
		}
	}
}

// TestRetiredIsNotHeard: a packet that comes for a channel that is no more does not have it known as one that hears its peer.
func TestRetiredIsNotHeard(t *testing.T) {
	ch, _, _ := newChannel(t, nil)
	ch.Receive(asks(1), AtOnce)
	if ch.path.heardBy.Load() != ch {
		t.Fatal("the peer was not heard")
	}
	ch.Lock()
	ch.QP.Flush()
	ch.Unlock()
	ch.Retire()
	if ch.Receive(asks(1), AtOnce); ch.path.heardBy.Load() != nil {
		t.Error("a channel that is retired hears its peer")
	}
}
