package hosts

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/trunk"
)

// This file compares the wall clocks of the hosts with the head's: those are the clocks of packets that are captured. The head
// asks each worker for the time, all the time, and has its part know what came of it.

// PartClock tells a part by how much the wall clock of its host is ahead of the head's. It comes once before any other
// request, and then at every beat.
var PartClock = control.NewNotice[trunk.Difference]("part-clock")

// trips is the number of round trips that a worker is asked for the time at a beat. The first wakes its process up, and those
// behind it are quicker. At the beginning there are more.
const (
	trips      = 4
	firstTrips = 16
)

// began is the zero of this process's monotonic time.
var began = time.Now()

// A comparison estimates by how much a host's wall clock is ahead of the head's. A monotonic clock stands between: the head's wall
// clock may be set meanwhile.
type comparison struct {
	mu     sync.Mutex // guards offset
	offset trunk.Offset
	wall   func() (wall, since time.Duration) // at one instant: the wall clock, since 1970, and the monotonic one
}

// readClocks is comparison.wall but in tests.
func readClocks() (wall, since time.Duration) {
	now := time.Now()
	return time.Duration(now.UnixNano()), now.Sub(began)
}

// add takes the time that a worker told, since 1970, when it was asked between two instants of the monotonic clock.
func (c *comparison) add(told, asked, answered time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset.Add(trunk.Ping{Answer: true, Sent: asked, Received: told, Answered: told}, answered)
}

// difference returns what is known of the host's clock now.
func (c *comparison) difference() trunk.Difference {
	wall, since := c.wall()
	c.mu.Lock()
	defer c.mu.Unlock()
	return trunk.Difference{Ahead: c.offset.Ahead() - (wall - since), Wrong: c.offset.Wrong(since)}
}

// trip returns the least time of a round trip lately.
func (c *comparison) trip() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset.Trip()
}

// measure asks a worker for the time some times, and tells its part what came of it.
func (c *comparison) measure(ctx context.Context, worker *control.Conn, times int) error {
	for range times {
		_, asked := c.wall()
		told, err := methodTime.Call(ctx, worker, nil)
		if err != nil {
			return err
		}
		_, answered := c.wall()
		c.add(time.Duration(told), asked, answered)
	}
	return PartClock.Send(worker, c.difference())
}

// follow measures at every beat until the channel ends.
func (c *comparison) follow(worker *control.Conn) {
	tick := time.NewTicker(beatInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// When it fails, the channel has ended.
			_ = c.measure(context.Background(), worker, trips)
		case <-worker.Done():
			return
		}
	}
}

// Clock returns by how much the wall clock of the host is ahead of the head's now.
func (h *Host) Clock() trunk.Difference { return h.clock.difference() }

// ClockVariable has workers of tests tell another time than it is: "host2=5s" of the environment has that of host2 be ahead.
const ClockVariable = "NDKLAB_TEST_CLOCK"

// tell is the wall clock of a host, ns since 1970.
func tell(host string) int64 {
	shift := time.Duration(0)
	if name, by, found := strings.Cut(os.Getenv(ClockVariable), "="); found && name == host {
		shift, _ = time.ParseDuration(by) // a test sees that it has no effect
	}
	return time.Now().Add(shift).UnixNano()
}
