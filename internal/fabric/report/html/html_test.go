package html

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/sample"
)

func suite() *report.Suite {
	s := &report.Suite{Labs: []*report.Run{sample.Flap(), sample.Sweep(), sample.Storm()}, NotRun: []string{"suite/later.ndklab.yaml"}, WallSeconds: 36.4}
	for _, r := range s.Labs {
		r.File = "examples/suite/" + r.Lab + ".ndklab.yaml"
	}
	return s
}

func markup(t *testing.T, s *report.Suite) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The file refers to no other, and has its licence.
func TestSelfContained(t *testing.T) {
	page := markup(t, suite())
	for _, reference := range regexp.MustCompile(`(?i)(?:src|href|action|data|srcset|poster)\s*=\s*"([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if to := reference[1]; to != "data:," && !strings.HasPrefix(to, "#") {
			t.Errorf("the page refers to %q", to)
		}
	}
	for _, no := range []string{"@import", "url("} {
		if strings.Contains(style+plotStyle, no) {
			t.Errorf("a style sheet has %s", no)
		}
	}
	if !strings.Contains(page, "Copyright (c) 2022 Leon Sorokin") {
		t.Error("the licence of uPlot is not in the page")
	}
}

// The page of a lab with dilation says how long its run took on the machine, that of another does not.
func TestDilation(t *testing.T) {
	r := sample.Flap()
	r.Dilation, r.Seconds, r.MachineSeconds = 40, 0.1, 4
	if page := markup(t, &report.Suite{Labs: []*report.Run{r}}); !strings.Contains(page, "dilation 40: 4.00 s on this machine are 100 ms of the fabric") {
		t.Error("the page does not say it")
	}
	if strings.Contains(markup(t, suite()), "dilation") {
		t.Error("a page of labs without dilation has one")
	}
}

// The page of a lab over several hosts has them, that of another has not.
func TestHosts(t *testing.T) {
	r := sample.Flap()
	r.Hosts = []report.RunHost{{Name: "node-17", Nodes: 3, CPUs: 4, TripUS: 76}, {Name: "node-18", OffsetUS: new(-3.0)}}
	page := markup(t, &report.Suite{Labs: []*report.Run{r}})
	for _, want := range []string{"2 hosts", "links that cross hosts: 0 of", "node-17", "-3 us"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %s", want)
		}
	}
	if strings.Contains(markup(t, suite()), "links that cross") {
		t.Error("a page of labs on one host has several")
	}
}

// Names and texts are escaped wherever they stand, also in the data of plots.
func TestEscaped(t *testing.T) {
	const text = `</script></title><script>x('"&')</script>`
	page := markup(t, &report.Suite{Labs: []*report.Run{sample.Hostile(text)}, NotRun: []string{text}})
	if strings.Contains(page, "<script>x") || strings.Contains(page, "</title><script") {
		t.Error("a name has become markup")
	}
	// Those of the page: plots' data, the library and the page's own.
	if n := strings.Count(page, "</script>"); n != 3 {
		t.Errorf("%d scripts end, of 3", n)
	}
	if got := escaped("a<b>&\"'\x00\x1b\u202e\xff\n"); got != "a&lt;b&gt;&amp;&#34;&#39;????\n" {
		t.Errorf("%q", got)
	}
}

// No text in a report can fill the page.
func TestBounded(t *testing.T) {
	few, many := len(markup(t, &report.Suite{Labs: []*report.Run{sample.Hostile("x")}})),
		len(markup(t, &report.Suite{Labs: []*report.Run{sample.Hostile(strings.Repeat("<", 1<<20))}}))
	if many > few+(2<<20) {
		t.Errorf("%d bytes, and %d with short texts", many, few)
	}
}

// Checks, events and problems link to the things that they are about.
func TestLinks(t *testing.T) {
	r := sample.Flap()
	r.Problems = []string{"node c is down", "overrun of link c:eth0 to sw:eth2: median delay"}
	r.SetByHand = []string{"c:eth0 loss=5%", "d is paused"}
	page := markup(t, &report.Suite{Labs: []*report.Run{r}})
	for _, want := range []string{
		`<a href="#lab0-w0">bulk</a> recovered`, // a check by the name of its workload
		`counter timeouts of node <a href="#lab0-n2">c</a> (2)`,
		`link <a href="#lab0-l0">a:eth0</a> - <a href="#lab0-l0">sw:eth0</a> is down`,
		`<p>node <a href="#lab0-n2">c</a> is down</p>`,
		`overrun of link <a href="#lab0-l2">c:eth0</a> to`,
		`<p>Set by hand: <a href="#lab0-l2">c:eth0</a> loss=5%, d is paused</p>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	if before := strings.Index(page, "✗ "); before < 0 || before > strings.Index(page, "4 checks passed") {
		t.Error("what failed does not come first")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestWriteError(t *testing.T) {
	if err := Write(full{}, suite()); err == nil {
		t.Error("no error")
	}
}

// A lab of many nodes has a page that a browser can show: of each counter the least and the most.
func TestManyNodes(t *testing.T) {
	r := sample.Flap()
	host := r.Nodes[0]
	r.Nodes, r.Snapshots = nil, nil
	for i := range 1000 {
		n := host
		n.Name = fmt.Sprintf("n%d", i)
		n.Counters = map[string]uint64{"Connect": uint64(1000 + (i*7+3)%1000)}
		r.Nodes = append(r.Nodes, n)
	}
	page := markup(t, &report.Suite{Labs: []*report.Run{r}})
	if len(page) > 2<<20 {
		t.Errorf("the page has %d bytes", len(page))
	}
	for _, want := range []string{`1000 <span class="note">node <a href="#lab0-n571">n571</a>`, `1999 <span class="note">node <a href="#lab0-n428">n428</a>`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
}
