package congestion

import (
	"slices"
	"testing"
	"time"
)

// constant is a Control with a rate that a test sets.
type constant struct {
	unlimited
	rate float64
	next time.Duration // when it changes; 0: never
}

func (c *constant) Rate(time.Duration) float64      { return c.rate }
func (c *constant) Deadline() (time.Duration, bool) { return c.next, c.next != 0 }

// expectNext fails the test unless the next packet may be sent at that time.
func (p *Pacer) expectNext(t *testing.T, now, want time.Duration) {
	t.Helper()
	if got := p.Next(now); got != want {
		t.Errorf("at %v: the next is due at %v, want %v", now, got, want)
	}
}

func TestPacerSpacesPackets(t *testing.T) {
	p := NewPacer(&constant{rate: 8e9}, 1e12, 0, 0) // a byte each nanosecond
	p.expectNext(t, 50, 50)
	p.Sent(50, 1000)
	p.expectNext(t, 50, 1050)
	if got := p.Deadline(60); got != 1050 {
		t.Errorf("deadline %v, want 1050 ns", got)
	}
	p.Sent(1050, 1) // a short packet holds up less
	p.expectNext(t, 1050, 1051)
	p.Sent(1051, 4000)
	p.expectNext(t, 2000, 5051)
}

// TestPacerCountsFromAPacketThatWasNotDue covers one that nobody held back.
func TestPacerCountsFromAPacketThatWasNotDue(t *testing.T) {
	p := NewPacer(&constant{rate: 8e9}, 1e12, 0, 0)
	p.Sent(0, 1000)
	p.Sent(10, 1000)
	p.expectNext(t, 10, 1010)
}

// TestPacerKeepsFractions: a packet is sent at the first whole nanosecond, and those behind it lose nothing by that.
func TestPacerKeepsFractions(t *testing.T) {
	p := NewPacer(&constant{rate: 3e9}, 1e12, 0, 0)
	now := time.Duration(0)
	for i := range 1000 {
		if want := time.Duration((i*8 + 2) / 3); now != want { // 2.67 ns each
			t.Fatalf("packet %d is sent at %v, want %v", i, now, want)
		}
		p.Sent(now, 1)
		now = p.Next(now)
	}
}

// TestPacerCountsWhatAPacketHasBesides covers what surrounds a packet on the wire.
func TestPacerCountsWhatAPacketHasBesides(t *testing.T) {
	p := NewPacer(&constant{rate: 8e9}, 1e12, 0, 58)
	p.Sent(0, 1000)
	p.expectNext(t, 0, 1058)
}

func TestChangeOfRateDuringAWait(t *testing.T) {
	c := &constant{rate: 8e9, next: 100}
	p := NewPacer(c, 1e12, 0, 0)
	p.Sent(0, 1000)
	if got := p.Deadline(1); got != 100 {
		t.Errorf("deadline %v, want that of the change of the rate, 100 ns", got)
	}
	if got := p.Deadline(100); got != 1000 {
		t.Errorf("deadline %v, want that of the packet, 1000 ns", got)
	}
	c.next = 1001
	if got := p.Deadline(1); got != 1000 {
		t.Errorf("deadline %v, want that of the packet, 1000 ns", got)
	}
	c.rate = 4e9
	p.expectNext(t, 500, 2000)
	c.rate = 16e9
	p.expectNext(t, 500, 500)
	c.rate = 80e9
	p.expectNext(t, 500, 100) // it might have been sent before
}

// TestPacerCatchesUp has a sender be late by 10,000 bytes.
func TestPacerCatchesUp(t *testing.T) {
	for _, c := range []struct{ burst, atOnce int }{
		{0, 1}, {999, 1}, {1000, 2}, {3500, 4}, {10_000, 11}, {1 << 30, 11},
	} {
		p := NewPacer(&constant{rate: 8e9}, 1e12, c.burst, 0)
		p.Sent(0, 1000)
		const now = 11_000 // the next was due at 1000
		sent := 0
		for ; p.Next(now) <= now; sent++ {
			p.Sent(now, 1000)
		}
		if sent != c.atOnce {
			t.Errorf("burst %d: %d packets at once, want %d", c.burst, sent, c.atOnce)
		}
	}
}

func TestPacerWithoutARate(t *testing.T) {
	p := NewPacer(unlimited{}, 1e12, 0, 0)
	for range 3 {
		p.expectNext(t, 7, 7)
		p.Sent(7, 1000)
	}
	if got := p.Deadline(7); got != 7 {
		t.Errorf("deadline %v, want 7 ns", got)
	}
}

// TestPacerFollowsItsControl has a cut lengthen the wait that is under way.
func TestPacerFollowsItsControl(t *testing.T) {
	params := simple()
	params.RateReduceMonitorPeriod = 0
	params.RPGByteReset = 1000
	p := NewPacer(NewDCQCN(&params, 8000*mbit), 1e12, 0, 0)
	p.Sent(0, 9000)
	p.expectNext(t, 100, 9000)
	p.Notified(100)
	p.expectNext(t, 100, 12_000)
	p.Sent(12_000, 1000) // the byte counter hears of it: 7 of 8 Gb/s
	p.expectNext(t, 12_000, 12_000+1143)
}

// TestPacerLeavesTheLineToItself: at the rate of the line nothing waits, and below it everything does.
func TestPacerLeavesTheLineToItself(t *testing.T) {
	for line, unknown := range map[float64]bool{8e9: false, unknownLineRate: true} {
		c := &constant{rate: line}
		given := line
		if unknown {
			given = 0
		}
		p := NewPacer(c, given, 0, 0)
		p.Sent(100, 1000)
		p.expectNext(t, 100, 100)
		p.Sent(100, 1000)
		p.expectNext(t, 100, 100)
		c.rate = line / 2
		p.expectNext(t, 100, 100+time.Duration(16e12/line))
	}
}

// acks is a Control with a window, which keeps what it is told.
type acks struct {
	unlimited
	window int64
	told   []Ack
}

func (a *acks) Window() int64                         { return a.window }
func (a *acks) Acknowledged(_ time.Duration, ack Ack) { a.told = append(a.told, ack) }

// TestPacerConverts has a full packet of 1,000 bytes count 1,500.
func TestPacerConverts(t *testing.T) {
	c := &acks{window: 7000}
	p := NewPacer(c, 1e12, 0, 0)
	p.Packet, p.Count = 1000, 1500
	if got := p.Limit(99); got != 10_500 || !p.Bounds() {
		t.Errorf("limit %d, bounds %v; want 10500, true", got, p.Bounds())
	}
	p.Delivered(0, 3000, 6000, 5*us)
	p.Delivered(0, 4500, 0, 0)
	p.Delivered(0, 3000, 1500, 0) // a packet was dropped after all
	if want := []Ack{{5 * us, 2000, 4000}, {0, 1000, 0}, {0, 0, 1000}}; !slices.Equal(c.told, want) {
		t.Errorf("told %v, want %v", c.told, want)
	}
	c.window = 0
	p.Delivered(0, 9000, 0, 0)
	if got := p.Limit(99); got != 99 || p.Bounds() || len(c.told) != 3 {
		t.Errorf("without a window: limit %d, bounds %v, told %v", got, p.Bounds(), c.told)
	}
}

// TestPacerSpacesAll: a queue pair that keeps to the line by itself is never faster than that, whatever its Control lets it do, and
// slower if the Control says so; without, the line spaces what is as fast as it is.
func TestPacerSpacesAll(t *testing.T) {
	for _, c := range []struct {
		rate float64
		all  bool
		want time.Duration
	}{{0, true, 1000}, {16e9, true, 1000}, {8e9, true, 1000}, {4e9, true, 2000}, {0, false, 0}, {8e9, false, 0}, {4e9, false, 2000}} {
		p := NewPacer(&constant{rate: c.rate}, 8e9, 0, 0)
		p.SpacesAll = c.all
		p.Sent(0, 1000)
		p.expectNext(t, 0, c.want)
	}
}
