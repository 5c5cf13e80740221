package series

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const us = time.Microsecond

// The state at each instant stands at the point of that instant. Queues and queue pairs that never had
// anything are not there.
func TestReport(t *testing.T) {
	r := New(100 * us)
	idle, q, p, pauses := r.Queue("s:e0", 0), r.Queue("s:e0", 3), r.Pair("a", "b", 17), r.Queue("s:e1", 3)
	none, fast, resends := r.Pair("b", "a", 18), r.Pair("b", "a", 19), r.Pair("b", "a", 20)
	lossless, lossy, down := r.Direction("s:e0"), r.Direction("s:e1"), r.Direction("s:e2")
	resends.Begin(Sending{CNPs: 10, Retransmitted: 100})
	lossy.Begin(1000, 50)
	for i, at := range []time.Duration{100 * us, 200 * us, 300 * us} {
		if got := r.Due(); got != at {
			t.Fatalf("point %d is due at %v, want %v", i, got, at)
		}
		idle.Set(0, 0)
		none.Set(Sending{Target: 7}) // of no rate
		fast.Set(Sending{Window: []uint64{0, 8340, 4170}[i]})
		resends.Set(Sending{CNPs: []uint64{10, 12, 1}[i], Retransmitted: []uint64{105, 105, 3}[i]}) // the node is started again amid the third
		lossless.Set(0, 0)
		lossy.Set([]uint64{1001, 1003, 1003}[i], 50)
		down.Set(0, []uint64{0, 0, 9}[i])
		pauses.Set(0, []time.Duration{0, 25 * us, 125 * us}[i])
		q.Set([]uint64{0, 4170, 0}[i], 0)
		p.Set(Sending{Rate: []uint64{40e9, 20e9, 21e9}[i], Target: 40e9})
		r.Next()
	}
	q.Set(99, 0) // of a point that the run's end cuts off
	late := r.Queue("s:e2", 3)
	late.Set(99, 0)
	want := &Series{PeriodUS: 100, Points: 3,
		Queues: []QueueSeries{{Endpoint: "s:e0", Class: 3, Bytes: []uint64{0, 4170, 0}}, {Endpoint: "s:e1", Class: 3, Paused: []float64{0, 0.25, 1}}},
		Pairs: []PairSeries{
			{Node: "a", Peer: "b", QP: 17, BPS: []uint64{40e9, 20e9, 21e9}, Target: []uint64{40e9, 40e9, 40e9}},
			{Node: "b", Peer: "a", QP: 19, Window: []uint64{0, 8340, 4170}},
			{Node: "b", Peer: "a", QP: 20, CNPs: []uint64{0, 2, 1}, Retransmitted: []uint64{5, 0, 3}},
		},
		Links: []DirectionSeries{{From: "s:e1", Dropped: []uint64{1, 2, 0}}, {From: "s:e2", Lost: []uint64{0, 0, 9}}},
	}
	if diff := cmp.Diff(want, r.Report()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A run of any length has what a recorder would have that had the last period from the beginning: the
// lengths at those instants, and the share of the whole of each period.
func TestDoubling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const period = 10 * us
		end := time.Duration(rapid.IntRange(0, 5*mostPoints).Draw(t, "periods")) * period
		begins := time.Duration(rapid.IntRange(0, 5*mostPoints).Draw(t, "begins")) * period
		every := time.Duration(rapid.IntRange(1, 500).Draw(t, "every")) * us
		bytes := func(at time.Duration) uint64 {
			if at < begins || at/every%3 == 0 {
				return 0
			}
			return uint64(at / us)
		}
		paused := func(at time.Duration) time.Duration { // a third of the time
			at = max(at-begins, 0)
			return at/(3*every)*every + min(at%(3*every), every)
		}
		r := New(period)
		var q *Queue
		for r.Due() <= end {
			if q == nil && r.Due() >= begins {
				q = r.Queue("s:e0", 3)
			}
			if q != nil {
				q.Set(bytes(r.Due()), paused(r.Due()))
			}
			r.Next()
		}
		got := r.Report()
		last := time.Duration(got.PeriodUS) * us
		if want := int(end / last); got.Points != want || got.Points >= mostPoints || last > period && got.Points < mostPoints/2 {
			t.Fatalf("%d points of %v each in %v", got.Points, last, end)
		}
		want := QueueSeries{Endpoint: "s:e0", Class: 3}
		var held, pauses bool
		for i := range got.Points {
			at := time.Duration(i+1) * last
			share := math.Round(float64(paused(at)-paused(at-last))/float64(last)*1e4) / 1e4
			want.Bytes, want.Paused = append(want.Bytes, bytes(at)), append(want.Paused, share)
			held, pauses = held || bytes(at) > 0, pauses || paused(at) > 0
		}
		if !held {
			want.Bytes = nil
		}
		if !pauses {
			want.Paused = nil
		}
		if !held && !pauses {
			if got.Queues != nil {
				t.Fatalf("a queue in which nothing was: %+v", got.Queues)
			}
			return
		}
		if diff := cmp.Diff([]QueueSeries{want}, got.Queues); diff != "" {
			t.Fatalf("of %v (-want +got):\n%s", end, diff)
		}
	})
}

// However often the period has doubled, no packet that was lost or sent again is forgotten, or counted twice.
func TestCounted(t *testing.T) {
	r := New(10 * us)
	p, d := r.Pair("a", "b", 1), r.Direction("a:eth0")
	const periods = 4 * mostPoints
	for i := range uint64(periods) {
		p.Set(Sending{CNPs: i, Retransmitted: i * i})
		d.Set(2*i, 3*i)
		r.Next()
	}
	total := func(column []uint64) (sum uint64) {
		for _, n := range column {
			sum += n
		}
		return sum
	}
	const all = periods - 1
	s := r.Report()
	for name, got := range map[string][2]uint64{
		"CNPs": {total(s.Pairs[0].CNPs), all}, "retransmitted": {total(s.Pairs[0].Retransmitted), all * all},
		"dropped": {total(s.Links[0].Dropped), 2 * all}, "lost": {total(s.Links[0].Lost), 3 * all},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %d in all, want %d", name, got[0], got[1])
		}
	}
}

// Many queues and queue pairs have fewer points, so that a report stays of a size that people can open.
func TestManyColumns(t *testing.T) {
	for _, many := range []int{502, 3000} { // those of 502, with the queue, are full when their number is odd
		r := New(10 * us)
		var pairs []*Pair
		for i := range many {
			pairs = append(pairs, r.Pair("a", "b", uint32(i)))
			r.Queue("s:e0", i) // which hold nothing, and count for nothing
		}
		paused := r.Queue("s:e1", 3)
		columns := 2*many + 1
		most := max(mostNumbers, columns*leastPoints)
		for range 1500 {
			for _, p := range pairs {
				p.Set(Sending{Rate: uint64(r.Due()), Target: 2})
			}
			paused.Set(0, r.Due())
			r.Next()
			if n := r.points * columns; n > most {
				t.Fatalf("%d numbers of %d queue pairs, expected at most %d", n, many, most)
			}
		}
		got := r.Report()
		if got.Points < leastPoints/2 || got.Points < mostNumbers/(2*columns)-1 || len(got.Pairs) != many || len(got.Pairs[7].Target) != got.Points {
			t.Errorf("%d points of %d queue pairs of %d", got.Points, len(got.Pairs), many)
		}
		for i, rate := range got.Pairs[7].BPS {
			if want := uint64(i+1) * uint64(got.PeriodUS) * 1000; rate != want {
				t.Fatalf("of %d queue pairs, point %d is of %d ns, want %d ns", many, i, rate, want)
			}
			if share := got.Queues[0].Paused[i]; share != 1 {
				t.Fatalf("of %d queue pairs, a queue that was always paused was so for %v of point %d", many, share, i)
			}
		}
	}
}

// Points of a run that goes on cost no memory but that of the numbers.
func TestAllocations(t *testing.T) {
	r := New(10 * us)
	q, p, d := r.Queue("s:e0", 3), r.Pair("a", "b", 1), r.Direction("s:e0")
	of := testing.AllocsPerRun(3*mostPoints, func() {
		q.Set(1, r.Due()/2)
		p.Set(Sending{Rate: 1, Target: 2, Retransmitted: uint64(r.points)})
		d.Set(0, uint64(r.points))
		r.Next()
	})
	if of >= 1 {
		t.Errorf("a point takes %v allocations", of)
	}
}
