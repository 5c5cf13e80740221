package lab

import (
	"context"
	"log"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/series"
)

// leastWatchTime is the shortest time of the machine's between two looks at a run: a look asks every node in which
// something happens.
const leastWatchTime = 100 * time.Millisecond

// A runWatch takes down how the queue pairs of a run send over time, and what its links lose, as monitors see both. It
// belongs to its goroutine until that has ended.
type runWatch struct {
	*series.Recorder
	dilation   time.Duration
	pairs      map[pairKey]*series.Pair
	directions map[string]*series.Direction // by endpoint
	stop       context.CancelFunc
	ended      chan struct{} // closed when the goroutine has ended
}

// A pairKey tells queue pairs apart.
type pairKey struct {
	node, peer string
	number     uint32
}

// watchPeriod returns the period of a file, doubled until it takes no less than leastWatchTime of the machine's.
func watchPeriod(period time.Duration, dilation int) time.Duration {
	for period*time.Duration(dilation) < leastWatchTime {
		period *= 2
	}
	return period
}

// watchRun begins to take down a run, which begins now.
func (a *runAPI) watchRun(ctx context.Context, period time.Duration, dilation int) *runWatch {
	ctx, stop := context.WithCancel(ctx)
	w := &runWatch{
		Recorder: series.New(watchPeriod(period, dilation)), dilation: time.Duration(dilation), pairs: map[pairKey]*series.Pair{},
		directions: map[string]*series.Direction{}, stop: stop, ended: make(chan struct{}),
	}
	go func() {
		defer close(w.ended)
		if err := w.watch(ctx, a.observation); err != nil && ctx.Err() == nil {
			log.Printf("series: %v", err) // the report has what was taken down until then
		}
	}()
	return w
}

// end ends the watch, and returns what it has taken down.
func (w *runWatch) end() *report.Series {
	w.stop()
	<-w.ended
	return w.Report()
}

// watch takes down what look finds whenever a point is due, until ctx ends.
func (w *runWatch) watch(ctx context.Context, look func(context.Context) (*report.Observation, error)) error {
	began := time.Now()
	o, err := look(ctx)
	if err != nil {
		return err
	}
	w.begin(o)
	for {
		timer := time.NewTimer(time.Until(began.Add(w.Due() * w.dilation)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		if o, err = look(ctx); err != nil {
			return err
		}
		for w.Due()*w.dilation <= time.Since(began) { // several points if the look took long
			w.take(o)
			w.Next()
		}
	}
}

// begin notes what was counted before the run.
func (w *runWatch) begin(o *report.Observation) {
	w.each(o, func(p *series.Pair, s series.Sending) { p.Begin(s) }, (*series.Direction).Begin)
}

// take takes down a point.
func (w *runWatch) take(o *report.Observation) {
	w.each(o, func(p *series.Pair, s series.Sending) { p.Set(s) }, (*series.Direction).Set)
}

// each calls functions for all queue pairs and directions of an observation.
func (w *runWatch) each(o *report.Observation, pair func(*series.Pair, series.Sending), direction func(d *series.Direction, dropped, lost uint64)) {
	for i := range o.Nodes {
		n := &o.Nodes[i]
		for j := range n.Sending {
			q := &n.Sending[j]
			key := pairKey{n.Name, q.Peer, q.QPN}
			if key.peer == "" {
				key.peer = q.Remote.String()
			}
			p := w.pairs[key]
			if p == nil {
				p = w.Pair(key.node, key.peer, key.number)
				w.pairs[key] = p
			}
			pair(p, series.Sending{Rate: q.BPS, Target: q.TargetBPS, Window: q.Window, CNPs: q.CNPs, Retransmitted: q.Retransmitted})
		}
	}
	for i := range o.Links {
		for end, from := range o.Links[i].Endpoints {
			d := w.directions[from]
			if d == nil {
				d = w.Direction(from)
				w.directions[from] = d
			}
			direction(d, o.Links[i].Directions[end].Dropped, o.Links[i].Directions[end].Lost)
		}
	}
}

// observation returns what a monitor sees that wants no delays.
func (s *Supervisor) observation(ctx context.Context) (*report.Observation, error) {
	answer, err := s.observe(ctx, nil, observeParams{})
	if err != nil {
		return nil, err
	}
	o := &answer.Lab
	if o.Nodes, err = answer.Nodes.Apply(nil); err != nil {
		return nil, err
	}
	o.Links, err = answer.Links.Apply(nil)
	return o, err
}
