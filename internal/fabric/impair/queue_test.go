package impair

import (
	"cmp"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
	"pgregory.net/rapid"
)

func TestRateIsExact(t *testing.T) {
	for _, c := range []struct {
		rate, burst uint64
		frame       int
	}{
		{10_000_000, 0, 1514}, {100_000_000, 0, 4214}, {1_000_000_000, 0, 60}, {10_000_000_000, 0, 4214}, {10_000_000_000, 0, 60},
		{400_000_000_000, 0, 60}, {3, 0, 60}, {7_777_777_777, 100_001, 1000},
	} {
		d := direction(1, "link", 0, topology.Impairment{Rate: c.rate, Burst: c.burst})
		// The sender keeps the queue filled: the next packet enters when the one
		// ten before it has left.
		var departs [10]time.Duration
		n := 100_000
		for i := range n {
			v := d.Packet(packet(c.frame), departs[i%10])
			if v.Fate != Passes {
				t.Fatalf("rate %d: packet %d: %+v", c.rate, i, v)
			}
			departs[i%10] = v.Departs
		}
		bits := 8 * (float64(n)*float64(WireBytes(c.frame)) - float64(c.burst))
		if got := bits / departs[(n-1)%10].Seconds(); math.Abs(got/float64(c.rate)-1) > 1e-6 {
			t.Errorf("rate %d, frames of %d: got %.1f", c.rate, c.frame, got)
		}
	}
}

// Over any time, no more leaves than the rate lets pass and a burst; and what
// waits leaves as soon as that lets it.
func TestRateHoldsOverAnyTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Uint64Range(1_000_000, 100_000_000_000).Draw(t, "rate")
		burst := rapid.SampledFrom([]uint64{0, 1, 84, 1538, 10_000, 1_000_000}).Draw(t, "burst")
		d := direction(1, "link", 0, topology.Impairment{Rate: rate, Burst: burst, Queue: topology.Queue{Bytes: math.MaxUint64}})
		type packetSent struct {
			at, sent time.Duration
			wire     int
		}
		var all []packetSent
		var at time.Duration
		for range rapid.IntRange(1, 60).Draw(t, "packets") {
			at += time.Duration(rapid.SampledFrom([]int64{0, 0, 0, 100, 10_000, 10_000_000}).Draw(t, "gap"))
			frame := rapid.IntRange(14, 9000).Draw(t, "frame")
			v := d.Packet(packet(frame), at)
			all = append(all, packetSent{at, at + v.Queued, WireBytes(frame)})
		}
		for i := range all {
			sum, tight := 0, i == 0
			for j := i; j < len(all); j++ {
				sum += all[j].wire
				// Packet i began to pass when the one before it was through or, of
				// a full bucket, at once.
				took := (all[j].sent - all[i].at + 1).Seconds()
				if most := float64(burst) + took*float64(rate)/8; float64(sum) > most*(1+1e-9)+1e-3 {
					t.Fatalf("packets %d to %d of %d bytes in %v: %+v", i, j, sum, all[j].sent-all[i].at, all)
				}
				least := float64(burst) + (all[j].sent-all[i].at).Seconds()*float64(rate)/8
				if all[j].sent > all[j].at && tight && float64(sum) < least-1e-3 {
					t.Fatalf("packets %d to %d, of %d bytes, could have left earlier: %+v", i, j, sum, all)
				}
				tight = tight && (j+1 == len(all) || all[j+1].at == all[i].at)
			}
		}
	})
}

func TestIdleTimeIsNotSaved(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Rate: 1_000_000_000, Delay: time.Millisecond})
	want := time.Duration(1538*8) + time.Millisecond
	for i := range 3 {
		at := time.Duration(i) * time.Second
		if v := d.Packet(packet(1514), at); v.Departs != at+want || v.Queued != want-time.Millisecond {
			t.Errorf("packet at %v departs at %v after %v in the queue, want %v after %v", at, v.Departs, v.Queued, at+want, want-time.Millisecond)
		}
	}
}

func TestBurstPassesAtOnce(t *testing.T) {
	const rate = 8_000_000 // 1 us a byte
	d := direction(1, "link", 0, topology.Impairment{Rate: rate, Burst: 2500})
	frame := 1000 - framing
	for _, c := range []struct{ at, queued time.Duration }{ // us
		{0, 0}, {0, 0}, {0, 500}, {0, 1500}, // 2500 bytes are ahead of the rate
		{1500, 1000},               // no token was saved
		{3500, 0}, {3600, 0 + 900}, // 1000 were, from 2500 to 3500
		{1_000_000, 0}, {1_000_000, 0}, {1_000_000, 500}, // never more than the burst
	} {
		at, want := c.at*time.Microsecond, c.queued*time.Microsecond
		if v := d.Packet(packet(frame), at); v.Queued != want {
			t.Errorf("at %v: queued for %v, want %v", at, v.Queued, want)
		}
	}
	// A rate that is set later begins with a full bucket, too.
	d = New(1, "link", 0)
	d.Set(topology.Impairment{Rate: rate, Burst: 1000}, time.Second)
	if v := d.Packet(packet(frame), time.Second); v.Queued != 0 {
		t.Errorf("queued for %v right after the rate was set", v.Queued)
	}
}

func TestQueueDropsTheTail(t *testing.T) {
	const rate = 100_000_000 // 50 ms are 625,000 bytes: the floor of 4 MiB applies
	wire := uint64(WireBytes(4214))
	for _, c := range []struct {
		queue topology.Queue
		want  int
	}{
		{topology.Queue{}, (4 << 20) / int(wire)},
		{topology.Queue{Bytes: 10 * wire}, 10},
		{topology.Queue{Bytes: 10*wire - 1}, 9},
		{topology.Queue{Packets: 7}, 7},
		{topology.Queue{Packets: 7, Bytes: 6 * wire}, 6},
		{topology.Queue{Packets: 7, Bytes: 8 * wire}, 7},
		{topology.Queue{Packets: 1800}, 1800},
	} {
		d := direction(1, "link", 0, topology.Impairment{Rate: rate, Queue: c.queue})
		passed := 0
		for range 2000 {
			if d.Packet(packet(4214), 0).Fate == Passes {
				passed++
			}
		}
		if passed != c.want {
			t.Errorf("%d packets fit into the queue %+v, want %d", passed, c.queue, c.want)
		}
		// After one more transmission time there is room for exactly one more.
		at := time.Duration(wire*8*1e9/rate) + 1
		if a, b := d.Packet(packet(4214), at).Fate, d.Packet(packet(4214), at).Fate; a != Passes || b != QueueFull {
			t.Errorf("after one left: %v and %v, want Passes and QueueFull", a, b)
		}
	}
	if got := direction(1, "link", 0, topology.Impairment{Rate: 10_000_000_000}).queue.limit.Bytes; got != 62_500_000 {
		t.Errorf("queue at 10 gbit: %d bytes, want 50 ms", got)
	}
}

// A queue that filled at one rate does not shut out packets at a higher one.
func TestRateRaisedWhileQueueIsFull(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Rate: 10_000_000})
	for range 2000 {
		d.Packet(packet(4214), 0)
	}
	last := d.order.last()
	d.Set(topology.Impairment{Rate: 10_000_000_000}, 0)
	v := d.Packet(packet(4214), time.Millisecond)
	if v.Fate != Passes || v.Departs <= last || v.Departs > last+4*time.Microsecond {
		t.Errorf("%+v, want a departure just after %v", v, last)
	}
}

// The rest of a nanosecond that one rate leaves is no time at another rate.
func TestRestOfOneRateIsNotTakenToAnother(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Rate: 99_999_999_977})
	sent := d.Packet(packet(1000), 0).Queued
	d.Set(topology.Impairment{Rate: 8}, 0)
	if v := d.Packet(packet(1000), 0); v.Queued != sent+1024*time.Second {
		t.Errorf("queued for %v, want 1024 s more than %v", v.Queued, sent)
	}
}

// However long a queue may be, instants stay in their range.
func TestEndlessQueue(t *testing.T) {
	for _, queue := range []topology.Queue{{Packets: math.MaxUint64}, {Bytes: math.MaxUint64}} {
		d := direction(1, "link", 0, topology.Impairment{Rate: 1, Queue: queue})
		var last time.Duration
		for range 10_000 {
			v := d.Packet(packet(65549), 0)
			if v.Fate == QueueFull {
				break
			}
			if v.Departs <= last {
				t.Fatalf("departs at %v after %v", v.Departs, last)
			}
			last = v.Departs
		}
		if year := 365 * 24 * time.Hour; last < 9*year || last > 10*year {
			t.Errorf("%+v is full after %v", queue, last)
		}
	}
}

// A packet that came before the rate took effect has its turn from then on.
func TestRateBeginsWhenItIsSet(t *testing.T) {
	d := New(1, "link", 0)
	d.Set(topology.Impairment{Rate: 8_000_000_000}, 5000)
	for i := range time.Duration(3) {
		if v := d.Packet(packet(1000-framing), 0); v.Departs != 5000+(i+1)*1000 {
			t.Errorf("packet %d departs at %v", i, v.Departs)
		}
	}
}

func TestMarksBetweenThresholds(t *testing.T) {
	// Each round fills the queue anew, with packets of 1000 bytes each 10 s.
	frame := 1000 - framing
	const rounds = 20_000
	for _, probability := range []float64{0, 1, 0.2} {
		d := direction(9, "link", 0, topology.Impairment{Rate: 8_000_000, ECN: topology.ECN{Min: 2000, Max: 10_000, Probability: probability}})
		var marks [15]int // by packets in the queue
		for round := range rounds {
			at := time.Duration(round) * 10 * time.Second
			for i := range marks {
				p := packet(frame)
				p.ECT = true
				if d.Packet(p, at).Mark {
					marks[i]++
				}
			}
			if v := d.Packet(packet(frame), at); v.Mark {
				t.Fatal("a packet was marked that may not be")
			}
		}
		most := cmp.Or(probability, 1)
		for i, n := range marks {
			want := most * max(0, float64(i-2)/8)
			if i >= 10 {
				want = 1
			}
			within(t, fmt.Sprintf("marked by up to %v", most), n, rounds, want)
		}
	}
	// Both thresholds may be the same.
	d := direction(9, "link", 0, topology.Impairment{Rate: 8_000_000, ECN: topology.ECN{Min: 2000, Max: 2000}})
	for i := range 5 {
		p := packet(frame)
		p.ECT = true
		if v := d.Packet(p, 0); v.Mark != (i > 2) {
			t.Errorf("packet %d marked: %v", i, v.Mark)
		}
	}
}

// The room of packets that have left is used again, and making it does not cost
// the more the longer the queue is.
func TestQueueReusesItsRoom(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Rate: 8_000_000_000, Queue: topology.Queue{Packets: 1000}})
	for i := range 1_000_000 {
		d.Packet(packet(1000-framing), time.Duration(i)*time.Microsecond/2) // twice the rate
	}
	if n := cap(d.queue.waiting); n > 5000 {
		t.Errorf("room for %d packets in a queue of 1000", n)
	}
}
