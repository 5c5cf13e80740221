package report

import (
	"fmt"
	"io"
	"strings"
)

// A Suite is the result of running several topology files.
type Suite struct {
	Passed bool   `json:"passed"` // all of them were run and passed
	Labs   []*Run `json:"labs"`   // of the last run of each file, also of one that was interrupted
	// NotRun are files whose run did not begin, or was interrupted before there was anything to report.
	NotRun      []string `json:"not_run,omitempty"`
	Interrupted bool     `json:"interrupted,omitempty"`
	WallSeconds float64  `json:"wall_seconds"`
}

// WriteSuite writes a suite as a table for people, with what has failed of each lab and
// how to look into it; the last line begins with PASS or FAIL.
func WriteSuite(w io.Writer, s *Suite) error {
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
			t.add(r.Lab, r.File, count(r.Seed), Duration(r.WallSeconds*1e6), fmt.Sprintf("%d of %d", passed, len(r.Checks)), verdict)
		}
		p.verdicts(&t)
	}
	for _, r := range s.Labs {
		if !r.Passed {
			p.section()
			p.hanging(p.paint, r.Lab+": ", r.Failure())
			p.reasons(r)
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
	p.line(s.verdict(p.paint))
	return p.flush()
}

// reasons says what has failed of a run, and what there is of it. The last lines are not
// wrapped: they are there to be copied.
func (p *page) reasons(r *Run) {
	for i := range r.Checks {
		if c := &r.Checks[i]; !c.Passed {
			p.paragraph(c.Name+": ", c.failure())
			if c.Where != "" {
				p.paragraph("  look at: ", c.Where)
			}
		}
	}
	for i := range r.Workloads {
		if w := &r.Workloads[i]; w.Error != "" {
			p.paragraph(w.Name+": ", bounded(w.Error, mostOfCell))
		}
	}
	for _, problem := range r.Problems {
		p.paragraph("", bounded(problem, mostOfCell))
	}
	if r.Artifacts != "" {
		p.line(plain("  evidence: " + r.Artifacts))
	}
	if r.Replay != "" {
		p.line(plain("  replay:   " + r.Replay))
	}
}

// verdict is the last line.
func (s *Suite) verdict(paint paint) string {
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
		parts = append(parts, fmt.Sprintf("%d of %s failed", failed, plural(done, "lab")))
	} else {
		parts = append(parts, plural(done, "lab")+" passed")
	}
	if interrupted > 0 {
		parts = append(parts, plural(interrupted, "lab")+" interrupted")
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
	return word + ": " + strings.Join(parts, ", ") + " (" + Duration(s.WallSeconds*1e6) + ")"
}
