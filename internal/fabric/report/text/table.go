package text

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// Widths of a text that does not go to a terminal, in columns.
const (
	width    = 120
	runWidth = 100 // of a run's report: what the logs of CI systems show
)

// Bounds on the width of texts on a terminal.
const (
	narrowestPage = 60
	widestPage    = 200
)

// gap stands between two columns.
const gap = "  "

// narrowest is the least width of a column that wraps.
const narrowest = 12

// A table lays out cells in columns. A cell, or a column's title, may have
// several lines.
type table struct {
	columns []column
	rows    [][]string // a row may be shorter than the columns
}

type column struct {
	title string
	right bool // numbers
	wraps bool // names, which may be broken when the table is too wide
}

func (t *table) add(cells ...string) {
	for i, c := range cells {
		cells[i] = Plain(words.Bounded(c, mostOfCell))
	}
	t.rows = append(t.rows, cells)
}

// A line of a table has no trailing spaces.
type line struct {
	text  string
	title bool
}

// lines lays the table out in so many columns. Columns that wrap are narrowed. If that is
// not enough the last ones follow below, behind the first one again, so that nothing is
// left out.
func (t *table) lines(width int) (all []line) {
	for i, part := range t.parts(width) {
		if i > 0 {
			all = append(all, line{})
		}
		lines, titles := part.layOut(width)
		for i, text := range lines {
			all = append(all, line{text, i < titles})
		}
	}
	return all
}

// parts returns the table itself or, if it is too wide, tables of some of its columns each.
func (t *table) parts(width int) []*table {
	least := make([]int, len(t.columns)) // that the columns take
	sum := -len(gap)
	for i, c := range t.columns {
		least[i] = t.natural(i)
		if c.wraps {
			least[i] = min(least[i], narrowest)
		}
		sum += len(gap) + least[i]
	}
	if sum <= width {
		return []*table{t}
	}
	var parts []*table
	for next := 1; next < len(t.columns); {
		taken := []int{0}
		room := width - min(least[0], (width-len(gap))/2)
		for ; next < len(t.columns); next++ {
			if room -= len(gap) + least[next]; room < 0 && len(taken) > 1 {
				break
			}
			taken = append(taken, next)
		}
		parts = append(parts, t.only(taken))
	}
	if parts == nil {
		parts = []*table{t}
	}
	for _, p := range parts { // what is too wide even so is broken
		for i := range p.columns {
			p.columns[i].wraps = p.columns[i].wraps || p.natural(i) > (width-len(gap))/2
		}
	}
	return parts
}

// only returns the table with some of its columns.
func (t *table) only(columns []int) *table {
	part := &table{}
	for _, i := range columns {
		part.columns = append(part.columns, t.columns[i])
	}
	for _, row := range t.rows {
		var cells []string
		for _, i := range columns {
			cell := ""
			if i < len(row) {
				cell = row[i]
			}
			cells = append(cells, cell)
		}
		part.rows = append(part.rows, cells)
	}
	return part
}

// natural returns the width of a column whose cells are not broken.
func (t *table) natural(i int) int {
	widest := lineWidth(t.columns[i].title)
	for _, row := range t.rows {
		if i < len(row) {
			widest = max(widest, lineWidth(row[i]))
		}
	}
	return widest
}

// layOut returns the lines of a table. titles counts those at the beginning that are titles.
func (t *table) layOut(width int) (lines []string, titles int) {
	widths := t.widths(width)
	head := make([][]string, len(t.columns))
	for i, c := range t.columns {
		for part := range strings.SplitSeq(c.title, "\n") {
			head[i] = append(head[i], wrap(part, max(1, widths[i]))...)
		}
	}
	lines = t.line(head, widths, true)
	titles = len(lines)
	for _, row := range t.rows {
		cells := make([][]string, len(row))
		for i, cell := range row {
			for part := range strings.SplitSeq(cell, "\n") {
				if t.columns[i].wraps {
					cells[i] = append(cells[i], wrap(part, widths[i])...)
				} else {
					cells[i] = append(cells[i], part)
				}
			}
		}
		lines = append(lines, t.line(cells, widths, false)...)
	}
	return lines, titles
}

// widths returns the columns' widths: as wide as their cells, but for those that
// wrap, the widest ones first, when the table is too wide.
func (t *table) widths(width int) []int {
	widths := make([]int, len(t.columns))
	sum := len(gap) * (len(t.columns) - 1)
	for i := range t.columns {
		widths[i] = t.natural(i)
		sum += widths[i]
	}
	for ; sum > width; sum-- {
		widest := -1
		for i, c := range t.columns {
			if c.wraps && widths[i] > narrowest && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

// line lays out one row of cells of several lines each. Titles stand at the
// bottom of theirs.
func (t *table) line(cells [][]string, widths []int, bottom bool) []string {
	height := 0
	for _, c := range cells {
		height = max(height, len(c))
	}
	lines := make([]string, height)
	for y := range lines {
		var b strings.Builder
		for x, c := range cells {
			if x > 0 {
				b.WriteString(gap)
			}
			at := y
			if bottom {
				at -= height - len(c)
			}
			text := ""
			if at >= 0 && at < len(c) {
				text = c[at]
			}
			text = strings.ReplaceAll(text, tie, " ")
			pad := strings.Repeat(" ", max(0, widths[x]-utf8.RuneCountInString(text)))
			if t.columns[x].right {
				b.WriteString(pad + text)
			} else {
				b.WriteString(text + pad)
			}
		}
		lines[y] = strings.TrimRight(b.String(), " ")
	}
	return lines
}

// tie is a space that no line is broken at.
const tie = "\u00a0"

// whole returns text whose line is not broken, unless it is long.
func whole(text string) string {
	if utf8.RuneCountInString(text) > width/2 {
		return text
	}
	return strings.ReplaceAll(text, " ", tie)
}

// lineWidth returns the width of the widest line of text.
func lineWidth(text string) int {
	widest := 0
	for line := range strings.SplitSeq(text, "\n") {
		widest = max(widest, utf8.RuneCountInString(line))
	}
	return widest
}

// wrap breaks text into lines of at most most characters: behind a comma that
// stands near the end, else behind a space, else behind punctuation, else
// anywhere.
func wrap(text string, most int) []string {
	var lines []string
	runes := []rune(text)
	for len(runes) > most {
		end := breakAt(runes[:most+1])
		lines = append(lines, strings.TrimRight(string(runes[:end]), " "))
		runes = runes[end:]
	}
	return append(lines, string(runes))
}

// breakAt finds the place to break a line that is one character too long.
func breakAt(runes []rune) int {
	most := len(runes) - 1
	for i := most; i > most*3/4; i-- {
		if runes[i] == ' ' && runes[i-1] == ',' {
			return i + 1
		}
	}
	for i := most; i > 0; i-- {
		if runes[i] == ' ' {
			return i + 1
		}
	}
	for i := most; i > most/2; i-- {
		if strings.ContainsRune("-.:_/,", runes[i-1]) && !unicode.IsDigit(runes[i]) { // a number stays one
			return i
		}
	}
	return most
}

// Plain returns text without what would move the cursor or colour the terminal: it
// may come from a node.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && (unicode.IsControl(r) || r == utf8.RuneError) {
			return '?'
		}
		return r
	}, text)
}
