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

// look makes a sample. While the topology changes there may be none, since nobody knows what it would be of. The end of the lab is
// no error: others tell of it.
func (s *labSubject) look(ctx context.Context) (fresh *live.Map, sample *live.Sample, err error) {
	fresh, sample, err = s.observe(ctx)
	select {
	case <-s.lab.Done():
		return fresh, sample, nil
	default:
		return fresh, sample, err
	}
}

func (s *labSubject) observe(ctx context.Context) (fresh *live.Map, sample *live.Sample, err error) {
	if s.isStale() {
		if fresh, err = s.draw(ctx); err != nil {
			return nil, nil, err
		}
	}
	o, err := s.lab.Observe(ctx, live.Bounds())
	if err != nil {
		return fresh, nil, err
	}
	if !s.mapping.Shows(o) {
		s.outdate()
		return fresh, nil, nil
	}
	return fresh, s.recorder.Record(o), nil
}

// draw makes a map of the present topology.
func (s *labSubject) draw(ctx context.Context) (*live.Map, error) {
	standing, err := s.lab.Standing(ctx)
	if err != nil {
		s.outdate()
		return nil, err
	}
	s.mapping = live.MapOf(standing.Topology)
	if s.recorder == nil {
		s.recorder = live.NewRecorder(s.mapping.Dilation)
	}
	return s.mapping, nil
}
