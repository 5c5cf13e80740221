package report

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// How many columns a text may take, unless its values cannot be made to fit.
const (
	width    = 120
	runWidth = 100 // of a run's report: what the logs of CI systems show
)

// gap is what stands between two columns.
const gap = "  "

// narrowest is how far a column that wraps may be narrowed.
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
		cells[i] = plain(bounded(c, mostOfCell))
	}
	t.rows = append(t.rows, cells)
}

// lines lays the table out in so many columns, each line without trailing spaces.
// titles is how many of them are titles.
func (t *table) lines(width int) (lines []string, titles int) {
	head := make([][]string, len(t.columns))
	for i, c := range t.columns {
		head[i] = strings.Split(c.title, "\n")
	}
	widths := t.widths(width)
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

// widths are the columns' widths: as wide as their cells, but for those that
// wrap, the widest ones first, when the table is too wide.
func (t *table) widths(width int) []int {
	widths := make([]int, len(t.columns))
	sum := len(gap) * (len(t.columns) - 1)
	for i, c := range t.columns {
		widths[i] = lineWidth(c.title)
		for _, row := range t.rows {
			if i < len(row) {
				widths[i] = max(widths[i], lineWidth(row[i]))
			}
		}
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

// whole is text whose line is not broken, unless it is long.
func whole(text string) string {
	if utf8.RuneCountInString(text) > width/2 {
		return text
	}
	return strings.ReplaceAll(text, " ", tie)
}

// lineWidth is the width of the widest line of text.
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

// breakAt is where to break a line that is one character too long.
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
		if strings.ContainsRune("-.:_/,", runes[i-1]) {
			return i
		}
	}
	return most
}

// plain is text without what would move the cursor or colour the terminal: it
// may come from a node.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && (unicode.IsControl(r) || r == utf8.RuneError) {
			return '?'
		}
		return r
	}, text)
}
