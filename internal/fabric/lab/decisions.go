package lab

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/linkem"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// This file is logs of what the link engine decides on packets: recorded, and done
// again.

// openLogs has the engine replay a log and record another, as params say, before it
// has any link.
func (s *Supervisor) openLogs(ctx context.Context, params startParams, files []*os.File) error {
	if params.Record == "" && params.Replay == "" {
		return nil
	}
	engine, err := s.links.engine.start()
	if err != nil {
		return err
	}
	for _, l := range []struct {
		file string
		open func(*os.File) error
	}{
		{params.Record, func(f *os.File) error { return engine.Record(ctx, params.Topology.Seed, f) }},
		{params.Replay, func(f *os.File) error { return s.replay(ctx, engine, params, f) }},
	} {
		if l.file == "" {
			continue
		}
		if len(files) == 0 {
			return control.Errorf(control.Usage, "%s did not come along", l.file)
		}
		if err := l.open(files[0]); err != nil {
			return fmt.Errorf("%s: %w", l.file, err)
		}
		files = files[1:]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recording = params.Record
	return nil
}

// replay has the engine replay a log, which is for a lab that has all of its links.
func (s *Supervisor) replay(ctx context.Context, engine *linkem.Engine, params startParams, file *os.File) error {
	log, err := engine.Replay(ctx, file)
	if err != nil {
		return err
	}
	for _, link := range log.Links {
		if !slices.ContainsFunc(params.Topology.Links, func(l topology.Link) bool { return l.Endpoints[0].String() == link }) {
			return control.Errorf(control.Usage, "decisions on the link %s, which lab %s does not have: this is the log of another lab", link, s.name)
		}
	}
	if log.CutShort || log.Missing > 0 {
		s.Publish(Event{Kind: Warning, Text: fmt.Sprintf("%s is not whole: packets without a record meet the settings", params.Replay)})
	}
	return nil
}

// recorded is how recording has gone until now, with everything that was decided
// in the file; nil if nothing is recorded.
func (s *Supervisor) recorded(ctx context.Context) (*report.Recorded, error) {
	s.mu.Lock()
	recording := s.recording
	s.mu.Unlock()
	if recording == "" {
		return nil, nil
	}
	r, err := s.links.engine.current().Recorded(ctx)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	return &report.Recorded{Records: r.Records, Missing: r.Missing, Error: r.Error}, nil
}

// lastRecords bounds how long the end of a lab waits for what is not written yet: the
// file may be a pipe that nobody reads.
const lastRecords = 2 * time.Second

// closeLog has the rest of the log written, before the lab ends and its processes
// are killed. An engine that has died has written what it could.
func (s *Supervisor) closeLog() {
	ctx, cancel := context.WithTimeout(context.Background(), lastRecords)
	defer cancel()
	r, err := s.recorded(ctx)
	switch {
	case err != nil:
		log.Printf("log of decisions: %v", err)
	case r != nil && r.Error != "":
		log.Printf("log of decisions: %s", r.Error)
	}
}
