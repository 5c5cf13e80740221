package junit

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/sample"
	"github.com/ndklab/ndklab/internal/golden"
)

func written(t *testing.T, s *report.Suite) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func suite() *report.Suite {
	return &report.Suite{Labs: []*report.Run{sample.Flap(), sample.Sweep(), sample.Storm()}, NotRun: []string{"suite/later.ndklab.yaml"}, WallSeconds: 36.4}
}

func TestWrite(t *testing.T) {
	golden.Check(t, "suite.xml", string(written(t, suite())))
}

// A rule says what both schemas allow of an element: its attributes, of which those with a ! are
// required, and its children in order.
type rule struct{ attributes, children string }

var rules = map[string]rule{
	"testsuites": {"name tests failures errors time", "testsuite"},
	"testsuite":  {"name! tests! failures! errors! skipped! time", "properties testcase"},
	"properties": {"", "property"},
	"property":   {"name! value!", ""},
	"testcase":   {"name! classname time!", "failure skipped error system-out"},
	"failure":    {"message type!", ""},
	"skipped":    {"message", ""},
	"error":      {"message type!", ""},
	"system-out": {"", ""},
}

// conforms holds a document against the rules.
func conforms(t *testing.T, document []byte) {
	t.Helper()
	duration := regexp.MustCompile(`^[0-9]{1,}\.[0-9]{3}$`)
	type open struct {
		rule
		at int // the last child's place among those of the rule
	}
	var stack []open
	for d := xml.NewDecoder(bytes.NewReader(document)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			name := token.Name.Local
			r, known := rules[name]
			if !known {
				t.Fatalf("element %s", name)
			}
			if len(stack) > 0 {
				parent := &stack[len(stack)-1]
				at := -1
				for i, child := range strings.Fields(parent.children) {
					if child == name {
						at = i
					}
				}
				if at < parent.at {
					t.Errorf("%s does not belong there", name)
				}
				parent.at = at
			}
			given := map[string]string{}
			for _, a := range token.Attr {
				given[a.Name.Local] = a.Value
			}
			for _, a := range strings.Fields(r.attributes) {
				a, required := strings.CutSuffix(a, "!")
				value, ok := given[a]
				if required && !ok {
					t.Errorf("%s has no attribute %s", name, a)
				}
				if a == "time" && ok && !duration.MatchString(value) {
					t.Errorf("time is %q", value)
				}
				delete(given, a)
			}
			if len(given) > 0 {
				t.Errorf("%s has attributes %v", name, given)
			}
			stack = append(stack, open{rule: r})
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		}
	}
}

func TestConforms(t *testing.T) {
	conforms(t, written(t, suite()))
	conforms(t, written(t, &report.Suite{Interrupted: true}))
}

// The types into which the test reads a document back.
type (
	readSuites struct {
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Suites   []readSuite `xml:"testsuite"`
	}
	readSuite struct {
		Skipped int        `xml:"skipped,attr"`
		Cases   []readCase `xml:"testcase"`
	}
	readCase struct {
		Name    string `xml:"name,attr"`
		Failure *struct {
			Message string `xml:"message,attr"`
			Text    string `xml:",chardata"`
		} `xml:"failure"`
		Output string `xml:"system-out"`
	}
)

// The numbers at the top are those of the cases, of which every failure says expected, got and where.
func TestCounts(t *testing.T) {
	var all readSuites
	if err := xml.Unmarshal(written(t, suite()), &all); err != nil {
		t.Fatal(err)
	}
	// Flap: 6 checks, 3 workloads, the run. Sweep: a workload and the run. Storm: a check, 2 workloads, a
	// problem, the run. And what was not run.
	if all.Tests != 10+2+5+1 || all.Failures != 3 || all.Errors != 3 {
		t.Errorf("%d tests, %d failures, %d errors", all.Tests, all.Failures, all.Errors)
	}
	if len(all.Suites) != 4 || all.Suites[3].Skipped != 1 {
		t.Errorf("%d suites, the last one of which has skipped %d", len(all.Suites), all.Suites[len(all.Suites)-1].Skipped)
	}
	for _, c := range all.Suites[0].Cases {
		if c.Name != "check bulk recovered" {
			continue
		}
		if c.Failure == nil || c.Failure.Message != "expected <= 2 s, got 2.21 s" {
			t.Fatalf("%+v", c.Failure)
		}
		for _, want := range []string{"expected: <= 2 s", "got:      2.21 s", "a-eth0.pcapng", "flap.ndklab.yaml:32:5", "ndklab-artifacts/flap-42", "--seed 42"} {
			if !strings.Contains(c.Failure.Text, want) {
				t.Errorf("no %q in %q", want, c.Failure.Text)
			}
		}
		return
	}
	t.Error("the check that failed has no case")
}

// A check of a buffer is a case like others, which says where it failed.
func TestBufferCheck(t *testing.T) {
	got := string(written(t, &report.Suite{Labs: []*report.Run{sample.Incast()}}))
	for _, want := range []string{`<testcase name="check tor1 drops"`, `<testcase name="check tor1 pause_time"`, "look at:  tor2:eth0 paused tor1:eth3", "check at: incast.ndklab.yaml:40:5"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
}

// A run that has not passed is never shown as one that has, whatever the reason.
func TestUnexplained(t *testing.T) {
	got := string(written(t, &report.Suite{Labs: []*report.Run{{Lab: "x"}}}))
	if !strings.Contains(got, `errors="1"`) || !strings.Contains(got, "the run was not completed") {
		t.Error(got)
	}
}

// The document is well-formed, and not too long, whatever names and texts are.
func TestHostile(t *testing.T) {
	for _, text := range []string{"]]></system-out><testcase name='x'/>", "\x00\x1b[31m\xff\ufffe\u0085", "&amp;\"'<!--", strings.Repeat("long\n", 100_000)} {
		r := sample.Hostile(text)
		got := written(t, &report.Suite{Labs: []*report.Run{r}, NotRun: []string{text}})
		conforms(t, got)
		var all readSuites
		if err := xml.Unmarshal(got, &all); err != nil {
			t.Fatal(err)
		}
		if n := len(r.Checks) + len(r.Workloads) + 2; len(all.Suites[0].Cases) != n {
			t.Errorf("%d cases, %d wanted", len(all.Suites[0].Cases), n)
		}
		for _, c := range all.Suites[0].Cases {
			if len(c.Output) > most+10 {
				t.Errorf("%s: an output of %d bytes", c.Name[:10], len(c.Output))
			}
		}
	}
}

// Cases of the same name are told apart.
func TestSameNames(t *testing.T) {
	r := &report.Run{Lab: "x", Checks: []report.Check{{Name: "w errors", Passed: true}, {Name: "w errors", Passed: true}}}
	if got := string(written(t, &report.Suite{Labs: []*report.Run{r}})); !strings.Contains(got, `name="check w errors (2)"`) {
		t.Error(got)
	}
}

// The document does not hide that a run passed only when it was run again.
func TestFlaky(t *testing.T) {
	if got := string(written(t, &report.Suite{Labs: []*report.Run{{Lab: "x", Passed: true, Flaky: true, Attempts: 3}}})); !strings.Contains(got, `name="flaky" value="passed on attempt 3"`) {
		t.Error(got)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestWriteError(t *testing.T) {
	if err := Write(full{}, suite()); err == nil {
		t.Error("no error")
	}
}
