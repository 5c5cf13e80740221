package impair

import (
	"math"
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
	"pgregory.net/rapid"
)

// anything draws settings of all kinds.
func anything(t *rapid.T) topology.Impairment {
	duration := func(name string, most int64) time.Duration {
		return time.Duration(rapid.Int64Range(0, most).Draw(t, name))
	}
	probability := func(name string) float64 {
		return rapid.SampledFrom([]float64{0, 0.1, 0.5, 1}).Draw(t, name)
	}
	i := topology.Impairment{
		Delay:     duration("delay", 1e7),
		Jitter:    topology.Jitter{Spread: duration("jitter", 2e7), Distribution: rapid.SampledFrom([]topology.Distribution{"", topology.Uniform, topology.Normal, topology.Pareto}).Draw(t, "distribution")},
		Loss:      topology.Loss{Rate: probability("loss"), Every: rapid.Uint64Range(0, 5).Draw(t, "every")},
		Duplicate: probability("duplicate"),
		Reorder:   topology.Reorder{Probability: probability("reorder"), Depth: rapid.IntRange(0, 9).Draw(t, "depth")},
		Corrupt:   topology.Corrupt{Probability: probability("corrupt"), Anywhere: rapid.Bool().Draw(t, "anywhere"), Bits: rapid.IntRange(0, MaxFlips).Draw(t, "bits")},
		Rate:      rapid.SampledFrom([]uint64{0, 1, 1e6, 1e9, 1e10, math.MaxUint64}).Draw(t, "rate"),
	}
	if i.Rate > 0 {
		i.Burst = rapid.SampledFrom([]uint64{0, 1, 3000, 1e6, math.MaxUint64}).Draw(t, "burst")
		i.Queue = topology.Queue{Bytes: rapid.SampledFrom([]uint64{0, 84, 10_000, math.MaxUint64}).Draw(t, "queue"), Packets: rapid.SampledFrom([]uint64{0, 1, 10}).Draw(t, "packets")}
		i.ECN.Max = rapid.SampledFrom([]uint64{0, 5000}).Draw(t, "ecn")
	}
	if rapid.Bool().Draw(t, "faults") {
		i.Faults = []topology.Fault{{Match: topology.Match{Every: 7}, Action: topology.Postpone, Delay: duration("postpone", 1e7) + 1}}
	}
	if i.Delay == 0 && i.Jitter.Spread == 0 {
		i.Reorder = topology.Reorder{}
	}
	return i
}

// These rules hold for all settings, however they change: packets do not leave
// before they were sent, and keep their order except as far as a change of it was
// asked for; the queue's account is right and within its limit.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		settings := anything(t)
		d := direction(rapid.Uint64().Draw(t, "seed"), "link", 0, settings)
		changes := rapid.Bool().Draw(t, "changes")
		var at time.Duration
		var before []time.Duration // departures of those that no fault postponed
		depth := d.depth()
		for range rapid.IntRange(1, 200).Draw(t, "packets") {
			if changes && rapid.IntRange(0, 20).Draw(t, "step") == 0 {
				settings = anything(t)
				d.Set(settings, at)
				depth = max(depth, d.depth())
			}
			at += time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "gap"))
			p := &Packet{Frame: rapid.IntRange(14, 65549).Draw(t, "frame"), Payload: 42, ECT: true, RoCE: &Identity{}}
			v := d.Packet(p, at)
			if v.Fate != Passes {
				continue
			}
			if least := d.LeastDelay(); v.Departs < at+least {
				t.Fatalf("sent at %v with a delay of %v at least: %+v", at, least, v)
			}
			if v.Queued < 0 || v.Departs < at+v.Queued+v.Postponed {
				t.Fatalf("sent at %v: %+v", at, v)
			}
			if v.Postponed == 0 {
				overtakes := 0
				for _, b := range before {
					if b > v.Departs {
						overtakes++
					}
				}
				if overtakes > depth || !changes && overtakes != int(v.Overtakes) {
					t.Fatalf("%d packets overtaken, %d said and %d at most", overtakes, v.Overtakes, depth)
				}
				before = append(before, v.Departs)
			}
			q := &d.queue
			var backlog uint64
			for _, w := range q.waiting[q.head:] {
				backlog += w.wire
			}
			if backlog != q.backlog {
				t.Fatalf("backlog %d, queue holds %d", q.backlog, backlog)
			}
			if settings.Rate > 0 && v.Queued > 0 && (q.backlog > q.limit.Bytes || uint64(len(q.waiting)-q.head) > q.limit.Packets) {
				t.Fatalf("%d packets of %d bytes in a queue limited to %+v", len(q.waiting)-q.head, q.backlog, q.limit)
			}
		}
	})
}
