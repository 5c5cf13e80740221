package html

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/graph"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// A sheet is the part of the page that is about one lab's run.
type sheet struct {
	*report.Run
	id string // which the ids of everything in it begin with
	at anchors
}

// lab returns the sheet of a lab. It can be folded; at first it is open if there is something to see.
func lab(i int, r *report.Run, open bool) *element {
	s := &sheet{Run: r, id: labID(i)}
	s.at = anchorsOf(s)
	facts := []string{"seed " + strconv.FormatUint(r.Seed, 10), words.Duration(r.Seconds * 1e6)}
	if r.Simulated {
		facts = append(facts, "simulated")
	}
	if r.Dilation > 1 {
		facts = append(facts, words.Dilation(r.Dilation, r.MachineSeconds, r.Seconds))
	}
	if len(r.Hosts) > 1 {
		facts = append(facts, words.Plural(len(r.Hosts), "host"), words.Crossing(r))
	}
	if r.Flaky {
		facts = append(facts, fmt.Sprintf("flaky: it passed on attempt %d", r.Attempts))
	}
	facts = append(facts, r.File)
	if !r.Passed {
		facts = append(facts, words.Failure(r))
	}
	// In the order in which a person who looks for a reason needs them.
	var contents, sections group
	for _, part := range []struct {
		id, title string
		body      group
	}{
		{"checks", "Checks", s.checks()},
		{"time", "Over time", s.overTime()},
		{"topology", "Topology", s.topology()},
		{"workloads", "Workloads", s.workloads()},
		{"links", "Links", s.links()},
		{"buffers", "Buffers", s.buffers()},
		{"hosts", "Hosts", s.hosts()},
		{"counters", "Nodes and counters", s.counters()},
	} {
		if part.body == nil {
			continue
		}
		anchor := s.id + "-" + part.id
		contents = append(contents, el("li", to(anchor, text(part.title))))
		sections = append(sections, el("section", append(group{class("card " + part.id), id(anchor), el("h3", text(part.title))}, part.body...)...))
	}
	return el("details", class("lab"), id(s.id), when(open, attr("open", "")),
		el("summary", el("h2", text(bounded(r.Lab, longName))), verdict(r.Passed), el("span", class("facts"), list(facts))),
		el("nav", attr("aria-label", "Sections of lab "+bounded(r.Lab, longName)), el("ul", contents...)),
		el("div", append(group{class("sections")}, sections...)...),
		s.data())
}

// checks returns what has failed, each with what to look at, and then a table of those that passed.
func (s *sheet) checks() group {
	var failed group
	passed := &table{name: "Checks that passed", columns: []column{{title: "check"}, {title: "expected"}, {title: "got"}}}
	for i := range s.Checks {
		c := &s.Checks[i]
		if c.Passed {
			passed.add(cell(s.at.named(bounded(c.Name, longName))...), cell(text(bounded(c.Expected, longName))), cell(text(bounded(c.Got, longName))))
			continue
		}
		facts := el("dl")
		for _, f := range []struct{ term, is string }{{"expected", c.Expected}, {"got", c.Got}, {"look at", c.Where}, {"check at", c.At}} {
			if f.is != "" {
				el("dt", text(f.term)).of(facts)
				el("dd", s.at.linked(bounded(f.is, longText))...).of(facts)
			}
		}
		failed = append(failed, el("li", el("strong", append(group{class("bad")}, append(group{text("✗ ")}, s.at.named(bounded(c.Name, longName))...)...)...), facts))
	}
	for i := range s.Workloads {
		if w := &s.Workloads[i]; w.Failed() {
			reason := w.Error
			if reason == "" {
				reason = words.Outcome(w)
			}
			failed = append(failed, el("li", el("strong", class("bad"), text("✗ workload "), to(s.at.workload(i), text(bounded(w.Name, longName))), text(": "+words.Outcome(w))),
				el("p", s.at.linked(bounded(reason, longText))...)))
		}
	}
	for _, p := range s.Problems {
		failed = append(failed, el("li", el("strong", class("bad"), text("✗ problem")), el("p", s.at.linked(bounded(p, longText))...)))
	}
	var body group
	if len(failed) > 0 {
		body = append(body, el("ul", append(group{class("failures")}, failed...)...))
	} else if !s.Passed {
		body = append(body, el("p", class("bad"), text(words.Failure(s.Run))))
	}
	if len(s.SetByHand) > 0 { // which may be the reason
		body = append(body, el("p", append(group{text("Set by hand: ")}, s.at.linked(bounded(strings.Join(s.SetByHand, ", "), longText))...)...))
	}
	if s.Artifacts != "" || s.Replay != "" {
		evidence := el("dl", class("evidence"))
		for _, f := range []struct{ term, is string }{{"evidence", s.Artifacts}, {"run it again", s.Replay}} {
			if f.is != "" {
				el("dt", text(f.term)).of(evidence)
				el("dd", el("code", text(bounded(f.is, longText)))).of(evidence)
			}
		}
		body = append(body, evidence)
	}
	if len(passed.rows) > 0 {
		body = append(body, el("h4", text(plural(len(passed.rows), "check")+" passed")), passed.element())
	}
	if len(body) == 0 {
		body = append(body, el("p", text("The file has no checks, and no workload had an error.")))
	}
	return body
}

// topology returns the picture of nodes and links, as they were at the end.
func (s *sheet) topology() group {
	if len(s.Nodes) == 0 {
		return nil
	}
	const longest = 60 // of what is drawn
	known := map[string]bool{}
	nodes, links := slices.Clone(s.Nodes), slices.Clone(s.Links)
	for i := range nodes {
		n := &nodes[i]
		n.Name, n.Kind, n.State, n.Reason = bounded(n.Name, longest), bounded(n.Kind, longest), bounded(n.State, longest), bounded(n.Reason, longName)
		n.Addresses = boundedAll(n.Addresses, longest)
		known[n.Name] = true
	}
	for i := range links {
		l := &links[i]
		for end := range l.Endpoints {
			name, iface, _ := strings.Cut(l.Endpoints[end], ":")
			l.Endpoints[end] = bounded(name, longest) + ":" + bounded(iface, longest)
			l.Directions[end].Settings = boundedAll(l.Directions[end].Settings, longest)
		}
	}
	// Ends of links that are at no node are outside the lab.
	var outside []report.External
	for i := range links {
		for _, endpoint := range links[i].Endpoints {
			if name, _, _ := strings.Cut(endpoint, ":"); !known[name] && !known[endpoint] {
				known[endpoint] = true
				outside = append(outside, report.External{Endpoint: endpoint})
			}
		}
	}
	picture := graph.OfLab(bounded(s.Lab, longest), nodes, links, outside).SVG()
	return group{el("div", class("picture"), attr("role", "group"), attr("tabindex", "0"), attr("aria-label", "Picture of the topology"), verbatim(picture))}
}

// overTime returns the plots over time, and the events that they mark.
func (s *sheet) overTime() group {
	var body group
	payload, without := false, false
	for i := range s.Workloads {
		if w := &s.Workloads[i]; len(w.Series) > 0 {
			payload, without = payload || w.Moves(), without || !w.Moves()
		}
	}
	var plots group
	if payload {
		plots = append(plots, s.plot("throughput", "Throughput", "of payload", s.summary(func(w *report.Workload) string { return words.Speed(w) })))
	}
	if without {
		plots = append(plots, s.plot("rate", "Operations per second", "completed", s.summary(func(w *report.Workload) string { return words.Speed(w) })))
	}
	if payload || without {
		plots = append(plots, s.plot("latency", "Latency", "median, and up to the 99th percentile",
			s.summary(func(w *report.Workload) string {
				return "median " + words.Duration(w.Latency.P50) + ", 99th percentile " + words.Duration(w.Latency.P99)
			})))
	}
	plots = append(plots, s.seriesPlots()...)
	if plots != nil {
		body = append(body, el("div", append(group{class("plots")}, plots...)...))
	}
	if len(s.Events) == 0 {
		return body
	}
	t := &table{name: "Events", tall: true, columns: []column{{title: "mark", number: true}, {title: "at", number: true}, {title: "event"}, {title: "what happened"}}}
	for i := range s.Events {
		e := &s.Events[i]
		t.row(group{id(s.at.event(i)), attr("data-event", strconv.Itoa(i))}, cell(number(i+1)), cell(text(fmt.Sprintf("%.3f s", e.At.Seconds()))),
			cell(text(bounded(e.Kind, longName))), cell(s.at.linked(bounded(e.Text, longText))...))
	}
	return append(body, el("h4", text(plural(len(s.Events), "event"))), t.element())
}

// plot returns the element in which the script draws a plot, with what it shows in words.
func (s *sheet) plot(kind, title, note, summary string) *element {
	return el("figure", class("plot"), attr("data-plot", kind), attr("data-of", s.id),
		el("figcaption", el("strong", text(title)), text(" "+note)),
		el("div", class("chart"), attr("role", "img"), attr("aria-label", title+": "+summary)),
		el("p", class("said"), attr("aria-live", "polite")))
}

// summary returns a figure of each workload.
func (s *sheet) summary(figure func(*report.Workload) string) string {
	var parts []string
	for i := range s.Workloads {
		w := &s.Workloads[i]
		parts = append(parts, bounded(w.Name, longName)+" "+figure(w))
	}
	return bounded(strings.Join(parts, "; "), longText)
}

// anchors has the places in the page of the things that texts name.
type anchors struct {
	id        string
	workloads map[string]int
	nodes     map[string]int
	links     map[string]int // by each of their endpoints
}

func anchorsOf(s *sheet) anchors {
	a := anchors{s.id, map[string]int{}, map[string]int{}, map[string]int{}}
	for i := range s.Workloads {
		a.workloads[s.Workloads[i].Name] = i
	}
	for i := range s.Nodes {
		a.nodes[s.Nodes[i].Name] = i
	}
	for i := range s.Links {
		for _, e := range s.Links[i].Endpoints {
			a.links[e] = i
		}
	}
	return a
}

func (a *anchors) workload(i int) string { return a.id + "-w" + strconv.Itoa(i) }
func (a *anchors) node(i int) string     { return a.id + "-n" + strconv.Itoa(i) }
func (a *anchors) link(i int) string     { return a.id + "-l" + strconv.Itoa(i) }
func (a *anchors) event(i int) string    { return a.id + "-e" + strconv.Itoa(i) }

// named returns the name of a check, which begins with its workload's, or names something else.
func (a *anchors) named(name string) group {
	if first, rest, ok := strings.Cut(name, " "); ok {
		if i, known := a.workloads[first]; known {
			return append(group{to(a.workload(i), text(first))}, text(" "+rest))
		}
	}
	return a.linked(name)
}

// linked returns text in which "workload NAME", "node NAME" and endpoints of links are links to what
// the page has of them.
func (a *anchors) linked(s string) group {
	var g group
	before := ""
	for len(s) > 0 {
		end := strings.IndexAny(s, " \n")
		if end < 0 {
			end = len(s)
		}
		word := strings.TrimRight(s[:end], ".,;:)(")
		anchor := ""
		if i, ok := a.links[word]; ok {
			anchor = a.link(i)
		} else if i, ok := a.workloads[word]; ok && before == "workload" {
			anchor = a.workload(i)
		} else if i, ok := a.nodes[word]; ok && before == "node" {
			anchor = a.node(i)
		}
		if anchor == "" {
			g = append(g, text(s[:min(end+1, len(s))]))
		} else {
			g = append(g, to(anchor, text(word)), text(s[len(word):min(end+1, len(s))]))
		}
		before, s = word, s[min(end+1, len(s)):]
	}
	return g
}

// byName orders what maps have.
func byName[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.SortFunc(names, cmp.Compare[string])
	return names
}

// hosts returns the hosts of a lab over several.
func (s *sheet) hosts() group {
	if len(s.Hosts) < 2 {
		return nil
	}
	t := &table{name: "Hosts", columns: []column{{title: "host"}, {title: "nodes", number: true}, {title: "CPUs", number: true}, {title: "links that cross", number: true}, {title: "round trip", number: true}, {title: "clock", number: true}}}
	for i := range s.Hosts {
		h := &s.Hosts[i]
		t.add(cell(text(bounded(h.Name, longName))), cell(text(strconv.Itoa(h.Nodes))), cell(text(fmt.Sprintf("%g", h.CPUs))), cell(text(strconv.Itoa(h.Cut))),
			cell(text(words.Duration(h.TripUS))), cell(text(words.ClockOffset(h))))
	}
	return group{t.element(), el("p", text(words.Crossing(s.Run)))}
}
