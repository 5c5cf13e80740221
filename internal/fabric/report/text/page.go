// Package text writes reports for people: tables, and paragraphs that fit the terminal,
// in colours where it has them.
//
// What is shown is decided by what the report holds and by the width of the page, never
// by where the text goes. Package words has the wording that the page and JUnit share.
//
// Start reading at WriteRun.
package text

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// WriteRun writes a run as tables for people, which end with a line that begins
// with PASS or FAIL. There are colours if w is a terminal, unless the environment
// has NO_COLOR.
func WriteRun(w io.Writer, r *report.Run, detail Detail) error {
	p := newPageOf(w, runWidth)
	p.full, p.brief = detail == Full, detail == Brief && !fits(r)
	p.workloads(r.Workloads)
	p.events(r.Events)
	p.nodes(r.Nodes)
	p.links(r.Links)
	p.setByHand(r.SetByHand)
	p.recorded(r.Recorded)
	p.checks(r.Checks)
	p.problems(r.Problems)
	if p.brief {
		p.section()
		p.paragraph("", "some rows are left out: `ndklab run -v` prints them, and --html and -o json have them")
	}
	p.evidence(r)
	p.verdict(r)
	return p.flush()
}

// WriteMeasurement writes a measurement as tables for people, in the form that workloads
// have in those of a run.
func WriteMeasurement(w io.Writer, m *report.Measurement) error {
	p := newPageOf(w, runWidth)
	p.workloads([]report.Workload{m.Workload})
	p.setByHand(m.SetByHand)
	p.problems(m.Problems)
	return p.flush()
}

// A page is text that is being written in sections. The first error sticks in
// the writer.
type page struct {
	*bufio.Writer
	paint   paint
	width   int // columns
	started bool
	full    bool // tells what there is to tell of every link
	brief   bool // has totals and the worst rows
}

func newPage(w io.Writer) *page { return newPageOf(w, width) }

// newPageOf returns a page as wide as the terminal or, where it goes elsewhere, of the given
// width.
func newPageOf(w io.Writer, width int) *page {
	if columns := columnsOf(w); columns > 0 {
		width = max(narrowestPage, min(widestPage, columns))
	}
	return &page{Writer: bufio.NewWriter(w), paint: paintFor(w), width: width}
}

// columnsOf returns the number of columns for text that is written to w: COLUMNS, or the
// width of the terminal; 0 without both.
func columnsOf(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil {
		return columns
	}
	return columnsOfTerminal(f)
}

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
	for _, line := range t.lines(p.width) {
		if line.title {
			line.text = p.paint.bold(line.text)
		}
		p.line(line.text)
	}
}

// hanging writes text behind a lead of at most half a line, wrapped so that it stands beside
// the lead. on paints the lead.
func (p *page) hanging(on paint, lead, text string) {
	lead = words.Bounded(lead, p.width/2)
	indent := utf8.RuneCountInString(lead)
	lead = on.bold(lead)
	for _, line := range wrap(text, p.width-indent) {
		p.line(lead + line)
		lead = strings.Repeat(" ", indent)
	}
}

// paragraph writes text of any length behind a lead, indented and wrapped.
func (p *page) paragraph(lead, text string) {
	for _, line := range p.wrapped(lead, text) {
		p.line(line)
	}
}

func (p *page) wrapped(lead, text string) []string {
	const indent = "  "
	text = oneLine(plain(words.Bounded(lead+text, mostOfParagraph)))
	lines := wrap(text, p.width-2*len(indent))
	for i, line := range lines {
		if i > 0 {
			line = indent + line
		}
		lines[i] = indent + line
	}
	return lines
}

// Hang is text behind a lead, each of its lines below where the first begins. Lines fit the
// terminal that w is, and are as long as they are elsewhere.
func Hang(w io.Writer, lead, text string) string {
	columns := columnsOf(w)
	indent := utf8.RuneCountInString(lead)
	room := 0 // in a line; 0: as much as it takes
	var lines []string
	if columns > 0 {
		columns = max(narrowestPage, min(widestPage, columns))
		if indent > columns*2/3 { // and the text follows below
			lines = wrap(strings.TrimRight(lead, " "), columns)
			lead, indent = "", 4
		}
		room = columns - indent
	}
	for line := range strings.SplitSeq(text, "\n") {
		parts := []string{line}
		if room > 0 {
			parts = wrap(line, room)
		}
		for _, part := range parts {
			if lead == "" {
				lead = strings.Repeat(" ", indent)
			}
			lines = append(lines, strings.TrimRight(lead+part, " "))
			lead = ""
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// oneLine is lines one behind the other.
func oneLine(text string) string {
	all, rest, _ := strings.Cut(strings.TrimRight(text, " \n"), "\n")
	for line := range strings.Lines(rest) {
		between := "; "
		if strings.HasSuffix(all, ":") {
			between = " "
		}
		all += between + strings.TrimSpace(line)
	}
	return all
}

// setByHand says what was other than the file has it.
func (p *page) setByHand(words []string) {
	if len(words) > 0 {
		p.section()
		p.paragraph("set by hand: ", strings.Join(words, ", "))
	}
}

func (p *page) checks(checks []report.Check) {
	if len(checks) == 0 {
		return
	}
	if p.brief && len(checks) > few {
		p.totals(checkTotals(checks), 0, "")
		p.failedChecks(checks)
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
	p.failedChecks(checks)
}

// failedChecks says of checks that failed what was expected; of many, of a few when the
// page is brief.
func (p *page) failedChecks(checks []report.Check) {
	failed := 0
	for i := range checks {
		if c := &checks[i]; !c.Passed {
			if failed++; failed == 1 {
				p.line("")
			}
			if p.brief && failed > few {
				continue
			}
			for _, line := range p.wrapped("FAIL "+c.Name+": ", words.CheckFailure(c)) {
				p.line(p.paint.red(line))
			}
			if c.Where != "" {
				p.paragraph("  look at: ", c.Where)
			}
		}
	}
	if p.brief && failed > few {
		p.paragraph("", fmt.Sprintf("and %d more", failed-few))
	}
}

// verdicts writes a table whose last column says FAIL of what has failed.
func (p *page) verdicts(t *table) {
	p.section()
	for _, line := range t.lines(p.width) {
		switch {
		case line.title:
			line.text = p.paint.bold(line.text)
		case strings.HasSuffix(line.text, gap+"FAIL"):
			line.text = p.paint.red(line.text)
		}
		p.line(line.text)
	}
}

func (p *page) recorded(r *report.Recorded) {
	if r == nil {
		return
	}
	p.section()
	text := words.Count(r.Records) + " decisions on packets were recorded"
	if r.Missing > 0 {
		text += "; " + words.Count(r.Missing) + " are missing, which "
		if r.Error == "" {
			text += "came too fast to be written"
		} else {
			text += "could not be written: " + plain(words.Bounded(r.Error, mostOfCell))
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
	for i, problem := range problems {
		if p.brief && i == few {
			p.paragraph("", fmt.Sprintf("and %d more", len(problems)-few))
			break
		}
		p.paragraph("", problem)
	}
}

// mostEvents bounds the events of a report for people; the JSON form has them all.
const mostEvents = 30

// events are the events of a run; of many, the first and the last ones.
func (p *page) events(events []event.Event) {
	if len(events) == 0 {
		return
	}
	most := mostEvents
	if p.brief {
		events, most = slices.DeleteFunc(slices.Clone(events), func(e event.Event) bool {
			return e.Kind == event.WorkloadStarted || e.Kind == event.WorkloadDone // as the workloads have it
		}), 2*few
		if len(events) == 0 {
			return
		}
	}
	t := table{columns: []column{{title: "at", right: true}, {title: "event"}, {title: "what happened", wraps: true}}}
	left := max(0, len(events)-most)
	for i := range events {
		switch from := most / 2; {
		case left == 0 || i < from || i >= from+left:
			e := &events[i]
			t.add(fmt.Sprintf("%.3f s", e.At.Seconds()), e.Kind, e.Text)
		case i == from:
			t.add("", "...", words.Plural(left, "event")+" between these")
		}
	}
	p.table(&t)
}

// evidence says where to find what is left of the run, and how to have it again.
func (p *page) evidence(r *report.Run) {
	if r.Artifacts == "" && (r.Replay == "" || r.Passed) {
		return
	}
	p.section()
	if r.Artifacts != "" {
		p.line(plain("evidence: " + r.Artifacts))
	}
	if r.Replay != "" {
		p.line(plain("replay:   " + r.Replay))
	}
}

// verdict writes the last lines. The verdict itself is where the last one begins.
func (p *page) verdict(r *report.Run) {
	p.section()
	which := fmt.Sprintf("lab %s, seed %d, %s", plain(r.Lab), r.Seed, words.Duration(r.Seconds*1e6))
	if r.Simulated {
		which += " simulated"
	}
	if r.Passed {
		p.line(p.paint.green("PASS") + ": " + which)
		return
	}
	for i, line := range wrap("FAIL: "+words.Failure(r)+" ("+which+")", p.width-2) {
		if i == 0 {
			p.line(p.paint.red("FAIL") + strings.TrimPrefix(line, "FAIL"))
		} else {
			p.line("  " + line)
		}
	}
}

// How many characters a text may have that a program or a peer may have made. What is cut is
// in the JSON form.
const (
	mostOfCell      = 600
	mostOfParagraph = 4000
)
