// Package text writes reports for people: tables, and paragraphs that fit the terminal,
// in colours where it has them.
//
// The contents of the report and the width of the page decide what is shown, never the
// destination of the text. Package words has the wording that the page and JUnit share.
//
// A page lays text out; the sections of a report are functions that write to it. Start
// reading at WriteRun.
package text

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// A page lays out text in sections. It knows nothing of reports but how much of them it
// is to have. The first error sticks in the writer.
type page struct {
	*bufio.Writer
	paint   paint
	width   int // columns
	started bool
	full    bool // it has all that is known of every link
	brief   bool // it has totals and the worst rows
}

func newPage(w io.Writer) *page { return newPageOf(w, width) }

// newPageOf returns a page as wide as the terminal or, where it goes elsewhere, of the given
// width.
func newPageOf(w io.Writer, width int) *page {
	if columns := columnsOf(w); columns > 0 {
		width = max(narrowestPage, min(widestPage, columns))
	}
	return &page{Writer: bufio.NewWriter(w), paint: paintFor(w), width: width}
}

// columnsOf returns the number of columns for text that is written to w: COLUMNS, or the
// width of the terminal; 0 without both.
func columnsOf(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil {
		return columns
	}
	return columnsOfTerminal(f)
}

func (p *page) flush() error { return p.Flush() }

// line writes a line. An error stays in the writer until Flush.
func (p *page) line(text string) { _, _ = p.WriteString(text + "\n") }

// section leaves an empty line behind the section before.
func (p *page) section() {
	if p.started {
		p.line("")
	}
	p.started = true
}

// table writes a table as a section of its own.
func (p *page) table(t *table) {
	p.section()
	for _, line := range t.lines(p.width) {
		if line.title {
			line.text = p.paint.bold(line.text)
		}
		p.line(line.text)
	}
}

// hanging writes text behind a lead of at most half a line, wrapped so that it stands beside
// the lead. on paints the lead.
func (p *page) hanging(on paint, lead, text string) {
	lead = words.Bounded(lead, p.width/2)
	indent := utf8.RuneCountInString(lead)
	lead = on.bold(lead)
	for _, line := range wrap(text, p.width-indent) {
		p.line(lead + line)
		lead = strings.Repeat(" ", indent)
	}
}

// paragraph writes text of any length behind a lead, indented and wrapped.
func (p *page) paragraph(lead, text string) {
	for _, line := range p.wrapped(lead, text) {
		p.line(line)
	}
}

func (p *page) wrapped(lead, text string) []string {
	const indent = "  "
	text = oneLine(Plain(words.Bounded(lead+text, mostOfParagraph)))
	lines := wrap(text, p.width-2*len(indent))
	for i, line := range lines {
		if i > 0 {
			line = indent + line
		}
		lines[i] = indent + line
	}
	return lines
}

// oneLine joins lines to one.
func oneLine(text string) string {
	all, rest, _ := strings.Cut(strings.TrimRight(text, " \n"), "\n")
	for line := range strings.Lines(rest) {
		between := "; "
		if strings.HasSuffix(all, ":") {
			between = " "
		}
		all += between + strings.TrimSpace(line)
	}
	return all
}

// verdicts writes a table whose last column says FAIL of what has failed.
func (p *page) verdicts(t *table) {
	p.section()
	for _, line := range t.lines(p.width) {
		switch {
		case line.title:
			line.text = p.paint.bold(line.text)
		case strings.HasSuffix(line.text, gap+"FAIL"):
			line.text = p.paint.red(line.text)
		}
		p.line(line.text)
	}
}

// totals begins a section with what sums up the rows of a full report. Behind it stand so
// many of the rows, which are those that which names.
func (p *page) totals(text string, rows int, which string) {
	p.section()
	if rows > 0 {
		text += fmt.Sprintf(". The %d %s:", rows, which)
	}
	for i, line := range wrap(text, p.width-2) {
		if i > 0 {
			line = "  " + line
		}
		p.line(p.paint.bold(line))
	}
}

// Bounds on the characters of a text that a program or a peer may have made. The JSON form
// has the part that is cut.
const (
	mostOfCell      = 600
	mostOfParagraph = 4000
)
