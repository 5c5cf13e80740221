package html

import (
	"fmt"
	"strconv"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// latencies are the columns of a latency.
var latencies = []column{{title: "min", number: true}, {title: "p50", number: true}, {title: "p90", number: true}, {title: "p99", number: true},
	{title: "p99.9", number: true}, {title: "p99.99", number: true}, {title: "max", number: true}}

func latencyCells(l report.Latency) []group {
	var cells []group
	for _, us := range []float64{l.Min, l.P50, l.P90, l.P99, l.P999, l.P9999, l.Max} {
		cells = append(cells, cell(text(duration(us))))
	}
	return cells
}

// duration returns a latency in words; it is more than 0 if there is one.
func duration(us float64) string {
	if us <= 0 {
		return "–"
	}
	return words.Duration(us)
}

// workloads returns one table of them, followed by the distribution of their latencies and by what only some
// have: flows, sweeps, the output of programs.
func (s *sheet) workloads() group {
	if len(s.Workloads) == 0 {
		return nil
	}
	t := &table{name: "Workloads", columns: append([]column{{title: "workload"}, {title: "operation"}, {title: "messages", number: true},
		{title: "bytes", number: true}, {title: "throughput", number: true}}, append(latencies[:len(latencies):len(latencies)], column{title: "result"})...)}
	distributed := false
	var more group
	for i := range s.Workloads {
		w := &s.Workloads[i]
		distributed = distributed || len(w.CDF) > 0
		outcome := el("span", text(words.Outcome(w)))
		if w.Failed() {
			outcome = el("strong", class("bad"), text("✗ "+words.Outcome(w)))
		}
		cells := []group{cell(text(bounded(w.Name, longName))), cell(text(bounded(words.Operation(w), longName)), el("div", class("note"), text(bounded(words.Between(w), longName)))),
			cell(number(w.Messages)), cell(text(words.Size(w.Bytes))), cell(text(words.Speed(w)))}
		t.row(group{id(s.at.workload(i))}, append(append(cells, latencyCells(w.Latency)...), cell(outcome))...)
		if story := words.WorkloadStory(w); story != "" {
			t.across("", text(story))
		}
		if w.Error != "" {
			t.across("bad", s.at.linked(bounded(w.Error, longText))...)
		}
		more = append(more, flows(w)...)
		more = append(more, s.steps(i)...)
		if w.Output != "" {
			more = append(more, el("h4", text("Output of "+bounded(w.Name, longName))),
				el("pre", attr("tabindex", "0"), attr("aria-label", "Output"), text(tail(w.Output, longOutput))))
		}
	}
	body := group{t.element()}
	if distributed {
		body = append(body, s.plot("cdf", "Distribution of latency", "the fraction of messages that took at most so long, stretched towards 100 %",
			s.summary(func(w *report.Workload) string {
				return "median " + words.Duration(w.Latency.P50) + ", 99.99 % within " + words.Duration(w.Latency.P9999)
			})))
	}
	return append(body, more...)
}

// mostFlows bounds how many flows of a workload the page has: the slowest.
const mostFlows = 64

// flows returns the flows of a workload that has several, with bars that compare their throughputs.
func flows(w *report.Workload) group {
	if len(w.Flows) < 2 {
		return nil
	}
	shown := w.Slowest(mostFlows)
	title := "Flows of " + bounded(w.Name, longName)
	if len(shown) < len(w.Flows) {
		title = fmt.Sprintf("The slowest %d of %d flows of %s", len(shown), len(w.Flows), bounded(w.Name, longName))
	}
	fastest := 0.0
	for i := range w.Flows {
		fastest = max(fastest, w.Flows[i].Gbps)
	}
	t := &table{name: title, columns: append([]column{{title: "from → to"}, {title: "messages", number: true}, {title: "throughput"}},
		append(latencies[:len(latencies):len(latencies)], column{title: "result"})...)}
	for i := range shown {
		f := &shown[i]
		outcome := group{text("no errors")}
		if f.Errors > 0 || f.Error != "" {
			outcome = group{el("strong", class("bad"), text("✗ "+plural(int(f.Errors), "error"))), el("div", class("note"), text(bounded(f.Error, longName)))}
		}
		cells := []group{cell(text(bounded(f.From, longName) + " → " + bounded(f.To, longName))), cell(number(f.Messages)), cell(bar(f.Gbps, fastest, words.Rate(f.Gbps)))}
		t.add(append(append(cells, latencyCells(f.Latency)...), outcome)...)
	}
	return group{el("h4", text(title)), t.element()}
}

// bar returns a value with a bar whose length is its share of the most.
func bar(value, most float64, words string) *element {
	percent := 0.0
	if most > 0 {
		percent = 100 * value / most
	}
	return el("span", class("bar"), el("i", attr("style", "width:"+strconv.FormatFloat(percent, 'f', 1, 64)+"%")), text(words))
}

// steps returns the steps of a sweep, plotted and in a table.
func (s *sheet) steps(i int) group {
	w := &s.Workloads[i]
	if len(w.Steps) == 0 {
		return nil
	}
	t := &table{name: "Sweep of " + bounded(w.Name, longName), columns: append([]column{{title: "size", number: true}, {title: "messages", number: true}, {title: "errors", number: true},
		{title: "messages/s", number: true}, {title: "throughput", number: true}}, latencies...)}
	for j := range w.Steps {
		step := &w.Steps[j]
		rate := "–"
		if step.Seconds > 0 {
			rate = strconv.FormatFloat(float64(step.Messages)/step.Seconds, 'f', 0, 64)
		}
		cells := []group{cell(text(words.Size(step.Size))), cell(number(step.Messages)), cell(number(step.Errors)), cell(text(rate)), cell(text(words.Rate(step.Gbps)))}
		t.add(append(cells, latencyCells(step.Latency)...)...)
	}
	plots := el("div", class("plots"))
	for _, p := range []struct{ kind, title string }{{"sweep-throughput", "Throughput by size of message"}, {"sweep-latency", "Latency by size of message"}} {
		f := s.plot(p.kind, p.title, "of "+bounded(w.Name, longName), "see the table below")
		attr("data-workload", strconv.Itoa(i)).of(f)
		f.of(plots)
	}
	return group{el("h4", text("Sweep of "+bounded(w.Name, longName))), plots, t.element()}
}
