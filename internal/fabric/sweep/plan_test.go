package sweep

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

// axes reads what is varied.
func axes(t *testing.T, texts ...string) []report.Axis {
	t.Helper()
	var all []report.Axis
	for _, text := range texts {
		axis, err := ParseAxis(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, axis)
	}
	return all
}

// planned returns a sweep with its runs.
func planned(t *testing.T, repeat int, texts ...string) *report.Sweep {
	t.Helper()
	s := &report.Sweep{File: "f.yaml", Lab: "f", Seed: 7, Repeat: repeat, Vary: axes(t, texts...)}
	if err := Plan(s, func(*report.SweepRun) string { return "again" }); err != nil {
		t.Fatal(err)
	}
	return s
}

// Commas separate values, but for those inside of something.
func TestParseAxis(t *testing.T) {
	for text, want := range map[string][]string{
		"link.delay=1ms,10ms":                {"1ms", "10ms"},
		"link.loss={rate: 1%, burst: 5}, 2%": {"{rate: 1%, burst: 5}", "2%"},
		`topology.x=[1,2],"a,b",'c,d'`:       {"[1,2]", `"a,b"`, "'c,d'"},
	} {
		if diff := cmp.Diff(want, axes(t, text)[0].Values); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
	for text, want := range map[string]string{
		"link.delay":         "expected PATH=VALUE,VALUE... such as link.delay=1ms,10ms",
		"=1":                 "expected PATH=VALUE",
		"link.delay=":        "expected PATH=VALUE",
		"link.delay=1ms,":    "there is no value",
		"link.delay=1ms,1ms": "1ms a second time, expected each value once",
		"link..x=1":          "is no path",
	} {
		if _, err := ParseAxis(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// All combinations run in the stated order: the last axis changes fastest, and repeats before it, with the
// seeds that follow the first.
func TestPlan(t *testing.T) {
	var got []string
	for _, r := range planned(t, 2, "a=1,2", "b=x,y").Runs {
		got = append(got, fmt.Sprintf("%d %s %d %d", r.Number, strings.Join(r.Values, ""), r.Repeat, r.Seed))
	}
	want := []string{"1 1x 1 7", "2 1x 2 8", "3 1y 1 7", "4 1y 2 8", "5 2x 1 7", "6 2x 2 8", "7 2y 1 7", "8 2y 2 8"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	seeds := planned(t, 2, "seed=100,200")
	if s := Settings(seeds, []string{"100"}); seeds.Runs[3].Seed != 201 || s != nil {
		t.Errorf("the last run has seed %d, and %v is set", seeds.Runs[3].Seed, s)
	}
	for want, texts := range map[string][]string{
		"a is varied twice":         {"a=1", "a=2"},
		"there are more than":       {"a=" + numbers(400), "b=" + numbers(400)},
		`seed: found "x", expected`: {"seed=x"},
	} {
		s := &report.Sweep{Repeat: 1, Vary: axes(t, texts...)}
		if err := Plan(s, func(*report.SweepRun) string { return "" }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d,", i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

// A sweep is gone on with as what it was begun as, and nothing else.
func TestDiffers(t *testing.T) {
	if text := Differs(planned(t, 2, "a=1,2"), planned(t, 2, "a=1,2")); text != "" {
		t.Error(text)
	}
	for want, change := range map[string]func(*report.Sweep){
		"the file: there f.yaml, here g.yaml":                                        func(s *report.Sweep) { s.File = "g.yaml" },
		"how it runs: there in labs, here simulated":                                 func(s *report.Sweep) { s.Simulated = true },
		"the seed: there 7, here 8":                                                  func(s *report.Sweep) { s.Seed = 8 },
		"what is varied: there a=1,2, here a=1,3":                                    func(s *report.Sweep) { s.Vary = axes(t, "a=1,3") },
		"--repeat: there 2, here 3":                                                  func(s *report.Sweep) { s.Repeat = 3 },
		"the lab's name: there f, here g":                                            func(s *report.Sweep) { s.Lab = "g" },
		"the content of f.yaml, or of a file or variable that it names, has changed": func(s *report.Sweep) { s.Digest = "x" },
	} {
		now := planned(t, 2, "a=1,2")
		change(now)
		if got := Differs(planned(t, 2, "a=1,2"), now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
