package capture

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/trunk"
)

// A clock has the differences of a source's host from the time line during a capture.
type clock struct {
	now         trunk.Difference
	least, most time.Duration // ahead
	wrong       time.Duration // at most
	known       bool
}

// take takes what is known of it from now on.
func (c *clock) take(d trunk.Difference) {
	if !c.known {
		c.least, c.most, c.known = d.Ahead, d.Ahead, true
	}
	c.now, c.least, c.most, c.wrong = d, min(c.least, d.Ahead), max(c.most, d.Ahead), max(c.wrong, d.Wrong)
}

// describe says of an interface whose clock it has.
func (c *clock) describe(s *Source) described {
	if s.Host == "" {
		return described{name: s.Name}
	}
	return described{s.Name, describeClock(s.Host, c.now)}
}

// describeClock says how stamps of packets at a host come about.
func describeClock(host string, d trunk.Difference) string {
	return fmt.Sprintf("at host %s, whose clock is ahead by %s, give or take %s, which is taken off its times", host, inMicros(d.Ahead), inMicros(d.Wrong))
}

// sum says in the end what the clock was; "" if it is that of the time line.
func (c *clock) sum(s *Source) string {
	if s.Host == "" {
		return ""
	}
	return fmt.Sprintf("the clock of host %s was ahead by %s to %s, give or take %s at most, which was taken off its times", s.Host, inMicros(c.least), inMicros(c.most), inMicros(c.wrong))
}

func inMicros(d time.Duration) string { return fmt.Sprintf("%.1f us", float64(d)/1e3) }
