package report

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// latencies is the heads of a table's columns of latency.
var latencies = []column{
	{title: "latency\np50", right: true}, {title: "p99", right: true}, {title: "p99.99", right: true}, {title: "max", right: true},
}

func (l *Latency) cells() []string {
	cells := make([]string, 0, len(latencies))
	for _, us := range []float64{l.P50, l.P99, l.P9999, l.Max} {
		cell := "-"
		if us > 0 {
			cell = Duration(us)
		}
		cells = append(cells, cell)
	}
	return cells
}

// workloads are in one table, what else there is to say of some below it, and then the flows
// and sweeps of those that have them.
func (p *page) workloads(workloads []Workload) {
	if len(workloads) == 0 {
		return
	}
	t := table{columns: append([]column{
		{title: "workload", wraps: true}, {title: "operation\nfrom -> to", wraps: true},
		{title: "messages\nbytes", right: true}, {title: "throughput", right: true},
	}, append(latencies[:len(latencies):len(latencies)], column{title: "result"})...)}
	for i := range workloads {
		w := &workloads[i]
		moved := count(w.Messages) + "\n" + Size(w.Bytes)
		if w.Operation == program && w.Messages == 0 {
			moved = "-"
		}
		latency := w.Latency
		if w.Messages == 0 && w.Operation != program {
			latency = Latency{}
		}
		row := append([]string{w.Name, w.What() + "\n" + w.Between(), moved, w.Speed()}, latency.cells()...)
		t.add(append(row, w.Outcome())...)
	}
	p.table(&t)
	for i := range workloads {
		w := &workloads[i]
		if w.Error != "" {
			p.paragraph(w.Name+": ", bounded(w.Error, mostOfCell))
		}
		if story := w.Story(); story != "" {
			p.paragraph(w.Name+": ", story)
		}
		p.output(w)
	}
	for i := range workloads {
		p.flows(&workloads[i])
		p.steps(&workloads[i])
	}
}

// Operations that are not about messages of one size, under their names in the topology.
const (
	program = "exec"
	connect = "connect"
)

// Between names those who take part, for people.
func (w *Workload) Between() string {
	switch {
	case w.From != "" || w.To != "":
		return w.From + " -> " + w.To
	case len(w.Nodes) == 1:
		return w.Nodes[0]
	case w.served() && len(w.Nodes) == 2:
		return w.Nodes[1] + " -> " + w.Nodes[0]
	case w.served():
		return plural(len(w.Nodes)-1, "client") + " -> " + w.Nodes[0]
	case w.Operation == program:
		return plural(len(w.Nodes), "node")
	case w.Pattern != "":
		return w.Pattern + " of " + strconv.Itoa(len(w.Nodes))
	default:
		return w.Operation + " of " + strconv.Itoa(len(w.Nodes))
	}
}

// served reports whether it is programs of which the first node's serves the others.
func (w *Workload) served() bool { return len(w.Programs) > 1 && w.Programs[0].Server }

// name is the program's, also where a shell runs it, with variables in front.
func (p *Program) name() string {
	words := p.Command
	if len(words) == 3 && words[0] == "sh" && words[1] == "-c" {
		words = strings.Fields(words[2])
	}
	for i, word := range words {
		if i == len(words)-1 || !strings.Contains(word, "=") {
			return filepath.Base(word)
		}
	}
	return program
}

// What is the operation, the size of its messages and the number of connections of each
// flow, for people.
func (w *Workload) What() string {
	text := w.Operation
	if w.served() {
		text = w.Programs[1].name() // it is known by its client
	}
	if w.Measure == "latency" {
		text += "-lat" // as perftest's programs are named
	}
	switch {
	case w.Operation == program || w.Operation == connect:
	case len(w.Steps) > 1:
		text += " sweep"
	case w.Mixed:
		text += " mix up to " + Size(w.Size)
	case w.Size > 0:
		text += " " + Size(w.Size)
	}
	if w.QPs > 1 {
		text += " x" + strconv.Itoa(w.QPs)
	}
	return text
}

// Moves reports whether it is about payload, so that its throughput says something.
func (w *Workload) Moves() bool {
	return w.Bytes > 0 && w.Operation != connect
}

// Speed is the throughput; of what moves no payload, how many connections a second were made.
func (w *Workload) Speed() string {
	switch {
	case w.Operation == connect && w.Seconds > 0 && w.Connections > 0:
		return significant(float64(w.Connections)/w.Seconds) + " conn/s"
	case w.Operation == program && w.Gbps == 0 && w.MessageRate > 0:
		return significant(w.MessageRate) + " msg/s"
	case w.Operation == program && w.Gbps == 0:
		return "-"
	case w.Messages > 0 && w.Moves(), w.Operation == program:
		return Rate(w.Gbps)
	default:
		return "-"
	}
}

// Outcome says how it ended, in two words.
func (w *Workload) Outcome() string {
	switch {
	case w.ExitStatus != nil && *w.ExitStatus != 0:
		return "exit " + strconv.Itoa(*w.ExitStatus)
	case w.Errors == 1:
		return "1 error"
	case w.Errors > 0:
		return count(w.Errors) + " errors"
	case w.Error != "":
		return "failed"
	case w.Verified:
		return "verified"
	case w.ExitStatus != nil:
		return "exit 0"
	default:
		return "no errors"
	}
}

// Failed reports whether it has had an error.
func (w *Workload) Failed() bool {
	return w.Errors > 0 || w.Error != "" || w.ExitStatus != nil && *w.ExitStatus != 0
}

// noticed is from how many seconds without a completion on a report mentions them.
const noticed = 0.1

// Story says what there is to say of a workload besides its figures; "" if nothing.
func (w *Workload) Story() string {
	var parts []string
	if w.Operation == connect || w.Reconnects > 0 || w.Retried > 0 {
		parts = append(parts, count(w.Connections)+" connections were made")
	}
	if w.Reconnects > 0 {
		parts = append(parts, count(w.Reconnects)+" of them in place of failed ones")
	}
	if w.Retried > 0 {
		parts = append(parts, count(w.Retried)+" messages were posted again")
	}
	if w.Recovered >= noticed || w.Reconnects > 0 {
		text := "nothing completed for " + Duration(w.Recovered*1e6) + " at the longest"
		if all := w.Ended - w.Began; all >= w.Seconds+noticed { // connecting, and what came to nothing at the end, are not in its seconds
			text += ", of the " + Duration(all*1e6) + " from its start to its end"
		}
		parts = append(parts, text)
	}
	for i := range w.Programs {
		if n := &w.Programs[i]; n.Ended != "" {
			parts = append(parts, "the program of "+n.Node+" was ended "+n.Ended)
		}
	}
	if w.Fairness > 0 && len(w.Flows) > 1 {
		parts = append(parts, "fairness "+significant(w.Fairness)+" (Jain's index; 1 is even)")
	}
	return strings.Join(parts, ", ")
}

// mostOutput is how many of the last lines of what a program printed a report for people has.
const mostOutput = 10

// output is the end of what the programs of a workload that failed printed.
func (p *page) output(w *Workload) {
	if w.Output == "" || !w.Failed() {
		return
	}
	lines := strings.Split(strings.TrimRight(w.Output, "\n"), "\n")
	from := max(0, len(lines)-mostOutput)
	p.paragraph(w.Name+": ", "the last of what it printed:")
	for _, line := range lines[from:] {
		p.line("    | " + cut(plain(line), p.width-len("    | ")))
	}
}

// cut is as much of a line as there is room for.
func cut(line string, room int) string {
	if runes := []rune(line); len(runes) > room {
		return string(runes[:room-4]) + " ..."
	}
	return line
}

// mostFlows bounds the flows of a workload in a report for people; the JSON form has them
// all.
const mostFlows = 16

// flows are those of a workload that has several: all, or the slowest ones.
func (p *page) flows(w *Workload) {
	if len(w.Flows) < 2 {
		return
	}
	name := plain(bounded(w.Name, mostOfCell))
	title := name + "\nflow"
	shown := w.Slowest(mostFlows)
	if left := len(w.Flows) - len(shown); left > 0 {
		title = name + ": the slowest " + strconv.Itoa(len(shown)) + " of\n" + strconv.Itoa(len(w.Flows)) + " flows"
	}
	t := table{columns: append([]column{
		{title: title, wraps: true}, {title: "messages", right: true}, {title: "throughput", right: true},
	}, append(latencies[:len(latencies):len(latencies)], column{title: "result", wraps: true})...)}
	for i := range shown {
		f := &shown[i]
		row := []string{f.From + " -> " + f.To, count(f.Messages), Rate(f.Gbps)}
		t.add(append(append(row, f.Latency.cells()...), f.outcome())...)
	}
	p.table(&t)
}

// Slowest are a workload's flows; of more than so many, the slowest ones, failed ones first.
func (w *Workload) Slowest(most int) []Flow {
	if len(w.Flows) <= most {
		return w.Flows
	}
	flows := slices.Clone(w.Flows)
	slices.SortStableFunc(flows, func(a, b Flow) int {
		if bad := cmp.Compare(min(b.Errors, 1), min(a.Errors, 1)); bad != 0 {
			return bad
		}
		return cmp.Compare(a.Gbps, b.Gbps)
	})
	return flows[:most]
}

func (f *Flow) outcome() string {
	text := "no errors"
	switch {
	case f.Errors == 1:
		text = "1 error"
	case f.Errors > 1:
		text = count(f.Errors) + " errors"
	case f.Error != "":
		text = "failed"
	}
	if f.Error != "" {
		text += ": " + cut(f.Error, 60)
	}
	return text
}

// steps are those of a sweep over sizes.
func (p *page) steps(w *Workload) {
	if len(w.Steps) == 0 {
		return
	}
	t := table{columns: append([]column{
		{title: plain(bounded(w.Name, mostOfCell)) + "\nsize", right: true}, {title: "messages", right: true}, {title: "errors", right: true},
		{title: "messages\nper second", right: true}, {title: "throughput", right: true},
	}, latencies...)}
	for i := range w.Steps {
		s := &w.Steps[i]
		rate := "-"
		if s.Seconds > 0 {
			rate = significant(float64(s.Messages) / s.Seconds)
		}
		row := []string{Size(s.Size), count(s.Messages), count(s.Errors), rate, Rate(s.Gbps)}
		t.add(append(row, s.Latency.cells()...)...)
	}
	p.table(&t)
}
