package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
)

// progress tells people what a lab is doing, a line for each event, but for those of many
// workloads: terminals and the logs of test systems get the same.
type progress struct {
	mu sync.Mutex // guards w, one line at a time, and workloads
	w  io.Writer

	workloads workloadCount
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
	text := p.workloads.text(&e)
	p.mu.Unlock()
	switch {
	case text == "":
	case e.At == 0:
		p.say("%s", text)
	default:
		p.say("%6.1f s  %s", e.At.Seconds(), text)
	}
}

// say writes a line.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, format+"\n", args...)
}
