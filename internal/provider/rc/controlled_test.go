package rc

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/provider/congestion"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A fixedWindow is a Control of one window, in bytes on the wire, which keeps what it is told.
type fixedWindow struct {
	fixedRate
	window int64
	acks   []congestion.Ack
}

func (f *fixedWindow) Window() int64                                    { return f.window }
func (f *fixedWindow) Acknowledged(_ time.Duration, ack congestion.Ack) { f.acks = append(f.acks, ack) }

// controlledPacket is a full packet on the wire; its payload is 1,024 bytes.
const controlledPacket = 1124

// newControlledPair makes a pair of which the first end has a window of so many packets, and the delay is 10 us each way.
func newControlledPair(t *testing.T, packets int64, unbounded bool) (*pair, *fixedWindow) {
	t.Helper()
	c := testConnection
	c.Selective = true
	p := newPair(t, testConfig, c, path{delay: 10 * time.Microsecond}, 1)
	control := &fixedWindow{window: packets * controlledPacket}
	pacer := congestion.NewPacer(control, 0, 0, 0)
	pacer.Packet, pacer.Unbounded = controlledPacket, unbounded
	p.a.qp.connection.Pacer = pacer
	p.a.qp.requester.connect()
	for _, e := range []*end{p.a, p.b} {
		e.memory.add(1, 256<<10)
		e.memory.add(2, 256<<10)
	}
	if unbounded {
		p.a.qp.SetCredit(0) // as a device does that asks how much is wanted
	}
	return p, control
}

// writing asks for a message of n bytes to be written, and reading for one to be read.
func writing(n int) Request {
	return Request{Op: OpWrite, Context: n, SGL: []SGE{piece(1, 0, n)}, VA: 2 << 32, Token: 2}
}

func reading(n int) Request {
	return Request{Op: OpRead, Context: n, SGL: []SGE{piece(1, 0, n)}, VA: 2 << 32, Token: 2}
}

// TestControlledRequests: as many packets leave at once as the window has, each asks for its acknowledgement, and each of
// those lets another go.
func TestControlledRequests(t *testing.T) {
	for _, unbounded := range []bool{true, false} {
		p, control := newControlledPair(t, 5, unbounded)
		p.a.qp.SetRoundTrip(20*time.Microsecond, false) // known, so that the window does not begin with few packets
		times := p.a.departures(roce.Opcode.IsRequest)
		p.a.post(writing(12 * 1024))
		p.await(t, p.a, 1, time.Second)
		var want []time.Duration
		for i := range 12 {
			want = append(want, time.Duration(i/5)*20*time.Microsecond)
		}
		if d := cmp.Diff(want, *times); d != "" {
			t.Errorf("unbounded %v: packets left at (-want +got):\n%s", unbounded, d)
		}
		for i, h := range p.a.out.sent {
			if !h.AckReq {
				t.Errorf("unbounded %v: packet %d does not ask for an acknowledgement", unbounded, i)
			}
		}
		total := int64(0)
		for i, a := range control.acks {
			total += a.Bytes
			if left := min(5, 12-total/controlledPacket); a.RTT != 20*time.Microsecond || a.InFlight > left*controlledPacket {
				t.Errorf("unbounded %v: acknowledgement %d is %+v, want 20us and %d packets in flight at most", unbounded, i, a, left)
			}
		}
		if total != 12*controlledPacket || control.lost != 0 {
			t.Errorf("unbounded %v: %d bytes were acknowledged and %d packets lost, want %d and none", unbounded, total, control.lost, 12*controlledPacket)
		}
	}
}

// TestEachAsks: with a window each of many packets that leave at once asks for its acknowledgement, also when a round trip is known.
func TestEachAsks(t *testing.T) {
	p, _ := newControlledPair(t, 12, true)
	p.a.post(writing(1024))
	p.await(t, p.a, 1, time.Second)
	p.a.post(writing(10 * 1024))
	p.await(t, p.a, 2, time.Second)
	if n := p.a.qp.Counters().AcknowledgementsReceived; n != 11 {
		t.Errorf("%d acknowledgements of 11 packets", n)
	}
}

// TestCreditBesideAControl: a window of five packets of 1,024 bytes and PacketOverhead wants no more credit than that.
func TestCreditBesideAControl(t *testing.T) {
	p, _ := newControlledPair(t, 5, false)
	p.a.qp.SetRoundTrip(20*time.Microsecond, false)
	p.a.post(writing(64 * 1024))
	if got := p.a.qp.CreditWanted(); got != 5*(1024+PacketOverhead) || p.a.qp.CreditLimited() {
		t.Errorf("%d bytes are wanted, credit limits: %v; want %d, false", got, p.a.qp.CreditLimited(), 5*(1024+PacketOverhead))
	}
}

// TestControlledReads: a requester asks for what the window has, and an empty window lets a READ go that is longer.
func TestControlledReads(t *testing.T) {
	p, control := newControlledPair(t, 32, true)
	most := int64(0)
	p.a.out.drop = func(*roce.Header) bool {
		most = max(most, p.a.qp.requester.window.inFlight)
		return false
	}
	p.a.post(reading(100 * 1024))
	p.await(t, p.a, 1, time.Second)
	full := int64(1024 + PacketOverhead)
	if chunk := p.a.qp.requester.queue.chunk; chunk != 2 || most > 32*full || most < 28*full {
		t.Errorf("READs of %d packets, of which %d bytes were asked for at once; want 2, and %d nearly", chunk, most, 32*full)
	}
	total := int64(0)
	for _, a := range control.acks {
		total += a.Bytes
	}
	if total != 100*controlledPacket {
		t.Errorf("%d bytes were acknowledged, want %d", total, 100*controlledPacket)
	}
	control.window = controlledPacket // now a READ is twice as long
	p.a.post(reading(10 * 1024))
	p.await(t, p.a, 2, time.Second)
}

// TestRoundTripsOfFullPackets: a short packet tells of none, and neither does one that was sent again; that is lost.
func TestRoundTripsOfFullPackets(t *testing.T) {
	p, control := newControlledPair(t, 5, true)
	p.a.post(writing(100))
	p.await(t, p.a, 1, time.Second)
	lost := false
	p.a.out.drop = func(h *roce.Header) bool {
		first := !lost
		lost = true
		return first
	}
	p.a.post(writing(1024))
	p.await(t, p.a, 2, time.Second)
	for _, a := range control.acks {
		if a.RTT != 0 {
			t.Errorf("%+v has a round trip", a)
		}
	}
	if control.lost != 1 || len(control.acks) < 2 {
		t.Errorf("%d packets were lost, want 1; %d acknowledgements", control.lost, len(control.acks))
	}
}
