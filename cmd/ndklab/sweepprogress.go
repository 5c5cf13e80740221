package main

import (
	"fmt"
	"io"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/estimate"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/suite"
	"github.com/ndklab/ndklab/topology"
)

// A sweepProgress shows how far a sweep is. Each run costs the same: what it takes is not known
// beforehand.
type sweepProgress struct {
	*status // whose lock guards what follows

	runs, done, failed int
	work               *estimate.Work
	running            map[int]*sweepRun // by the index in the sweep
	latest             string            // the run that was begun last
}

// A sweepRun is a run of a sweep that is under way.
type sweepRun struct {
	of     *sweepProgress
	length time.Duration // that it takes in its lab; 0: nobody knows
	at     time.Duration
}

// newSweepProgress shows on w the progress of so many runs, of which some were made before. With
// quiet it tells of runs that failed alone.
func newSweepProgress(w io.Writer, quiet bool, runs, before int) *sweepProgress {
	p := &sweepProgress{runs: runs, done: before, running: map[int]*sweepRun{}}
	p.work = estimate.Begin(time.Now(), float64(runs), float64(before))
	lines := p.lines
	if quiet {
		lines = func() []string { return nil }
	}
	p.status = newStatus(w, false, lines)
	return p
}

// lines returns how far the sweep is.
func (p *sweepProgress) lines() []string {
	if len(p.running) == 0 {
		return nil
	}
	under := 0.0
	for _, r := range p.running {
		if r.length > 0 {
			under += min(r.at.Seconds()/r.length.Seconds(), 1)
		}
	}
	p.work.Running(under)
	return []string{fmt.Sprintf("%d of %d runs, %d failed, %s: %s", p.done, p.runs, p.failed, p.work.Text(time.Now()), p.latest)}
}

// began notes that a run has begun, and returns what is to be told of it.
func (p *sweepProgress) began(index int, t *topology.Topology, text string) *sweepRun {
	r := &sweepRun{of: p}
	if length, bounded := suite.Length(t); bounded {
		r.length = length
	}
	p.change(func() { p.running[index], p.latest = r, text })
	return r
}

// ended notes that a run has ended, with what there is to say of it.
func (p *sweepProgress) ended(index int, trouble string) {
	p.change(func() {
		delete(p.running, index)
		p.work.Done(1)
		p.done++
		if trouble != "" {
			p.failed++
			p.keep("%s", trouble)
		}
	})
}

// event implements follower: a sweep shows warnings of no run, which are in its report.
func (r *sweepRun) event(e event.Event) { r.reach(e.At) }

// reach implements follower.
func (r *sweepRun) reach(at time.Duration) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.at = max(r.at, at)
}
