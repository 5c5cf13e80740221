package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// WriteJSON writes v, a Run or another value of this package, as one indented
// JSON value.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // expectations have < and >
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// WriteText writes a run as tables for people, which end with a line that begins
// with PASS or FAIL. There are colours if w is a terminal, unless the environment
// has NO_COLOR.
func WriteText(w io.Writer, r *Run) error {
	p := newPage(w)
	p.workloads(r.Workloads)
	p.nodes(r.Nodes)
	p.links(r.Links)
	p.recorded(r.Recorded)
	p.checks(r.Checks)
	p.problems(r.Problems)
	p.verdict(r)
	return p.flush()
}

// A page is text that is being written in sections. The first error sticks in
// the writer.
type page struct {
	*bufio.Writer
	paint   paint
	started bool
}

func newPage(w io.Writer) *page { return &page{Writer: bufio.NewWriter(w), paint: paintFor(w)} }

func (p *page) flush() error { return p.Flush() }

// line writes a line. What goes wrong stays in the writer until Flush.
func (p *page) line(text string) { _, _ = p.WriteString(text + "\n") }

// section leaves an empty line behind the section before.
func (p *page) section() {
	if p.started {
		p.line("")
	}
	p.started = true
}

// table writes a table as a section of its own.
func (p *page) table(t *table) {
	p.section()
	lines, titles := t.lines()
	for i, line := range lines {
		if i < titles {
			line = p.paint.bold(line)
		}
		p.line(line)
	}
}

func (p *page) workloads(workloads []Workload) {
	if len(workloads) == 0 {
		return
	}
	t := table{columns: []column{
		{title: "workload", wraps: true}, {title: "from -> to", wraps: true}, {title: "operation"},
		{title: "messages", right: true}, {title: "bytes", right: true}, {title: "throughput", right: true},
		{title: "latency\nmin", right: true}, {title: "p50", right: true}, {title: "p99", right: true}, {title: "max", right: true},
		{title: "result"},
	}}
	for _, w := range workloads {
		throughput, latency := "-", []string{"-", "-", "-", "-"}
		if w.Messages > 0 {
			throughput = Rate(w.Gbps)
			for i, us := range []float64{w.Latency.Min, w.Latency.P50, w.Latency.P99, w.Latency.Max} {
				latency[i] = Duration(us)
			}
		}
		t.add(w.Name, w.From+" -> "+w.To, w.Operation+" "+Size(w.Size), count(w.Messages), Size(w.Bytes), throughput,
			latency[0], latency[1], latency[2], latency[3], w.result())
	}
	p.table(&t)
	for _, w := range workloads {
		if w.Error != "" {
			p.paragraph(w.Name+": ", w.Error)
		}
	}
}

// result is the workload's outcome in two words.
func (w *Workload) result() string {
	switch {
	case w.Errors == 1:
		return "1 error"
	case w.Errors > 0:
		return count(w.Errors) + " errors"
	case w.Error != "":
		return "failed"
	case w.Verified:
		return "verified"
	default:
		return "no errors"
	}
}

// paragraph writes text of any length behind a lead, indented and wrapped.
func (p *page) paragraph(lead, text string) {
	for _, line := range paragraph(lead, text) {
		p.line(line)
	}
}

func paragraph(lead, text string) []string {
	const indent = "  "
	text = strings.ReplaceAll(strings.TrimSpace(plain(lead+text)), "\n", "; ")
	lines := wrap(text, width-2*len(indent))
	for i, line := range lines {
		if i > 0 {
			line = indent + line
		}
		lines[i] = indent + line
	}
	return lines
}

func (p *page) checks(checks []Check) {
	if len(checks) == 0 {
		return
	}
	t := table{columns: []column{
		{title: "check", wraps: true}, {title: "expected", wraps: true}, {title: "got", wraps: true}, {title: "verdict"},
	}}
	for _, c := range checks {
		verdict := "ok"
		if !c.Passed {
			verdict = "FAIL"
		}
		t.add(c.Name, c.Expected, c.Got, verdict)
	}
	p.verdicts(&t)
}

// verdicts writes a table whose last column says FAIL of what has failed.
func (p *page) verdicts(t *table) {
	p.section()
	lines, titles := t.lines()
	for i, line := range lines {
		switch {
		case i < titles:
			line = p.paint.bold(line)
		case strings.HasSuffix(line, gap+"FAIL"):
			line = p.paint.red(line)
		}
		p.line(line)
	}
}

func (p *page) recorded(r *Recorded) {
	if r == nil {
		return
	}
	p.section()
	text := count(r.Records) + " decisions on packets were recorded"
	if r.Missing > 0 {
		text += "; " + count(r.Missing) + " are missing, which "
		if r.Error == "" {
			text += "came too fast to be written"
		} else {
			text += "could not be written: " + r.Error
		}
	}
	p.line(text)
}

func (p *page) problems(problems []string) {
	if len(problems) == 0 {
		return
	}
	p.section()
	p.line(p.paint.bold("problems"))
	for _, problem := range problems {
		p.paragraph("", problem)
	}
}

// verdict writes the last line.
func (p *page) verdict(r *Run) {
	p.section()
	which := fmt.Sprintf("lab %s, seed %d, %s", r.Lab, r.Seed, Duration(r.Seconds*1e6))
	if r.Passed {
		p.line(p.paint.green("PASS") + ": " + which)
		return
	}
	p.line(p.paint.red("FAIL") + ": " + r.failure() + " (" + which + ")")
}

// failure says in a few words why the run has not passed.
func (r *Run) failure() string {
	checks, workloads := 0, 0
	for _, c := range r.Checks {
		if !c.Passed {
			checks++
		}
	}
	for _, w := range r.Workloads {
		if w.Errors > 0 || w.Error != "" {
			workloads++
		}
	}
	var parts []string
	if checks > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s failed", checks, plural(len(r.Checks), "check")))
	}
	if workloads > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s had errors", workloads, plural(len(r.Workloads), "workload")))
	}
	if n := len(r.Problems); n > 0 {
		parts = append(parts, plural(n, "problem"))
	}
	if len(parts) == 0 {
		return "the run was not completed"
	}
	return strings.Join(parts, ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
