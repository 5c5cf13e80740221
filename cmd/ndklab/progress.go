package main

import (
	"fmt"
	"io"
	"sync"

	"github.com/ndklab/ndklab/fabric/lab"
)

// progress tells people what a lab is doing, a line for each event: terminals
// and the logs of test systems get the same.
type progress struct {
	mu sync.Mutex // guards w: one line at a time
	w  io.Writer
}

// event shows an event of the lab, with its time since all nodes were ready, unless
// what the command prints says the same.
func (p *progress) event(e lab.Event) {
	switch e.Kind {
	case lab.LabReady, lab.LinkOverrun, lab.CaptureStarted, lab.CaptureDone, lab.QPError:
		return
	}
	if e.At == 0 {
		p.say("%s", e.Text)
		return
	}
	p.say("%6.1f s  %s", e.At.Seconds(), e.Text)
}

// say writes a line.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, format+"\n", args...)
}
