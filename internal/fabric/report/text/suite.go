package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// WriteSuite writes a suite as a table for people, with what has failed of each lab and
// how to look into it; the last line begins with PASS or FAIL.
func WriteSuite(w io.Writer, s *report.Suite) error {
	p := newPageOf(w, runWidth)
	if len(s.Labs) > 0 {
		t := table{columns: []column{
			{title: "lab", wraps: true}, {title: "file", wraps: true}, {title: "seed", right: true}, {title: "time", right: true},
			{title: "checks", right: true}, {title: "verdict"},
		}}
		for _, r := range s.Labs {
			passed := 0
			for _, c := range r.Checks {
				if c.Passed {
					passed++
				}
			}
			verdict := "ok"
			switch {
			case r.Interrupted:
				verdict = "interrupted"
			case !r.Passed:
				verdict = "FAIL"
			case r.Flaky:
				verdict = fmt.Sprintf("flaky: passed on attempt %d", r.Attempts)
			}
			t.add(r.Lab, r.File, words.Count(r.Seed), words.Duration(r.WallSeconds*1e6), fmt.Sprintf("%d of %d", passed, len(r.Checks)), verdict)
		}
		p.verdicts(&t)
	}
	for _, r := range s.Labs {
		if !r.Passed {
			p.section()
			p.hanging(p.paint, r.Lab+": ", words.Failure(r))
			writeFailures(p, r)
		}
	}
	if len(s.NotRun) > 0 {
		p.section()
		p.line(p.paint.bold("not run"))
		for _, file := range s.NotRun {
			p.paragraph("", file)
		}
	}
	p.section()
	p.line(suiteVerdict(s, p.paint))
	return p.flush()
}

// writeFailures writes what has failed of a run, and what there is of it. The last lines are not
// wrapped: they are there to be copied.
func writeFailures(p *page, r *report.Run) {
	for i := range r.Checks {
		if c := &r.Checks[i]; !c.Passed {
			p.paragraph(c.Name+": ", words.CheckFailure(c))
			if c.Where != "" {
				p.paragraph("  look at: ", c.Where)
			}
		}
	}
	for i := range r.Workloads {
		if w := &r.Workloads[i]; w.Error != "" {
			p.paragraph(w.Name+": ", words.Bounded(w.Error, mostOfCell))
		}
	}
	for _, problem := range r.Problems {
		p.paragraph("", words.Bounded(problem, mostOfCell))
	}
	if r.Artifacts != "" {
		p.line(Plain("  evidence: " + r.Artifacts))
	}
	if r.Replay != "" {
		p.line(Plain("  replay:   " + r.Replay))
	}
}

// suiteVerdict returns the last line.
func suiteVerdict(s *report.Suite, paint paint) string {
	failed, flaky, interrupted := 0, 0, 0
	for _, r := range s.Labs {
		switch {
		case r.Interrupted:
			interrupted++
		case !r.Passed:
			failed++
		case r.Flaky:
			flaky++
		}
	}
	var parts []string
	if done := len(s.Labs) - interrupted; failed > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s failed", failed, words.Plural(done, "lab")))
	} else {
		parts = append(parts, words.Plural(done, "lab")+" passed")
	}
	if interrupted > 0 {
		parts = append(parts, words.Plural(interrupted, "lab")+" interrupted")
	}
	if flaky > 0 {
		parts = append(parts, fmt.Sprintf("%d of them on another attempt", flaky))
	}
	if len(s.NotRun) > 0 {
		parts = append(parts, fmt.Sprintf("%d not run", len(s.NotRun)))
	}
	if s.Interrupted && interrupted == 0 {
		parts = append(parts, "interrupted")
	}
	word := paint.red("FAIL")
	if s.Passed {
		word = paint.green("PASS")
	}
	return word + ": " + strings.Join(parts, ", ") + " (" + words.Duration(s.WallSeconds*1e6) + ")"
}
