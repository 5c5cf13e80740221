package ui

import (
	"math"

	"github.com/ndklab/ndklab/internal/fabric/live"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// This file stands in for package live's functions until they are there.

func bounds() []int64 { return []int64{1e5, 1e6, 1e7, 1e8, 1e9} }

func mapOf(t *topology.Topology) *live.Map {
	m := &live.Map{Lab: t.Name, Seed: t.Seed, Width: 1000, Height: 1000, Flows: []live.Flow{}, Nodes: []live.Node{}, Links: []live.Link{}}
	index := map[string]int{}
	for i := range t.Nodes {
		n := &t.Nodes[i]
		a := 2 * math.Pi * float64(i) / float64(len(t.Nodes))
		index[n.Name] = i
		m.Nodes = append(m.Nodes, live.Node{Name: n.Name, Kind: string(n.Kind), X: 500 + 400*math.Cos(a), Y: 500 + 400*math.Sin(a)})
	}
	for i := range t.Links {
		e := t.Links[i].Endpoints
		m.Links = append(m.Links, live.Link{Endpoints: [2]string{e[0].String(), e[1].String()}, Nodes: [2]int{index[e[0].Node], index[e[1].Node]}})
	}
	return m
}

type recorder struct {
	m   *live.Map
	was *report.Observation
}

func newRecorder(m *live.Map) *recorder { return &recorder{m: m} }

func (r *recorder) record(o *report.Observation) *live.Sample {
	s := &live.Sample{At: o.Up, State: o.State, Workloads: []live.WorkloadSample{}}
	was := r.was
	if was != nil {
		s.Over = o.Up - was.Up
	}
	rate := func(now, before uint64, by float64) float64 {
		if s.Over <= 0 || now < before {
			return 0
		}
		return float64(now-before) * by / s.Over
	}
	for i := range o.Nodes {
		n := live.NodeSample{State: o.Nodes[i].State, Conns: int(o.Nodes[i].Counters["ActiveConnection"])}
		if was != nil {
			n.Out = rate(o.Nodes[i].Counters["RDMAOutOctets"], was.Nodes[i].Counters["RDMAOutOctets"], 8)
			n.In = rate(o.Nodes[i].Counters["RDMAInOctets"], was.Nodes[i].Counters["RDMAInOctets"], 8)
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range o.Links {
		l := live.LinkSample{Up: o.Links[i].State == "up"}
		for end := range l.Ends {
			d := &o.Links[i].Directions[end]
			l.Ends[end].Set = d.Settings
			if was != nil {
				b := &was.Links[i].Directions[end]
				l.Ends[end].Rate, l.Ends[end].Packets = rate(d.Bytes, b.Bytes, 8), rate(d.Packets, b.Packets, 1)
				l.Ends[end].Dropped, l.Ends[end].Lost = rate(d.Dropped, b.Dropped, 1), rate(d.Lost, b.Lost, 1)
			}
		}
		s.Links = append(s.Links, l)
	}
	r.was = o
	return s
}
