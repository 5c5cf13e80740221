package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/estimate"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/internal/fabric/suite"
)

// A display shows how far a suite is. Its methods may be called from any goroutine.
//
// A terminal has a line for each lab that runs, below what is done. A log has a line for each that
// begins and ends, with the time.
type display struct {
	*status // whose lock guards what follows

	cases   int
	running []running
	done    int
	failed  int
	work    *estimate.Work
}

// A running is an attempt that is under way.
type running struct {
	suite.Case
	since time.Time
	text  string // the last that happened in the lab
	at    time.Duration
}

// newDisplay is the display of so many cases on w.
func newDisplay(w io.Writer, cases []suite.Case) *display {
	d := &display{cases: len(cases)}
	total := 0.0
	for i := range cases {
		total += cases[i].Expected().Seconds()
	}
	d.work = estimate.Begin(time.Now(), total, 0)
	d.status = newStatus(w, true, d.lines)
	return d
}

// lines returns how far the suite is.
func (d *display) lines() []string {
	if len(d.running) == 0 {
		return nil
	}
	now, going := time.Now(), 0.0
	for _, r := range d.running {
		far := r.at // of a simulation; of a lab, time passes there as here
		if far == 0 {
			far = now.Sub(r.since)
		}
		going += min(far, r.Expected()).Seconds()
	}
	d.work.Running(going)
	count := fmt.Sprintf("%d of %d done, %d failed, %s", d.done, d.cases, d.failed, d.work.Text(now))
	if d.tty == nil {
		var labs []string
		for _, r := range d.running {
			labs = append(labs, fmt.Sprintf("%s (%.0f s)", r.Lab, now.Sub(r.since).Seconds()))
		}
		return []string{count, "running: " + strings.Join(labs, ", ")}
	}
	var lines []string
	for _, r := range d.running {
		lines = append(lines, fmt.Sprintf("%-20s %5.1f s  %s", r.Lab, now.Sub(r.since).Seconds(), r.text))
	}
	return append(lines, count)
}

func (d *display) began(c suite.Case) {
	d.change(func() {
		d.running = append(d.running, running{Case: c, since: time.Now(), text: fmt.Sprintf("seed %d", c.Seed)})
		if d.tty == nil {
			d.keep("run   %s, seed %d: %s", c.Lab, c.Seed, c.File)
		}
	})
}

func (d *display) ended(o suite.Outcome) {
	word, text := outcomeText(&o)
	d.change(func() {
		d.running = slices.DeleteFunc(d.running, func(r running) bool { return r.Lab == o.Lab })
		if !o.Again {
			d.done++
			d.work.Done(o.Expected().Seconds())
			if !o.Passed() {
				d.failed++
			}
		}
		d.keep("%-4s  %s, seed %d: %s", word, o.Lab, o.Seed, text)
	})
}

// event shows on a terminal what happened last in each lab, and in a log warnings alone: what happens
// in the labs of a suite is in the evidence of those that fail.
func (d *display) event(c suite.Case, e event.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tty == nil {
		if e.Kind == event.Warning {
			d.keep("note  %s: %s", c.Lab, e.Text)
		}
		return
	}
	for i := range d.running {
		if d.running[i].Lab == c.Lab {
			d.running[i].text = e.Text // which is drawn in time
		}
	}
}

// A caseFollower shows what happens in one case of a suite.
type caseFollower struct {
	show *display
	of   suite.Case
}

func (f caseFollower) event(e event.Event)    { f.show.event(f.of, e) }
func (f caseFollower) reach(at time.Duration) { f.show.reach(f.of, at) }

// reach notes how far a case is, in its lab's time.
func (d *display) reach(c suite.Case, at time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.running {
		if d.running[i].Lab == c.Lab {
			d.running[i].at = at
		}
	}
}

// note tells of something that is not about one lab.
func (d *display) note(format string, args ...any) {
	if d.tty == nil {
		format = "note  " + format
	}
	d.say(format, args...)
}

// outcomeText says what became of an attempt, in a line.
func outcomeText(o *suite.Outcome) (word, text string) {
	took := ""
	if o.Run != nil {
		took = words.Duration(o.Run.WallSeconds * 1e6)
	}
	switch {
	case o.Run == nil || o.Run.Interrupted:
		return "stop", "interrupted"
	case o.Again:
		return "FAIL", took + ", runs again: " + reason(o)
	case !o.Run.Passed:
		return "FAIL", took + ": " + reason(o)
	case o.Run.Flaky:
		return "ok", fmt.Sprintf("%s, flaky: passed on attempt %d", took, o.Attempt)
	}
	return "ok", took
}

// reason says in a line why a run has not passed.
func reason(o *suite.Outcome) string {
	if o.Err != nil {
		first, _, _ := strings.Cut(o.Err.Error(), "\n")
		return first
	}
	return words.Failure(o.Run)
}
