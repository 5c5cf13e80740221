package html

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/sample"
)

// contains reports texts that are not in a page.
func contains(t *testing.T, page string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
}

// The page has queues, who paused whom, and deadlocks, which come first; a run without buffers has no
// section of them.
func TestBuffers(t *testing.T) {
	page := markup(t, &report.Suite{Labs: []*report.Run{sample.Incast()}})
	contains(t, page, `<section class="card buffers" id="lab0-buffers">`, `4.65 MiB (38.8 %)`, `<h4>7 queues</h4>`, `<td>egress 2, shared 7</td>`, `<h4>4 pauses</h4>`,
		`<a href="#lab0-l3">tor2:eth0</a></th><td><a href="#lab0-l3">tor1:eth3</a></td><td class="number">3</td><td class="number">9.41 ms</td><td class="number">311</td>`)
	if dropped, longest := strings.Index(page, "egress 2, shared 7"), strings.Index(page, "4.64 MiB"); dropped > longest {
		t.Error("a queue that dropped does not come first")
	}
	ring := markup(t, &report.Suite{Labs: []*report.Run{sample.Ring()}})
	contains(t, ring, `deadlock at 1.23 ms: s0:e10 -&gt; s1:e12 -&gt; s2:e10 -&gt; s0:e10 (class 3)`, `the watchdog found 1 storm`)
	if first, table := strings.Index(ring, "deadlock at"), strings.Index(ring, `aria-label="Buffers"`); first > table {
		t.Error("deadlocks do not come first")
	}
	if none := markup(t, &report.Suite{Labs: []*report.Run{sample.Flap()}}); strings.Contains(none, `id="lab0-buffers"`) {
		t.Error("a run without buffers has a section of them")
	}
}

// A large fabric has the worst of its queues and pauses.
func TestManyQueues(t *testing.T) {
	r := &report.Run{Lab: "fabric"}
	for i := range 3000 {
		r.Buffers = append(r.Buffers, report.Buffer{Node: fmt.Sprintf("s%d", i), Ports: []report.BufferPort{{Interface: "e0", Classes: []report.BufferClass{
			{Class: 3, Packets: 1, RxPauseUS: float64(i + 1), Queue: report.QueueLength{P99: uint64(i)}}}}}})
	}
	page := markup(t, &report.Suite{Labs: []*report.Run{r}})
	contains(t, page, "The worst 200 of 3000 queues", "The worst 200 of 3000 pauses", `<th scope="row">s2999:e0</th>`, `<td>s2999:e0</td>`)
	if strings.Contains(page, ">s2799:e0<") {
		t.Error("the page has more than the worst")
	}
}

// plotsOf returns the data of a page's plots of series.
func plotsOf(t *testing.T, page string) *plotSeries {
	t.Helper()
	var d plotData
	if err := json.Unmarshal([]byte(regexp.MustCompile(`id="lab0-data">(.*)</script>`).FindStringSubmatch(page)[1]), &d); err != nil {
		t.Fatal(err)
	}
	return d.Series
}

// Queues, pauses and rates over time have plots, each with what it shows in words.
func TestSeriesPlots(t *testing.T) {
	r := sample.Incast()
	page := markup(t, &report.Suite{Labs: []*report.Run{r}})
	contains(t, page, `data-plot="queues"`, `data-plot="pauses"`, `data-plot="qp-rate"`, `Queues: tor1:eth3 class 3 up to 3.`, `a → r QP 0x11 20.`, `data-plot="losses"`, `data-plot="resent"`)
	got := plotsOf(t, page)
	names := func(all []plotColumn) (names []string) {
		for _, c := range all {
			names = append(names, c.Name)
		}
		return names
	}
	for what, is := range map[string][2][]string{
		"queues": {{"tor1:eth3 class 3", "tor2:eth1 class 3"}, names(got.Queues)},
		"pauses": {{"tor1:eth3 class 3", "a:eth0 class 3", "b:eth0 class 3", "c:eth0 class 3"}, names(got.Pauses)},
		"rates":  {{"a → r QP 0x11", "b → r QP 0x12", "c → d QP 0x13"}, names(got.Rates)},
		"losses": {{"from b:eth0, dropped as asked", "from b:eth0, lost otherwise", "from tor1:eth3, lost otherwise"}, names(got.Losses)},
		"resent": {{"b → r QP 0x12"}, names(got.Resent)},
	} {
		if diff := cmp.Diff(is[0], is[1]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	if n := len(got.At); n != 200 || got.At[0] != 0.0001 || got.At[n-1] != 0.02 || got.Period != 0.0001 {
		t.Errorf("%d points each %v s, from %v s", n, got.Period, got.At[0])
	}
	if bps := r.Series.Pairs[0].BPS[9]; got.Rates[0].Is[9] != rounded(float64(bps)/1e9) || len(got.Rates[0].Target) != 200 {
		t.Errorf("%v Gb/s, of %d b/s", got.Rates[0].Is[9], bps)
	}
	if lost := r.Series.Links[0].Lost[9]; lost == 0 || got.Losses[1].Is[9] != float64(lost)*1e4 {
		t.Errorf("%v packets lost in a second, of %d in 100 us", got.Losses[1].Is[9], lost)
	}
	all := *r.Series // of a lab, whose queue pairs and links are watched less often
	r.Series = &report.Series{PeriodUS: all.PeriodUS, Points: all.Points, Queues: all.Queues, Watched: &report.Series{PeriodUS: 1e4, Points: 1, Pairs: []report.PairSeries{{Node: "a", Peer: "b", QP: 9, Retransmitted: []uint64{7}}}}}
	page = markup(t, &report.Suite{Labs: []*report.Run{r}})
	contains(t, page, `data-plot="queues"`, `data-plot="resent"`, "Packets sent again: a → b QP 0x9 7 packets")
	if got := plotsOf(t, page); len(got.Queues) != 2 || got.Watched == nil || !slices.Equal(got.Watched.At, []float64{0.01}) || got.Watched.Resent[0].Is[0] != 700 {
		t.Errorf("of a lab: %+v", got)
	}
	r.Series = &report.Series{PeriodUS: 100, Queues: []report.QueueSeries{{Endpoint: "s:e0", Bytes: []uint64{}}}}
	if none := markup(t, &report.Suite{Labs: []*report.Run{r}}); strings.Contains(none, `data-plot="queues"`) || plotsOf(t, none) != nil {
		t.Error("a run with no points has a plot of them")
	}
}

// Of many queues and queue pairs the plots have those that tell most, and say so.
func TestManyLines(t *testing.T) {
	s := &report.Series{PeriodUS: 100, Points: 2}
	for i := range 40 {
		n := uint64((i*7)%40 + 1)
		s.Queues = append(s.Queues, report.QueueSeries{Endpoint: fmt.Sprintf("s:e%d", i), Bytes: []uint64{n, 0}, Paused: []float64{0, float64(n) / 100}})
		s.Pairs = append(s.Pairs, report.PairSeries{Node: "a", Peer: "b", QP: uint32(i), BPS: []uint64{n * 1e9, n * 1e9}})
	}
	page := markup(t, &report.Suite{Labs: []*report.Run{{Lab: "many", Series: s}}})
	contains(t, page, "; the 12 longest of 40", "; the 12 most paused of 40", "; the 12 slowest of 40")
	got := plotsOf(t, page)
	if len(got.Queues) != mostLines || len(got.Pauses) != mostLines || len(got.Rates) != mostLines {
		t.Fatalf("%d queues, %d pauses, %d rates", len(got.Queues), len(got.Pauses), len(got.Rates))
	}
	for i := range mostLines {
		if q, p, r := got.Queues[i].Is[0], got.Pauses[i].Is[1], got.Rates[i].Is[0]; q <= 28 || p <= 0.28 || r > 12 {
			t.Errorf("line %d is of %v bytes, paused %v, at %v Gb/s", i, q, p, r)
		}
	}
}
