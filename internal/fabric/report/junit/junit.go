// Package junit writes a suite's report as JUnit XML, the form in which CI systems read results.
//
// Each lab is a testsuite. In it each check is a testcase, each workload is, and each problem that
// is no check's or workload's; the last testcase is the run itself, whose output is the text report. A
// check that failed is a failure; an error of a workload and a problem are errors.
//
// There is no one schema of this form. The output conforms to those of Jenkins' xUnit plugin
// (junit-10.xsd) and, testsuite by testsuite, of Maven's surefire (surefire-test-report.xsd), and
// GitLab, GitHub's reporters and Azure read it, too.
//
// Start reading at Write.
package junit

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

type testsuites struct {
	tests, failures, errors int
	seconds                 float64
	suites                  []testsuite
}

type testsuite struct {
	name                             string
	tests, failures, errors, skipped int
	seconds                          float64
	properties                       []property
	cases                            []testcase
}

type property struct{ name, value string }

type testcase struct {
	classname, name string
	seconds         float64
	failure, err    *outcome
	skipped         string // why; "" if it was not
	output          string
}

type outcome struct{ message, kind, text string }

// Write writes a suite, or one run as a suite of one.
func Write(w io.Writer, s *report.Suite) error {
	all := testsuites{seconds: s.WallSeconds}
	for _, r := range s.Labs {
		suite, err := lab(r)
		if err != nil {
			return err
		}
		all.add(suite)
	}
	for _, file := range s.NotRun {
		all.add(notRun(file))
	}
	d := document{bufio.NewWriter(w)}
	d.testsuites(&all)
	return d.Flush()
}

func (all *testsuites) add(s testsuite) {
	for _, c := range s.cases {
		s.tests++
		switch {
		case c.failure != nil:
			s.failures++
		case c.err != nil:
			s.errors++
		case c.skipped != "":
			s.skipped++
		}
	}
	all.tests, all.failures, all.errors = all.tests+s.tests, all.failures+s.failures, all.errors+s.errors
	all.suites = append(all.suites, s)
}

// lab returns the testsuite of a run.
func lab(r *report.Run) (testsuite, error) {
	s := testsuite{name: r.Lab, seconds: r.WallSeconds}
	for _, p := range []property{
		{"file", r.File}, {"seed", strconv.FormatUint(r.Seed, 10)}, {"started", r.Started}, {"host", r.Host},
		{"simulated", strconv.FormatBool(r.Simulated)}, {"replay", r.Replay}, {"artifacts", r.Artifacts},
	} {
		if p.value != "" {
			s.properties = append(s.properties, p)
		}
	}
	if r.Flaky {
		s.properties = append(s.properties, property{"flaky", "passed on attempt " + strconv.Itoa(r.Attempts)})
	}
	for i := range r.Checks {
		s.cases = append(s.cases, check(&r.Checks[i], r))
	}
	for i := range r.Workloads {
		s.cases = append(s.cases, workload(&r.Workloads[i]))
	}
	for i, problem := range r.Problems {
		s.cases = append(s.cases, testcase{name: "problem " + strconv.Itoa(i+1), err: &outcome{message(problem), "problem", problem}})
	}
	var printed strings.Builder
	if err := text.WriteRun(&printed, r, text.Full); err != nil {
		return testsuite{}, err
	}
	whole := testcase{name: "run", seconds: r.Seconds, output: printed.String()}
	if !r.Passed && !said(s.cases) {
		whole.err = &outcome{message(words.Failure(r)), "run", ""}
	}
	s.cases = append(s.cases, whole)
	names := map[string]int{}
	for i := range s.cases {
		c := &s.cases[i]
		c.classname = "ndklab." + s.name // with a package, by which Jenkins groups
		// Systems that compare runs know a case by its name.
		if names[c.name]++; names[c.name] > 1 {
			c.name += " (" + strconv.Itoa(names[c.name]) + ")"
		}
	}
	return s, nil
}

// said reports whether any case says that something is wrong.
func said(cases []testcase) bool {
	for _, c := range cases {
		if c.failure != nil || c.err != nil {
			return true
		}
	}
	return false
}

func check(c *report.Check, r *report.Run) testcase {
	t := testcase{name: "check " + c.Name}
	if c.Passed {
		return t
	}
	account := fmt.Sprintf("%s\nexpected: %s\ngot:      %s\n", c.Name, c.Expected, c.Got)
	for _, l := range []struct{ name, value string }{
		{"look at:  ", c.Where}, {"check at: ", c.At}, {"evidence: ", r.Artifacts}, {"replay:   ", r.Replay},
	} {
		if l.value != "" {
			account += l.name + l.value + "\n"
		}
	}
	t.failure = &outcome{message(fmt.Sprintf("expected %s, got %s", c.Expected, c.Got)), "check", account}
	return t
}

func workload(w *report.Workload) testcase {
	t := testcase{name: "workload " + w.Name, seconds: w.Seconds}
	account := fmt.Sprintf("%s, %s: messages: %d, errors: %d, throughput: %s, %s\n", words.Operation(w), words.Between(w), w.Messages, w.Errors, words.Speed(w), words.Outcome(w))
	if story := words.WorkloadStory(w); story != "" {
		account += story + "\n"
	}
	if w.Failed() {
		why := w.Error
		if why == "" {
			why = words.Outcome(w)
		}
		t.err = &outcome{message(why), "workload", why + "\n"}
	}
	if w.Output != "" {
		account += "\n" + w.Output
	}
	t.output = account
	return t
}

// notRun returns the testsuite of a file that was not run.
func notRun(file string) testsuite {
	name := filepath.Base(file)
	return testsuite{name: name, properties: []property{{"file", file}},
		cases: []testcase{{name: "run", classname: "ndklab." + name, skipped: "the suite ended before it was run"}}}
}

// message returns the first line of text, which CI systems show in lists.
func message(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	const room = 300
	if len(text) > room {
		text = strings.ToValidUTF8(text[:room], "") + " ..."
	}
	return text
}
