package metrics

import (
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/histogram"
	dto "github.com/prometheus/client_model/go"
)

// A direction is one of a link's.
type direction struct {
	*report.Direction
	link *report.Link
}

// directionsOf returns the directions of the links of a lab.
func directionsOf(o *report.Observation, lab *dto.LabelPair) []subject[direction] {
	all := make([]subject[direction], 0, 2*len(o.Links))
	for i := range o.Links {
		l := &o.Links[i]
		for d := range l.Directions {
			all = append(all, subject[direction]{
				direction{&l.Directions[d], l},
				[]*dto.LabelPair{pair("from", l.Endpoints[d]), lab, pair("to", l.Endpoints[1-d])},
			})
		}
	}
	return all
}

var linkLabels = []string{"from", "lab", "to"}

var linkRows = []row[direction]{
	link("ndklab_link_up", Gauge, "0 or 1", "Whether the link is up",
		func(d direction) (float64, bool) { return truth(d.link.State == up), true }),
	link("ndklab_link_packets_total", Counter, "packets", "Wire packets that entered the link", count(func(d *report.Direction) uint64 { return d.Packets })),
	link("ndklab_link_bytes_total", Counter, "bytes", "Those packets, from the Ethernet header on", count(func(d *report.Direction) uint64 { return d.Bytes })),
	{
		Metric: Metric{"ndklab_link_dropped_packets_total", Counter, "packets", append(linkLabels[:3:3], "reason"),
			"Packets that did not arrive, by reason: loss (as asked for), queue (no room before the rate), down (the link was), cut (by cut or flap), fault (one that drops), overrun (the link engine could not keep up) or kernel (the kernel could not, or an end was down)"},
		values: func(d direction, put func(float64, ...*dto.LabelPair)) {
			for i, n := range drops(d.Direction) {
				put(float64(n), reasonLabels[i])
			}
		},
	},
	link("ndklab_link_duplicated_packets_total", Counter, "packets", "Copies made", count(func(d *report.Direction) uint64 { return d.Duplicated })),
	link("ndklab_link_reordered_packets_total", Counter, "packets", "Packets that overtook others", count(func(d *report.Direction) uint64 { return d.Reordered })),
	link("ndklab_link_corrupted_packets_total", Counter, "packets", "Packets that were changed", count(func(d *report.Direction) uint64 { return d.Corrupted })),
	link("ndklab_link_marked_packets_total", Counter, "packets", "Packets that were marked with Congestion Experienced (ECN)", count(func(d *report.Direction) uint64 { return d.Marked })),
	link("ndklab_link_faulted_packets_total", Counter, "packets", "Packets that met a fault", count(func(d *report.Direction) uint64 { return d.Faulted })),
	link("ndklab_link_queue_peak_bytes", Gauge, "bytes", "The most that has waited at once for the rate; absent where it is not measured",
		func(d direction) (float64, bool) { return known(d.QueuePeak) }),
	asked("ndklab_link_asked_rate_bytes_per_second", "bytes per second", "The rate that the link is set to; absent without one", func(q *report.Quality) *float64 { return q.RateGbps }, 1e9/8),
	asked("ndklab_link_asked_delay_seconds", "seconds", "The delay, one way, that the link is set to; absent without one", func(q *report.Quality) *float64 { return q.DelayUS }, 1e-6),
	asked("ndklab_link_asked_jitter_seconds", "seconds", "The jitter that the link is set to; absent without one", func(q *report.Quality) *float64 { return q.JitterUS }, 1e-6),
	asked("ndklab_link_asked_loss_ratio", "ratio", "The share of packets that the link is set to lose; absent without one", func(q *report.Quality) *float64 { return q.Loss }, 1),
	{
		Metric: Metric{"ndklab_link_delay_seconds", Histogram, "seconds", linkLabels,
			"How long packets took through the link, one way, without the wait for the rate; absent where it is not measured, as on links without impairments, and before the first packet"},
		bars: func(d direction) *histogram.Bars { return d.DelayBars },
	},
}

// up is report.Link.State of a link that is up.
const up = "up"

// drops returns how many packets were dropped, in the order of reasonLabels.
func drops(d *report.Direction) [7]uint64 {
	by := &d.LostBy
	return [7]uint64{d.Dropped, by.Queue, by.Down, by.Cut, by.Fault, by.Overrun, by.Kernel}
}

var reasonLabels = labelled("reason", "loss", "queue", "down", "cut", "fault", "overrun", "kernel")

func link(name string, kind Type, unit, help string, value func(direction) (float64, bool)) row[direction] {
	return row[direction]{Metric: Metric{name, kind, unit, linkLabels, help}, value: value}
}

// count returns a counter of directions as a row has it.
func count(of func(*report.Direction) uint64) func(direction) (float64, bool) {
	return func(d direction) (float64, bool) { return float64(of(d.Direction)), true }
}

// asked is a row of what directions are set to. Its values are those of reports times scale.
func asked(name, unit, help string, of func(*report.Quality) *float64, scale float64) row[direction] {
	return link(name, Gauge, unit, help, func(d direction) (float64, bool) {
		if d.Set == nil {
			return 0, false
		}
		value, ok := known(of(d.Set))
		return value * scale, ok
	})
}
