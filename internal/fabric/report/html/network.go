package html

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// links has a row for each direction of each link: what was asked, and below it what was achieved.
func (s *sheet) links() group {
	if len(s.Links) == 0 {
		return nil
	}
	t := &table{name: "Links, as asked and as achieved", columns: []column{{title: "from → to"}, {title: "engine"}, {title: "packets", number: true}, {title: "bytes", number: true},
		{title: "dropped", number: true}, {title: "lost", number: true}, {title: "figures"}, {title: "delay", number: true}, {title: "jitter", number: true},
		{title: "loss", number: true}, {title: "rate", number: true}, {title: "delays"}}}
	for i := range s.Links {
		l := &s.Links[i]
		engine := group{text(bounded(l.Engine, longName))}
		if l.State != "up" {
			engine = append(engine, el("div", el("strong", class("bad"), text(bounded(l.State, longName)))))
		}
		for end := range l.Directions {
			d := &l.Directions[end]
			var mark group
			if end == 0 {
				mark = group{id(s.at.link(i))}
			}
			cells := []group{cell(text(bounded(l.Endpoints[end], longName) + " → " + bounded(l.Endpoints[1-end], longName))), cell(engine...), cell(number(d.Packets)),
				cell(text(words.Size(d.Bytes))), cell(number(d.Dropped)), cell(number(d.Lost)), figures(d)}
			cells = append(cells, quality(d)...)
			t.row(mark, append(cells, delays(d.Delays))...)
			if story := words.DirectionStory(d, true); story != "" {
				t.across("", text(bounded(story, longText)))
			}
			for _, o := range d.Overruns {
				t.across("bad", text("overrun: "+bounded(words.Overrun(&o), longText)))
			}
		}
	}
	return group{t.element()}
}

// figures returns the names of the lines of quality.
func figures(d *report.Direction) group {
	if words.Changed(d) {
		return cell(el("div", class("asked"), text("set now")), el("div", class("asked"), text("mean asked")), el("div", text("achieved")))
	}
	return cell(el("div", class("asked"), text("asked")), el("div", text("achieved")))
}

// quality returns delay, jitter, loss and rate, asked and measured, and set now if that
// differs from what was asked.
func quality(d *report.Direction) []group {
	asked, achieved, set := &d.Asked, &d.Achieved, &d.Asked
	if words.Changed(d) {
		set = d.Set
	}
	var cells []group
	for _, v := range []struct {
		set, asked, achieved *float64
		format               func(float64) string
	}{
		{set.DelayUS, asked.DelayUS, achieved.DelayUS, words.Duration}, {set.JitterUS, asked.JitterUS, achieved.JitterUS, words.Duration},
		{set.Loss, asked.Loss, achieved.Loss, words.Percent}, {set.RateGbps, asked.RateGbps, achieved.RateGbps, words.Rate},
	} {
		form := func(p *float64) text {
			if p == nil {
				return "–"
			}
			return text(v.format(*p))
		}
		var lines group
		if words.Changed(d) {
			lines = group{el("div", class("asked"), form(v.set))}
		}
		cells = append(cells, cell(append(lines, el("div", class("asked"), form(v.asked)), el("div", form(v.achieved)))...))
	}
	return cells
}

// delays returns a small picture of a histogram.
func delays(bars []report.Delays) group {
	if len(bars) < 2 {
		return nil
	}
	most := uint64(1)
	for _, b := range bars {
		most = max(most, b.Packets)
	}
	const width, height = 120, 28
	step := width / float64(len(bars))
	var path strings.Builder
	for i, b := range bars {
		up := height * float64(b.Packets) / float64(most)
		fmt.Fprintf(&path, "M%.1f %dv%.1fh%.1fv%.1fz", float64(i)*step, height, -up, step*0.85, up)
	}
	about := fmt.Sprintf("Histogram of delay, from %s to %s", words.Duration(bars[0].FromUS), words.Duration(bars[len(bars)-1].FromUS))
	return group{
		el("svg", class("histogram"), attr("role", "img"), attr("aria-label", about), attr("viewBox", fmt.Sprintf("0 0 %d %d", width, height)),
			attr("width", strconv.Itoa(width)), attr("height", strconv.Itoa(height)), attr("preserveAspectRatio", "none"),
			el("title", text(about)), el("path", attr("d", path.String()))),
		el("div", class("note range"), el("span", text(words.Duration(bars[0].FromUS))), el("span", text(words.Duration(bars[len(bars)-1].FromUS))))}
}

// counters returns the nodes, and their counters at the end and, folded, at each of the
// timeline's snapshots.
func (s *sheet) counters() group {
	if len(s.Nodes) == 0 {
		return nil
	}
	t := &table{name: "Nodes", tall: true, columns: []column{{title: "node"}, {title: "kind"}, {title: "state"}, {title: "restarts", number: true}, {title: "addresses"}}}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		state := group{text(bounded(n.InWords(), longText))}
		if n.State != core.NodeIsReady {
			state = group{el("strong", append(group{class("bad"), text("✗ ")}, state...)...)}
		}
		t.row(group{id(s.at.node(i))}, cell(text(bounded(n.Name, longName))), cell(text(bounded(n.Kind, longName))), cell(state...),
			cell(number(n.Restarts)), addresses(n))
	}
	body := group{t.element()}
	body = append(body, s.matrices(s.Nodes, "at the end")...)
	for _, name := range byName(s.Snapshots) {
		if tables := s.matrices(s.Snapshots[name], "of snapshot "+bounded(name, longName)); tables != nil {
			body = append(body, el("details", append(group{el("summary", text("Snapshot "+bounded(name, longName)))}, tables...)...))
		}
	}
	return body
}

func addresses(n *report.Node) group {
	var g group
	for _, a := range n.Addresses {
		g = append(g, el("div", text(bounded(a, longName))))
	}
	return g
}

// mostColumns bounds how many nodes have a column each. Of more, only the least and the most that
// any has are shown; the JSON form has all.
const mostColumns = 16

// matrices returns two tables of counters, which have a row for each that is not 0 everywhere.
func (s *sheet) matrices(nodes []report.Node, when string) group {
	var hosts []int
	for i := range nodes {
		if len(nodes[i].Counters)+len(nodes[i].Transport) > 0 {
			hosts = append(hosts, i)
		}
	}
	var body group
	for _, set := range []struct {
		title string
		names []string
		of    func(*report.Node) map[string]uint64
	}{
		{"NDIS counter", report.NDISNames(), func(n *report.Node) map[string]uint64 { return n.Counters }},
		{"transport counter", report.TransportNames(nodes), func(n *report.Node) map[string]uint64 { return n.Transport }},
	} {
		t := &table{name: set.title + "s " + when, columns: []column{{title: set.title}, {title: "all nodes", number: true}}}
		if len(hosts) > mostColumns {
			t.columns = append(t.columns, column{title: "least", number: true}, column{title: "most", number: true})
		} else {
			for _, i := range hosts {
				t.columns = append(t.columns, column{title: bounded(nodes[i].Name, longName), number: true})
			}
		}
		var zero []string
		for _, name := range set.names {
			values := make([]*uint64, len(hosts)) // nil where it is not known
			sum := uint64(0)
			for i, host := range hosts {
				if value, known := set.of(&nodes[host])[name]; known {
					values[i] = &value
					sum += value
				}
			}
			if sum == 0 {
				zero = append(zero, bounded(name, longName))
				continue
			}
			row := []group{cell(el("code", text(bounded(name, longName)))), cell(el("strong", number(sum)))}
			if len(hosts) > mostColumns {
				row = append(row, s.extremes(nodes, hosts, values)...)
			} else {
				for _, value := range values {
					row = append(row, known(value))
				}
			}
			t.add(row...)
		}
		if len(t.rows) > 0 {
			body = append(body, t.element())
		}
		if len(zero) > 0 && len(hosts) > 0 {
			body = append(body, el("p", class("note"), text("0 everywhere: "+strings.Join(zero, ", "))))
		}
	}
	return body
}

func known(value *uint64) group {
	if value == nil {
		return cell(text("–"))
	}
	return cell(number(*value))
}

// extremes returns the least and the most of some values, with the nodes that have them.
func (s *sheet) extremes(nodes []report.Node, hosts []int, values []*uint64) []group {
	least, most := -1, -1
	for i, v := range values {
		if v == nil {
			continue
		}
		if least < 0 || *v < *values[least] {
			least = i
		}
		if most < 0 || *v > *values[most] {
			most = i
		}
	}
	var cells []group
	for _, i := range []int{least, most} {
		name := bounded(nodes[hosts[i]].Name, longName)
		cells = append(cells, cell(number(*values[i]), text(" "), el("span", append(group{class("note")}, s.at.linked("node "+name)...)...)))
	}
	return cells
}
