package top

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/ndklab/ndklab/internal/fabric/actions"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/live"
	"github.com/ndklab/ndklab/internal/node/adapter"
)

// A subject is the lab that is shown. One observation at a time owns what follows the lab.
type subject struct {
	*lab.Lab
	recorder *live.Recorder
	shown    *live.Map
	last     time.Time // when the last observation was asked for
}

func newSubject(l *lab.Lab) *subject { return &subject{Lab: l} }

// The messages to the model.
type (
	// observed has the last sample, and the map that it goes with.
	observed struct {
		of     *live.Map
		sample *live.Sample
		err    error
	}
	// happened is an event of the lab.
	happened event.Event
	// connected has all connections and queue pairs of the lab.
	connected struct {
		list []adapter.Connection
		err  error
	}
	// changed tells what became of a change that a command could have done.
	changed struct {
		command, text string
		err           error
	}
)

// asks are the requests that the model may make of the lab.
type asks struct {
	connections func() tea.Msg
	change      func(live.Change) tea.Cmd
	undo        func() tea.Msg // the last change
}

func (s *subject) asks(ctx context.Context) asks {
	do := actions.New(ctx, s.Lab)
	return asks{
		connections: func() tea.Msg {
			list, err := s.Nodes.Connections(ctx, "")
			if err != nil {
				return connected{err: err}
			}
			return connected{list: list.Connections}
		},
		change: func(c live.Change) tea.Cmd {
			return func() tea.Msg {
				done, err := do.Do(ctx, &c, false)
				if err != nil {
					return changed{command: c.Command(s.Info().Lab), err: err}
				}
				return changed{command: done.Command, text: done.Text}
			}
		},
		undo: func() tea.Msg {
			done, err := do.Undo(ctx, false)
			if err != nil {
				return changed{command: "undo", err: err}
			}
			return changed{command: done.Command, text: done.Text}
		},
	}
}

// observe returns the command that observes the lab when so much time has passed since it last did.
func (s *subject) observe(ctx context.Context, interval time.Duration) tea.Cmd {
	return func() tea.Msg {
		select {
		case <-time.After(time.Until(s.last.Add(interval))):
		case <-ctx.Done():
			return nil
		}
		s.last = time.Now()
		sample, err := s.sample(ctx)
		return observed{s.shown, sample, err}
	}
}

// sample observes the lab, and makes a new map if it has another topology.
func (s *subject) sample(ctx context.Context) (*live.Sample, error) {
	o, err := s.Observe(ctx, live.Bounds())
	if err != nil {
		return nil, err
	}
	for s.shown == nil || !s.shown.Shows(o) {
		standing, err := s.Standing(ctx)
		if err != nil {
			return nil, err
		}
		s.shown = live.MapOf(standing.Topology)
		if s.recorder == nil {
			s.recorder = live.NewRecorder(s.shown.Dilation)
		}
		if s.shown.Shows(o) {
			break
		}
		if o, err = s.Observe(ctx, live.Bounds()); err != nil { // it has changed between the two
			return nil, err
		}
	}
	return s.recorder.Record(o), nil
}
