package simulate

import (
	"slices"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
)

// A lifeClock is the clock as one life of a node knows it. While the node is paused it
// goes on, but what is due waits, in order, until the node is resumed; when the life
// has ended, nothing of it ever runs again.
type lifeClock struct {
	*clock.Virtual
	paused, ended bool
	waiting       []*lifeTimer // what was due while paused
}

// A lifeTimer is a function of a life that is to run.
type lifeTimer struct {
	under clock.VirtualTimer
	life  *lifeClock
	f     func()
	waits bool // in life.waiting
}

// AfterFunc implements clock.Clock.
func (c *lifeClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	t := &lifeTimer{life: c, f: f}
	t.under.Init(c.Virtual, t)
	t.under.Reset(d)
	return t
}

// Go implements clock.Clock.
func (c *lifeClock) Go(f func()) { c.AfterFunc(0, f) }

// Expire implements clock.Expirer.
func (t *lifeTimer) Expire() {
	switch {
	case t.life.ended:
	case t.life.paused:
		t.waits = true
		t.life.waiting = append(t.life.waiting, t)
	default:
		t.f()
	}
}

// Stop implements clock.Timer.
func (t *lifeTimer) Stop() bool {
	if !t.waits {
		return t.under.Stop()
	}
	t.waits = false
	t.life.waiting = slices.DeleteFunc(t.life.waiting, func(w *lifeTimer) bool { return w == t })
	return true
}

// Reset implements clock.Timer.
func (t *lifeTimer) Reset(d time.Duration) bool {
	pending := t.Stop()
	t.under.Reset(d)
	return pending
}

// resume has what waited run, now.
func (c *lifeClock) resume() {
	c.paused = false
	waiting := c.waiting
	c.waiting = nil
	for _, t := range waiting {
		t.waits = false
		t.under.Reset(0)
	}
}

// end ends the life.
func (c *lifeClock) end() { c.ended, c.waiting = true, nil }
