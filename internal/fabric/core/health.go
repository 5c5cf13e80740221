package core

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/topology"
)

// The states of a node's health.
const (
	Starting  = "starting"
	Healthy   = "healthy"
	Unhealthy = "unhealthy"
)

// firstPause is the pause between the first two checks. Each pause in the start period is twice the one before.
const firstPause = 100 * time.Millisecond

// A health is the course of a healthcheck in one life of a node.
type health struct {
	node     *node
	check    *topology.Healthcheck // nil: there is none
	state    string                // "" before the first check
	began    time.Duration
	failures int           // in a row, that count
	pause    time.Duration // the last one of the start period
	output   string        // why the last check failed
	timer    timer         // begins the next check
}

func newHealth(n *node, check *topology.Healthcheck) health {
	return health{node: n, check: check, pause: firstPause / 2}
}

// begin makes the first check.
func (h *health) begin() {
	h.state, h.began, h.timer.expired = Starting, h.node.lab.now, h.run
	h.run()
}

// run makes one check. It skips that of a node that is paused, which could not pass, and takes no result of one that was paused
// meanwhile.
func (h *health) run() {
	n := h.node
	if n.paused {
		h.runAfter(h.check.Interval)
		return
	}
	number, pauses := n.number, n.pauses
	n.lab.do(CheckHealth{n.of()}, func(d Done) {
		switch {
		case n.number != number || n.phase != up || d.Agent:
			return
		case n.pauses != pauses:
			h.runAfter(h.check.Interval)
			return
		}
		was := h.state
		h.runAfter(h.result(d.Failure == "", n.lab.now-h.began))
		h.output = d.Failure
		n.schedule()
		if h.state == was {
			return
		}
		text := fmt.Sprintf("node %s is %s", n.spec.Name, h.state)
		if h.output != "" {
			text += ": " + h.output
		}
		n.notify(event.HealthChanged, "%s", text)
	})
}

// runAfter has the next check begin after a pause.
func (h *health) runAfter(pause time.Duration) {
	h.node.lab.timers.set(&h.timer, h.node.lab.now+pause)
}

// result records the result of a check that ended some time after the first began, and returns the pause until the next
// begins.
func (h *health) result(ok bool, since time.Duration) time.Duration {
	switch {
	case ok:
		h.state, h.failures = Healthy, 0
	case h.state == Starting && since < h.check.StartPeriod:
		h.pause = min(2*h.pause, h.check.Interval)
		return h.pause
	default:
		h.failures++
		if h.failures >= h.check.Retries {
			h.state = Unhealthy
		}
	}
	return h.check.Interval
}
