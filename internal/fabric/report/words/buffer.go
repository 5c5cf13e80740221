package words

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// Marked returns the share of a queue's packets that were marked; "-" if none was.
func Marked(c *report.BufferClass) string {
	if c.Marked == 0 || c.Packets == 0 {
		return "-"
	}
	return Percent(float64(c.Marked) / float64(c.Packets))
}

// Drops returns how many packets of a queue were dropped, by reason; "-" if none was.
func Drops(c *report.BufferClass) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(c.Dropped)) {
		if n := c.Dropped[reason]; n > 0 {
			parts = append(parts, reason+" "+Count(n))
		}
	}
	if parts == nil {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// BufferSize returns the size of a buffer; "-" if it has no bound.
func BufferSize(b *report.Buffer) string {
	if b.Size == 0 {
		return "-"
	}
	return Size(b.Size)
}

// BufferUse returns what a buffer held at most and, if it has a bound, the share of it that is.
func BufferUse(b *report.Buffer) string {
	text := Size(b.Peak)
	if b.Size > 0 {
		text += " (" + Percent(float64(b.Peak)/float64(b.Size)) + ")"
	}
	return text
}

// Storms returns how often the watchdog found a queue paused without end.
func Storms(q report.Queue) string {
	return fmt.Sprintf("%s, class %d: the watchdog found %s of pauses", q.Endpoint, q.Class, Plural(int(q.Storms), "storm"))
}

// Deadlock returns when queues waited for each other, and which: the first again behind the last.
func Deadlock(d *report.Deadlock) string {
	return fmt.Sprintf("deadlock at %s: %s (class %d)", Duration(d.AtUS), d.Cycle(), d.Class)
}
