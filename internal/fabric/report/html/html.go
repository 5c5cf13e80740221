// Package html writes a suite's report as one HTML file that needs nothing else: no network, no
// other file. It shows of each lab the checks, with those that failed first and links to what
// they are about, throughput and latency over time with the timeline's events, the distribution of
// latency, the topology, links as asked and as achieved, and counters; light or dark as the reader
// wants, on paper, and on a telephone.
//
// All figures stand in the file as text; the plots are drawn by a script (report.js, with uPlot) from
// data in the file. The file allows its own scripts alone, by their hashes, so that nothing else
// could run even if it got in.
//
// Start reading at Write; run.go has the sections of a lab.
package html

import (
	"bufio"
	"crypto/sha256"
	_ "embed" // the assets
	"encoding/base64"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// The assets. As strings they cost nothing when a process starts.
var (
	//go:embed report.css
	style string
	//go:embed report.js
	script string
	//go:embed uplot/uPlot.min.css
	plotStyle string
	//go:embed uplot/uPlot.iife.min.js
	plotScript string
	//go:embed uplot/LICENSE
	plotLicense string
)

// Write writes a suite, or one run as a suite of one.
func Write(w io.Writer, s *report.Suite) error {
	b := bufio.NewWriter(w)
	_, _ = b.WriteString("<!DOCTYPE html>\n") // errors stay in b
	page(s).write(b)
	_, _ = b.WriteString("\n")
	return b.Flush()
}

func page(s *report.Suite) *element {
	title := "ndklab: " + plural(len(s.Labs), "lab")
	if len(s.Labs) == 1 {
		title = "ndklab: " + bounded(s.Labs[0].Lab, longName)
	}
	if s.Passed {
		title += " passed"
	} else {
		title += " failed"
	}
	// Both scripts stand in one element each, exactly as they are hashed.
	library := "/*\n" + plotLicense + "*/\n" + plotScript
	policy := fmt.Sprintf("default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src %s %s; base-uri 'none'; form-action 'none'", hash(library), hash(script))
	var labs group
	if len(s.Labs) > 1 || len(s.NotRun) > 0 {
		labs = append(labs, overview(s))
	}
	for i, r := range s.Labs {
		labs = append(labs, lab(i, r, len(s.Labs) == 1 || !r.Passed))
	}
	body := group{class("report"), header(s), el("main", labs...),
		el("footer", el("p", text("Made by ndklab. Plots: drag to zoom in, double-click to see all again; click a name below a plot to hide it."))),
		el("script", verbatim(library)), el("script", verbatim(script))}
	return el("html", attr("lang", "en"),
		el("head",
			el("meta", attr("charset", "utf-8")),
			el("meta", attr("http-equiv", "Content-Security-Policy"), attr("content", policy)),
			el("meta", attr("name", "viewport"), attr("content", "width=device-width, initial-scale=1")),
			el("meta", attr("name", "color-scheme"), attr("content", "light dark")),
			el("link", attr("rel", "icon"), attr("href", "data:,")), // none is asked for
			el("title", text(title)),
			el("style", verbatim(plotStyle+style)),
		),
		el("body", body...))
}

// hash returns a script as a Content-Security-Policy names it.
func hash(script string) string {
	sum := sha256.Sum256([]byte(script))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func header(s *report.Suite) *element {
	failed := 0
	for _, r := range s.Labs {
		if !r.Passed {
			failed++
		}
	}
	var facts []string
	switch {
	case len(s.Labs) == 1:
		facts = append(facts, "lab "+s.Labs[0].Lab)
	case failed > 0:
		facts = append(facts, fmt.Sprintf("%d of %s failed", failed, plural(len(s.Labs), "lab")))
	default:
		facts = append(facts, plural(len(s.Labs), "lab"))
	}
	if n := len(s.NotRun); n > 0 {
		facts = append(facts, fmt.Sprintf("%d not run", n))
	}
	if s.Interrupted {
		facts = append(facts, "interrupted")
	}
	if s.WallSeconds > 0 {
		facts = append(facts, words.Duration(s.WallSeconds*1e6)+" in all")
	}
	if len(s.Labs) > 0 {
		facts = append(facts, s.Labs[0].Started, s.Labs[0].Host)
	}
	return el("header", class("top"), el("h1", text("ndklab report")), verdict(s.Passed), el("p", class("facts"), list(facts)))
}

// list returns texts with dots between them.
func list(facts []string) part {
	var g group
	for _, fact := range facts {
		if fact == "" {
			continue
		}
		g = append(g, el("span", text(bounded(fact, longName))), text(" "))
	}
	return g
}

// verdict returns a word with a sign, since some people see no colours.
func verdict(passed bool) *element {
	if passed {
		return el("strong", class("verdict pass"), text("✓ PASS"))
	}
	return el("strong", class("verdict fail"), text("✗ FAIL"))
}

// overview returns the table of a suite's labs, failed ones first.
func overview(s *report.Suite) *element {
	t := &table{name: "Labs of the suite", columns: []column{{title: "verdict"}, {title: "lab"}, {title: "file"}, {title: "checks passed", number: true},
		{title: "workloads", number: true}, {title: "time", number: true}, {title: "seed", number: true}}}
	row := func(i int, r *report.Run) {
		passed := 0
		for j := range r.Checks {
			if r.Checks[j].Passed {
				passed++
			}
		}
		mark := group{verdict(r.Passed)}
		if r.Flaky {
			mark = append(mark, text(" flaky: attempt "+strconv.Itoa(r.Attempts)))
		}
		name := group{to(labID(i), text(bounded(r.Lab, longName)))}
		if !r.Passed {
			name = append(name, el("div", class("note"), text(words.Failure(r))))
		}
		t.add(cell(mark...), cell(name...), cell(el("code", text(bounded(r.File, longName)))), cell(text(fmt.Sprintf("%d of %d", passed, len(r.Checks)))),
			cell(number(len(r.Workloads))), cell(text(words.Duration(r.Seconds*1e6))), cell(text(strconv.FormatUint(r.Seed, 10))))
	}
	for _, wanted := range []bool{false, true} {
		for i, r := range s.Labs {
			if r.Passed == wanted {
				row(i, r)
			}
		}
	}
	for _, file := range s.NotRun {
		t.add(cell(el("strong", class("verdict none"), text("– not run"))), cell(text("–")), cell(el("code", text(bounded(file, longName)))), nil, nil, nil, nil)
	}
	return el("section", class("card"), id("labs"), el("h2", text("Labs")), t.element())
}

// Bounds on the bytes of a text in the page: a node or a program may have made a text of any length.
const (
	longName   = 300
	longText   = 4 << 10
	longOutput = 16 << 10
)

func labID(i int) string { return "lab" + strconv.Itoa(i) }

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// A table has a name, for those who do not see it, and scrolls on its own where it is too wide.
type table struct {
	name    string
	tall    bool // it may become so: then it scrolls up and down, too
	columns []column
	rows    []*element
}

type column struct {
	title  string
	number bool // right-aligned
}

func cell(parts ...part) group { return parts }

// add adds a row of cells, with the first of them as its header.
func (t *table) add(cells ...group) { t.row(nil, cells...) }

func (t *table) row(attributes group, cells ...group) {
	tr := el("tr", attributes...)
	for i, c := range cells {
		name := "td"
		if i == 0 {
			name, c = "th", append(group{attr("scope", "row")}, c...)
		}
		if t.columns[i].number {
			c = append(group{class("number")}, c...)
		}
		el(name, c...).of(tr)
	}
	t.rows = append(t.rows, tr)
}

// across adds a row of one cell below the one before.
func (t *table) across(class string, parts ...part) {
	t.rows = append(t.rows, el("tr", attr("class", strings.TrimSpace("across "+class)),
		el("td", attr("colspan", strconv.Itoa(len(t.columns))), el("div", parts...))))
}

func (t *table) element() *element {
	head := el("tr")
	for _, c := range t.columns {
		th := el("th", attr("scope", "col"), text(c.title))
		if c.number {
			class("number").of(th)
		}
		th.of(head)
	}
	body := el("tbody")
	for _, r := range t.rows {
		r.of(body)
	}
	classes := "scroll"
	if t.tall {
		classes += " tall"
	}
	return el("div", class(classes), attr("role", "group"), attr("tabindex", "0"), attr("aria-label", t.name),
		el("table", el("thead", head), body))
}
