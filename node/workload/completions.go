package workload

import (
	"runtime"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// completions has one end of a workload see to what completes on its CQ: when it is told
// or, polling, by looking again and again.
type completions struct {
	clock   clock.Clock
	polling bool
	cq      *provider.CQ
	// take handles what is there. It returns how much that was, and whether the end is over,
	// after which it is not called again.
	take func() (n int, over bool)
}

// notified is the notification of the CQ.
func (c *completions) notified(any, provider.Status) {
	if c.polling {
		c.poll()
		return
	}
	if _, over := c.take(); !over {
		c.cq.Arm(provider.NotifyAny)
	}
}

// begin is called once, when there is something to wait for.
func (c *completions) begin() {
	if c.polling {
		c.clock.Go(c.poll)
		return
	}
	c.cq.Arm(provider.NotifyAny)
}

// poll looks until the end is over, and lets everybody else run in between. Where no time
// passes between two looks, as in a simulation, there is nothing to be seen by looking:
// then it waits to be told, which is no later.
func (c *completions) poll() {
	for last := time.Duration(-1); ; runtime.Gosched() {
		n, over := c.take()
		now := c.clock.Now()
		switch {
		case over:
			return
		case n == 0 && now == last:
			c.cq.Arm(provider.NotifyAny)
			return
		}
		last = now
	}
}
