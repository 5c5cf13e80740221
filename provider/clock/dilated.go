package clock

import "time"

// Dilated returns a clock that runs factor times slower than another: an hour of the other is
// an hour divided by factor of its own. Its epoch is the other's. Adapters and workloads that
// live by it take factor times as long by the other clock, and measure the same.
// A factor of 1 or less returns the other clock itself.
func Dilated(of Clock, factor int) Clock {
	if factor <= 1 {
		return of
	}
	return dilatedClock{of, time.Duration(factor)}
}

// Factor returns the factor of a clock of Dilated; 1 of all others.
func Factor(c Clock) int {
	if d, ok := c.(dilatedClock); ok {
		return int(d.factor)
	}
	return 1
}

type dilatedClock struct {
	of     Clock
	factor time.Duration
}

func (c dilatedClock) Now() time.Duration { return c.of.Now() / c.factor }

func (c dilatedClock) AfterFunc(d time.Duration, f func()) Timer {
	return dilatedTimer{c.of.AfterFunc(c.undilated(d), f), c}
}

func (c dilatedClock) Go(f func()) { c.of.Go(f) }

// Precise implements what the function Precise asks for.
func (c dilatedClock) Precise() Clock { return dilatedClock{Precise(c.of), c.factor} }

// Driven implements what the function Driven asks for.
func (c dilatedClock) Driven() (Clock, func()) {
	of, advance := Driven(c.of)
	return dilatedClock{of, c.factor}, advance
}

// undilated returns a time of the clock by the other one; the longest that there is in place
// of one that is longer.
func (c dilatedClock) undilated(d time.Duration) time.Duration {
	const longest = time.Duration(1<<63 - 1)
	if d > longest/c.factor {
		return longest
	}
	return d * c.factor
}

type dilatedTimer struct {
	Timer
	clock dilatedClock
}

func (t dilatedTimer) Reset(d time.Duration) bool { return t.Timer.Reset(t.clock.undilated(d)) }
