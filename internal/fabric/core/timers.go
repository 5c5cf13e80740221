package core

import (
	"slices"
	"time"
)

// timers are the nodes and links that wait for a time.
type timers struct {
	nodes []*node // with a healthcheck or a start by the restart policy to come, in no order
	links []*link // with requests that wait for their engine to release them
}

// add has a node wait, if it has a time to wait for.
func (t *timers) add(n *node) {
	if n.waits() && !slices.Contains(t.nodes, n) {
		t.nodes = append(t.nodes, n)
	}
}

// waits reports whether the node waits for a time.
func (n *node) waits() bool { return n.health.next > 0 || n.policy.next > 0 }

// deadline returns the earliest time that is waited for; false if there is none.
func (t *timers) deadline() (at time.Duration, ok bool) {
	earliest := func(next time.Duration) {
		if next > 0 && (!ok || next < at) {
			at, ok = next, true
		}
	}
	for _, n := range t.nodes {
		earliest(n.health.next)
		earliest(n.policy.next)
	}
	for _, k := range t.links {
		if len(k.plain) > 0 {
			earliest(k.plain[0].plainBy)
		}
	}
	return at, ok
}

// expire begins what was to begin at now or before.
func (t *timers) expire(now time.Duration) {
	for _, n := range slices.Clone(t.nodes) {
		if n.health.next > 0 && n.health.next <= now {
			n.health.run()
		}
		if n.policy.next > 0 && n.policy.next <= now {
			n.policy.start()
		}
	}
	t.nodes = slices.DeleteFunc(t.nodes, func(n *node) bool { return !n.waits() })
	t.links = slices.DeleteFunc(t.links, func(k *link) bool {
		if len(k.plain) > 0 && k.plain[0].plainBy > now {
			return false
		}
		k.answerPlain()
		return true
	})
}
