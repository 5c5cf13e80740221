package sweep

import (
	"maps"
	"math"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// This file takes figures from the reports of runs.

// A measured is a figure and its value in one run.
type measured struct {
	report.Figure
	value float64
}

// seconds returns a time in seconds, of which reports have microseconds. It is rounded to
// picoseconds: a quotient would end in digits that nobody has measured.
func seconds(us float64) float64 { return math.Round(us*1e6) / 1e12 }

// measure returns the figures of a run that it has measured, in the order of columns.
func measure(r *report.Run) []measured {
	var all []measured
	for i := range r.Workloads {
		all = append(all, ofWorkload(&r.Workloads[i])...)
	}
	add := func(what, suffix, unit string, exact, plotted bool, value float64) {
		all = append(all, measured{report.Figure{Name: "lab." + suffix, What: what, Unit: unit, Exact: exact, Plotted: plotted}, value})
	}
	add("time of the run", "run_s", "s", false, false, r.Seconds)
	for _, counter := range []string{"retransmitted", "timeouts", "naks_received", "cnps_received"} {
		if sum, found := report.Sum(r.Nodes, counter); found {
			add(counter, counter, "", true, counter == "retransmitted" || counter == "cnps_received", float64(sum))
		}
	}
	if len(r.Links) > 0 {
		var packets, dropped, lost, marked, corrupted uint64
		for _, k := range r.Links {
			for _, d := range k.Directions {
				packets, dropped, lost, marked, corrupted = packets+d.Packets, dropped+d.Dropped, lost+d.Lost, marked+d.Marked, corrupted+d.Corrupted
			}
		}
		add("packets on links", "link_packets", "", true, false, float64(packets))
		add("packets dropped by asked-for loss", "link_dropped", "", true, true, float64(dropped))
		add("packets lost otherwise", "link_lost", "", true, true, float64(lost))
		add("packets marked", "link_marked", "", true, true, float64(marked))
		add("packets corrupted", "link_corrupted", "", true, false, float64(corrupted))
	}
	if len(r.Buffers) > 0 {
		add("packets dropped in buffers", "buffer_dropped", "", true, true, float64(bufferDrops(r)))
	}
	return all
}

func bufferDrops(r *report.Run) (drops uint64) {
	for _, b := range r.Buffers {
		for _, p := range b.Ports {
			for _, c := range p.Classes {
				for _, n := range c.Dropped {
					drops += n
				}
			}
		}
	}
	return drops
}

// ofWorkload returns the figures of a workload. Latency and throughput of one that has completed
// nothing are not measured.
func ofWorkload(w *report.Workload) []measured {
	var all []measured
	add := func(what, suffix, unit string, exact, plotted bool, value float64) {
		all = append(all, measured{report.Figure{Name: w.Name + "." + suffix, Workload: w.Name, What: what, Unit: unit, Exact: exact, Plotted: plotted}, value})
	}
	if w.Moves() {
		add("throughput", "throughput_bit_per_s", "bit/s", false, true, w.Gbps*1e9)
	}
	add("messages", "messages", "", true, false, float64(w.Messages))
	add("bytes", "bytes_B", "B", true, false, float64(w.Bytes))
	add("time", "time_s", "s", false, false, w.Seconds)
	if l := w.Latency; l != (report.Latency{}) {
		add("latency min", "latency_min_s", "s", false, false, seconds(l.Min))
		add("latency p50", "latency_p50_s", "s", false, true, seconds(l.P50))
		add("latency p99", "latency_p99_s", "s", false, true, seconds(l.P99))
		add("latency p99.99", "latency_p99_99_s", "s", false, true, seconds(l.P9999))
		add("latency max", "latency_max_s", "s", false, false, seconds(l.Max))
	}
	add("errors", "errors", "", true, true, float64(w.Errors))
	add("reconnects", "reconnects", "", true, true, float64(w.Reconnects))
	add("messages posted again", "retried", "", true, false, float64(w.Retried))
	return all
}

// Take notes in a sweep what came of a run, by its index.
func Take(s *report.Sweep, index int, r *report.Run) {
	of := &s.Runs[index]
	of.Error, of.Figures = "", map[string]float64{}
	of.Result = RunResult(r)
	for _, m := range measure(r) {
		of.Figures[m.Name] = m.value
		if !slices.ContainsFunc(s.Figures, func(f report.Figure) bool { return f.Name == m.Name }) {
			s.Figures = append(s.Figures, m.Figure)
		}
	}
}

// RunResult returns the word for what came of a run.
func RunResult(r *report.Run) string {
	if r.Passed {
		return report.RunPassed
	}
	return report.RunFailed
}

// Finish completes a sweep after its runs were taken: the figures in the order in which the runs
// have them, whichever was made first; the points; and the verdict.
func Finish(s *report.Sweep) {
	s.Figures = ordered(s)
	s.Complete, s.Passed = true, true
	s.Points = nil
	for begin := 0; begin < len(s.Runs); begin += s.Repeat {
		runs := s.Runs[begin:min(begin+s.Repeat, len(s.Runs))]
		p := report.Point{Values: runs[0].Values, Figures: map[string]report.Spread{}}
		values := map[string][]float64{}
		for i := range runs {
			r := &runs[i]
			s.Complete = s.Complete && r.Result != "" && r.Result != report.RunNotMade
			s.Passed = s.Passed && r.Result == report.RunPassed
			if r.Result == report.RunPassed || r.Result == report.RunFailed {
				p.Runs++
			}
			if r.Result == report.RunPassed {
				p.Passed++
			}
			for name, value := range r.Figures {
				values[name] = append(values[name], value)
			}
		}
		for name, all := range values {
			p.Figures[name] = SpreadOf(all)
		}
		s.Points = append(s.Points, p)
	}
}

// ordered returns the figures of a sweep: those of workloads by the order of these in the runs, and
// those of the lab behind them. It depends on what the runs have, and not on when they were made.
func ordered(s *report.Sweep) []report.Figure {
	known := map[string]report.Figure{}
	for _, f := range s.Figures {
		known[f.Name] = f
	}
	first := map[string]int{} // the first run that has a workload
	for _, f := range s.Figures {
		at := slices.IndexFunc(s.Runs, func(r report.SweepRun) bool { _, has := r.Figures[f.Name]; return has })
		if was, seen := first[f.Workload]; !seen || at < was {
			first[f.Workload] = at
		}
	}
	rank := map[string]int{}
	for i, what := range columnOrder {
		rank[what] = i
	}
	workloads := slices.Sorted(maps.Keys(first))
	slices.SortStableFunc(workloads, func(a, b string) int {
		switch {
		case a == "" && b != "":
			return 1
		case a != "" && b == "":
			return -1
		}
		return first[a] - first[b]
	})
	var all []report.Figure
	for _, w := range workloads {
		var of []report.Figure
		for _, name := range slices.Sorted(maps.Keys(known)) {
			if known[name].Workload == w {
				of = append(of, known[name])
			}
		}
		slices.SortStableFunc(of, func(a, b report.Figure) int { return rank[a.What] - rank[b.What] })
		all = append(all, of...)
	}
	return all
}

// columnOrder is the order of figures of one workload, and of the lab.
var columnOrder = []string{"throughput", "messages", "bytes", "time", "latency min", "latency p50", "latency p99", "latency p99.99", "latency max",
	"errors", "reconnects", "messages posted again",
	"time of the run", "retransmitted", "timeouts", "naks_received", "cnps_received",
	"packets on links", "packets dropped by asked-for loss", "packets lost otherwise", "packets marked", "packets corrupted", "packets dropped in buffers"}

// SpreadOf returns the spread of one value or more. Quartiles lie between the values nearest to them,
// in proportion (Hyndman and Fan's definition 7, which R and NumPy take).
func SpreadOf(values []float64) report.Spread {
	sorted := slices.Sorted(slices.Values(values))
	at := func(q float64) float64 {
		place := q * float64(len(sorted)-1)
		low := int(place)
		high := min(low+1, len(sorted)-1)
		return sorted[low] + (place-float64(low))*(sorted[high]-sorted[low])
	}
	return report.Spread{Runs: len(sorted), Min: sorted[0], P25: at(.25), Median: at(.5), P75: at(.75), Max: sorted[len(sorted)-1]}
}
