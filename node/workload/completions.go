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
	timer   clock.Timer // for the next looks, when polling
	// take handles what is there. It returns how much that was, and whether the end is over,
	// after which it is not called again.
	take func() (n int, over bool)
}

// atOnce is the number of completions that an end takes off its CQ at a time.
const atOnce = 32

// notified handles a notification of the CQ.
func (c *completions) notified(any, provider.Status) {
	if c.polling {
		c.poll()
		return
	}
	if _, over := c.take(); !over {
		c.cq.Arm(provider.NotifyAny)
	}
}

// begin is called once, when there is something to wait for, with the lock held that take
// takes.
func (c *completions) begin() {
	if c.polling {
		c.timer = c.clock.AfterFunc(0, c.poll)
		return
	}
	c.cq.Arm(provider.NotifyAny)
}

// How polling goes on in real time.
const (
	// pollLooks is how often it looks before it pauses, with everybody else running in
	// between.
	pollLooks = 16
	// pollPause is for the sake of Go's scheduler, which asks the kernel for packets that
	// have arrived when there is nothing else to run.
	pollPause = time.Microsecond
)

// poll looks, and has itself called again, until the end is over. Where no time passes
// between two looks, as in a simulation, there is nothing to be seen by looking: then it
// waits to be told, which is no later.
func (c *completions) poll() {
	last := time.Duration(-1)
	for range pollLooks {
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
		runtime.Gosched()
	}
	c.timer.Reset(pollPause)
}
