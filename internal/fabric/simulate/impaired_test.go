package simulate

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/topology"
)

// bulk is a workload of many packets.
var bulk = workload.Spec{Operation: topology.Write, Size: 64 << 10, Depth: 16, Count: 500, Verify: true}

// Messages arrive right, whatever happens to packets, and a report has what was asked for
// and what was measured.
func TestImpairedTraffic(t *testing.T) {
	for _, settings := range []string{
		"delay: 5ms", "delay: 1ms, jitter: 500us", "loss: 1%", "loss: {rate: 2%, burst: 5}", "duplicate: 5%", "delay: 1ms, reorder: 5%",
		"corrupt: 1%", "corrupt: {probability: 1%, where: anywhere, bits: 3}", "rate: 1gbit", "rate: 100mbit, queue: 64KiB", "flap: {period: 50ms, down: 5ms}",
		`faults: [{match: {opcode: acknowledge, every: 10}, action: drop}]`, `faults: [{match: {opcode: write_middle, probability: 1%}, action: delay, delay: 3ms}]`,
	} {
		l := up(t, pair(settings+", mtu: 4200"))
		w := l.begin(t, "a", "b", bulk)
		r := w.end(t)
		if w.err != nil || r.Messages != bulk.Count || r.Errors != 0 {
			t.Errorf("%s: %+v, %v", settings, r, w.err)
		}
		for _, d := range l.linksNow(t)[0].Directions {
			a, g := d.Asked, d.Achieved
			for _, q := range []struct {
				name       string
				asked, got *float64
				within     float64
			}{
				{"delay", a.DelayUS, g.DelayUS, 0.6}, // in order, packets with jitter wait for those before them
				{"loss", a.Loss, g.Loss, 0.4},
				{"duplicate", a.Duplicate, g.Duplicate, 0.4}, {"corrupt", a.Corrupt, g.Corrupt, 0.4},
			} {
				if q.asked != nil && d.Packets > 5000 && (q.got == nil || math.Abs(*q.got-*q.asked) > q.within**q.asked) {
					t.Errorf("%s: %s: %s asked %v, got %v", settings, d.From, q.name, *q.asked, *q.got)
				}
			}
		}
	}
}

// A link does to packets what its model decides, which is the link engine's, under the
// same name: the same packets are lost.
func TestSameFate(t *testing.T) {
	settings := topology.Impairment{Loss: topology.Loss{Rate: 0.02}}
	l := up(t, pair("loss: 2%"))
	l.begin(t, "a", "b", bulk).end(t)
	wire := l.network.links[0].wires[0]
	model := impair.New(l.topo.Seed, "a:eth0", 0)
	model.Set(settings, 0)
	lost := uint64(0)
	for range wire.Statistics().Packets {
		if v := model.Packet(&impair.Packet{Frame: 100}, 0); v.Fate == impair.Lost {
			lost++
		}
	}
	if lost == 0 || wire.Statistics().Dropped != lost {
		t.Errorf("%d lost, the model says %d", wire.Statistics().Dropped, lost)
	}
}

// The ICRC detects every packet that a link has corrupted, and each is counted.
func TestCorruptionIsCounted(t *testing.T) {
	l := up(t, pair("corrupt: 2%"))
	l.begin(t, "a", "b", bulk).end(t)
	m := l.network.links[0].wires[0].Statistics()
	if got := l.device("b").TransportCounters()["icrc_errors"]; m.Corrupted == 0 || got != m.Corrupted {
		t.Errorf("%d ICRC errors, %d packets corrupted", got, m.Corrupted)
	}
}

// Without a rate a link is as fast as a machine, and a rate is kept exactly.
func TestRates(t *testing.T) {
	for settings, want := range map[string]float64{"mtu: 4200": 10e9, "rate: 40gbit": 40e9, "rate: 1gbit": 1e9} {
		l := up(t, pair(settings))
		spec := bulk
		spec.Count, spec.Duration, spec.Depth = 0, 100*time.Millisecond, 64
		r := l.begin(t, "a", "b", spec).end(t)
		got := float64(r.Bytes) * 8 / r.Seconds
		if got < 0.9*want || got > want {
			t.Errorf("%s: %.2f Gb/s, want a little less than %.0f", settings, got/1e9, want/1e9)
		}
	}
}

// Two labs of one seed are the same to the last packet, and one of another seed is not.
func TestSeeds(t *testing.T) {
	run := func(seed string) string {
		l := up(t, "seed: "+seed+pair("delay: 1ms, jitter: 300us, loss: 1%, reorder: 1%, duplicate: 1%, corrupt: 1%, rate: 2gbit"))
		r := l.begin(t, "a", "b", bulk).end(t)
		text, err := json.Marshal([]any{r, l.linksNow(t), l.device("a").TransportCounters(), l.clock.Now()})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := run("1")
	if again := run("1"); again != first {
		t.Errorf("again, it is\n%s\nnot\n%s", again, first)
	}
	if other := run("2"); other == first {
		t.Error("another seed is the same")
	}
}

// A host takes as many small packets as a machine does, each after a while that is not
// always the same.
func TestSmallPackets(t *testing.T) {
	l := up(t, pair("mtu: 4200"))
	spec := workload.Spec{Operation: topology.Send, Size: 64, Depth: 256, Duration: 20 * time.Millisecond}
	if r := l.begin(t, "a", "b", spec).end(t); r.Messages < 8000 || r.Messages > 10_000+uint64(spec.Depth) {
		t.Errorf("%d messages in 20 ms, want one every 2 us at most", r.Messages)
	}
	l = up(t, pair("mtu: 4200"))
	spec = workload.Spec{Operation: topology.Send, Size: 64, Depth: 1, Count: 1000}
	r := l.begin(t, "a", "b", spec).end(t)
	// There and back.
	if least, most := 2*turnaround, 2*(turnaround+wavering+10*time.Microsecond); r.LatencyMin < least || r.LatencyMax > most || r.LatencyMax-r.LatencyMin < wavering {
		t.Errorf("%v to %v, want from %v up to %v, with a spread", r.LatencyMin, r.LatencyMax, least, most)
	}
}
