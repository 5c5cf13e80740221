package lab

import (
	"context"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// timeline applies the events of the topology at their times. One that fails is a
// problem of the run, and those behind it still happen.
func (r *run) timeline(ctx context.Context, zero time.Time) {
	for i := range r.topo.Timeline {
		e := &r.topo.Timeline[i]
		if !wait(ctx, zero.Add(e.At)) {
			return
		}
		if err := r.happen(ctx, e); err != nil && ctx.Err() == nil {
			r.problem("timeline at %s: %v", topology.FormatDuration(e.At), err)
		}
	}
}

// happen has an event happen.
func (s *Supervisor) happen(ctx context.Context, e *topology.Event) error {
	switch {
	case e.Down:
		return s.LinkDown(ctx, e.Link)
	case e.Up:
		return s.LinkUp(ctx, e.Link)
	case e.Reset:
		return s.ResetLink(ctx, e.Link, e.From)
	case len(e.Partition) > 0:
		_, err := s.Partition(ctx, e.Partition)
		return err
	case e.Heal:
		_, err := s.Heal(ctx)
		return err
	default:
		return s.SetLink(ctx, e.Link, e.From, e.Set)
	}
}

// lastEvent is when the last event is due, 0 if there is none.
func (r *run) lastEvent() time.Duration {
	last := time.Duration(0)
	for i := range r.topo.Timeline {
		last = max(last, r.topo.Timeline[i].At)
	}
	return last
}
