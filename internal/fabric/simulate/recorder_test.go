package simulate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// seriesOf is the column of a queue.
func seriesOf(s *report.Series, endpoint string, class int) report.QueueSeries {
	for _, q := range s.Queues {
		if q.Endpoint == endpoint && q.Class == class {
			return q
		}
	}
	return report.QueueSeries{}
}

// Of two hosts that each send a burst at once, to one, the switch's queue grows at one line's rate while the bursts arrive, and
// then shrinks at it.
func TestSeriesOfQueue(t *testing.T) {
	const period, n, bytes = 10 * time.Microsecond, 200, 1106
	l := up(t, "series: 10us\n"+buffered("switch", "hpcc", "pfc: [3]", ""))
	for _, name := range []string{"a", "b", "c"} {
		l.network.byName[name].life.port.receiver = nothing{}
	}
	l.send(t, "a", "b", n, data26)
	l.send(t, "c", "b", n, data26)
	l.clock.Run(time.Millisecond)
	s := l.network.series()
	if s == nil || s.Points != 99 && s.Points != 100 || s.PeriodUS != 10 {
		t.Fatalf("series: %+v", s)
	}
	q := seriesOf(s, "s:b", 3)
	const packet = bytes * 8 / 10e9 * 1e6 // us
	longest := uint64(0)
	for i, got := range q.Bytes {
		at := float64(i+1)*10 - 1 // since packets left that arrive now
		want := min(at/packet, n)*bytes - max(0, at-n*packet)/packet*bytes
		longest = max(longest, got)
		if off := float64(got) - max(0, want); off > 2*bytes || off < -2*bytes {
			t.Errorf("at %d us %d bytes wait, want about %.0f", 10*(i+1), got, max(0, want))
		}
	}
	peak := uint64(0)
	for _, b := range l.network.plane.Figures() {
		if b.Node == "s" {
			peak = b.Peak
		}
	}
	if inPeriod := uint64(period.Seconds() * 10e9 / 8); peak < longest || peak > longest+inPeriod || longest == 0 {
		t.Errorf("the longest of the series is %d bytes, that of the report %d", longest, peak)
	}
}

// Queue pairs send at the rate of their line until packets are marked, and then at less. One that has gone keeps its points. A
// report is the same with and without a series, but for that.
func TestSeriesOfRates(t *testing.T) {
	file := buffered("switch", "hpcc", "pfc: [3], congestion: dcqcn", twoToOne+`
  - {name: ca, from: c, to: a, operation: write, size: 64KiB, count: 4, start: 100ms}
`)
	r := run(t, parsed(t, "series: 100us\n"+file))
	rates := map[string]report.PairSeries{}
	for _, q := range r.Series.Pairs {
		rates[q.Node+q.Peer] = q
		if len(q.BPS) != r.Series.Points {
			t.Errorf("%s has %d of %d points", q.Node+q.Peer, len(q.BPS), r.Series.Points)
		}
	}
	if len(r.Series.Pairs) != 6 || len(rates) != 6 {
		t.Fatalf("%d queue pairs: %v", len(r.Series.Pairs), rates)
	}
	lowest := func(bps []uint64) uint64 { // of those that there are
		low := uint64(1e18)
		for _, n := range bps {
			if n > 0 {
				low = min(low, n)
			}
		}
		return low
	}
	if marked := classAt(r, "s", "b", 3).Marked; marked == 0 {
		t.Error("nothing is marked")
	}
	for _, name := range []string{"ab", "cb"} {
		q := rates[name]
		last := q.BPS[len(q.BPS)-1]
		if low := lowest(q.BPS); low > 8e9 || last != 0 {
			t.Errorf("%s: slowest %d bit/s, at last %d", name, low, last)
		}
		for i := range q.BPS {
			if q.BPS[i] > q.Target[i] || q.Target[i] > 10e9 {
				t.Errorf("%s: point %d: rate %d, target %d", name, i, q.BPS[i], q.Target[i])
			}
		}
	}
	for _, name := range []string{"ba", "bc", "ca", "ac"} {
		if low := lowest(rates[name].BPS); low != 10e9 {
			t.Errorf("%s: slowest %d bit/s, though nothing of it was marked", name, low)
		}
	}
	if early := rates["ca"].BPS[:900]; lowest(early) != 1e18 {
		t.Error("ca has a rate before it is connected")
	}

	without := run(t, parsed(t, file))
	if without.Series != nil {
		t.Error("a series that nobody has asked for")
	}
	r.Series = nil
	if diff := cmp.Diff(lines(t, without), lines(t, r)); diff != "" {
		t.Errorf("(-without series +with):\n%s", diff)
	}
}

// A queue pair begins at the rate that its line has when it is connected, also in a host that was started again since.
func TestSeriesOfChangedRates(t *testing.T) {
	r := run(t, parsed(t, "series: 100us\n"+buffered("switch", "hpcc", "pfc: [3], congestion: dcqcn", `
workloads:
  - {name: early, from: a, to: b, operation: write, size: 64KiB, count: 4}
  - {name: later, from: c, to: b, operation: write, size: 64KiB, count: 4, start: 100ms}
timeline:
  - {at: 20ms, link: "c:eth0", from: c, set: {rate: 2gbit}}
  - {at: 20ms, link: "b:eth0", set: {rate: 4gbit}}
  - {at: 40ms, restart: c}
`)))
	want := map[string]uint64{"ab": 10e9, "ba": 10e9, "cb": 2e9, "bc": 4e9}
	for _, q := range r.Series.Pairs {
		for _, bps := range q.BPS {
			if name := q.Node + q.Peer; bps > 0 {
				if bps != want[name] {
					t.Errorf("%s begins at %d bit/s, want %d", name, bps, want[name])
				}
				break
			}
		}
	}
	if len(r.Series.Pairs) != len(want) {
		t.Errorf("%d queue pairs, want %d", len(r.Series.Pairs), len(want))
	}
}

// A queue pair of a node that was started again has a series of its own, and the one before keeps its.
func TestSeriesOfLives(t *testing.T) {
	file := "series: 100us\n" + buffered("switch", "hpcc", "pfc: [3], congestion: dcqcn", `
workloads:
  - {name: ab, from: a, to: b, operation: write, size: 64KiB, depth: 4, duration: 60ms, reconnect: true}
timeline:
  - {at: 10ms, kill: a}
  - {at: 20ms, start: a}
`)
	r := run(t, parsed(t, strings.Replace(file, "name: buffered", "name: lives", 1)))
	numbers, points := map[uint32]bool{}, 0
	for _, q := range r.Series.Pairs {
		if q.Node != "a" {
			continue
		}
		numbers[q.QP] = true
		for _, bps := range q.BPS {
			if bps > 0 {
				points++
			}
		}
		if q.BPS[150] != 0 {
			t.Error("a queue pair has a rate while its node is down")
		}
	}
	if points < 90 {
		t.Errorf("%d points of queue pairs %v: %+v", points, numbers, r.Workloads[0])
	}
}

// All that a link loses and all that a queue pair sends again is in the series, at its time, and nothing else.
func TestSeriesOfLosses(t *testing.T) {
	r := run(t, parsed(t, `
name: losses
seed: 7
series: 1ms
topology:
  nodes: {a: {}, b: {}}
  links: [{endpoints: ["a:eth0", "b:eth0"], rate: 1gbit, delay: 50us}]
workloads:
  - {name: ab, from: a, to: b, operation: write, size: 64KiB, duration: 300ms}
timeline:
  - {at: 100ms, link: "a:eth0", from: a, set: {loss: 2%}}
  - {at: 150ms, link: "a:eth0", reset: true}
  - {at: 200ms, link: "a:eth0", from: a, set: {cut: true}}
  - {at: 202ms, link: "a:eth0", reset: true}
`))
	total := func(column []uint64, from, to int) (sum uint64) {
		for i, n := range column {
			if at := i * int(r.Series.PeriodUS) / 1000; at >= from && at < to {
				sum += n
			}
		}
		return sum
	}
	if len(r.Series.Links) != 1 || r.Series.Links[0].From != "a:eth0" {
		t.Fatalf("links: %+v", r.Series.Links)
	}
	direction, lost := r.Series.Links[0], r.Links[0].Directions[0]
	if lost.Dropped == 0 || lost.Lost == 0 || total(direction.Dropped, 100, 150) != lost.Dropped || total(direction.Lost, 200, 202) != lost.Lost {
		t.Errorf("of %d dropped and %d lost the series has %v and %v", lost.Dropped, lost.Lost, direction.Dropped, direction.Lost)
	}
	resent := uint64(0)
	for _, p := range r.Series.Pairs {
		if all := total(p.Retransmitted, 0, 300); total(p.Retransmitted, 100, 300) != all || p.Node != "a" && all > 0 {
			t.Errorf("%s sends %d again: %v", p.Node, all, p.Retransmitted)
		}
		resent += total(p.Retransmitted, 0, 300)
	}
	if want := r.Nodes[0].Transport["retransmitted"]; resent != want || resent < lost.Dropped {
		t.Errorf("%d are sent again, the adapter says %d, and %d were dropped", resent, want, lost.Dropped)
	}
}

// A window that is the queue pair's congestion control is in the series.
func TestSeriesOfWindows(t *testing.T) {
	r := run(t, parsed(t, "series: 100us\n"+buffered("switch", "hpcc", "pfc: [3], congestion: dctcp", twoToOne)))
	for _, p := range r.Series.Pairs {
		if p.Node == "a" && (len(p.Window) != r.Series.Points || slices.Max(p.Window) > 1<<20 || slices.Max(p.Window) < 2000 || p.BPS != nil) {
			t.Errorf("%+v", p)
		}
	}
	if len(r.Series.Pairs) != 4 {
		t.Errorf("%d queue pairs, want 4", len(r.Series.Pairs))
	}
}
