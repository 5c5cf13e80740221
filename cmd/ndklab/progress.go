package main

import (
	"fmt"
	"io"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/estimate"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/internal/fabric/suite"
	"github.com/ndklab/ndklab/topology"
)

// progress tells people what a lab is doing: a line for each event, but for those of many workloads,
// and how far the run is.
type progress struct {
	*status // whose lock guards what follows

	workloads workloadCount
	begun     time.Time // when the command began to make the lab, or the simulation
	lab       string
	length    time.Duration // that the run takes; 0: nobody knows
	at        time.Duration // how far it is
	work      *estimate.Work
	dilated   bool // little of the lab's time passes between two lines
}

// newProgress returns what shows the progress of one lab, to be closed before a report is printed.
// With quiet it tells of events alone.
func newProgress(w io.Writer, quiet bool) *progress {
	p := &progress{begun: time.Now()}
	lines := p.lines
	if quiet {
		lines = func() []string { return nil }
	}
	p.status = newStatus(w, false, lines)
	return p
}

// run says of what topology the progress is.
func (p *progress) run(t *topology.Topology) {
	p.change(func() {
		p.lab = t.Name
		length, bounded := suite.Length(t)
		if p.length = 0; bounded {
			p.length = length
		}
		p.begun = time.Now()
		p.work = estimate.Begin(p.begun, p.length.Seconds(), 0)
	})
}

// reach notes how far the run is, in the lab's time.
func (p *progress) reach(at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(at)
}

// advance is reach with the lock held.
func (p *progress) advance(at time.Duration) {
	if at > p.at {
		p.at = at
	}
	if p.work != nil {
		p.work.Running(min(p.at, p.length).Seconds())
	}
}

// lines returns how far the run is.
func (p *progress) lines() []string {
	took := time.Since(p.begun)
	if p.work == nil || took < estimate.Soon {
		return nil
	}
	switch {
	case p.at == 0:
		return []string{fmt.Sprintf("lab %s: starting for %.0f s", p.lab, took.Seconds())}
	case p.length > 0:
		return []string{fmt.Sprintf("lab %s: %s of %s, %s", p.lab, labTime(p.at), labTime(p.length), p.work.Text(time.Now()))}
	}
	return []string{fmt.Sprintf("lab %s: at %s, for %.0f s", p.lab, labTime(p.at), took.Seconds())}
}

// labTime returns a time of a lab, which may be short in a simulation.
func labTime(d time.Duration) string {
	if d >= time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.3g ms", d.Seconds()*1e3)
}

// A workloadCount says how far workloads are: of a few each, of many their number.
type workloadCount struct {
	started, done int
	told          time.Duration // when their number was told last
}

// fewWorkloads bounds the workloads that have lines of their own.
const fewWorkloads = 5

// text returns what to say of an event, "" if nothing: from the time that many workloads
// have been started, their number each second and when all are done.
func (c *workloadCount) text(e *event.Event) string {
	switch e.Kind {
	case event.WorkloadStarted:
		c.started++
	case event.WorkloadDone:
		c.done++
	case event.WorkloadProgress:
	default:
		return e.Text
	}
	if c.started <= fewWorkloads {
		return e.Text
	}
	if e.At < c.told+time.Second && c.done < c.started {
		return ""
	}
	c.told = e.At
	return fmt.Sprintf("workloads: %d started, %d done", c.started, c.done)
}

// event shows an event of the lab, with its time since all nodes were ready, unless
// what the command prints says the same.
func (p *progress) event(e event.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(e.At)
	switch e.Kind {
	case event.LabReady, event.LinkOverrun, event.CaptureStarted, event.CaptureDone, event.QPError:
		return
	}
	text, digits := p.workloads.text(&e), 1
	if p.dilated {
		digits = 3
	}
	switch {
	case text == "":
	case e.At == 0:
		p.keep("%s", text)
	default:
		p.keep("%6.*f s  %s", digits, e.At.Seconds(), text)
	}
}

// dilation says whose times those of events are, in a lab that is slower than its file by so much.
func (p *progress) dilation(factor int) {
	if factor > 1 {
		p.change(func() { p.dilated = true })
		p.say("%s", words.DilationOf(factor))
	}
}
