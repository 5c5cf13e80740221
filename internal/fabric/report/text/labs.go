package text

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
)

// WriteLabs writes a list of labs for people.
func WriteLabs(w io.Writer, labs []report.Lab) error {
	p := newPage(w)
	if len(labs) == 0 {
		p.line("no lab is up")
		return p.flush()
	}
	t := table{columns: []column{
		{title: "lab", wraps: true}, {title: "state"}, {title: "nodes", right: true}, {title: "links", right: true},
		{title: "up for", right: true}, {title: "seed", right: true},
	}}
	labelled := slices.ContainsFunc(labs, func(l report.Lab) bool { return len(l.Labels) > 0 })
	if labelled {
		t.columns = append(t.columns, column{title: "labels", wraps: true})
	}
	for _, l := range labs {
		nodes, links, up, seed := "-", "-", "-", "-" // not known before it is ready
		if l.Up > 0 {
			nodes, links, seed = fmt.Sprint(l.Nodes), fmt.Sprint(l.Links), words.Count(l.Seed)
			up = time.Duration(l.Up * float64(time.Second)).Round(time.Second).String()
		}
		if l.Down > 0 {
			nodes += fmt.Sprintf(", %d down", l.Down)
		}
		if l.Paused > 0 {
			nodes += fmt.Sprintf(", %d paused", l.Paused)
		}
		row := []string{l.Lab, words.Dilated(l.State, l.Dilation), nodes, links, up, seed}
		if labelled {
			row = append(row, topology.FormatLabels(l.Labels))
		}
		t.add(row...)
	}
	p.table(&t)
	return p.flush()
}
