package scenario

import (
	"fmt"
	"strings"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// A program runs in a node: of a workload, of the timeline, or of a check.
type program struct {
	node   string
	cancel func()
}

// exec runs a program in a node. done is called when it has ended, with an error if it
// could not be run.
func (p *Play) exec(node string, c Command, done func(Exit, error)) *program {
	n := &program{node: node, cancel: func() {}}
	if p.interrupted {
		p.clock.Go(p.expect(func() { done(Exit{}, ErrInterrupted) }))
		return n
	}
	p.running[n] = true
	if ready := c.Ready; ready != nil {
		c.Ready = func() {
			p.enter(func() {
				if p.running[n] {
					ready()
				}
			})
		}
	}
	callback := p.awaited()
	n.cancel = p.stage.Exec(node, c, func(e Exit, err error) {
		callback(func() {
			delete(p.running, n)
			done(e, err)
		})
	})
	return n
}

// problem is why a program that was to succeed has not, nil if it has.
func (e *Exit) problem(timeout time.Duration) error {
	switch {
	case e.TimedOut:
		return fmt.Errorf("it did not end within %s%s", topology.FormatDuration(timeout), lastLine(e))
	case e.Status != 0:
		return fmt.Errorf("exit status %d%s", e.Status, lastLine(e))
	}
	return nil
}

// lastLine is the end of what a program has said, to stand behind how it ended.
func lastLine(e *Exit) string {
	for _, text := range []string{e.Errors, e.Output} {
		text = strings.TrimSpace(text)
		if line := strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]); line != "" {
			return ": " + line
		}
	}
	return ""
}
