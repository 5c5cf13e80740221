package text

import "io"

// A Grid is a table whose cells another package has.
type Grid struct {
	Title   string
	Columns []GridColumn
	Rows    [][]string
	Nothing string // what is said in the place of a table without rows
}

// A GridColumn is a column of a Grid.
type GridColumn struct {
	Title string
	Right bool // it has numbers
}

// WriteGrids writes tables one below the other, each with its title.
func WriteGrids(w io.Writer, grids []Grid) error {
	p := newPage(w)
	for _, g := range grids {
		p.section()
		if len(g.Rows) == 0 {
			p.line(p.paint.bold(Plain(g.Title)+":") + " " + Plain(g.Nothing))
			continue
		}
		p.line(p.paint.bold(Plain(g.Title) + ":"))
		p.started = false // the table is of the section
		var t table
		for _, c := range g.Columns {
			t.columns = append(t.columns, column{title: c.Title, right: c.Right, wraps: !c.Right})
		}
		for _, row := range g.Rows {
			t.add(row...)
		}
		p.table(&t)
	}
	return p.flush()
}
