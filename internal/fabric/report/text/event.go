package text

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/ndklab/ndklab/internal/fabric/event"
)

// WriteEvent writes an event as a line for people, or as several on a terminal that is
// too narrow for it.
func WriteEvent(w io.Writer, e *event.Event) error {
	lead := fmt.Sprintf("%s  %s  %-17s  ", e.Time.Local().Format("2006-01-02 15:04:05.000"), e.Lab, e.Kind)
	_, err := io.WriteString(w, Hang(w, lead, e.Text))
	return err
}

// Hang returns text behind a lead, each of its lines below where the first begins. Lines fit the
// terminal that w is, and are as long as they are elsewhere.
func Hang(w io.Writer, lead, text string) string {
	columns := columnsOf(w)
	indent := utf8.RuneCountInString(lead)
	room := 0 // in a line; 0: as much as it takes
	var lines []string
	if columns > 0 {
		columns = max(narrowestPage, min(widestPage, columns))
		if indent > columns*2/3 { // and the text follows below
			lines = wrap(strings.TrimRight(lead, " "), columns)
			lead, indent = "", 4
		}
		room = columns - indent
	}
	for line := range strings.SplitSeq(text, "\n") {
		parts := []string{line}
		if room > 0 {
			parts = wrap(line, room)
		}
		for _, part := range parts {
			if lead == "" {
				lead = strings.Repeat(" ", indent)
			}
			lines = append(lines, strings.TrimRight(lead+part, " "))
			lead = ""
		}
	}
	return strings.Join(lines, "\n") + "\n"
}
