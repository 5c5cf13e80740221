package congestion

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

// newTestDCTCP has packets of 1,000 bytes, a window of 10 of them at first, and g of 1/16.
func newTestDCTCP() *dctcp {
	p := DefaultDCTCP()
	p.RTT = 10 * us
	return newDCTCP(&p, 8e9, 1000)
}

// acknowledge has n packets be acknowledged, one by one, of which the first so many were marked, as many being in flight
// behind them as there are in the window.
func (d *dctcp) acknowledge(n, marked int) {
	for i := range n {
		if i < marked {
			d.Notified(0)
		}
		d.Acknowledged(0, Ack{Bytes: 1000, InFlight: d.Window() - 1000})
	}
}

// TestAlphaOfDCTCP is RFC 8257, 3.3: alpha is 1 at first, and then (1-g) alpha + g M after each window of data.
func TestAlphaOfDCTCP(t *testing.T) {
	d := newTestDCTCP()
	d.acknowledge(1, 0) // which ends the window of data before the first, and shows what is in flight
	alpha := 15.0 / 16
	for i, w := range []struct {
		packets, marked int
		share           float64
	}{{9, 0, 0}, {10, 0, 0}, {11, 11, 1}} {
		// A window of data ends with the packets that were in flight when it began.
		d.acknowledge(w.packets, w.marked)
		alpha = alpha*15/16 + w.share/16
		if math.Abs(d.alpha-alpha) > 1e-12 {
			t.Fatalf("after window %d: alpha %v, want %v; %d bytes are left of it", i, d.alpha, alpha, d.left)
		}
	}
}

// TestShareOfMarks has windows of 100 packets each of which some are marked: alpha becomes their share, and is never above 1
// though more CNPs come than packets are acknowledged.
func TestShareOfMarks(t *testing.T) {
	for marked, want := range map[int]float64{0: 0, 1: 0.01, 25: 0.25, 100: 1} {
		d := newTestDCTCP()
		for range 400 {
			for i := range 100 {
				if i < marked {
					d.Notified(0)
				}
				d.Acknowledged(0, Ack{Bytes: 1000, InFlight: 100_000})
			}
		}
		if math.Abs(d.alpha-want) > 1e-9 {
			t.Errorf("%d of 100 marked: alpha %v, want %v", marked, d.alpha, want)
		}
	}
	d := newTestDCTCP()
	for range 1000 {
		d.Notified(0)
		d.Notified(0)
		d.Acknowledged(0, Ack{Bytes: 1000})
	}
	if d.alpha != 1 {
		t.Errorf("twice as many CNPs as packets: alpha %v, want 1", d.alpha)
	}
}

// TestCutOfDCTCP is by alpha/2, once for a window of data, and leaves a packet.
func TestCutOfDCTCP(t *testing.T) {
	d := newTestDCTCP()
	expectWindow(t, d, 10)
	d.alpha = 0.5
	d.Notified(0)
	expectWindow(t, d, 7.5)
	d.Notified(0) // of the same window of data
	d.Lost(0)
	expectWindow(t, d, 7.5)
	d.Acknowledged(0, Ack{Bytes: 9999, InFlight: 7000})
	d.Notified(0) // a byte is left of what was in flight
	expectWindow(t, d, 7.5)
	d.Acknowledged(0, Ack{Bytes: 1, InFlight: 7000}) // it does not grow meanwhile
	d.alpha = 0.8
	d.Notified(0)
	expectWindow(t, d, 4.5)

	d = newTestDCTCP()
	d.alpha = 0
	d.Notified(0)
	expectWindow(t, d, 10)
	for range 10 {
		d.alpha, d.hold = 1, 0
		d.Notified(0)
	}
	expectWindow(t, d, 1)
}

// TestLossHalves is RFC 8257, 3.5, whatever alpha is.
func TestLossHalves(t *testing.T) {
	d := newTestDCTCP()
	d.alpha = 0.01
	d.Lost(0)
	d.Lost(0)
	expectWindow(t, d, 5)
}

// TestIncreaseOfDCTCP is a packet for each window that is acknowledged, if at least half of it is used.
func TestIncreaseOfDCTCP(t *testing.T) {
	d := newTestDCTCP()
	d.Acknowledged(0, Ack{Bytes: 10_000})
	expectWindow(t, d, 11)
	d.Acknowledged(0, Ack{Bytes: 1000, InFlight: 4499})
	expectWindow(t, d, 11)
	d.Acknowledged(0, Ack{Bytes: 1100, InFlight: 4400})
	expectWindow(t, d, 11.1)
	d.Acknowledged(0, Ack{InFlight: 11_000}) // nothing
	expectWindow(t, d, 11.1)
}

// TestStartOfDCTCP: the window begins with the first round trip that is measured, unless it was cut before.
func TestStartOfDCTCP(t *testing.T) {
	p := DefaultDCTCP()
	d := newDCTCP(&p, 8e9, 1000)
	expectWindow(t, d, 4)
	d.Acknowledged(0, Ack{RTT: 30 * us})
	expectWindow(t, d, 30)
	d.Acknowledged(0, Ack{RTT: 20 * us})
	expectWindow(t, d, 30)

	d = newDCTCP(&p, 8e9, 1000)
	d.Notified(0) // alpha is 1
	d.Acknowledged(0, Ack{RTT: 30 * us})
	expectWindow(t, d, 2)
}

func TestInvariantsOfDCTCP(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := DCTCP{G: rapid.Float64Range(0, 1).Draw(t, "g"), RTT: time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "rtt"))}
		d := newDCTCP(&p, 10e9, 1000)
		for range rapid.IntRange(1, 100).Draw(t, "calls") {
			before := d.Window()
			switch rapid.IntRange(0, 2).Draw(t, "call") {
			case 0:
				d.Notified(0)
			case 1:
				d.Lost(0)
			case 2:
				a := Ack{Bytes: rapid.Int64Range(0, before).Draw(t, "bytes"), InFlight: rapid.Int64Range(0, before).Draw(t, "in flight")}
				d.Acknowledged(0, a)
				if d.Window() > before+1000 {
					t.Fatalf("from %d to %d by %+v", before, d.Window(), a)
				}
			}
			if !(d.alpha >= 0 && d.alpha <= 1) || d.Window() < 1000 || d.Window() < before/2-1 {
				t.Fatalf("alpha %v, window %d, before %d", d.alpha, d.Window(), before)
			}
		}
	})
}

func TestWindowsDoNotAllocate(t *testing.T) {
	for _, a := range []Algorithm{WithDCTCP, WithBDP} {
		c := Config{Algorithm: a, DCTCP: DefaultDCTCP()}
		p := NewPacer(c.New(10e9, 1000), 10e9, 0, 0)
		p.Packet, p.Count = 1000, 1500
		total := int64(0)
		if n := testing.AllocsPerRun(1000, func() {
			total += 1500
			p.Notified(0)
			p.Delivered(0, total, p.Limit(0), 10*us)
			p.Lost(0)
			p.Sent(0, 1000)
		}); n != 0 {
			t.Errorf("%v: %v allocations", a, n)
		}
	}
	if size := unsafe.Sizeof(dctcp{}); size > 112 {
		t.Errorf("%d bytes per queue pair, want 112 at most", size)
	}
}
