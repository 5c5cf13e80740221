package ui

import (
	"context"
	"sync"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/live"
)

// A labSubject is a lab that is watched.
type labSubject struct {
	lab *lab.Lab

	mu    sync.Mutex // guards stale, which events set
	stale bool       // the topology may be another than that of mapping

	// These are of look, which one goroutine calls.
	mapping  *live.Map
	recorder *live.Recorder
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
	o, err := s.lab.Observe(ctx, live.Bounds())
	if err != nil {
		return nil, nil, err
	}
	if s.isStale() || s.mapping == nil || !s.mapping.Shows(o) {
		standing, err := s.lab.Standing(ctx)
		if err == nil {
			o, err = s.lab.Observe(ctx, live.Bounds())
		}
		if err != nil {
			s.outdate()
			return nil, nil, err
		}
		fresh = live.MapOf(standing.Topology)
		s.mapping, s.recorder = fresh, live.NewRecorder(fresh.Dilation)
	}
	return fresh, s.recorder.Record(o), nil
}
