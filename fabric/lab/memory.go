package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ndklab/ndklab/fabric/report"
)

// A Memory is what can be told of a lab when something has gone wrong in it, also if the
// lab has died of it. Its methods are for one goroutine.
type Memory struct {
	lab *Lab
	log *os.File // open, since the file goes with the lab
}

// Remember begins to remember what happens in the lab. The Memory is to be closed.
func (l *Lab) Remember(context.Context) (*Memory, error) {
	file, err := os.Open(l.place.logFile())
	if err != nil {
		return nil, fmt.Errorf("log of lab %s: %w", l.place.name, err)
	}
	return &Memory{lab: l, log: file}, nil
}

// Close ends it.
func (m *Memory) Close() { m.log.Close() }

// rememberTime bounds how long a lab may take to answer about itself: it may be what has
// failed.
const rememberTime = 5 * time.Second

// Write writes what there is to files, which file makes: the log, the events that the lab
// keeps, and the state and counters of nodes, links and connections. It goes on after errors.
func (m *Memory) Write(ctx context.Context, file func(name string, write func(io.Writer) error) error) error {
	ctx, cancel := context.WithTimeout(ctx, rememberTime)
	defer cancel()
	problems := file("lab.log", func(w io.Writer) error {
		_, err := io.Copy(w, io.NewSectionReader(m.log, 0, 1<<62)) // from its beginning
		return err
	})
	if isClosed(m.lab.over) {
		return problems // there is nobody to ask
	}
	add := func(name string, value any, err error) {
		if err != nil {
			problems = errors.Join(problems, fmt.Errorf("%s: %w", name, err))
			return
		}
		problems = errors.Join(problems, file(name, func(w io.Writer) error { return report.WriteJSON(w, value) }))
	}
	inspection, err := m.lab.Inspect(ctx)
	add("inspect.json", inspection, err)
	connections, err := m.lab.Connections(ctx, "")
	add("connections.json", connections, err)
	events, _, err := m.lab.Events(ctx, time.Time{})
	if err != nil {
		return errors.Join(problems, fmt.Errorf("events: %w", err))
	}
	return errors.Join(problems, file("events.jsonl", func(w io.Writer) error {
		for i := range events {
			if err := report.WriteJSONLine(w, events[i].Report(m.lab.info.Lab)); err != nil {
				return err
			}
		}
		return nil
	}))
}
