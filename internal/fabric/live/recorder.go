package live

import (
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/histogram"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/topology"
)

// A Recorder makes samples of observations, each of what has been counted since the one before. Counters that have gone back began
// anew, as those of a node that was started again. Nodes and links that were not there before, or did not answer, have no rates yet. It
// belongs to one goroutine.
type Recorder struct {
	dilation float64
	at       float64 // of the last observation; 0: there is none with a time
	nodes    map[string]*report.ObservedNode
	links    map[[2]string]*report.Link
}

// NewRecorder returns a Recorder for a lab that is slower than its file says by a factor, as Map.Dilation has it.
func NewRecorder(dilation int) *Recorder { return &Recorder{dilation: float64(max(dilation, 1))} }

// Record returns the sample from the last observation to this one, which is by Bounds. The observation is the Recorder's from now on.
func (r *Recorder) Record(o *report.Observation) *Sample {
	s := &Sample{At: o.Up / r.dilation, State: o.State, Nodes: make([]NodeSample, len(o.Nodes)), Links: make([]LinkSample, len(o.Links)), Workloads: []WorkloadSample{}}
	if r.at > 0 && s.At > r.at {
		s.Over = s.At - r.at
	}
	nodes := make(map[string]*report.ObservedNode, len(o.Nodes))
	for i := range o.Nodes {
		n := &o.Nodes[i]
		before := r.nodes[n.Name]
		s.Nodes[i] = nodeSample(before, n, s.Over)
		s.Workloads = append(s.Workloads, workloadSamples(before, n, i, s.Over)...)
		if len(n.Counters) == 0 && before != nil { // what it counts while it does not answer is of the sample in which it does
			kept := *n
			kept.Counters, kept.Transport, kept.Workloads = before.Counters, before.Transport, before.Workloads
			kept.Sending, kept.Pauses = before.Sending, before.Pauses
			n = &kept
		}
		nodes[n.Name] = n
	}
	links := make(map[[2]string]*report.Link, len(o.Links))
	for i := range o.Links {
		l := &o.Links[i]
		s.Links[i] = linkSample(r.links[l.Endpoints], l, s.Over)
		links[l.Endpoints] = l
	}
	r.pause(s, o)
	bound(s)
	r.at, r.nodes, r.links = s.At, nodes, links
	return s
}

// nodeSample returns the sample of a node. before is nil of one that was not there.
func nodeSample(before, now *report.ObservedNode, over float64) NodeSample {
	s := NodeSample{State: now.State}
	if now.Health != nil {
		s.Health = now.Health.State
	}
	if now.InUse != nil {
		s.QPs = int(now.InUse.Qps)
	}
	s.Conns = int(now.Counters["ActiveConnection"])
	s.Pairs = pairSamples(before, now, over)
	if before == nil || len(before.Counters) == 0 || len(now.Counters) == 0 {
		return s
	}
	ndk := func(names ...string) (sum float64) {
		for _, name := range names {
			sum += rate(before.Counters[name], now.Counters[name], over)
		}
		return sum
	}
	transport := func(name string) float64 { return rate(before.Transport[name], now.Transport[name], over) }
	s.Out, s.In = 8*ndk("RDMAOutOctets"), 8*ndk("RDMAInOctets")
	s.Packets = ndk("RDMAOutFrames", "RDMAInFrames")
	s.Errors = ndk("CQError", "ConnectFailure", "ConnectionError")
	s.Resent, s.CNPs = transport("retransmitted"), transport("cnps_received")
	for _, name := range pauses {
		s.Paused += transport(name) / 1e6
	}
	return s
}

// pairSamples returns the samples of a node's queue pairs. One that was not there before has counted nothing until then.
func pairSamples(before, now *report.ObservedNode, over float64) []PairSample {
	if len(now.Sending) == 0 {
		return nil
	}
	was := map[uint32]*report.ObservedPair{}
	if before != nil {
		for i := range before.Sending {
			was[before.Sending[i].QPN] = &before.Sending[i]
		}
	}
	samples := make([]PairSample, len(now.Sending))
	for i := range now.Sending {
		q := &now.Sending[i]
		s := &samples[i]
		*s = PairSample{QP: q.QPN, Peer: q.Peer, Rate: float64(q.BPS), Target: float64(q.TargetBPS), Window: float64(q.Window)}
		if s.Peer == "" {
			s.Peer = q.Remote.String()
		}
		var earlier report.ObservedPair
		if b := was[q.QPN]; b != nil && b.Remote == q.Remote {
			earlier = *b
		}
		if before != nil {
			s.CNPs, s.Resent = rate(earlier.CNPs, q.CNPs, over), rate(earlier.Retransmitted, q.Retransmitted, over)
		}
	}
	return samples
}

// mostPairs bounds the queue pairs of a sample: a page keeps hundreds of samples.
const mostPairs = 1024

// bound leaves out the queue pairs of the last nodes where all together have too many.
func bound(s *Sample) {
	left := mostPairs
	for i := range s.Nodes {
		pairs := &s.Nodes[i].Pairs
		*pairs = (*pairs)[:min(len(*pairs), left)]
		left -= len(*pairs)
	}
}

// pause adds the pauses of hosts, which these have obeyed, to the directions that they send in.
func (r *Recorder) pause(s *Sample, o *report.Observation) {
	paused := map[string][]PauseSample{} // by endpoint
	for i := range o.Nodes {
		n := &o.Nodes[i]
		before := r.nodes[n.Name]
		for _, p := range n.Pauses {
			was := uint64(0)
			if before != nil {
				if j := slices.IndexFunc(before.Pauses, func(b adapter.Pause) bool { return b.Interface == p.Interface && b.Class == p.Class }); j >= 0 {
					was = before.Pauses[j].US
				}
			}
			endpoint := n.Name + ":" + p.Interface
			paused[endpoint] = append(paused[endpoint], pauseSample(p.Class, was, p.US, s.Over))
		}
	}
	for i := range o.Links {
		for end, endpoint := range o.Links[i].Endpoints {
			s.Links[i].Ends[end].Pauses = append(s.Links[i].Ends[end].Pauses, paused[endpoint]...)
		}
	}
}

// pauseSample returns the sample of a class that was paused for so many microseconds.
func pauseSample(class int, before, now uint64, over float64) PauseSample {
	return PauseSample{class, min(rate(before, now, over)/1e6, 1)}
}

// pauses are the counters of how long an adapter was paused, in microseconds, by priority.
var pauses = func() []string {
	names := make([]string, mmu.Classes)
	for priority := range names {
		names[priority] = topology.RxPauseDuration.Of(uint32(priority))
	}
	return names
}()

// workloadSamples returns the samples of a node's workloads.
func workloadSamples(before, now *report.ObservedNode, node int, over float64) []WorkloadSample {
	samples := make([]WorkloadSample, len(now.Workloads))
	for i := range now.Workloads {
		w, was := &now.Workloads[i], report.ObservedWorkload{} // whose clients have counted nothing before they were there
		if before != nil {
			if j := slices.IndexFunc(before.Workloads, func(b report.ObservedWorkload) bool { return b.Name == w.Name }); j >= 0 {
				was = before.Workloads[j]
			}
		}
		latency := since(was.Latency, w.Latency)
		samples[i] = WorkloadSample{
			Name: w.Name, Node: node, Rate: 8 * rate(was.Bytes, w.Bytes, over), Messages: rate(was.Messages, w.Messages, over),
			Errors: rate(was.Errors, w.Errors, over),
		}
		if over > 0 {
			samples[i].P50, samples[i].P99 = micros(latency, 0.5), micros(latency, 0.99)
		}
	}
	return samples
}

// linkSample returns the sample of a link. before is nil of one that was not there.
func linkSample(before, now *report.Link, over float64) LinkSample {
	s := LinkSample{Up: now.State == "up"}
	for end := range now.Directions {
		d, to := &now.Directions[end], &s.Ends[end]
		to.Set = d.Settings
		to.Cut = slices.Contains(d.Settings, "cut=true")
		if d.QueuePeak != nil {
			to.Queue = new(float64(*d.QueuePeak))
		}
		if before == nil || over == 0 {
			continue
		}
		was := &before.Directions[end]
		to.Rate, to.Packets = 8*rate(was.Bytes, d.Bytes, over), rate(was.Packets, d.Packets, over)
		to.Dropped, to.Lost, to.Marked = rate(was.Dropped, d.Dropped, over), rate(was.Lost, d.Lost, over), rate(was.Marked, d.Marked, over)
		for _, p := range d.Pauses {
			first := uint64(0)
			if j := slices.IndexFunc(was.Pauses, func(b bufferstats.ClassPause) bool { return b.Class == p.Class }); j >= 0 {
				first = was.Pauses[j].US
			}
			to.Pauses = append(to.Pauses, pauseSample(p.Class, first, p.US, over))
		}
		to.Cut = to.Cut || rate(was.LostBy.Cut, d.LostBy.Cut, over) > 0
		if d.Set != nil && d.Set.RateGbps != nil {
			to.Load = new(to.Rate / (*d.Set.RateGbps * 1e9))
		}
		if d.DelayBars != nil {
			var first histogram.Bars
			if was.DelayBars != nil {
				first = *was.DelayBars
			}
			to.Delay = micros(since(first, *d.DelayBars), 0.5)
		}
	}
	return s
}

// rate returns what a counter counts per second. One that has gone back began anew.
func rate(before, now uint64, over float64) float64 {
	if over == 0 {
		return 0
	}
	if now < before {
		before = 0
	}
	return float64(now-before) / over
}
