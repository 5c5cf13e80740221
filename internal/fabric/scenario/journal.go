package scenario

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
)

// mostEvents bounds a report.
const mostEvents = 10000

// A journal keeps for the report what happens, and what goes wrong with the run.
type journal struct {
	stage    Stage
	loop     *loop
	events   []event.Event
	problems []string
}

// problem records a failure that is no workload's or check's.
func (j *journal) problem(format string, args ...any) {
	j.problems = append(j.problems, fmt.Sprintf(format, args...))
}

// publish tells those who follow the lab what the scenario does, and records it.
func (j *journal) publish(e event.Event) {
	e.At = j.loop.clock.Now()
	j.stage.Publish(e)
	if e.Kind != event.WorkloadProgress {
		j.record(e)
	}
}

// record keeps an event for the report.
func (j *journal) record(e event.Event) {
	if len(j.events) >= mostEvents {
		return
	}
	at := time.Duration(0)
	if j.loop.began {
		at = max(0, e.At-j.loop.zero)
	}
	j.events = append(j.events, e.InReport(at))
}
