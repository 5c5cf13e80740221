package text

import (
	"io"
	"os"
)

// paint says whether to use colours.
type paint bool

// paintFor is true for a terminal, if the user has nothing against it
// (https://no-color.org).
func paintFor(w io.Writer) paint {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	return paint(isTerminal(f))
}

func (on paint) bold(text string) string  { return on.in("1", text) }
func (on paint) red(text string) string   { return on.in("31", text) }
func (on paint) green(text string) string { return on.in("32", text) }

// in returns text with an SGR attribute (ECMA-48, 8.3.117).
func (on paint) in(attribute, text string) string {
	if !on {
		return text
	}
	return "\x1b[" + attribute + "m" + text + "\x1b[0m"
}
