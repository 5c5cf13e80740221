package lab

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/linkem"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// A decisionLog has the link engine record what it decides on packets, and decide again as an earlier log has it.
type decisionLog struct {
	engine  *engine
	publish func(event.Event)

	mu   sync.Mutex // guards what follows
	file string     // that is recorded to; "": none
}

// open has the engine replay a log and record another, as params say, before it
// has any link.
func (l *decisionLog) open(ctx context.Context, params startParams, files []*os.File) error {
	if params.Record == "" && params.Replay == "" {
		return nil
	}
	engine, err := l.engine.start()
	if err != nil {
		return err
	}
	for _, asked := range []struct {
		file string
		open func(*os.File) error
	}{
		{params.Record, func(f *os.File) error { return engine.Record(ctx, params.Topology.Seed, f) }},
		{params.Replay, func(f *os.File) error { return l.replay(ctx, engine, params, f) }},
	} {
		if asked.file == "" {
			continue
		}
		if len(files) == 0 {
			return control.Errorf(control.Usage, "%s did not come along", asked.file)
		}
		if err := asked.open(files[0]); err != nil {
			return fmt.Errorf("%s: %w", asked.file, err)
		}
		files = files[1:]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file = params.Record
	return nil
}

// replay has the engine replay a log, which is for a lab that has all of its links.
func (l *decisionLog) replay(ctx context.Context, engine *linkem.Engine, params startParams, file *os.File) error {
	log, err := engine.Replay(ctx, file)
	if err != nil {
		return err
	}
	for _, link := range log.Links {
		if !slices.ContainsFunc(params.Topology.Links, func(l topology.Link) bool { return l.Endpoints[0].String() == link }) {
			return control.Errorf(control.Usage, "decisions on the link %s, which lab %s does not have: this is the log of another lab", link, params.Topology.Name)
		}
	}
	if log.CutShort || log.Missing > 0 {
		l.publish(event.Event{Kind: event.Warning, Text: fmt.Sprintf("%s is not whole: packets without a record meet the settings", params.Replay)})
	}
	return nil
}

// recorded returns the state of the recording; nil if nothing is recorded. All decisions
// until now are in the file when it returns.
func (l *decisionLog) recorded(ctx context.Context) (*report.Recorded, error) {
	l.mu.Lock()
	file := l.file
	l.mu.Unlock()
	if file == "" {
		return nil, nil
	}
	r, err := l.engine.current().Recorded(ctx)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	return &report.Recorded{Records: r.Records, Missing: r.Missing, Error: r.Error}, nil
}

// lastRecords bounds how long the end of a lab waits for what is not written yet: the
// file may be a pipe that nobody reads.
const lastRecords = 2 * time.Second

// close has the rest of the log written, before the lab ends and its processes
// are killed. An engine that has died has written what it could.
func (l *decisionLog) close() {
	ctx, cancel := context.WithTimeout(context.Background(), lastRecords)
	defer cancel()
	r, err := l.recorded(ctx)
	switch {
	case err != nil:
		log.Printf("log of decisions: %v", err)
	case r != nil && r.Error != "":
		log.Printf("log of decisions: %s", r.Error)
	}
}
