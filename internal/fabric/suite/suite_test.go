package suite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// three are cases of which the last is expected to take longest.
func three() []Case {
	return []Case{{File: "a", Lab: "a", expected: 1}, {File: "b", Lab: "b", expected: 2}, {File: "c", Lab: "c", expected: 3}}
}

// passes is the report of a run that passed, or did not.
func passes(c Case, passed bool) *report.Run {
	r := &report.Run{Lab: c.Lab, Seed: c.Seed, Passed: passed}
	if !passed {
		r.Artifacts = fmt.Sprintf("%s.%d", c.Lab, c.Attempt)
	}
	return r
}

// verdicts returns what became of cases, in words.
func verdicts(r Result) []string {
	var words []string
	for _, o := range r.Outcomes {
		word := fmt.Sprintf("%s %v", o.File, o.Passed())
		if o.Run.Flaky {
			word += " flaky"
		}
		words = append(words, word)
	}
	for _, c := range r.Unfinished {
		words = append(words, c.File+" unfinished")
	}
	return words
}

func TestRetries(t *testing.T) {
	var attempts []string
	result := Run(t.Context(), three(), func(_ context.Context, c Case) (*report.Run, error) {
		attempts = append(attempts, fmt.Sprint(c.File, c.Attempt))
		switch {
		case c.File == "a" && c.Attempt == 1:
			return passes(c, false), nil
		case c.File == "b":
			return nil, errors.New("no lab")
		}
		return passes(c, true), nil
	}, Options{Retries: 2})
	if diff := cmp.Diff([]string{"a1", "a2", "b1", "b2", "b3", "c1"}, attempts); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a true flaky", "b false", "c true"}, verdicts(result)); diff != "" {
		t.Error(diff)
	}
	if a := result.Outcomes[0].Run; a.Artifacts != "a.1" || a.Attempts != 2 {
		t.Errorf("the flaky run has the evidence %q and %d attempts", a.Artifacts, a.Attempts)
	}
	if b := result.Outcomes[1]; b.Err == nil || cmp.Diff([]string{"no lab"}, b.Run.Problems) != "" {
		t.Errorf("a run that could not be made has %v and the problems %q", b.Err, b.Run.Problems)
	}
	if s := result.Report(time.Second); s.Passed || len(s.Labs) != 3 || s.WallSeconds != 1 {
		t.Errorf("the report is %+v", s)
	}
}

func TestFailFast(t *testing.T) {
	fails := func(_ context.Context, c Case) (*report.Run, error) { return passes(c, c.File != "b"), nil }
	result := Run(t.Context(), three(), fails, Options{FailFast: true})
	if diff := cmp.Diff([]string{"a true", "b false", "c unfinished"}, verdicts(result)); diff != "" {
		t.Error(diff)
	}
	if s := result.Report(0); s.Passed || s.Interrupted || cmp.Diff([]string{"c"}, s.NotRun) != "" {
		t.Errorf("the report is %+v", s)
	}
}

// Cases run side by side, as many as asked for, the longest first; what is reported is in
// the order of the cases.
func TestJobs(t *testing.T) {
	var mu sync.Mutex
	var began []string
	two := make(chan struct{}) // closed when two run
	running := 0
	result := Run(t.Context(), three(), func(_ context.Context, c Case) (*report.Run, error) {
		mu.Lock()
		began = append(began, c.File)
		if running++; running > 2 {
			t.Error("three run at once")
		}
		if len(began) == 2 {
			close(two)
		}
		mu.Unlock()
		<-two
		mu.Lock()
		running--
		mu.Unlock()
		return passes(c, true), nil
	}, Options{Jobs: 2})
	if diff := cmp.Diff([]string{"a true", "b true", "c true"}, verdicts(result)); diff != "" {
		t.Error(diff)
	}
	if began[2] != "a" {
		t.Errorf("they began in the order %v, want the shortest last", began)
	}
}

// Any number may be allowed at once; what there is not to run takes nothing.
func TestNoMoreJobsThanCases(t *testing.T) {
	before := runtime.NumGoroutine()
	Run(t.Context(), []Case{{}}, func(_ context.Context, c Case) (*report.Run, error) {
		if n := runtime.NumGoroutine(); n > before+100 {
			t.Errorf("%d goroutines run one case, and %d before", n, before)
		}
		return passes(c, true), nil
	}, Options{Jobs: 100_000})
}

// A suite that is interrupted has what was done before.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var ended []string
	result := Run(ctx, three(), func(ctx context.Context, c Case) (*report.Run, error) {
		if c.File == "b" {
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return passes(c, true), nil
	}, Options{Retries: 3, Ended: func(o Outcome) { ended = append(ended, fmt.Sprint(o.File, o.Run != nil)) }})
	if diff := cmp.Diff([]string{"a true", "b unfinished", "c unfinished"}, verdicts(result)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"atrue", "bfalse"}, ended); diff != "" {
		t.Error(diff)
	}
	if s := result.Report(0); s.Passed || !s.Interrupted || cmp.Diff([]string{"b", "c"}, s.NotRun) != "" {
		t.Errorf("the report is %+v", s)
	}
}

// A run that has failed is not run again once the suite is interrupted: what there is of
// it counts.
func TestInterruptedAsItFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	result := Run(ctx, three()[:1], func(_ context.Context, c Case) (*report.Run, error) {
		runs++
		cancel()
		return passes(c, false), nil
	}, Options{Retries: 3, Ended: func(o Outcome) {
		if o.Again {
			t.Error("it is said to run again")
		}
	}})
	if runs != 1 || len(result.Outcomes) != 1 || result.Outcomes[0].Passed() || !result.Interrupted {
		t.Errorf("%d runs: %+v", runs, result)
	}
}
