// Package words puts figures and results into words that texts, pages and files for CI
// systems share: sizes, rates and times with their units, how a workload or a run ended,
// and what there is to say of a link beside its figures.
//
// It is pure, and lays nothing out. Values that a topology file could hold are written
// by package topology.
//
// Start reading at units.go, then at Outcome and DirectionStory.
package words

import (
	"fmt"
	"html"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// Failure returns why a run has not passed, in a few words.
func Failure(r *report.Run) string {
	checks, workloads := 0, 0
	for _, c := range r.Checks {
		if !c.Passed {
			checks++
		}
	}
	for _, w := range r.Workloads {
		if w.Errors > 0 || w.Error != "" {
			workloads++
		}
	}
	var parts []string
	if checks > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s failed", checks, Plural(len(r.Checks), "check")))
	}
	if workloads > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s had errors", workloads, Plural(len(r.Workloads), "workload")))
	}
	problems := len(r.Problems)
	if r.Interrupted {
		parts = append([]string{"interrupted"}, parts...)
		problems-- // which Problems has, too
	}
	if problems > 0 {
		parts = append(parts, Plural(problems, "problem"))
	}
	if len(parts) == 0 {
		return "the run was not completed"
	}
	return strings.Join(parts, ", ")
}

// Dilation returns how long a lab's run of so many seconds took on the machine, which dilation has made that many times
// longer.
func Dilation(dilation int, machine, seconds float64) string {
	return fmt.Sprintf("dilation %d: %s on this machine are %s of the fabric", dilation, Duration(machine*1e6), Duration(seconds*1e6))
}

// Dilated returns the state of a lab with its dilation, if it has one.
func Dilated(state string, dilation int) string {
	if dilation > 1 {
		state += fmt.Sprintf(", dilation %d", dilation)
	}
	return state
}

// DilationOf returns what dilation means for the times that follow.
func DilationOf(dilation int) string {
	return fmt.Sprintf("dilation %d: times and rates are the fabric's, a second of which takes %d s on this machine", dilation, dilation)
}

// CheckFailure returns what a check that failed expected and got, and where it is written.
func CheckFailure(c *report.Check) string {
	text := "expected " + c.Expected + ", got " + c.Got
	if c.At != "" {
		text += " (" + c.At + ")"
	}
	return text
}

// Bounded returns the beginning of a text, at most so many characters.
func Bounded(text string, most int) string {
	if len(text) <= most {
		return text
	}
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + " ..."
	}
	return text
}

// Plural returns a number of things: "1 node", "2 nodes".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// CommandLine returns a program and its arguments as a shell takes them.
func CommandLine(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = quote(word)
	}
	return strings.Join(quoted, " ")
}

// quote returns a word so that a shell takes it as it is.
func quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./,:=@%+", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// XML returns a text as XML has it, without the control characters that it cannot have.
func XML(text string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0xFFFE || r == 0xFFFF {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?")))
}

// ClockOffset returns by how much the clock of a host is ahead of the head's, with how far that may be wrong.
func ClockOffset(h *report.RunHost) string {
	if h.OffsetUS == nil {
		return "-"
	}
	text := fmt.Sprintf("%+.0f us", *h.OffsetUS)
	if h.OffsetErrorUS != nil {
		text += fmt.Sprintf(" ± %.0f", *h.OffsetErrorUS)
	}
	return text
}

// Crossing returns how many links of a lab over several hosts cross them.
func Crossing(r *report.Run) string {
	crossing := 0
	for i := range r.Links {
		if r.Links[i].Hosts != nil {
			crossing++
		}
	}
	return fmt.Sprintf("links that cross hosts: %d of %d", crossing, len(r.Links))
}
