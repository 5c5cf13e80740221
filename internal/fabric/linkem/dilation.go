package linkem

import (
	"math"
	"time"
)

// A dilation is the factor by which a lab is slower than its file says, 1 or more. The models of links and their statistics
// live in the fabric's time, which runs that much slower than the machine's: frames arrive and leave in the machine's. So
// a link of a lab with dilation 40 carries a 40th of its rate, and no setting and no figure has to be converted.
type dilation time.Duration

// fabric returns an instant or a time of the machine by the fabric's time.
func (d dilation) fabric(machine time.Duration) time.Duration { return machine / time.Duration(d) }

// machine returns an instant or a time of the fabric by the machine's time; the last that there is in place of one that is
// later.
func (d dilation) machine(fabric time.Duration) time.Duration {
	if fabric > math.MaxInt64/time.Duration(d) {
		return math.MaxInt64
	}
	return fabric * time.Duration(d)
}
