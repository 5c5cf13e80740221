package text

import (
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
)

// latencies are a table's columns of latency.
var latencies = []column{
	{title: "latency\np50", right: true}, {title: "p99", right: true}, {title: "p99.99", right: true}, {title: "max", right: true},
}

func latencyCells(l *report.Latency) []string {
	cells := make([]string, 0, len(latencies))
	for _, us := range []float64{l.P50, l.P99, l.P9999, l.Max} {
		cell := "-"
		if us > 0 {
			cell = words.Duration(us)
		}
		cells = append(cells, cell)
	}
	return cells
}

// writeWorkloads writes workloads in one table, what else there is to say of some below it,
// and then the flows and sweeps of those that have them.
func writeWorkloads(p *page, workloads []report.Workload) {
	if len(workloads) == 0 {
		return
	}
	if p.brief && len(workloads) > few {
		all := workloads
		workloads = worstWorkloads(all)
		p.totals(workloadTotals(all), len(workloads), "worst, by errors and throughput")
		p.started = false
	}
	t := table{columns: append([]column{
		{title: "workload", wraps: true}, {title: "operation\nfrom -> to", wraps: true},
		{title: "messages\nbytes", right: true}, {title: "throughput", right: true},
	}, append(latencies[:len(latencies):len(latencies)], column{title: "result"})...)}
	for i := range workloads {
		w := &workloads[i]
		moved := words.Count(w.Messages) + "\n" + words.Size(w.Bytes)
		if w.Operation == string(topology.Program) && w.Messages == 0 {
			moved = "-"
		}
		latency := w.Latency
		if w.Messages == 0 && w.Operation != string(topology.Program) {
			latency = report.Latency{}
		}
		row := append([]string{w.Name, words.Operation(w) + "\n" + words.Between(w), moved, words.Speed(w)}, latencyCells(&latency)...)
		t.add(append(row, words.Outcome(w))...)
	}
	p.table(&t)
	for i := range workloads {
		w := &workloads[i]
		if w.Error != "" {
			p.paragraph(w.Name+": ", words.Bounded(w.Error, mostOfCell))
		}
		if story := words.WorkloadStory(w); story != "" {
			p.paragraph(w.Name+": ", story)
		}
		writeOutput(p, w)
	}
	for i := range workloads {
		writeFlows(p, &workloads[i])
		writeSteps(p, &workloads[i])
	}
}

// mostOutput bounds the last lines of a program that a report for people has.
const mostOutput = 10

// writeOutput writes the end of what the programs of a workload that failed printed.
func writeOutput(p *page, w *report.Workload) {
	if w.Output == "" || !w.Failed() {
		return
	}
	lines := strings.Split(strings.TrimRight(w.Output, "\n"), "\n")
	from := max(0, len(lines)-mostOutput)
	p.paragraph(w.Name+": ", "the last of what it printed:")
	for _, line := range lines[from:] {
		p.line("    | " + cut(Plain(line), p.width-len("    | ")))
	}
}

// cut returns as much of a line as there is room for.
func cut(line string, room int) string {
	if runes := []rune(line); len(runes) > room {
		return string(runes[:room-4]) + " ..."
	}
	return line
}

// mostFlows bounds the flows of a workload in a report for people; the JSON form has them
// all.
const mostFlows = 16

// writeFlows writes those of a workload that has several: all, or the slowest ones.
func writeFlows(p *page, w *report.Workload) {
	if len(w.Flows) < 2 {
		return
	}
	name := Plain(words.Bounded(w.Name, mostOfCell))
	title := name + "\nflow"
	most := mostFlows
	if p.brief {
		most = few
	}
	shown := w.Slowest(most)
	if left := len(w.Flows) - len(shown); left > 0 {
		title = name + ": the slowest " + strconv.Itoa(len(shown)) + " of\n" + strconv.Itoa(len(w.Flows)) + " flows"
	}
	t := table{columns: append([]column{
		{title: title, wraps: true}, {title: "messages", right: true}, {title: "throughput", right: true},
	}, append(latencies[:len(latencies):len(latencies)], column{title: "result", wraps: true})...)}
	for i := range shown {
		f := &shown[i]
		row := []string{f.From + " -> " + f.To, words.Count(f.Messages), words.Rate(f.Gbps)}
		t.add(append(append(row, latencyCells(&f.Latency)...), flowOutcome(f))...)
	}
	p.table(&t)
}

// flowOutcome returns how a flow ended.
func flowOutcome(f *report.Flow) string {
	text := "no errors"
	switch {
	case f.Errors == 1:
		text = "1 error"
	case f.Errors > 1:
		text = words.Count(f.Errors) + " errors"
	case f.Error != "":
		text = "failed"
	}
	if f.Error != "" {
		text += ": " + cut(f.Error, 60)
	}
	return text
}

// writeSteps writes those of a sweep over sizes.
func writeSteps(p *page, w *report.Workload) {
	if len(w.Steps) == 0 {
		return
	}
	t := table{columns: append([]column{
		{title: Plain(words.Bounded(w.Name, mostOfCell)) + "\nsize", right: true}, {title: "messages", right: true}, {title: "errors", right: true},
		{title: "messages\nper second", right: true}, {title: "throughput", right: true},
	}, latencies...)}
	for i := range w.Steps {
		s := &w.Steps[i]
		rate := "-"
		if s.Seconds > 0 {
			rate = words.Significant(float64(s.Messages) / s.Seconds)
		}
		row := []string{words.Size(s.Size), words.Count(s.Messages), words.Count(s.Errors), rate, words.Rate(s.Gbps)}
		t.add(append(row, latencyCells(&s.Latency)...)...)
	}
	p.table(&t)
}
