package impair

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/topology"
	"pgregory.net/rapid"
)

const million = 1_000_000

// direction is one with settings from the beginning.
func direction(seed uint64, link string, index int, settings topology.Impairment) *Direction {
	d := New(seed, link, index)
	d.Set(settings, 0)
	return d
}

func TestUnimpairedPacketsPassAtOnce(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{})
	for i := range 100 {
		at := time.Duration(i) * time.Microsecond
		if v := d.Packet(&Packet{Frame: 1500}, at); v != (Verdict{Departs: at}) {
			t.Fatalf("packet %d at %v: %+v", i, at, v)
		}
	}
}

func TestWireBytes(t *testing.T) {
	for _, c := range []struct{ frame, want int }{{14, 84}, {60, 84}, {61, 85}, {1514, 1538}, {4214, 4238}} {
		if got := WireBytes(c.frame); got != c.want {
			t.Errorf("WireBytes(%d) = %d, want %d", c.frame, got, c.want)
		}
	}
}

// Each probability is met within the 99.9 % interval over a million packets.
func TestLossIsWithinItsInterval(t *testing.T) {
	for _, p := range []float64{0, 0.0001, 0.001, 0.01, 0.1, 0.5, 1} {
		d := direction(42, "a:eth0-b:eth0", 1, topology.Impairment{Loss: topology.Loss{Rate: p}})
		lost := 0
		for i := range million {
			if d.Packet(&Packet{Frame: 1000}, time.Duration(i)).Fate == Lost {
				lost++
			}
		}
		if off := math.Abs(float64(lost) - p*million); off > 3.29*math.Sqrt(million*p*(1-p)) {
			t.Errorf("loss %v: %d of %d lost", p, lost, million)
		}
		if a := d.Asked(); math.Abs(a.Loss-p) > 1e-12 || a.Packets != million {
			t.Errorf("loss %v: asked %+v", p, a)
		}
	}
}

// Losses are independent: a lost packet's successor is as likely to be lost.
func TestLossesAreIndependent(t *testing.T) {
	d := direction(7, "link", 0, topology.Impairment{Loss: topology.Loss{Rate: 0.1}})
	lost, pairs, previous := 0, 0, false
	for i := range million {
		now := d.Packet(&Packet{Frame: 1000}, time.Duration(i)).Fate == Lost
		if now {
			lost++
		}
		if now && previous {
			pairs++
		}
		previous = now
	}
	want := float64(lost) * 0.1
	if math.Abs(float64(pairs)-want) > 3.29*math.Sqrt(want*0.9) {
		t.Errorf("%d of %d lost packets follow another, want about %.0f", pairs, lost, want)
	}
}

func TestSameSequenceMeetsSameFate(t *testing.T) {
	imp := topology.Impairment{Delay: time.Millisecond, Jitter: topology.Jitter{Spread: 100 * time.Microsecond}, Loss: topology.Loss{Rate: 0.05}}
	fates := func(seed uint64, link string, index int, imp topology.Impairment, gap time.Duration) []bool {
		d := direction(seed, link, index, imp)
		lost := make([]bool, 2000)
		for i := range lost {
			lost[i] = d.Packet(&Packet{Frame: 1000}, time.Duration(i)*gap).Fate == Lost
		}
		return lost
	}
	base := fates(1, "link", 0, imp, time.Microsecond)
	slow := imp
	slow.Rate = 10_000_000 // most packets find the queue full
	for name, same := range map[string][]bool{
		"other timing": fates(1, "link", 0, imp, 7*time.Millisecond),
		"other delay":  fates(1, "link", 0, topology.Impairment{Loss: topology.Loss{Rate: 0.05}}, time.Microsecond),
		"a rate":       fates(1, "link", 0, slow, time.Nanosecond),
	} {
		if diff := cmp.Diff(base, same); diff != "" {
			t.Errorf("%s changed the losses", name)
		}
	}
	for name, other := range map[string][]bool{
		"seed":      fates(2, "link", 0, imp, time.Microsecond),
		"link":      fates(1, "link2", 0, imp, time.Microsecond),
		"direction": fates(1, "link", 1, imp, time.Microsecond),
	} {
		if cmp.Equal(base, other) {
			t.Errorf("another %s gave the same losses", name)
		}
	}
}

// The sequence is part of what a seed promises: it may not change between releases.
func TestSequenceIsStable(t *testing.T) {
	d := direction(42, "client:eth0", 0, topology.Impairment{Loss: topology.Loss{Rate: 0.1}, Jitter: topology.Jitter{Spread: time.Millisecond}, Delay: time.Millisecond})
	var got []time.Duration
	for i := range 12 {
		v := d.Packet(&Packet{Frame: 1000}, time.Duration(i)*10*time.Millisecond)
		if v.Fate != Passes {
			v.Departs = -1
		}
		got = append(got, v.Departs)
	}
	want := []time.Duration{ // -1: lost
		1465381, 11048474, 21485350, 31157275, 40733779, 50311760,
		61048015, 70802473, 81425097, 91928289, 101715741, 110644139,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("departures (-want +got):\n%s", diff)
	}
}

func TestRateIsExact(t *testing.T) {
	for _, c := range []struct {
		rate  uint64
		frame int
	}{{10_000_000, 1514}, {100_000_000, 4214}, {1_000_000_000, 60}, {10_000_000_000, 4214}, {10_000_000_000, 60}, {400_000_000_000, 60}, {3, 60}} {
		d := direction(1, "link", 0, topology.Impairment{Rate: c.rate})
		// The sender keeps the queue filled: the next packet enters when the one
		// ten before it has left.
		var departs [10]time.Duration
		n := 100_000
		for i := range n {
			v := d.Packet(&Packet{Frame: c.frame}, departs[i%10])
			if v.Fate != Passes {
				t.Fatalf("rate %d: packet %d: %+v", c.rate, i, v)
			}
			departs[i%10] = v.Departs
		}
		got := float64(n) * float64(WireBytes(c.frame)) * 8 / departs[(n-1)%10].Seconds()
		if math.Abs(got/float64(c.rate)-1) > 1e-6 {
			t.Errorf("rate %d, frames of %d: got %.1f", c.rate, c.frame, got)
		}
	}
}

func TestIdleTimeIsNotSaved(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Rate: 1_000_000_000, Delay: time.Millisecond})
	want := time.Duration(1538*8) + time.Millisecond
	for i := range 3 {
		at := time.Duration(i) * time.Second
		if v := d.Packet(&Packet{Frame: 1514}, at); v.Departs != at+want || v.Queued != want-time.Millisecond {
			t.Errorf("packet at %v departs at %v after %v in the queue, want %v after %v", at, v.Departs, v.Queued, at+want, want-time.Millisecond)
		}
	}
}

func TestQueueDropsTheTail(t *testing.T) {
	const rate = 100_000_000 // 50 ms are 625,000 bytes: the floor of 4 MiB applies
	d := direction(1, "link", 0, topology.Impairment{Rate: rate})
	passed := 0
	for range 2000 {
		if d.Packet(&Packet{Frame: 4214}, 0).Fate == Passes {
			passed++
		}
	}
	if want := queueBytes / WireBytes(4214); passed != want {
		t.Errorf("%d packets fit into the queue, want %d", passed, want)
	}
	// After one more transmission time there is room for exactly one more.
	at := time.Duration(WireBytes(4214)*8*1e9/rate) + 1
	if a, b := d.Packet(&Packet{Frame: 4214}, at).Fate, d.Packet(&Packet{Frame: 4214}, at).Fate; a != Passes || b != QueueFull {
		t.Errorf("after one left: %v and %v, want Passes and QueueFull", a, b)
	}
	if got := direction(1, "link", 0, topology.Impairment{Rate: 10_000_000_000}).queue.limit.Bytes; got != 62_500_000 {
		t.Errorf("queue at 10 gbit: %d bytes, want 50 ms", got)
	}
}

// A queue that filled at one rate does not shut out packets at a higher one.
func TestRateRaisedWhileQueueIsFull(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Rate: 10_000_000})
	for range 2000 {
		d.Packet(&Packet{Frame: 4214}, 0)
	}
	last := d.order.last()
	d.Set(topology.Impairment{Rate: 10_000_000_000}, 0)
	v := d.Packet(&Packet{Frame: 4214}, time.Millisecond)
	if v.Fate != Passes || v.Departs <= last || v.Departs > last+4*time.Microsecond {
		t.Errorf("%+v, want a departure just after %v", v, last)
	}
}

func TestJitterIsUniform(t *testing.T) {
	imp := topology.Impairment{Delay: time.Millisecond, Jitter: topology.Jitter{Spread: 100 * time.Microsecond}}
	d := direction(3, "link", 0, imp)
	const bins = 20
	var counts [bins]int
	const n = 200_000
	for i := range n {
		at := time.Duration(i) * time.Millisecond // apart, so that order does not interfere
		late := d.Packet(&Packet{Frame: 1000}, at).Departs - at - (imp.Delay - imp.Jitter.Spread)
		if late < 0 || late > 2*imp.Jitter.Spread {
			t.Fatalf("packet %d is %v off", i, late-imp.Jitter.Spread)
		}
		counts[min(bins-1, int(late*bins/(2*imp.Jitter.Spread)))]++
	}
	chi := 0.0
	for _, c := range counts {
		chi += math.Pow(float64(c)-n/bins, 2) / (n / bins)
	}
	if chi > 43.8 { // 99.9 % of chi-square with 19 degrees of freedom
		t.Errorf("chi-square %.1f over %v", chi, counts)
	}
}

func TestSetLeavesPacketsOnTheirWay(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Delay: 10 * time.Millisecond})
	first := d.Packet(&Packet{Frame: 1000}, 0)
	d.Set(topology.Impairment{Delay: time.Millisecond}, 0)
	if first.Departs != 10*time.Millisecond {
		t.Errorf("first departs at %v", first.Departs)
	}
	if v := d.Packet(&Packet{Frame: 1000}, time.Millisecond); v.Departs != 10*time.Millisecond {
		t.Errorf("second departs at %v, want right behind the first", v.Departs)
	}
	if v := d.Packet(&Packet{Frame: 1000}, 20*time.Millisecond); v.Departs != 21*time.Millisecond {
		t.Errorf("third departs at %v, want 21ms", v.Departs)
	}
}

func TestDown(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Loss: topology.Loss{Rate: 1}})
	d.SetDown(true)
	if v := d.Packet(&Packet{Frame: 1000}, 0); v.Fate != Down {
		t.Errorf("down: %+v", v)
	}
	d.SetDown(false)
	if v := d.Packet(&Packet{Frame: 1000}, 0); v.Fate != Lost {
		t.Errorf("up again: %+v", v)
	}
	if a := d.Asked(); a.Packets != 1 || a.Loss != 1 {
		t.Errorf("asked: %+v", a)
	}
}

func TestAskedIsTheMeanOverPackets(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Delay: time.Millisecond, Loss: topology.Loss{Rate: 0.5}})
	if a := d.Asked(); a != (Asked{Delay: time.Millisecond, Loss: 0.5}) {
		t.Errorf("before any packet: %+v", a)
	}
	for range 30 {
		d.Packet(&Packet{Frame: 100}, 0)
	}
	d.Set(topology.Impairment{Delay: 5 * time.Millisecond, Jitter: topology.Jitter{Spread: 4 * time.Microsecond}, Loss: topology.Loss{Rate: 0.1}, Rate: 1000_000_000}, 0)
	for range 10 {
		d.Packet(&Packet{Frame: 100}, 0)
	}
	want := Asked{Packets: 40, Delay: 2 * time.Millisecond, Jitter: time.Microsecond, Loss: 0.4, Rate: 1000_000_000}
	got := d.Asked()
	got.Loss = math.Round(got.Loss*1e9) / 1e9
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

func TestCheck(t *testing.T) {
	for _, bad := range []topology.Impairment{{Delay: -1}, {Jitter: topology.Jitter{Spread: -1}}, {Loss: topology.Loss{Rate: -0.1}}, {Loss: topology.Loss{Rate: 1.2}}, {Loss: topology.Loss{Rate: math.NaN()}}} {
		if Check(bad) == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	if err := Check(topology.Impairment{Delay: 1, Jitter: topology.Jitter{Spread: 2}, Loss: topology.Loss{Rate: 1}, Rate: 1}); err != nil {
		t.Errorf("good settings refused: %v", err)
	}
}

// Whatever the settings and however they change: packets keep their order,
// never leave before they were sent, and the queue's account is right.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		settings := func() topology.Impairment {
			return topology.Impairment{
				Delay:  time.Duration(rapid.Int64Range(0, 1e7).Draw(t, "delay")),
				Jitter: topology.Jitter{Spread: time.Duration(rapid.Int64Range(0, 2e7).Draw(t, "jitter"))},
				Loss:   topology.Loss{Rate: rapid.Float64Range(0, 1).Draw(t, "loss")},
				Rate:   rapid.SampledFrom([]uint64{0, 1, 1e6, 1e10, math.MaxUint64}).Draw(t, "rate"),
			}
		}
		d := direction(rapid.Uint64().Draw(t, "seed"), "link", 0, settings())
		var at, last time.Duration
		for range rapid.IntRange(1, 200).Draw(t, "packets") {
			switch rapid.IntRange(0, 20).Draw(t, "step") {
			case 0:
				d.Set(settings(), at)
			case 1:
				d.SetDown(rapid.Bool().Draw(t, "down"))
			}
			at += time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "gap"))
			frame := rapid.IntRange(14, 65549).Draw(t, "frame")
			if v := d.Packet(&Packet{Frame: frame}, at); v.Fate == Passes {
				if v.Departs < last || v.Departs < at {
					t.Fatalf("departs at %v after %v, sent at %v", v.Departs, last, at)
				}
				last = v.Departs
			}
			var backlog uint64
			for _, w := range d.queue.waiting[d.queue.head:] {
				backlog += w.wire
			}
			if backlog != d.queue.backlog {
				t.Fatalf("backlog %d, queue holds %d", d.queue.backlog, backlog)
			}
		}
	})
}

func TestPacketDoesNotAllocate(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Delay: time.Millisecond, Jitter: topology.Jitter{Spread: time.Microsecond}, Loss: topology.Loss{Rate: 0.01}, Rate: 1e10})
	var at time.Duration
	step := func() {
		for range 100 {
			at += 3 * time.Microsecond
			d.Packet(&Packet{Frame: 4214}, at)
		}
	}
	for range 100 {
		step() // the queue grows to its size
	}
	if n := testing.AllocsPerRun(100, step); n > 0 {
		t.Errorf("%v allocations per 100 packets", n)
	}
}

func BenchmarkPacket(b *testing.B) {
	d := direction(1, "link", 0, topology.Impairment{Delay: time.Millisecond, Jitter: topology.Jitter{Spread: time.Microsecond}, Loss: topology.Loss{Rate: 0.01}, Rate: 1e10})
	gap := rand.New(rand.NewPCG(1, 2))
	var at time.Duration
	b.ReportAllocs()
	for b.Loop() {
		at += time.Duration(gap.Int64N(7000))
		d.Packet(&Packet{Frame: 4214}, at)
	}
}
