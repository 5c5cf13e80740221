package core

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
)

// A node whose agent has died is started again after firstDelay. The delay doubles each time up to maxDelay, until the node
// has lived for a while. These are Docker's times.
const (
	firstDelay = 100 * time.Millisecond
	maxDelay   = time.Minute
	recovered  = 10 * time.Second // a life of this length was no failure of the start
)

// A restartPolicy starts a node again whose life has ended by itself, if the topology wants that.
type restartPolicy struct {
	node  *node
	delay time.Duration // before the last of such starts
	timer timer         // starts the node
}

// schedule has the node started after a delay, and returns words that say so; "" if it is not started. The life that has
// ended has lasted for lived.
func (p *restartPolicy) schedule(lived time.Duration) string {
	n := p.node
	if n.lab.building != nil || !n.spec.Restart || n.removed || n.lost != "" {
		return ""
	}
	p.delay = min(2*p.delay, maxDelay)
	if p.delay == 0 || lived >= recovered {
		p.delay = firstDelay
	}
	n.lab.timers.set(&p.timer, n.lab.now+p.delay)
	return fmt.Sprintf("; it is started again in %v", p.delay)
}

// start requests a start of the node. It warns everyone if the start fails.
func (p *restartPolicy) start() {
	n := p.node
	n.request(&nodeRequest{by: ByRun, start: true, policy: true, done: func(_ *nodeRequest, err error) {
		if err == nil || n.stages.err == err { // everyone was told of the latter
			return
		}
		again := ""
		if n.down() {
			again = p.schedule(0)
		}
		n.notify(event.Warning, "node %s does not start as it should: %v%s", n.spec.Name, err, again)
	}})
}
