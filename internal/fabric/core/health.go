package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/failure"
	"github.com/ndklab/ndklab/topology"
)

// The states of a node's health.
const (
	Starting  = "starting"
	Healthy   = "healthy"
	Unhealthy = "unhealthy"
)

// firstPause is how long after the first check the second follows. Each pause in the start period is twice the one before.
const firstPause = 100 * time.Millisecond

// A health is the course of a healthcheck in one life of a node.
type health struct {
	check    *topology.Healthcheck // nil: there is none
	state    string                // "" before the first check
	began    time.Duration
	failures int           // in a row, that count
	pause    time.Duration // the last one of the start period
	output   string        // why the last check failed
}

func newHealth(check *topology.Healthcheck) health {
	return health{check: check, pause: firstPause / 2}
}

// result takes what came of a check that ended at an instant since the first began, and returns how long after that the
// next begins.
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

// checked takes the step of a node's becoming healthy, if it has. The checks go on to the end of its life.
func (n *node) checked() bool {
	switch n.health.state {
	case "":
		n.stages.doing = "is checked by its healthcheck"
		n.health.state, n.health.began = Starting, n.lab.now
		n.checkHealth()
	case Unhealthy:
		n.finishStages(failure.Errorf(failure.Unmet, "node %s is unhealthy: %s", n.spec.Name, n.health.output))
	case Healthy:
		n.stages.take()
		return true
	}
	return false
}

// checkHealth makes one check. A node that is paused can neither fail nor do well.
func (n *node) checkHealth() {
	n.checkAt = 0
	if n.paused {
		n.checkAt = n.lab.now + n.health.check.Interval
		n.lab.timed(n)
		return
	}
	life := n.life
	n.lab.do(CheckHealth{n.of()}, func(d Done) {
		if n.life != life || n.phase != up || d.Agent {
			return
		}
		h := &n.health
		was := h.state
		n.checkAt = n.lab.now + h.result(d.Failure == "", n.lab.now-h.began)
		h.output = d.Failure
		n.lab.timed(n)
		n.schedule()
		if h.state == was {
			return
		}
		text := fmt.Sprintf("node %s is %s", n.spec.Name, h.state)
		if h.output != "" {
			text += ": " + h.output
		}
		n.lab.tell(Tell{Kind: HealthChanged, Node: n.spec.Name, Text: text})
	})
}

// timed notes a node that waits for a time, if it does.
func (l *Lab) timed(n *node) {
	waits := n.checkAt > 0 || n.reviveAt > 0
	if known := slices.Contains(l.timers, n); waits && !known {
		l.timers = append(l.timers, n)
	}
}

// elapse does what is due by now.
func (l *Lab) elapse() {
	for _, n := range slices.Clone(l.timers) {
		if n.checkAt > 0 && n.checkAt <= l.now {
			n.checkHealth()
		}
		if n.reviveAt > 0 && n.reviveAt <= l.now {
			n.revive()
		}
	}
	l.timers = slices.DeleteFunc(l.timers, func(n *node) bool { return n.checkAt == 0 && n.reviveAt == 0 })
	l.elapseBuild()
	l.elapsePlain()
}
