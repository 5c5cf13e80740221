package ui

import (
	"context"
	"sync"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/live"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

// A labSubject is a lab that is watched.
type labSubject struct {
	lab *lab.Lab

	mu    sync.Mutex // guards stale, which events set
	stale bool       // the topology may be another than that of mapping

	// These are of look, which one goroutine calls.
	mapping  *live.Map
	recorder *recorder
}

func newLabSubject(l *lab.Lab) *labSubject { return &labSubject{lab: l, stale: true} }

// outdate says that the topology may have changed.
func (s *labSubject) outdate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = true
}

// isStale returns stale, and sets it to false.
func (s *labSubject) isStale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.stale
	s.stale = false
	return was
}

func (s *labSubject) look(ctx context.Context) (fresh *live.Map, sample *live.Sample, err error) {
	o, err := s.lab.Observe(ctx, bounds())
	if err != nil {
		return nil, nil, err
	}
	if s.isStale() || !isOf(s.mapping, o) {
		standing, err := s.lab.Standing(ctx)
		if err == nil {
			o, err = s.lab.Observe(ctx, bounds())
		}
		if err != nil {
			s.outdate()
			return nil, nil, err
		}
		fresh = mapOf(standing.Topology)
		s.mapping, s.recorder = fresh, newRecorder(fresh)
	}
	return fresh, s.recorder.record(o), nil
}

// isOf reports whether a map is that of the lab that was observed.
func isOf(m *live.Map, o *report.Observation) bool {
	if m == nil || len(m.Nodes) != len(o.Nodes) || len(m.Links) != len(o.Links) {
		return false
	}
	for i := range o.Nodes {
		if m.Nodes[i].Name != o.Nodes[i].Name {
			return false
		}
	}
	for i := range o.Links {
		if m.Links[i].Endpoints != o.Links[i].Endpoints {
			return false
		}
	}
	return true
}
