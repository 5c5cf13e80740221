package top

import (
	"context"
	"fmt"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/live"
	"github.com/ndklab/ndklab/internal/fabric/monitor"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
)

// A snapshot is the JSON form of what is shown once.
type snapshot struct {
	Map    *live.Map    `json:"map"`
	Sample *live.Sample `json:"sample"`
}

// writeOnce writes what the lab does in an interval.
func writeOnce(ctx context.Context, s *subject, params monitor.Top, w io.Writer) error {
	m := newModel(params.Lab, false, func(time.Duration) tea.Cmd { return nil }, s.asks(ctx), params.Interval)
	for _, interval := range []time.Duration{0, params.Interval} {
		msg, ok := s.observe(ctx, interval)().(observed)
		if !ok {
			return ctx.Err()
		}
		if msg.err != nil {
			return msg.err
		}
		m.take(msg)
	}
	if params.JSON {
		return written(report.WriteJSON(w, snapshot{m.of, m.sample}))
	}
	list, err := s.Nodes.Connections(ctx, "")
	if err != nil {
		return err
	}
	m.connections = list.Connections
	return written(text.WriteGrids(w, m.grids()))
}

// written returns the error of writing, if any, which is the machine's failure.
func written(err error) error {
	if err != nil {
		return control.Errorf(control.Unable, "the output cannot be written: %v", err)
	}
	return nil
}

// grids returns all tables, in the order of trouble.
func (m *model) grids() []text.Grid {
	grids := make([]text.Grid, tabs)
	for t := range tabs {
		m.tab = t
		g := &grids[t]
		g.Title, g.Nothing = titles[t], m.nothing()
		if t == nodesTab {
			g.Title = fmt.Sprintf("%s, up %s, %s", m.lab, clock(m.sample.At), titles[t])
		}
		g.Columns = []text.GridColumn{{Title: ""}}
		for _, c := range columnsOf[t] {
			g.Columns = append(g.Columns, text.GridColumn{Title: c.title, Right: c.right})
		}
		for _, r := range m.rows() {
			g.Rows = append(g.Rows, append([]string{r.level.mark()}, m.cells(t, r)...))
		}
	}
	return grids
}
