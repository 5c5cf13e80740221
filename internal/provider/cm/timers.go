package cm

import (
	"time"

	"github.com/ndklab/ndklab/internal/priority"
)

// timers are the connections that wait for something, soonest first.
type timers struct{ waiting priority.Queue[*connection] }

// Before implements priority.Item.
func (c *connection) Before(other *connection) bool { return c.deadline < other.deadline }

// Place implements priority.Item.
func (c *connection) Place() *priority.Place { return &c.timer }

func (t *timers) set(c *connection, deadline time.Duration) {
	c.deadline = deadline
	t.waiting.Put(c)
}

// stop has a connection wait no longer, if it does.
func (t *timers) stop(c *connection) { t.waiting.Remove(c) }

func (t *timers) first() (time.Duration, bool) {
	if t.waiting.Len() == 0 {
		return 0, false
	}
	return t.waiting.First().deadline, true
}

// due returns the first connection whose deadline has come; it stays where it is.
func (t *timers) due(now time.Duration) *connection {
	if first, ok := t.first(); !ok || first > now {
		return nil
	}
	return t.waiting.First()
}
