package text

import (
	"fmt"
	"io"
	"slices"
	"strings"

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
	if r.Dilation > 1 {
		p.hanging(p.paint, "", words.Dilation(r.Dilation, r.MachineSeconds, r.Seconds))
	}
	writeWorkloads(p, r.Workloads)
	writeEvents(p, r.Events)
	writeHosts(p, r)
	writeNodes(p, r.Nodes)
	writeLinkTable(p, r.Links)
	writeBuffers(p, r)
	writeSetByHand(p, r.SetByHand)
	writeRecorded(p, r.Recorded)
	writeChecks(p, r.Checks)
	writeProblems(p, r.Problems)
	if _, some := bufferRows(r); p.brief || some && !p.full {
		p.section()
		p.paragraph("", "some rows are left out: `ndklab run -v` prints them, and --html and -o json have them")
	}
	writeEvidence(p, r)
	writeVerdict(p, r)
	return p.flush()
}

// WriteMeasurement writes a measurement as tables for people, in the form that workloads
// have in those of a run.
func WriteMeasurement(w io.Writer, m *report.Measurement) error {
	p := newPageOf(w, runWidth)
	if m.Dilation > 1 {
		p.hanging(p.paint, "", words.DilationOf(m.Dilation))
	}
	writeWorkloads(p, []report.Workload{m.Workload})
	writeSetByHand(p, m.SetByHand)
	writeProblems(p, m.Problems)
	return p.flush()
}

// writeHosts writes the hosts of a lab over several, and what crosses them.
func writeHosts(p *page, r *report.Run) {
	if len(r.Hosts) < 2 {
		return
	}
	t := table{columns: []column{
		{title: "host", wraps: true}, {title: "nodes", right: true}, {title: "cpus", right: true}, {title: "links that cross", right: true}, {title: "round trip", right: true}, {title: "clock", right: true},
	}}
	for i := range r.Hosts {
		h := &r.Hosts[i]
		t.add(h.Name, fmt.Sprint(h.Nodes), fmt.Sprintf("%g", h.CPUs), fmt.Sprint(h.Cut), words.Duration(h.TripUS), words.ClockOffset(h))
	}
	p.table(&t)
	p.paragraph("", words.Crossing(r))
}

// writeSetByHand writes what commands had set other than the file has it.
func writeSetByHand(p *page, words []string) {
	if len(words) > 0 {
		p.section()
		p.paragraph("set by hand: ", strings.Join(words, ", "))
	}
}

// writeChecks writes the verdicts of checks; of many on a brief page, those that failed.
func writeChecks(p *page, checks []report.Check) {
	if len(checks) == 0 {
		return
	}
	if p.brief && len(checks) > few {
		p.totals(checkTotals(checks), 0, "")
		writeFailedChecks(p, checks)
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
	writeFailedChecks(p, checks)
}

// writeFailedChecks writes of checks that failed what was expected; of many, of a few when the
// page is brief.
func writeFailedChecks(p *page, checks []report.Check) {
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

// writeRecorded writes how many decisions of the link engine are in its log.
func writeRecorded(p *page, r *report.Recorded) {
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
			text += "could not be written: " + Plain(words.Bounded(r.Error, mostOfCell))
		}
	}
	p.line(text)
}

// writeProblems writes what is wrong with the run besides its workloads and checks.
func writeProblems(p *page, problems []string) {
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

// writeEvents writes the events of a run; of many, the first and the last ones.
func writeEvents(p *page, events []event.Event) {
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

// writeEvidence writes where to find what is left of the run, and how to have it again.
func writeEvidence(p *page, r *report.Run) {
	if r.Artifacts == "" && (r.Replay == "" || r.Passed) {
		return
	}
	p.section()
	if r.Artifacts != "" {
		p.line(Plain("evidence: " + r.Artifacts))
	}
	if r.Replay != "" {
		p.line(Plain("replay:   " + r.Replay))
	}
}

// writeVerdict writes the last lines. The verdict itself is where the last one begins.
func writeVerdict(p *page, r *report.Run) {
	p.section()
	which := fmt.Sprintf("lab %s, seed %d, %s", Plain(r.Lab), r.Seed, words.Duration(r.Seconds*1e6))
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
