// Package doctor says what this machine, or each of several hosts, can do for labs, and what to do about
// the rest.
//
// It tries out, rather than looks up, what a lab does: a child process is started
// in namespaces as a lab's supervisor is, makes a link, opens the sockets and
// asks for the priorities that a lab would, says how it went, and ends, with
// which everything that it made is gone. The results are Facts (probe.go,
// inside.go); the conclusions from them are drawn apart from that (judge.go). On another host a worker of package
// hosts starts the process that does so (hosts.go).
//
// Start reading at Examine and judge.
package doctor

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report/text"
)

// A State sums a finding up.
type State string

// The states.
const (
	OK      State = "ok"
	Limited State = "limited" // it works, but not as well as it could
	Missing State = "missing"
)

// A Finding is the verdict on one thing that this machine should be able to do.
type Finding struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Required says that no lab runs without it.
	Required    bool   `json:"required"`
	Found       string `json:"found"`
	Consequence string `json:"consequence,omitempty"` // of a state other than OK
	Remedy      string `json:"remedy,omitempty"`
}

// String is the finding in one line, for error messages.
func (f Finding) String() string {
	line := f.Name + ": " + f.Found
	if f.Remedy != "" {
		line += "; remedy: " + strings.ReplaceAll(f.Remedy, "\n", " ")
	}
	return line
}

// A Diagnosis is all that there is to say about this machine.
type Diagnosis struct {
	CanRun   bool      `json:"can_run"` // labs can run here
	Findings []Finding `json:"findings"`
}

// Examine tries out what this machine lets this user do. It takes some tens of
// milliseconds, at most probeTime, and leaves nothing behind. Child must be called first
// thing in main. When ctx ends, what could not be tried out counts as missing.
func Examine(ctx context.Context) Diagnosis { return judge(probe(ctx)) }

// Obstacles are the findings because of which no lab can run.
func (d Diagnosis) Obstacles() []Finding {
	var all []Finding
	for _, f := range d.Findings {
		if f.Required && f.State == Missing {
			all = append(all, f)
		}
	}
	return all
}

// WriteText writes the diagnosis for people, as wide as the terminal.
func (d Diagnosis) WriteText(w io.Writer) error {
	var b strings.Builder
	wide := 0
	for _, f := range d.Findings {
		wide = max(wide, len(f.Name))
	}
	for _, f := range d.Findings {
		b.WriteString(text.Hang(w, fmt.Sprintf("%-7s  %-*s  ", f.State, wide, f.Name), f.Found))
		for _, more := range []struct{ lead, text string }{{"means: ", f.Consequence}, {"remedy: ", f.Remedy}} {
			if more.text != "" {
				b.WriteString(text.Hang(w, strings.Repeat(" ", len("limited")+wide+4)+more.lead, more.text))
			}
		}
	}
	if d.CanRun {
		b.WriteString("\nlabs can run here\n")
	} else {
		b.WriteString("\nlabs cannot run here\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
