package lab

import (
	"context"
	"fmt"
	"time"
)

// reviveLater starts a node again, whose life has ended by itself, if the topology
// wants that, and says in words when.
func (s *Supervisor) reviveLater(n *labNode, lived time.Duration) string {
	if s.checkReady() != nil {
		return ""
	}
	s = s.now()
	if n = s.as(n); n == nil || !n.spec.Restart {
		return ""
	}
	delay := n.reviver.After(lived, func(wanted func() bool) { s.revive(n, wanted) })
	return fmt.Sprintf("; it is started again in %v", delay)
}

// revive starts a node again unless that is not wanted any more.
func (s *Supervisor) revive(n *labNode, wanted func() bool) {
	ctx := context.Background() // the lab's end ends it
	if n.lock(ctx) != nil {
		return // it has gone
	}
	defer n.unlock()
	s = s.now()
	if n = s.as(n); !wanted() || !n.spec.Restart {
		return
	}
	if err := s.startAgain(ctx, n); err != nil {
		words := ""
		if n.status().State == nodeDown {
			words = s.reviveLater(n, 0)
		}
		s.Publish(Event{Kind: Warning, Node: n.spec.Name, Text: fmt.Sprintf("node %s does not start as it should: %v%s", n.spec.Name, err, words)})
	}
}
