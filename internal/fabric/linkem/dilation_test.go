package linkem

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
	"github.com/ndklab/ndklab/topology"
)

// everyTime has all that a link does with times: a rate with a queue before it, delay, jitter, and a
// link that is down from time to time.
func everyTime() topology.Impairment {
	return topology.Impairment{
		Delay: time.Millisecond, Jitter: topology.Jitter{Spread: 100 * time.Microsecond, Distribution: topology.Normal}, Rate: 1e9,
		Queue: topology.Queue{Bytes: 10000}, Loss: topology.Loss{Rate: 0.01}, Flap: topology.Flap{Period: 23 * time.Millisecond, Down: 3 * time.Millisecond},
	}
}

// play has super-packets arrive at a link, 500 us of its fabric from each other, and leave late
// by 2 us. It returns when packets left, by the machine, what was recorded, as in a log, and what was measured.
func play(t *testing.T, dilated dilation) (departures []time.Duration, records []string, m linkstats.Statistics) {
	b := newDilatedBench(t, dilated, topology.Impairment{})
	n := b.k.lines[0]
	n.model.Set(everyTime(), 0)
	file := logFile(t)
	recorder := b.record(file, recordBatch)
	f, err := frame.Parse(superPacket(15, 1000))
	must(t, err)
	for i := range 200 {
		arrived := time.Duration(i) * 500 * time.Microsecond * time.Duration(dilated)
		held := &heldFrame{frame: f, arrived: arrived}
		for _, r := range b.ingress.decide(n, &f, arrived) {
			r.held = held
			departures = append(departures, r.departs)
			n.deliver(&r, r.departs+2*time.Microsecond*time.Duration(dilated), dilated)
		}
	}
	recorder.flushed()
	logged, err := os.ReadFile(file.Name())
	must(t, err)
	records = strings.Split(string(logged), "\n")
	lost, _ := b.ingress.losses.all()
	for _, r := range lost {
		records = append(records, string(r.Append(nil)))
	}
	return departures, records, n.measure(false)
}

// In a lab with dilation 40, packets leave exactly 40 times as late as without. Decisions,
// records and statistics are the same.
func TestDilation(t *testing.T) {
	want, wantRecords, wantMeasured := play(t, 1)
	got, records, measured := play(t, 40)
	if wantMeasured.Delivered == 0 || wantMeasured.LostQueue == 0 || wantMeasured.LostCut == 0 || wantMeasured.MeanRate == 0 || len(wantRecords) < 4000 {
		t.Fatalf("nothing is tested: %+v", wantMeasured)
	}
	for i := range want {
		want[i] *= 40
	}
	for name, diff := range map[string]string{
		"departures": cmp.Diff(want, got),
		"records":    cmp.Diff(wantRecords, records),
		"statistics": cmp.Diff(wantMeasured, measured),
	} {
		if diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A link's packets wait for the machine's time, and are captured with it.
func TestDilatedDelay(t *testing.T) {
	const dilated = 40
	b := newDilatedBench(t, dilated, topology.Impairment{Delay: time.Hour})
	whole := b.listen(1<<20, 0)
	b.arrive(t, superPacket(1, 1000))
	n := b.k.lines[0]
	b.shift(dilated*time.Hour - time.Minute)
	b.egress.send(n)
	if got, _ := b.left(t); len(got) > 0 {
		t.Error("a packet left before its time")
	}
	b.shift(time.Minute)
	b.egress.send(n)
	if got, _ := b.left(t); len(got) != 1 {
		t.Error("a packet has not left at its time")
	}
	if d := time.Duration(n.measure(false).Delay.Min); d < time.Hour || d > time.Hour+time.Minute {
		t.Errorf("measured a delay of %v, want an hour", d)
	}
	if p := whole.heard(t)[0]; time.Duration(p.Departs-p.Stamp).Round(time.Microsecond) != dilated*time.Hour {
		t.Errorf("the tap tells of %v", time.Duration(p.Departs-p.Stamp))
	}
}

// A link changes, and begins anew, at an instant of the fabric's time, as its packets come.
func TestDilatedChanges(t *testing.T) {
	const dilated = 40
	flap := topology.Impairment{Flap: topology.Flap{Period: 2 * time.Hour, Down: time.Hour}}
	b := newDilatedBench(t, dilated, topology.Impairment{})
	n := b.k.lines[0]
	passes := func(after time.Duration) bool {
		before := n.stats.Counts.LostCut
		b.shift(dilated * after)
		b.arrive(t, superPacket(1, 1000))
		return n.stats.Counts.LostCut == before
	}
	b.shift(dilated * time.Hour)
	b.set(t, setParams{Link: "x", Settings: flap})
	if !passes(30*time.Minute) || passes(time.Hour) {
		t.Error("the link is not down from an hour after its settings changed")
	}
	b.shift(dilated * time.Hour)
	_ = b.links.begin(b.k) // the ports of a bench have no counters
	if !passes(30*time.Minute) || passes(time.Hour) {
		t.Error("the link is not down from an hour after it began anew")
	}
	// An engine is 2 s old when it has its first link.
	b = newDilatedBench(t, dilated, topology.Impairment{Flap: topology.Flap{Period: 2 * time.Second, Down: time.Second}})
	if n = b.k.lines[0]; !passes(500*time.Millisecond) || passes(time.Second) {
		t.Error("the link is not down from a second after it was attached")
	}
}

// The machine's time decides whether every link delays packets for long enough to take them later.
func TestDilatedLinksDelayFrames(t *testing.T) {
	for dilated, want := range map[dilation]bool{1: false, 40: true} {
		short := topology.Impairment{Delay: coalesceTime / 2}
		b := newDilatedBench(t, dilated, short)
		b.set(t, setParams{Link: "x", Direction: 1, Settings: short})
		if b.poller.delayed() != want {
			t.Errorf("with dilation %d, delayed is %v", dilated, !want)
		}
	}
}

// A packet that leaves at an instant too far off for the machine's time leaves at the last there is.
func TestDilationOverflow(t *testing.T) {
	if at := dilation(1000).machine(math.MaxInt64 / 999); at != math.MaxInt64 {
		t.Errorf("it leaves at %v", at)
	}
}
