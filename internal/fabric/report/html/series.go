package html

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
)

// mostLines bounds the lines of a plot: people tell no more apart.
const mostLines = 12

// A plotSeries has the data of plots of a report.Series.
type plotSeries struct {
	Period float64      `json:"period"`           // seconds
	At     []float64    `json:"at"`               // seconds: the end of each period
	Queues []plotColumn `json:"queues,omitempty"` // bytes
	Pauses []plotColumn `json:"pauses,omitempty"` // share of the period
	Rates  []plotColumn `json:"rates,omitempty"`  // Gb/s
	Losses []plotColumn `json:"losses,omitempty"` // packets per second
	Resent []plotColumn `json:"resent,omitempty"` // likewise
	// Watched has rates, losses and what was sent again, where these have a period of their own.
	Watched *plotSeries `json:"watched,omitempty"`
}

// sending returns the part that has rates, losses and what was sent again.
func (p *plotSeries) sending() *plotSeries { return cmp.Or(p.Watched, p) }

// A plotColumn has the numbers of a series at each time.
type plotColumn struct {
	Name   string    `json:"name"`
	Is     []float64 `json:"is"`
	Target []float64 `json:"target,omitempty"` // of a rate

	weight float64 // by which the most important ones are chosen
}

// plottedSeries returns what plots show of a series: the longest queues, the longest pauses, the slowest rates, and where most was
// lost and sent again, each in the order of the report. It is nil if there is nothing to show.
func plottedSeries(s *report.Series) *plotSeries {
	if s == nil {
		return nil
	}
	watched := plottedSeries(s.Watched)
	if watched == nil && (s.Points == 0 || len(s.Queues)+len(s.Pairs)+len(s.Links) == 0) {
		return nil
	}
	seconds := s.PeriodUS / 1e6
	p := &plotSeries{Period: seconds, Watched: watched}
	for i := range s.Points {
		p.At = append(p.At, rounded(float64(i+1)*seconds))
	}
	for i := range s.Queues {
		q := &s.Queues[i]
		c := plotColumn{Name: fmt.Sprintf("%s class %d", bounded(q.Endpoint, longName), q.Class)}
		if q.Bytes != nil {
			p.Queues = append(p.Queues, c.with(q.Bytes, 1, func(all []float64) float64 { return slices.Max(all) }))
		}
		if q.Paused != nil {
			c.Is, c.weight = q.Paused, sum(q.Paused)
			p.Pauses = append(p.Pauses, c)
		}
	}
	for i := range s.Pairs {
		r := &s.Pairs[i]
		c := plotColumn{Name: fmt.Sprintf("%s → %s QP 0x%x", bounded(r.Node, longName), bounded(r.Peer, longName), r.QP)}
		if r.Retransmitted != nil {
			p.Resent = append(p.Resent, c.with(r.Retransmitted, 1/seconds, sum))
		}
		if r.BPS == nil {
			continue
		}
		c = c.with(r.BPS, 1e-9, func(all []float64) float64 { return -sum(all) })
		if r.Target != nil {
			c.Target = scaled(r.Target, 1e-9)
		}
		p.Rates = append(p.Rates, c)
	}
	for i := range s.Links {
		d := &s.Links[i]
		for _, why := range []struct {
			name    string
			numbers []uint64
		}{{"dropped as asked", d.Dropped}, {"lost otherwise", d.Lost}} {
			if why.numbers != nil {
				c := plotColumn{Name: fmt.Sprintf("from %s, %s", bounded(d.From, longName), why.name)}
				p.Losses = append(p.Losses, c.with(why.numbers, 1/seconds, sum))
			}
		}
	}
	p.Queues, p.Pauses, p.Rates = heaviest(p.Queues), heaviest(p.Pauses), heaviest(p.Rates)
	p.Losses, p.Resent = heaviest(p.Losses), heaviest(p.Resent)
	return p
}

// with returns the column with numbers in another unit, and the weight of these.
func (c plotColumn) with(numbers []uint64, unit float64, weight func([]float64) float64) plotColumn {
	c.Is = scaled(numbers, unit)
	c.weight = weight(c.Is)
	return c
}

func scaled(numbers []uint64, unit float64) []float64 {
	all := make([]float64, len(numbers))
	for i, n := range numbers {
		all[i] = rounded(float64(n) * unit)
	}
	return all
}

func sum(all []float64) (s float64) {
	for _, x := range all {
		s += x
	}
	return s
}

// heaviest returns the columns of most weight, in their order.
func heaviest(all []plotColumn) []plotColumn {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(all[b].weight, all[a].weight) })
	order = order[:min(len(order), mostLines)]
	slices.Sort(order)
	chosen := make([]plotColumn, len(order))
	for i, of := range order {
		chosen[i] = all[of]
	}
	return chosen
}

// seriesPlots returns the plots of queues, pauses, rates, losses and what was sent again over time.
func (s *sheet) seriesPlots() (plots group) {
	p := plottedSeries(s.Series)
	if p == nil {
		return nil
	}
	sending, recorded := p.sending(), cmp.Or(s.Series.Watched, s.Series)
	packets := func(c plotColumn) string {
		return words.Count(uint64(math.Round(sum(c.Is)*sending.Period))) + " packets"
	}
	losses := 0
	for i := range recorded.Links {
		losses += min(len(recorded.Links[i].Dropped), 1) + min(len(recorded.Links[i].Lost), 1)
	}
	bits := func(c plotColumn) string { return words.Rate(sum(c.Is) / float64(len(c.Is))) }
	for _, kind := range []struct {
		name, title, note, most string
		columns                 []plotColumn
		all                     int
		figure                  func(plotColumn) string
	}{
		{"queues", "Queues", "bytes, by port and class", "longest", p.Queues, count(s.Series.Queues, func(q report.QueueSeries) bool { return q.Bytes != nil }),
			func(c plotColumn) string { return "up to " + words.Size(uint64(slices.Max(c.Is))) }},
		{"pauses", "Pauses", "a strip for each port and class, as high as it was paused", "most paused", p.Pauses, count(s.Series.Queues, func(q report.QueueSeries) bool { return q.Paused != nil }),
			func(c plotColumn) string { return "paused " + words.Percent(sum(c.Is)/float64(len(c.Is))) }},
		{"qp-rate", "Rates of queue pairs", "and their targets, dotted", "slowest", sending.Rates, count(recorded.Pairs, func(q report.PairSeries) bool { return q.BPS != nil }), bits},
		{"losses", "Packets lost", "per second, by who sent them", "largest", sending.Losses, losses, packets},
		{"resent", "Packets sent again", "per second, by queue pair", "largest", sending.Resent, count(recorded.Pairs, func(q report.PairSeries) bool { return q.Retransmitted != nil }), packets},
	} {
		if len(kind.columns) == 0 {
			continue
		}
		note := kind.note
		if kind.all > len(kind.columns) {
			note += fmt.Sprintf("; the %d %s of %d", len(kind.columns), kind.most, kind.all)
		}
		var parts []string
		for _, c := range kind.columns {
			parts = append(parts, c.Name+" "+kind.figure(c))
		}
		plots = append(plots, s.plot(kind.name, kind.title, note, bounded(strings.Join(parts, "; "), longText)))
	}
	return plots
}

// count returns how many of all there are of which something holds.
func count[T any](all []T, holds func(T) bool) (n int) {
	for _, x := range all {
		if holds(x) {
			n++
		}
	}
	return n
}
