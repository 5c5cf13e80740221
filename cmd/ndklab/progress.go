package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// progress tells people what a lab is doing, a line for each event, but for those of many
// workloads: terminals and the logs of test systems get the same.
type progress struct {
	mu sync.Mutex // guards w, one line at a time, and what follows it
	w  io.Writer

	workloads workloadCount
	dilated   bool // little of the lab's time passes between two lines
}

// A workloadCount says how far workloads are: of a few each, of many their number.
type workloadCount struct {
	started, done int
	told          time.Duration // when their number was told last
}

// fewWorkloads bounds the workloads that have lines of their own.
const fewWorkloads = 5

// text returns what to say of an event, "" if nothing: from the time that many workloads
// have been started, their number each second and when all are done.
func (c *workloadCount) text(e *event.Event) string {
	switch e.Kind {
	case event.WorkloadStarted:
		c.started++
	case event.WorkloadDone:
		c.done++
	case event.WorkloadProgress:
	default:
		return e.Text
	}
	if c.started <= fewWorkloads {
		return e.Text
	}
	if e.At < c.told+time.Second && c.done < c.started {
		return ""
	}
	c.told = e.At
	return fmt.Sprintf("workloads: %d started, %d done", c.started, c.done)
}

// event shows an event of the lab, with its time since all nodes were ready, unless
// what the command prints says the same.
func (p *progress) event(e event.Event) {
	switch e.Kind {
	case event.LabReady, event.LinkOverrun, event.CaptureStarted, event.CaptureDone, event.QPError:
		return
	}
	p.mu.Lock()
	text, digits := p.workloads.text(&e), 1
	if p.dilated {
		digits = 3
	}
	p.mu.Unlock()
	switch {
	case text == "":
	case e.At == 0:
		p.say("%s", text)
	default:
		p.say("%6.*f s  %s", digits, e.At.Seconds(), text)
	}
}

// dilation says whose times those of events are, in a lab that is slower than its file by so much.
func (p *progress) dilation(factor int) {
	if factor > 1 {
		p.mu.Lock()
		p.dilated = true
		p.mu.Unlock()
		p.say("%s", words.DilationOf(factor))
	}
}

// say writes a line.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, format+"\n", args...)
}
