package labtest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/ndklab/ndklab/topology"
)

// Run runs the workloads of the lab's topology with its timeline and checks, as `ndklab
// run` does, and returns the report when all is done. Each check is a subtest, and so is
// each workload, which fails if it had errors that no check is about; what else has gone
// wrong fails the test itself. (A benchmark has no such subtests, and fails itself.)
func (l *Lab) Run() *report.Run {
	l.t.Helper()
	r, err := l.lab.Run(l.ctx)
	l.must(err)
	judge(l.t, l.topo, r)
	return r
}

// Simulate plays a topology in virtual time: its workloads, timeline and checks, with the
// same adapters and the same impairments of links as in a lab (package simulate). It
// judges and returns the report as Lab.Run does. The same seed gives the same report. Client
// and Server run functions of the test in its nodes.
// NDKLAB_SEED in the environment comes before seed.
func Simulate[S Source](t testing.TB, source S, seed uint64, options ...Option) *report.Run {
	t.Helper()
	set, err := settingsOf(append([]Option{Seed(seed)}, options...))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := read(source)
	if err != nil {
		t.Fatalf("topology: %v", err)
	}
	topo, err := doc.parse(topology.Options{Name: nameOf(doc.name), Variable: set.lookup})
	if err != nil {
		t.Fatalf("topology:\n%v", err)
	}
	set.settle(topo)
	ctx, cancel := untilDeadline(t)
	defer cancel()
	r, err := set.play(ctx, t, topo)
	if err != nil {
		t.Fatalf("simulation of %s, seed %d: %v", topo.Name, topo.Seed, err)
	}
	judge(t, topo, r)
	return r
}

// judge has a test fail for what a run has failed for.
func judge(t testing.TB, topo *topology.Topology, r *report.Run) {
	t.Helper()
	for i := range r.Workloads {
		w := &r.Workloads[i]
		sub(t, "workload "+w.Name, func(t testing.TB) {
			t.Helper()
			if (w.Errors > 0 || w.Error != "") && !topo.ChecksErrors(w.Name) {
				t.Errorf("workload %s: errors: %d, the first: %s", w.Name, w.Errors, w.Error)
			}
		})
	}
	for i := range r.Checks {
		c := &r.Checks[i]
		sub(t, "check "+c.Name, func(t testing.TB) {
			t.Helper()
			if c.Passed {
				return
			}
			text := "expected " + c.Expected + ", got " + c.Got
			if c.At != "" {
				text = c.At + ": " + text
			}
			if c.Where != "" {
				text += "\nlook at: " + c.Where
			}
			t.Errorf("%s: %s", c.Name, text)
		})
	}
	for _, problem := range r.Problems {
		t.Error(problem)
	}
	if r.Passed {
		return
	}
	var printed bytes.Buffer
	if err := text.WriteRun(&printed, r, text.Brief); err != nil {
		t.Error(err)
	}
	t.Errorf("the run has not passed:\n%s", &printed)
}

// sub is a subtest of a test that has such.
func sub(t testing.TB, name string, f func(testing.TB)) {
	t.Helper()
	if has, ok := t.(interface {
		Run(string, func(*testing.T)) bool
	}); ok {
		has.Run(strings.ReplaceAll(name, "/", "-"), func(t *testing.T) { f(t) })
		return
	}
	f(t)
}

// Workload runs a workload in the lab now, and returns its result when it is done: with its
// errors, which the test may have meant to have. Zero fields of w are as if they were absent
// from a file. A lab runs workloads of one call at a time.
func (l *Lab) Workload(w topology.Workload) *report.Workload {
	l.t.Helper()
	return l.StartWorkloads(w).Wait()[0]
}

// A Running is workloads that run.
type Running struct {
	lab    *Lab
	done   chan struct{} // closed when they are done
	report *report.Run   // valid then, as is err
	err    error
}

// StartWorkloads begins to run workloads, all at once but for their Start, and returns
// when they are on their way. They end with the lab, if not before.
func (l *Lab) StartWorkloads(workloads ...topology.Workload) *Running {
	l.t.Helper()
	var all []topology.Workload
	for _, w := range workloads {
		if w.Name == "" {
			w.Name = "workload"
		}
		var texts []string
		for _, s := range workloadSettings(&w) {
			texts = append(texts, s.key+"="+s.value)
		}
		parsed, err := l.topo.ParseWorkload(texts)
		if err != nil {
			l.t.Fatalf("lab %s: workload %s: %v", l.topo.Name, w.Name, err)
		}
		all = append(all, parsed)
	}
	r := &Running{lab: l, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.report, r.err = l.lab.RunWorkloads(l.ctx, all...)
	}()
	return r
}

// Wait waits for the end of the workloads and returns their results. Problems beside their
// own errors, such as a node that went down, are logged.
func (r *Running) Wait() []*report.Workload {
	r.lab.t.Helper()
	<-r.done
	r.lab.must(r.err)
	for _, problem := range r.report.Problems {
		r.lab.t.Logf("lab %s: %s", r.lab.topo.Name, problem)
	}
	var results []*report.Workload
	for i := range r.report.Workloads {
		results = append(results, &r.report.Workloads[i])
	}
	return results
}
