package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/fabric/report/words"
)

// WriteLinks writes links for people: what they are set to, and what they did.
func WriteLinks(w io.Writer, links []report.Link) error {
	p := newPage(w)
	p.settings(links)
	p.links(links)
	return p.flush()
}

// WriteSettings writes for people what links are set to.
func WriteSettings(w io.Writer, links []report.Link) error {
	p := newPage(w)
	p.settings(links)
	return p.flush()
}

func (p *page) settings(links []report.Link) {
	t := table{columns: []column{{title: "link"}, {title: "engine"}, {title: "state"}, {title: "settings", wraps: true}}}
	for _, l := range links {
		for end, d := range l.Directions {
			var settings []string
			for _, s := range d.Settings {
				settings = append(settings, whole(s))
			}
			if settings == nil {
				settings = []string{"-"}
			}
			t.add(directionName(&l, end), l.Engine, l.State, strings.Join(settings, " "))
		}
	}
	p.table(&t)
}

// directionName names a direction of a link by its two ends.
func directionName(l *report.Link, from int) string {
	return l.Endpoints[from] + " -> " + l.Endpoints[1-from]
}

func (p *page) links(links []report.Link) {
	if len(links) == 0 {
		return
	}
	t := table{columns: []column{
		{title: "link", wraps: true}, {title: "engine"}, {title: "packets\nbytes", right: true},
		{title: "dropped\nlost", right: true}, {title: ""},
		{title: "delay", right: true}, {title: "jitter", right: true}, {title: "loss", right: true}, {title: "rate", right: true},
	}}
	for _, l := range links {
		engine := l.Engine
		if l.State != "up" {
			engine += "\n" + l.State
		}
		for end, d := range l.Directions {
			row := []string{directionName(&l, end), engine, words.Count(d.Packets) + "\n" + words.Size(d.Bytes), words.Count(d.Dropped) + "\n" + words.Count(d.Lost)}
			t.add(append(row, figures(&d)...)...)
		}
	}
	p.table(&t)
	p.linkStories(links)
	p.lateness(links)
}

// lateness says how late the packets of the direction left whose 10th percentile was
// latest: what a machine that is busy does not spoil.
func (p *page) lateness(links []report.Link) {
	var name string
	var worst *report.Lateness
	for _, l := range links {
		for end := range l.Directions {
			if d := l.Directions[end].Lateness; d != nil && d.Late != nil && (worst == nil || d.P10 > worst.P10) {
				name, worst = directionName(&l, end), d
			}
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

// linkStories says what there is to say of links besides their tables.
func (p *page) linkStories(links []report.Link) {
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
	for _, l := range links {
		for end := range l.Directions {
			if story := words.DirectionStory(&l.Directions[end]); story != "" {
				tell(directionName(&l, end), story, func(line string) string { return line })
			}
		}
	}
	for _, l := range links {
		if l.Engine == "netem" {
			tell(l.Endpoints[0]+" - "+l.Endpoints[1], "what netem achieves is not measured, nor is an overrun noticed: see `ndklab link verify`",
				func(line string) string { return line })
		}
	}
	for _, l := range links {
		for end := range l.Directions {
			for _, o := range l.Directions[end].Overruns {
				tell("OVERRUN "+directionName(&l, end), words.Overrun(&o), p.paint.red)
			}
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
