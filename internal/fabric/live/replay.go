package live

import (
	"math"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/series"
	"github.com/ndklab/ndklab/topology"
)

// A Replay is a run that is over, as those see it who watch.
type Replay struct {
	Map     *Map
	Samples []*Sample // one after the other, from the run's beginning to its end
	Events  []event.Event
}

// mostSamples bounds the samples of a replay.
const mostSamples = 2000

// leastSamples is the number of samples of a run whose report has nothing over time.
const leastSamples = 10

// ReplayOf returns the replay of a run. Its samples have what the report has over time: rates and latencies of workloads; where the file
// asks for series, queues, pauses, queue pairs, and what links lost; and whether nodes and links were up, by the events. Other figures are of the whole run, and
// are missing. Rates of nodes and links are those of the workloads' payload; of links, where that has one path alone.
func ReplayOf(r *report.Run) *Replay {
	p := newPlayer(r)
	step := p.step()
	count := max(1, int(math.Ceil(r.Seconds/step-1e-9)))
	replay := &Replay{Map: p.of, Events: slices.Clone(r.Events)}
	for i := range count {
		replay.Samples = append(replay.Samples, p.sample(float64(i)*step, min(float64(i+1)*step, max(r.Seconds, step))))
	}
	return replay
}

// A player makes the samples of a replay. Nothing of it changes.
type player struct {
	run     *report.Run
	of      *Map
	nodes   map[string]int
	links   map[string]int // by endpoint
	upFirst []bool         // by link: before anything happened
	settled []float64      // by link: the time of the last change of what it is set to; the report has the settings from then on
	shares  []float64      // by flow of the map: of what its workload moved
	queues  map[string][]*series.QueueSeries
}

func newPlayer(r *report.Run) *player {
	p := &player{run: r, of: mapOfRun(r), nodes: map[string]int{}, links: map[string]int{}, queues: map[string][]*series.QueueSeries{}}
	for i := range r.Nodes {
		p.nodes[r.Nodes[i].Name] = i
	}
	for i := range r.Links {
		p.links[r.Links[i].Endpoints[0]], p.links[r.Links[i].Endpoints[1]] = i, i
		p.upFirst = append(p.upFirst, r.Links[i].State == "up")
	}
	p.settled = make([]float64, len(r.Links))
	all := 0.0 // the last change of any
	for i := len(r.Events) - 1; i >= 0; i-- {
		e := &r.Events[i]
		link, known := p.links[e.Link]
		switch {
		case e.Kind != event.LinkChanged:
		case !known:
			all = max(all, e.At.Seconds())
		default:
			p.settled[link] = max(p.settled[link], e.At.Seconds())
			if up, switched := switches(e); switched {
				p.upFirst[link] = !up // until then
			}
		}
	}
	for i := range p.settled {
		p.settled[i] = max(p.settled[i], all)
	}
	p.share()
	if r.Series != nil {
		for i := range r.Series.Queues {
			q := &r.Series.Queues[i]
			p.queues[q.Endpoint] = append(p.queues[q.Endpoint], q)
		}
	}
	return p
}

// share finds what each flow of the map has of what its workload moved.
func (p *player) share() {
	type ends struct {
		workload string
		from, to int
	}
	moved := make(map[ends]float64)
	for i := range p.run.Workloads {
		w := &p.run.Workloads[i]
		for _, f := range flowsOfWorkload(w) {
			share := 1.0
			if len(w.Flows) > 0 {
				share = float64(f.Bytes) / float64(max(w.Bytes, 1))
			}
			moved[ends{w.Name, p.nodes[f.From], p.nodes[f.To]}] = share
		}
	}
	p.shares = make([]float64, len(p.of.Flows))
	for i, f := range p.of.Flows {
		p.shares[i] = moved[ends{f.Workload, f.From, f.To}]
	}
}

// step returns the time of a sample: that of the pieces of a workload, the shortest of several, within bounds.
func (p *player) step() float64 {
	least := math.Inf(1)
	for i := range p.run.Workloads {
		usual := 0.0 // of the workload: its last piece may be shorter
		for _, s := range p.run.Workloads[i].Series {
			usual = max(usual, s.Seconds)
		}
		if usual > 0 {
			least = min(least, usual)
		}
	}
	if math.IsInf(least, 1) {
		least = p.run.Seconds / leastSamples
	}
	return max(least, p.run.Seconds/mostSamples, 1e-6)
}

// sample returns the sample of the time from one instant of the run to another.
func (p *player) sample(from, to float64) *Sample {
	s := &Sample{At: to, Over: to - from, State: core.NodeIsReady, Nodes: make([]NodeSample, len(p.run.Nodes)), Links: make([]LinkSample, len(p.of.Links)), Workloads: []WorkloadSample{}}
	for i := range s.Nodes {
		s.Nodes[i].State = core.NodeIsReady
	}
	for i := range s.Links {
		s.Links[i].Up = p.upFirst[i]
		if to >= p.settled[i] {
			for end := range s.Links[i].Ends {
				settings := p.run.Links[i].Directions[end].Settings
				s.Links[i].Ends[end].Set, s.Links[i].Ends[end].Cut = settings, slices.Contains(settings, "cut=true")
			}
		}
	}
	p.happen(to, s)
	p.work(from, to, s)
	p.wait(from, to, s)
	for _, part := range p.run.Series.Parts() {
		p.send(part, from, to, s)
		p.lose(part, from, to, s)
	}
	bound(s)
	for i := range s.Links {
		for end := range s.Links[i].Ends {
			d := &s.Links[i].Ends[end]
			if set := p.run.Links[i].Directions[end].Set; set != nil && set.RateGbps != nil {
				d.Load = new(d.Rate / (*set.RateGbps * 1e9))
			}
		}
	}
	return s
}

// switches reports whether an event is of a link that has gone up or down, as core says it: what one is set to says otherwise.
func switches(e *event.Event) (up, switched bool) {
	if e.Kind != event.LinkChanged || e.Link == "" {
		return false, false
	}
	up = strings.HasSuffix(e.Text, " is up")
	return up, up || strings.HasSuffix(e.Text, " is down")
}

// happen has the events up to an instant be of effect.
func (p *player) happen(at float64, s *Sample) {
	states := map[string]string{event.NodeDown: core.NodeIsDown, event.NodeUp: core.NodeIsReady, event.NodePaused: core.NodeIsPaused, event.NodeResumed: core.NodeIsReady}
	for i := range p.run.Events {
		e := &p.run.Events[i]
		if e.At.Seconds() > at {
			return
		}
		if state, is := states[e.Kind]; is {
			if n, known := p.nodes[e.Node]; known {
				s.Nodes[n].State = state
			}
		}
		if up, switched := switches(e); switched {
			if link, known := p.links[e.Link]; known {
				s.Links[link].Up = up
			}
		}
	}
}

// work adds what workloads did.
func (p *player) work(from, to float64, s *Sample) {
	for i := range p.run.Workloads {
		w := &p.run.Workloads[i]
		flows := flowsOfWorkload(w)
		if len(flows) == 0 || len(w.Series) == 0 {
			continue
		}
		sum, over := worked(w, from, to), to-from
		node, known := p.nodes[flows[0].From]
		if !known || !sum.any {
			continue
		}
		sum.is.Node = node
		sum.is.Name = w.Name
		sum.is.Rate, sum.is.Messages, sum.is.Errors = 8*sum.bytes/over, sum.messages/over, sum.errors/over
		s.Workloads = append(s.Workloads, sum.is)
		p.spread(w, sum.is.Rate, s)
	}
}

// A doing sums up a workload over some time.
type doing struct {
	bytes, messages, errors float64
	any                     bool
	is                      WorkloadSample
}

// worked returns what a workload did in some time, which its pieces may be shorter and longer than.
func worked(w *report.Workload, from, to float64) (d doing) {
	median, highest := 0.0, 0.0
	for i := range w.Series {
		piece := &w.Series[i]
		common := min(to, piece.At+piece.Seconds) - max(from, piece.At)
		if common <= 1e-9 || piece.Seconds <= 0 {
			continue
		}
		share := common / piece.Seconds
		d.any = true
		d.bytes += share * float64(piece.Bytes)
		d.messages += share * float64(piece.Messages)
		d.errors += share * float64(piece.Errors)
		if piece.Messages > 0 {
			median += piece.P50 * share * float64(piece.Messages)
			highest = max(highest, piece.P99)
		}
	}
	if d.messages > 0 {
		d.is.P50, d.is.P99 = new(median/d.messages), new(highest)
	}
	return d
}

// spread adds the rate of a workload to its nodes and links, by what each flow had of it in all.
func (p *player) spread(w *report.Workload, rate float64, s *Sample) {
	for i := range p.of.Flows {
		f := &p.of.Flows[i]
		if f.Workload != w.Name {
			continue
		}
		share := p.shares[i]
		sender, taker, back := f.From, f.To, 0
		if w.Operation == string(topology.Read) { // whose payload comes from the server
			sender, taker, back = f.To, f.From, 1
		}
		s.Nodes[sender].Out += share * rate
		s.Nodes[taker].In += share * rate
		if f.Shared {
			continue
		}
		for _, h := range f.Hops {
			s.Links[h.Link].Ends[h.End^back].Rate += share * rate
		}
	}
}

// wait adds what series have of queues and pauses: the most that an endpoint's queues held together, and the mean share of pauses.
func (p *player) wait(from, to float64, s *Sample) {
	all := p.run.Series
	if all == nil || all.PeriodUS <= 0 {
		return
	}
	period := all.PeriodUS / 1e6
	first, end := max(0, int(math.Round(from/period))), min(all.Points, int(math.Round(to/period)))
	for link := range p.of.Links {
		for e, endpoint := range p.of.Links[link].Endpoints {
			node := p.of.Links[link].Nodes[e]
			held := make([]float64, max(0, end-first))
			for _, q := range p.queues[endpoint] {
				for at := first; at < end; at++ {
					if at < len(q.Bytes) {
						held[at-first] += float64(q.Bytes[at])
					}
					if at < len(q.Paused) && node < len(s.Nodes) {
						s.Nodes[node].Paused += q.Paused[at] / float64(end-first)
					}
				}
				if len(q.Paused) > 0 {
					d := &s.Links[link].Ends[e]
					d.Pauses = append(d.Pauses, PauseSample{q.Class, meanOf(q.Paused, first, end)})
				}
			}
			if p.queues[endpoint] != nil && len(held) > 0 {
				s.Links[link].Ends[e].Queue = new(slices.Max(held))
			}
		}
	}
}

// meanOf returns the mean of the numbers of some points; those that a column does not have are 0.
func meanOf(column []float64, first, end int) float64 {
	sum := 0.0
	for at := first; at < min(end, len(column)); at++ {
		sum += column[at]
	}
	return sum / float64(max(end-first, 1))
}

// send adds what a series has of queue pairs.
func (p *player) send(all *series.Series, from, to float64, s *Sample) {
	for i := range all.Pairs {
		q := &all.Pairs[i]
		node, known := p.nodes[q.Node]
		if !known {
			continue
		}
		pair := PairSample{
			QP: q.QP, Peer: q.Peer, Rate: stateAt(all, q.BPS, to), Target: stateAt(all, q.Target, to), Window: stateAt(all, q.Window, to),
			CNPs: countedIn(all, q.CNPs, from, to), Resent: countedIn(all, q.Retransmitted, from, to),
		}
		n := &s.Nodes[node]
		n.CNPs += pair.CNPs
		n.Resent += pair.Resent
		n.Pairs = append(n.Pairs, pair)
	}
}

// lose adds what a series has of packets that links lost.
func (p *player) lose(all *series.Series, from, to float64, s *Sample) {
	for i := range all.Links {
		l := &all.Links[i]
		link, known := p.links[l.From]
		if !known {
			continue
		}
		end := 0
		if p.run.Links[link].Endpoints[1] == l.From {
			end = 1
		}
		d := &s.Links[link].Ends[end]
		d.Dropped, d.Lost = countedIn(all, l.Dropped, from, to), countedIn(all, l.Lost, from, to)
	}
}

// stateAt returns the number of the point in whose period an instant is, or of the last point before it.
func stateAt(all *series.Series, column []uint64, at float64) float64 {
	if len(column) == 0 || all.PeriodUS <= 0 {
		return 0
	}
	point := int(math.Ceil(at*1e6/all.PeriodUS-1e-6)) - 1
	return float64(column[min(max(point, 0), len(column)-1)])
}

// countedIn returns how much was counted per second from one instant to another, which periods may be shorter and longer than.
func countedIn(all *series.Series, column []uint64, from, to float64) float64 {
	period := all.PeriodUS / 1e6
	if len(column) == 0 || period <= 0 || to <= from {
		return 0
	}
	sum := 0.0
	for point := max(0, int(from/period)-1); point < len(column) && float64(point)*period < to; point++ {
		begins := float64(point) * period
		if common := min(to, begins+period) - max(from, begins); common > 1e-9*period {
			sum += common / period * float64(column[point])
		}
	}
	return sum / (to - from)
}
