// Package junit writes a suite's report as JUnit XML, the form in which CI systems read results.
//
// Each lab is a testsuite. In it each check is a testcase, each workload is, and each problem that
// is no check's or workload's; the last testcase is the run itself, whose output is the text report. A
// check that failed is a failure; an error of a workload and a problem are errors.
//
// There is no one schema of this form. What is written conforms to those of Jenkins' xUnit plugin
// (junit-10.xsd) and, testsuite by testsuite, of Maven's surefire (surefire-test-report.xsd), and
// GitLab, GitHub's reporters and Azure read it, too.
//
// Start reading at Write.
package junit

import (
	"encoding/xml"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ndklab/ndklab/fabric/report"
)

// most is how many bytes of text a testcase has: CI systems cut, or refuse, what is larger.
const most = 64 << 10

type testsuites struct {
	XMLName  xml.Name    `xml:"testsuites"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Time     seconds     `xml:"time,attr"`
	Suites   []testsuite `xml:"testsuite"`
}

type testsuite struct {
	Name       string     `xml:"name,attr"`
	Tests      int        `xml:"tests,attr"`
	Failures   int        `xml:"failures,attr"`
	Errors     int        `xml:"errors,attr"`
	Skipped    int        `xml:"skipped,attr"`
	Time       seconds    `xml:"time,attr"`
	Properties []property `xml:"properties>property"`
	Cases      []testcase `xml:"testcase"`
}

type property struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

// A testcase's parts are in the order that surefire's schema wants.
type testcase struct {
	Name      string   `xml:"name,attr"`
	Classname string   `xml:"classname,attr"`
	Time      seconds  `xml:"time,attr"`
	Failure   *outcome `xml:"failure"`
	Skipped   *skipped `xml:"skipped"`
	Error     *outcome `xml:"error"`
	Output    *text    `xml:"system-out"`
}

type outcome struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	text
}

// A text stands in CDATA sections, so that people can read it.
type text struct {
	Text string `xml:",cdata"`
}

type skipped struct {
	Message string `xml:"message,attr"`
}

// Seconds have three decimals and no exponent, as the schemas want.
type seconds float64

func (s seconds) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(s), 'f', 3, 64), nil
}

// Write writes a suite, or one run as a suite of one.
func Write(w io.Writer, s *report.Suite) error {
	all := testsuites{Name: "ndklab", Time: seconds(s.WallSeconds)}
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
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (all *testsuites) add(s testsuite) {
	for _, c := range s.Cases {
		s.Tests++
		switch {
		case c.Failure != nil:
			s.Failures++
		case c.Error != nil:
			s.Errors++
		case c.Skipped != nil:
			s.Skipped++
		}
	}
	all.Tests, all.Failures, all.Errors = all.Tests+s.Tests, all.Failures+s.Failures, all.Errors+s.Errors
	all.Suites = append(all.Suites, s)
}

// lab is the testsuite of a run.
func lab(r *report.Run) (testsuite, error) {
	s := testsuite{Name: xmlText(r.Lab), Time: seconds(r.WallSeconds)}
	for _, p := range []property{
		{"file", r.File}, {"seed", strconv.FormatUint(r.Seed, 10)}, {"started", r.Started}, {"host", r.Host},
		{"simulated", strconv.FormatBool(r.Simulated)}, {"replay", r.Replay}, {"artifacts", r.Artifacts},
	} {
		if p.Value != "" {
			s.Properties = append(s.Properties, property{p.Name, xmlText(p.Value)})
		}
	}
	for i := range r.Checks {
		s.Cases = append(s.Cases, check(&r.Checks[i], r))
	}
	for i := range r.Workloads {
		s.Cases = append(s.Cases, workload(&r.Workloads[i]))
	}
	for i, problem := range r.Problems {
		s.Cases = append(s.Cases, testcase{Name: "problem " + strconv.Itoa(i+1), Error: &outcome{Message: message(problem), Type: "problem", text: text{xmlText(problem)}}})
	}
	var words strings.Builder
	if err := report.WriteText(&words, r); err != nil {
		return testsuite{}, err
	}
	whole := testcase{Name: "run", Time: seconds(r.Seconds), Output: &text{xmlText(words.String())}}
	if !r.Passed && !said(s.Cases) {
		whole.Error = &outcome{Message: message(r.Failure()), Type: "run"}
	}
	s.Cases = append(s.Cases, whole)
	names := map[string]int{}
	for i := range s.Cases {
		c := &s.Cases[i]
		c.Classname = "ndklab." + s.Name // with a package, by which Jenkins groups
		c.Name = xmlText(c.Name)
		// Systems that compare runs know a case by its name.
		if names[c.Name]++; names[c.Name] > 1 {
			c.Name += " (" + strconv.Itoa(names[c.Name]) + ")"
		}
	}
	return s, nil
}

// said reports whether any case says that something is wrong.
func said(cases []testcase) bool {
	for _, c := range cases {
		if c.Failure != nil || c.Error != nil {
			return true
		}
	}
	return false
}

func check(c *report.Check, r *report.Run) testcase {
	t := testcase{Name: "check " + c.Name}
	if c.Passed {
		return t
	}
	words := fmt.Sprintf("%s\nexpected: %s\ngot:      %s\n", c.Name, c.Expected, c.Got)
	for _, l := range []struct{ name, value string }{
		{"look at:  ", c.Where}, {"check at: ", c.At}, {"evidence: ", r.Artifacts}, {"replay:   ", r.Replay},
	} {
		if l.value != "" {
			words += l.name + l.value + "\n"
		}
	}
	t.Failure = &outcome{Message: message(fmt.Sprintf("expected %s, got %s", c.Expected, c.Got)), Type: "check", text: text{xmlText(words)}}
	return t
}

func workload(w *report.Workload) testcase {
	t := testcase{Name: "workload " + w.Name, Time: seconds(w.Seconds)}
	words := fmt.Sprintf("%s, %s: messages: %d, errors: %d, throughput: %s, %s\n", w.What(), w.Between(), w.Messages, w.Errors, w.Speed(), w.Outcome())
	if story := w.Story(); story != "" {
		words += story + "\n"
	}
	if w.Failed() {
		why := w.Error
		if why == "" {
			why = w.Outcome()
		}
		t.Error = &outcome{Message: message(why), Type: "workload", text: text{xmlText(why + "\n")}}
	}
	if w.Output != "" {
		words += "\n" + w.Output
	}
	t.Output = &text{xmlText(words)}
	return t
}

// notRun is the testsuite of a file that was not run.
func notRun(file string) testsuite {
	name := xmlText(filepath.Base(file))
	return testsuite{Name: name, Properties: []property{{"file", xmlText(file)}},
		Cases: []testcase{{Name: "run", Classname: "ndklab." + name, Skipped: &skipped{"the suite ended before it was run"}}}}
}

// message is the first line of text, which CI systems show in lists.
func message(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	const room = 300
	if len(text) > room {
		text = strings.ToValidUTF8(text[:room], "") + " ..."
	}
	return xmlText(text)
}

// xmlText is text as XML can have it: valid UTF-8 without control characters, and of what is
// too long the end, where errors are.
func xmlText(s string) string {
	if len(s) > most {
		s = "... " + strings.ToValidUTF8(s[len(s)-most:], "")
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < ' ' || r == utf8.RuneError || r == 0xFFFE || r == 0xFFFF || 0x7F <= r && r < 0xA0:
			return '?'
		}
		return r
	}, s)
}
