package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// The states of a node's health.
const (
	healthStarting  = "starting"
	healthHealthy   = "healthy"
	healthUnhealthy = "unhealthy"
)

// firstPause is how long after the first check the second follows; each pause in the
// start period is twice the one before.
const firstPause = 100 * time.Millisecond

// A health is the course of a healthcheck in one life of a node. It reads no clock.
type health struct {
	check    *topology.Healthcheck
	state    string
	failures int           // in a row, that count
	pause    time.Duration // the last one of the start period
}

func newHealth(check *topology.Healthcheck) health {
	return health{check: check, state: healthStarting, pause: firstPause / 2}
}

// result takes what came of a check that ended at an instant since the first began,
// and returns how long after that the next begins.
func (h *health) result(ok bool, since time.Duration) time.Duration {
	switch {
	case ok:
		h.state, h.failures = healthHealthy, 0
	case h.state == healthStarting && since < h.check.StartPeriod:
		h.pause = min(2*h.pause, h.check.Interval)
		return h.pause
	default:
		h.failures++
		if h.failures >= h.check.Retries {
			h.state = healthUnhealthy
		}
	}
	return h.check.Interval
}

// watchHealth checks a node's health until its end.
func (s *Supervisor) watchHealth(n *labNode, l *life) {
	began := time.Now()
	p := l.progress
	for {
		if n.status().State == nodePaused {
			select {
			case <-time.After(n.spec.Setup.Healthcheck.Interval): // it can neither fail nor do well
				continue
			case <-l.down:
				return
			}
		}
		failure := s.checkHealth(n, l)
		if isClosed(l.down) {
			return
		}
		p.mu.Lock()
		was := p.health.state
		pause := p.health.result(failure == "", time.Since(began))
		p.output = failure
		state := p.health.state
		p.change()
		p.mu.Unlock()
		if state != was {
			text := fmt.Sprintf("node %s is %s", n.spec.Name, state)
			if failure != "" {
				text += ": " + failure
			}
			s.Publish(Event{Kind: HealthChanged, Node: n.spec.Name, Text: text})
		}
		select {
		case <-time.After(pause):
		case <-l.down:
			return
		}
	}
}

// checkHealth makes one check, and returns why it has failed, "" if it has not.
func (s *Supervisor) checkHealth(n *labNode, l *life) string {
	check := n.spec.Setup.Healthcheck
	ctx, cancel := context.WithTimeout(context.Background(), check.Timeout)
	defer cancel()
	status, last, err := shell(ctx, l.agent, check.Command, nil)
	var failure string
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		failure = fmt.Sprintf("its healthcheck takes longer than %v", check.Timeout)
	case err != nil:
		failure = err.Error()
	case status != 0:
		failure = fmt.Sprintf("its healthcheck ended with status %d", status)
	default:
		return ""
	}
	if len(last) > 0 {
		failure += ", having written " + strings.Join(last, "; ")
	}
	return failure
}

// report is the node's health for reports, nil if it has no check.
func (p *progress) report() *report.Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.health.check == nil {
		return nil
	}
	return &report.Health{State: p.health.state, Failures: p.health.failures, Reason: p.output}
}
