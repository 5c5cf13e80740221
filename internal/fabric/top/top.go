// Package top shows a lab that goes on in a terminal: tables of nodes, links, flows and queue pairs, trouble first, that are
// redrawn as samples come (package live), and keys that pause nodes and cut links.
//
// The model is pure: messages go in, and what is to be seen and what is to be asked of the lab comes out. Package monitor
// starts the program that links this package, and ends it.
//
// Start reading at Show, then at model.
package top

import (
	"context"
	"errors"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/monitor"
)

// Show shows a lab in the terminal that the standard files are until the user quits, or the lab or ctx ends. With
// params.Once it writes what it would show to standard output, and returns.
func Show(ctx context.Context, params monitor.Top) error {
	l, err := lab.Open(ctx, params.Lab)
	if err != nil {
		return err
	}
	defer l.Close()
	s := newSubject(l)
	if params.Once {
		return writeOnce(ctx, s, params, os.Stdout)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	program := tea.NewProgram(newModel(params.Lab, params.Color, func(interval time.Duration) tea.Cmd { return s.observe(ctx, interval) }, s.asks(ctx), params.Interval),
		tea.WithoutSignalHandler())
	kept, next, err := l.Events(ctx, time.Time{})
	if err != nil {
		return err
	}
	go func() {
		for _, e := range kept {
			program.Send(happened(e))
		}
		select {
		case <-ctx.Done():
		case <-l.Done():
		}
		program.Quit() // which, unlike the end of a context, has the screen left as it was
	}()
	if err := l.WatchFrom(ctx, next, func(e event.Event) { program.Send(happened(e)) }); err != nil {
		return err
	}
	if err := run(program); err != nil {
		return err
	}
	select {
	case <-l.Done():
		return l.End()
	default:
		return nil
	}
}

// run runs a program until it quits.
func run(program *tea.Program) error {
	_, err := program.Run()
	switch {
	case errors.Is(err, tea.ErrProgramPanic): // which is told where the program was
		return err
	case err != nil:
		return control.Errorf(control.Unable, "the terminal cannot be used: %v", err)
	}
	return nil
}
