package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// WriteLinks writes links for people: what they are set to, and what they did.
func WriteLinks(w io.Writer, links []report.Link) error {
	p := newPage(w)
	p.full = true
	writeSettingsTable(p, links)
	writeLinkTable(p, links)
	return p.flush()
}

// WriteSettings writes for people what links are set to.
func WriteSettings(w io.Writer, links []report.Link) error {
	p := newPage(w)
	writeSettingsTable(p, links)
	return p.flush()
}

func writeSettingsTable(p *page, links []report.Link) {
	t := table{columns: []column{{title: "link"}, {title: "engine"}, {title: "state"}, {title: "settings", wraps: true}}}
	for i, l := range links {
		for end, d := range l.Directions {
			var settings []string
			for _, s := range d.Settings {
				settings = append(settings, whole(s))
			}
			if settings == nil {
				settings = []string{"-"}
			}
			t.add(side{&links[i], end}.name(), l.Engine, l.State, strings.Join(settings, " "))
		}
	}
	p.table(&t)
}

func writeLinkTable(p *page, links []report.Link) {
	if len(links) == 0 {
		return
	}
	shown := sides(links)
	if p.brief && len(shown) > few {
		shown = worstSides(shown)
		p.totals(linkTotals(links), len(shown), "directions that lost most")
		if len(shown) == 0 {
			return
		}
		p.started = false
	}
	t := table{columns: []column{
		{title: "link", wraps: true}, {title: "engine"}, {title: "packets\nbytes", right: true},
		{title: "dropped\nlost", right: true}, {title: ""},
		{title: "delay", right: true}, {title: "jitter", right: true}, {title: "loss", right: true}, {title: "rate", right: true},
	}}
	for _, s := range shown {
		engine, d := s.Engine, s.direction()
		if s.State != "up" {
			engine += "\n" + s.State
		}
		row := []string{s.name(), engine, words.Count(d.Packets) + "\n" + words.Size(d.Bytes), words.Count(d.Dropped) + "\n" + words.Count(d.Lost)}
		t.add(append(row, figures(d)...)...)
	}
	p.table(&t)
	writeLinkStories(p, shown)
	writeLateness(p, shown)
}

// writeLateness writes how late the packets of the direction left whose 10th percentile was
// latest, which a busy machine does not spoil: of those that left their tolerance, on a
// full page of all.
func writeLateness(p *page, shown []side) {
	var name string
	var worst *report.Lateness
	for _, s := range shown {
		d := s.direction()
		if !p.full && len(d.Overruns) == 0 {
			continue
		}
		if l := d.Lateness; l != nil && l.Late != nil && (worst == nil || l.P10 > worst.P10) {
			name, worst = s.name(), l
		}
	}
	if worst == nil {
		return
	}
	text := fmt.Sprintf("left %s late at the 10th percentile, %s at the median, %s at the 99th; of %s packets", words.Duration(worst.P10), words.Duration(worst.P50), words.Duration(worst.P99), words.Count(worst.Packets))
	for i, l := range worst.Late {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(" %s were more than %s late (tolerated %s)", words.Percent(float64(l.Packets)/float64(worst.Packets)), words.Limit(&l), words.Short(words.Percent(l.Tolerated)))
	}
	p.line("")
	for _, line := range p.wrapped("lateness, most at "+name+": ", text) {
		p.line(line)
	}
}

// figures lists what was asked and what was measured, in lines with their names. The
// present settings have a line of their own if the packets were asked for others, in the
// mean.
func figures(d *report.Direction) []string {
	asked, achieved := words.Figures(&d.Asked, words.Short), words.Figures(&d.Achieved, nil)
	if !words.Changed(d) {
		return beside([]string{"asked", "achieved"}, asked, achieved)
	}
	cells := []string{"set now\nmean asked\nachieved"}
	for i, now := range words.Figures(d.Set, words.Short) {
		cells = append(cells, now+"\n"+asked[i]+"\n"+achieved[i])
	}
	return cells
}

// writeLinkStories writes what there is to say of links besides their tables.
func writeLinkStories(p *page, shown []side) {
	first := true
	tell := func(lead, text string, in func(string) string) {
		if first {
			p.line("")
			first = false
		}
		for _, line := range p.wrapped(lead+": ", text) {
			p.line(in(line))
		}
	}
	inBlack := func(line string) string { return line }
	for _, s := range shown {
		if story := words.DirectionStory(s.direction(), p.full); story != "" {
			tell(s.name(), story, inBlack)
		}
	}
	var unmeasured *report.Link
	for _, s := range shown {
		if s.Engine == "netem" && s.Link != unmeasured {
			unmeasured = s.Link
			tell(s.Endpoints[0]+" - "+s.Endpoints[1], "what netem achieves is not measured, nor is an overrun noticed: see `ndklab link verify`", inBlack)
		}
	}
	for _, s := range shown {
		for _, o := range s.direction().Overruns {
			tell("OVERRUN "+s.name(), words.Overrun(&o), p.paint.red)
		}
	}
}

// beside stacks what was asked on what was achieved, under one name each, and
// leaves out the line that says nothing.
func beside(names, asked, achieved []string) []string {
	switch {
	case silent(asked) && silent(achieved):
		return nil
	case silent(asked):
		return append(names[1:2:2], achieved...)
	case silent(achieved):
		return append(names[0:1:1], asked...)
	}
	cells := []string{names[0] + "\n" + names[1]}
	for i := range asked {
		cells = append(cells, asked[i]+"\n"+achieved[i])
	}
	return cells
}

func silent(cells []string) bool {
	for _, c := range cells {
		if c != "-" {
			return false
		}
	}
	return true
}
