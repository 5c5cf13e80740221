// Package suite runs many topology files: it finds them, says which of them this
// machine's shard has, gives each run a lab name of its own and a seed, and runs them,
// several side by side if asked to, again if they fail and that is asked for.
//
// It neither reads topologies nor builds labs: File says what a file is, and the caller
// passes in a function that runs one, so that real and simulated labs are run alike. An
// Outcome says what became of each; reports are of package report.
//
// Start reading at Plan and Run.
package suite

import (
	"context"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// A Case is one run of one file.
type Case struct {
	File string
	Lab  string // its name in this suite, which no other case has that may run at the same time
	Seed uint64
	Pass int // of several of the same file, from 1
	// Attempt counts the runs of this case, from 1: it is run again when it fails, with
	// the same seed.
	Attempt int

	expected time.Duration
}

// Expected is about how long the case takes, as far as its file says so.
func (c Case) Expected() time.Duration { return c.expected }

// A Runner runs a case. When its context ends it ends the run, and returns an error. The
// report of a run that has failed is no error.
type Runner func(ctx context.Context, c Case) (*report.Run, error)

// Options say how cases are run.
type Options struct {
	Jobs    int // how many at once; 0 is 1
	Retries int // how often a case that fails is run again
	// FailFast: when a case has failed, no other begins. Those that run go on.
	FailFast bool
	// Began and Ended are called when an attempt begins, and when it has ended; of several
	// cases at once, not from the same goroutine. nil if nobody wants to know.
	Began func(Case)
	Ended func(Outcome)
}

// An Outcome holds what became of an attempt.
type Outcome struct {
	Case
	// Run is the report; of a run that could not be made it says so as a problem. It is
	// nil if the run was interrupted before there was one.
	Run *report.Run
	// Err says why there is no report of the run itself; nil if there is.
	Err error
	// Again: it has failed, and is going to be run again.
	Again bool
}

// Passed reports whether the run was made and passed.
func (o *Outcome) Passed() bool { return o.Run != nil && o.Run.Passed }

// A Result holds what became of all cases.
type Result struct {
	// Outcomes are the last attempts of the cases that were run, in the order of the cases:
	// to their end or, if their report says so, until they were interrupted.
	Outcomes []Outcome
	// Unfinished are cases of whose runs there is no report, as they did not begin.
	Unfinished []Case
	// Interrupted: the context has ended.
	Interrupted bool
}

// Run runs cases. It returns when all are done, or when ctx has ended and those that ran
// are taken down; what it has of the others is in the result then.
//
// If several are to run at once, those that are expected to take longest begin first.
func Run(ctx context.Context, cases []Case, run Runner, options Options) Result {
	p := &pass{run: run, options: options, outcomes: make([]*Outcome, len(cases))}
	order := make([]int, len(cases))
	for i := range order {
		order[i] = i
	}
	if options.Jobs > 1 {
		longestFirst(order, cases)
	}
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(max(options.Jobs, 1), len(cases)) {
		workers.Go(func() {
			for i := range next {
				p.outcomes[i] = p.attempts(ctx, cases[i])
			}
		})
	}
	for _, i := range order {
		if !p.mayBegin(ctx, next, i) {
			break
		}
	}
	close(next)
	workers.Wait()
	result := Result{Interrupted: ctx.Err() != nil}
	for i, o := range p.outcomes {
		if o == nil || o.Run == nil {
			result.Unfinished = append(result.Unfinished, cases[i])
		} else {
			result.Outcomes = append(result.Outcomes, *o)
		}
	}
	return result
}

// A pass is one call of Run.
type pass struct {
	run      Runner
	options  Options
	outcomes []*Outcome // by case; each written by the worker that has the case

	mu     sync.Mutex // guards failed
	failed bool
}

// mayBegin hands case i to the next worker that is free, unless nothing is to begin any
// more when there is one.
func (p *pass) mayBegin(ctx context.Context, next chan<- int, i int) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case next <- i:
		return true
	case <-ctx.Done():
		return false
	}
}

// over reports whether a failure keeps other cases from beginning.
func (p *pass) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.options.FailFast && p.failed
}

// attempts runs a case until it passes, or often enough. It returns nil if the case did
// not begin.
func (p *pass) attempts(ctx context.Context, c Case) *Outcome {
	if ctx.Err() != nil || p.over() {
		return nil
	}
	evidence := ""
	for c.Attempt = 1; ; c.Attempt++ {
		o := p.attempt(ctx, c)
		switch {
		case o.Run == nil:
		case o.Run.Artifacts == "":
			o.Run.Artifacts = evidence // of what made it flaky
		default:
			evidence = o.Run.Artifacts
		}
		o.Again = o.Run != nil && !o.Run.Passed && c.Attempt <= p.options.Retries && ctx.Err() == nil
		if !o.Again && o.Run != nil && !o.Run.Passed {
			p.mu.Lock()
			p.failed = true
			p.mu.Unlock()
		}
		if p.options.Ended != nil {
			p.options.Ended(o)
		}
		if !o.Again {
			return &o
		}
	}
}

func (p *pass) attempt(ctx context.Context, c Case) Outcome {
	if p.options.Began != nil {
		p.options.Began(c)
	}
	begin := time.Now()
	r, err := p.run(ctx, c)
	o := Outcome{Case: c, Run: r, Err: err}
	switch {
	case err != nil && ctx.Err() != nil:
		o.Run = nil
		return o
	case err != nil:
		o.Run = failed(c, err)
	}
	o.Run.File, o.Run.WallSeconds = c.File, time.Since(begin).Seconds()
	o.Run.Attempts = c.Attempt
	o.Run.Flaky = o.Run.Passed && c.Attempt > 1
	return o
}

// failed returns the report of a run that could not be made.
func failed(c Case, err error) *report.Run {
	return &report.Run{
		Lab: c.Lab, Seed: c.Seed, Problems: []string{err.Error()},
		Workloads: []report.Workload{}, Nodes: []report.Node{}, Links: []report.Link{}, Checks: []report.Check{},
		Started: time.Now().Format(time.RFC3339),
	}
}

// Report returns the result as reports have it, with how long all of it took.
func (r *Result) Report(wall time.Duration) *report.Suite {
	s := &report.Suite{Passed: len(r.Unfinished) == 0, Labs: []*report.Run{}, Interrupted: r.Interrupted, WallSeconds: wall.Seconds()}
	for i := range r.Outcomes {
		s.Labs = append(s.Labs, r.Outcomes[i].Run)
		s.Passed = s.Passed && r.Outcomes[i].Run.Passed
	}
	for _, c := range r.Unfinished {
		s.NotRun = append(s.NotRun, c.File)
	}
	return s
}
