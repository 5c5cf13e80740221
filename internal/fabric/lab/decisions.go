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

// A decisionLog has the link engines record what they decide on packets, and decide again as an earlier log has it.
type decisionLog struct {
	// start returns the lab's engines, started if they were not. apart says that they are at other hosts, which can have no
	// file of here.
	start   func() ([]*linkem.Engine, error)
	apart   bool
	publish func(event.Event)

	mu      sync.Mutex       // guards what follows
	file    string           // that is recorded to; "": none
	engines []*linkem.Engine // that record
	merged  *mergedLog       // of engines that are apart
}

// open has the engines replay a log and record another, as params say, before they
// have any link.
func (l *decisionLog) open(ctx context.Context, params startParams, files []*os.File) error {
	if params.Record == "" && params.Replay == "" {
		return nil
	}
	engines, err := l.start()
	if err != nil {
		return err
	}
	var merged *mergedLog
	for _, asked := range []struct {
		file string
		open func(**os.File) error
	}{
		{params.Record, func(f **os.File) (err error) {
			if !l.apart {
				return engines[0].Record(ctx, params.Topology.Seed, *f)
			}
			merged, err = mergeLogs(ctx, engines, params.Topology.Seed, *f)
			*f = nil // it is the log's
			return err
		}},
		{params.Replay, func(f **os.File) error { return l.replay(ctx, engines, params, *f) }},
	} {
		if asked.file == "" {
			continue
		}
		if len(files) == 0 {
			return control.Errorf(control.Usage, "%s did not come along", asked.file)
		}
		if err := asked.open(&files[0]); err != nil {
			return fmt.Errorf("%s: %w", asked.file, err)
		}
		files = files[1:]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file, l.engines, l.merged = params.Record, engines, merged
	return nil
}

// replay has the engines replay a log, which is for a lab that has all of its links.
func (l *decisionLog) replay(ctx context.Context, engines []*linkem.Engine, params startParams, file *os.File) error {
	read := replayEach
	if !l.apart {
		read = func(ctx context.Context, engines []*linkem.Engine, file *os.File) (linkem.Log, error) {
			return engines[0].Replay(ctx, file)
		}
	}
	log, err := read(ctx, engines, file)
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
	file, engines, merged := l.file, l.engines, l.merged
	l.mu.Unlock()
	if file == "" {
		return nil, nil
	}
	var all report.Recorded
	written := make([]uint64, len(engines))
	for i, engine := range engines {
		r, err := engine.Recorded(ctx)
		if err != nil {
			return nil, fmt.Errorf("engine: %w", err)
		}
		written[i] = r.Records
		all.Records += r.Records
		all.Missing += r.Missing
		if all.Error == "" {
			all.Error = r.Error
		}
	}
	if merged != nil {
		if err := merged.await(ctx, written); err != nil {
			return nil, err
		}
		merged.count(&all)
	}
	return &all, nil
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
