package words

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// DirectionStory returns what there is to say of a direction besides its figures; "" if nothing.
// Unless full, it says how much waited in the queue where that was full, and how late
// packets left where that is out of the link's tolerance.
func DirectionStory(d *report.Direction, full bool) string {
	var parts []string
	for _, c := range []struct {
		n     uint64
		words string
	}{
		{d.LostBy.Queue, "lost to a full queue before the rate"},
		{d.LostBy.Down, "lost while it was down"},
		{d.LostBy.Cut, "lost while it was cut"},
		{d.LostBy.Fault, "dropped by faults"},
		{d.LostBy.Overrun, "lost because the link engine did not keep up"},
		{d.LostBy.Kernel, "lost by the kernel, which did not keep up or had an end down"},
		{d.Faulted, "met a fault"},
	} {
		if c.n > 0 {
			parts = append(parts, Count(c.n)+" "+c.words)
		}
	}
	a, g, set := &d.Asked, &d.Achieved, d.Set
	if set == nil {
		set = a
	}
	overtook := "overtook others"
	if a.Reorder != nil && a.JitterUS != nil { // which does not keep the order then
		overtook += " by reorder or jitter"
	}
	for _, c := range []struct {
		n          uint64
		words      string
		set, asked *float64
		got        *float64
		format     func(float64) string
	}{
		{d.Duplicated, "duplicated", set.Duplicate, a.Duplicate, g.Duplicate, Percent},
		{d.Reordered, overtook, set.Reorder, a.Reorder, g.Reorder, Percent},
		{d.Corrupted, "corrupted", set.Corrupt, a.Corrupt, g.Corrupt, Percent},
		{d.Marked, "marked", nil, nil, g.Marked, Percent},
	} {
		if c.n > 0 || c.asked != nil || c.set != nil {
			parts = append(parts, Count(c.n)+" "+c.words+against(c.set, c.asked, c.got, c.format))
		}
	}
	if d.Marked == 0 && slices.ContainsFunc(d.Settings, func(s string) bool { return strings.HasPrefix(s, "ecn=") }) {
		parts = append(parts, "nothing marked by ecn, which marks RDMA packets only of adapters with congestion: dcqcn or dctcp")
	}
	if a.Burst != nil {
		parts = append(parts, "losses in a row"+against(set.Burst, a.Burst, g.Burst, packets))
	}
	if r := d.Replayed; r != nil {
		parts = append(parts, fmt.Sprintf("%d met what was recorded, of which %d diverged: other packets than then; %d were not recorded", r.Packets, r.Diverged, r.Unrecorded))
	}
	if d.QueuePeak != nil && *d.QueuePeak > 0 && (full || d.LostBy.Queue > 0) {
		parts = append(parts, "at most "+Size(*d.QueuePeak)+" in the queue")
	}
	if l := d.Lateness; l != nil && (full && l.Packets > 0 || len(d.Overruns) > 0) {
		parts = append(parts, fmt.Sprintf("left %s late at the median, %s at the 99th percentile", Duration(l.P50), Duration(l.P99)))
	}
	return strings.Join(parts, ", ")
}

func packets(n float64) string { return Significant(n) + " packets" }

// against writes what was asked and measured, in parentheses, and what is set now if that
// differs.
func against(set, asked, got *float64, format func(float64) string) string {
	text := func(v *float64) string {
		if v == nil {
			return "none"
		}
		return Short(format(*v))
	}
	var parts []string
	switch {
	case text(set) != text(asked):
		parts = append(parts, "set now "+text(set), "mean asked "+text(asked))
	case asked != nil:
		parts = append(parts, "asked "+text(asked))
	}
	if got != nil {
		parts = append(parts, "achieved "+format(*got))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// Overrun returns an overrun in a sentence.
func Overrun(o *report.Overrun) string {
	text := fmt.Sprintf("%s: tolerated %s, got %s; %s", o.Figure, o.Tolerated, o.Got, o.Reason)
	if o.Allowed {
		return text + " (which the file allows)"
	}
	return text + ": " + o.Remedy
}

// Changed reports whether the present settings of a direction read otherwise than those of
// the packets that its figures are about.
func Changed(d *report.Direction) bool {
	return d.Set != nil && !slices.Equal(Figures(d.Set, Short), Figures(&d.Asked, Short))
}

// Figures returns delay, jitter, loss and rate; "-" is not asked for or not measured. form,
// if not nil, changes how they are written.
func Figures(q *report.Quality, form func(string) string) []string {
	cells := []string{"-", "-", "-", "-"}
	for i, v := range []struct {
		value  *float64
		format func(float64) string
	}{{q.DelayUS, Duration}, {q.JitterUS, Duration}, {q.Loss, Percent}, {q.RateGbps, Rate}} {
		if v.value == nil {
			continue
		}
		cells[i] = v.format(*v.value)
		if form != nil {
			cells[i] = form(cells[i])
		}
	}
	return cells
}

// Limit returns the limit of late packets.
func Limit(l *report.Late) string { return Short(Duration(l.LimitUS)) }
