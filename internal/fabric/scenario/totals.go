package scenario

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node/workload"
)

// totals add up what the clients of a flow, or of all flows of a workload, have
// measured, in one round or several. The zero value is nothing.
type totals struct {
	messages, bytes, errors          uint64
	err                              string // the first one, in words
	connections, reconnects, retried uint64
	recovered                        float64 // seconds

	seconds   float64 // of the rounds that are over
	longest   float64 // of this round: of the flow that took longest
	latencies []workload.Latency
	steps     []step
	clients   []clientSeries
}

// A step is one size of a sweep.
type step struct {
	report.Step
	longest   float64 // as in totals
	latencies []workload.Latency
}

// A clientSeries holds what a client did over time.
type clientSeries struct {
	began   time.Duration // since the run began
	samples []workload.Sample
}

// add adds what a client has measured that began then.
func (t *totals) add(r *workload.Result, began time.Duration) {
	t.messages += r.Messages
	t.bytes += r.Bytes
	t.errors += r.Errors
	t.connections += r.Connections
	t.reconnects += r.Reconnects
	t.retried += r.Retried
	t.recovered = max(t.recovered, r.Recovered)
	t.longest = max(t.longest, r.Seconds)
	t.latencies = append(t.latencies, r.Latency)
	if len(r.Series) > 0 {
		t.clients = append(t.clients, clientSeries{began, r.Series})
	}
	for _, s := range r.Steps {
		i := slices.IndexFunc(t.steps, func(have step) bool { return have.Size == s.Size })
		if i < 0 {
			i = len(t.steps)
			t.steps = append(t.steps, step{Step: report.Step{Size: s.Size}})
		}
		n := &t.steps[i]
		n.Messages += s.Messages
		n.Errors += s.Errors
		n.longest = max(n.longest, s.Seconds)
		n.latencies = append(n.latencies, s.Latency)
	}
}

// endRound is called when all flows are over that run at the same time.
func (t *totals) endRound() {
	t.seconds += t.longest
	t.longest = 0
	for i := range t.steps {
		s := &t.steps[i]
		s.Seconds += s.longest
		s.longest = 0
	}
}

func (t *totals) note(text string) {
	if t.err == "" {
		t.err = text
	}
}

// gbps returns the payload of the rounds that are over, 10^9 bits per second.
func (t *totals) gbps() float64 { return gbps(t.bytes, t.seconds) }

func gbps(bytes uint64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(bytes) * 8 / seconds / 1e9
}

// merged adds latencies up.
func merged(all []workload.Latency) *workload.Latencies {
	l := new(workload.Latencies)
	for _, one := range all {
		if l.Add(one) != nil {
			continue // a node that sends what is no histogram has measured nothing
		}
	}
	return l
}

func latency(l *workload.Latencies) report.Latency {
	return report.Latency{
		Min: l.Micros(0), P50: l.Micros(50), P90: l.Micros(90), P99: l.Micros(99),
		P999: l.Micros(99.9), P9999: l.Micros(99.99), Max: l.Micros(100),
	}
}

// distribution returns the latencies as a curve, a point for each percent, and some more
// where the few slow ones are.
func distribution(l *workload.Latencies) []report.Quantile {
	if l.Count() == 0 {
		return nil
	}
	var points []report.Quantile
	add := func(percent float64) {
		us := l.Micros(percent)
		if n := len(points); n > 0 && points[n-1].Micros == us { // the curve is upright here
			points[n-1].Fraction = percent / 100
			return
		}
		points = append(points, report.Quantile{Micros: us, Fraction: percent / 100})
	}
	for percent := range 100 {
		add(float64(percent))
	}
	for _, percent := range []float64{99.5, 99.9, 99.95, 99.99, 100} {
		add(percent)
	}
	return points
}

// result fills in a workload's or a flow's numbers, and returns its latencies.
func (t *totals) result(r *report.Workload) *workload.Latencies {
	r.Messages, r.Bytes, r.Errors, r.Error = t.messages, t.bytes, t.errors, t.err
	r.Connections, r.Reconnects, r.Retried, r.Recovered = t.connections, t.reconnects, t.retried, t.recovered
	r.Seconds, r.Gbps = t.seconds, t.gbps()
	l := merged(t.latencies)
	r.Latency = latency(l)
	for i := range t.steps {
		s := t.steps[i].Step
		s.Gbps = gbps(s.Messages*s.Size, s.Seconds)
		s.Latency = latency(merged(t.steps[i].latencies))
		r.Steps = append(r.Steps, s)
	}
	return l
}

// usualPiece is the length of the pieces of a series unless it is a long one, in seconds.
const usualPiece = 0.1

// mostSamples bounds a series.
const mostSamples = 4096

// series adds up clients, piece by piece. Of latencies that cannot be added up it takes
// the mean of the medians, by messages, and the largest of the 99th percentiles.
func series(clients []clientSeries) []report.Sample {
	var begin, end, piece float64 = math.Inf(1), 0, usualPiece
	for _, c := range clients {
		last := c.samples[len(c.samples)-1]
		begin = min(begin, c.began.Seconds()+c.samples[0].At)
		end = max(end, c.began.Seconds()+last.At+last.Seconds)
		if len(c.samples) > 1 {
			piece = max(piece, c.samples[0].Seconds)
		}
	}
	for (end-begin)/piece > mostSamples {
		piece *= 2
	}
	pieces := map[int]*report.Sample{}
	for _, c := range clients {
		for _, s := range c.samples {
			from := c.began.Seconds() + s.At
			i := int((from + s.Seconds/2 - begin) / piece)
			p := pieces[i]
			if p == nil {
				at := begin + float64(i)*piece
				p = &report.Sample{At: round(at), Seconds: round(min(piece, end-at))}
				pieces[i] = p
			}
			if all := p.Messages + s.Messages; all > 0 {
				p.P50 += (s.P50 - p.P50) * float64(s.Messages) / float64(all)
			}
			p.P99 = max(p.P99, s.P99)
			p.Messages += s.Messages
			p.Bytes += s.Bytes
			p.Errors += s.Errors
		}
	}
	all := make([]report.Sample, 0, len(pieces))
	for _, p := range pieces {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b report.Sample) int { return cmp.Compare(a.At, b.At) })
	return all
}

// round returns a time in seconds without the noise of sums, to the microsecond.
func round(seconds float64) float64 { return math.Round(seconds*1e6) / 1e6 }

// fairness returns Jain's index of flows' throughputs: 1 if all are equal, 1/n if one of n
// has everything. It is 0 if none has anything.
func fairness(flows []*flow) float64 {
	var sum, squares float64
	for _, f := range flows {
		x := f.totals.gbps()
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(flows)) * squares)
}

// report returns the result of the workload.
func (w *workloadRun) report() report.Workload {
	s := w.spec
	r := report.Workload{
		Name: s.Name, From: s.From, To: s.To, Pattern: string(s.Pattern), Nodes: s.Nodes,
		Operation: string(s.Operation), Measure: string(s.Measure), Size: s.Size, Mixed: s.Mixed, Depth: s.Depth, QPs: s.QPs,
	}
	w.totals.endRound() // of one that was interrupted
	r.CDF, r.Series = distribution(w.totals.result(&r)), series(w.totals.clients)
	if r.Error != "" && w.losses != "" {
		r.Error += "; until then, on the way: " + w.losses
	}
	r.Began, r.Ended = w.beganAt.Seconds(), w.endedAt.Seconds()
	r.Verified = s.Verify && r.Errors == 0 && r.Messages > 0
	for _, f := range w.flows {
		f.totals.endRound()
		r.Verified = r.Verified && !f.unproven
	}
	if len(w.flows) > 1 {
		for _, f := range w.flows {
			var n report.Workload
			f.totals.steps = nil // a flow's report has none
			f.totals.result(&n)
			r.Flows = append(r.Flows, report.Flow{
				From: f.from, To: f.to, Messages: n.Messages, Bytes: n.Bytes, Errors: n.Errors, Error: n.Error,
				Seconds: n.Seconds, Gbps: n.Gbps, Latency: n.Latency,
			})
		}
		r.Fairness = fairness(w.flows)
	}
	w.jobs.result(&r)
	return r
}
