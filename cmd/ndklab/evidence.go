package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/ndklab/ndklab/fabric/lab"
	"github.com/ndklab/ndklab/fabric/report"
)

// evidenceHelp is what run's help says a run leaves that has failed.
const evidenceHelp = `the
report, the topology, the log of the lab and its events, the counters, the last
packets of every link and what the link engine last dropped or spoiled.`

// topologyCopy is the file of the evidence that is the topology.
const topologyCopy = "topology.yaml"

// evidence is what a run leaves if it fails, beside what the lab has.
type evidence struct {
	topology *topologyText
	folder   string
	replay   string // the command that runs it again
}

// evidenceFolder is where the evidence of a lab's run is.
func evidenceFolder(artifacts, labName string, seed uint64) string {
	return filepath.Join(artifacts, fmt.Sprintf("%s-%d", labName, seed))
}

// run runs a lab to its end and, if that fails, keeps the evidence of it. What cannot be
// kept is told of, and does not change the verdict.
func (e *evidence) run(ctx context.Context, l *lab.Lab, say func(format string, args ...any)) (*report.Run, error) {
	memory, err := l.Remember(ctx)
	if err != nil {
		return nil, err
	}
	result, err := l.Run(ctx)
	if ctx.Err() != nil || err == nil && result.Passed {
		if result != nil {
			result.Replay = e.replay
		}
		return result, err
	}
	if result != nil {
		result.Replay, result.Artifacts = e.replay, e.folder
	}
	if kept := e.keep(result, func(file evidenceFile) error { return memory.Write(ctx, file) }); kept != nil {
		say("evidence is not complete: %s", strings.ReplaceAll(kept.Error(), "\n", "; "))
	}
	if err != nil {
		err = fmt.Errorf("%w; evidence is in %s", err, e.folder)
	}
	return result, err
}

// An evidenceFile writes a file of the evidence.
type evidenceFile = func(name string, write func(io.Writer) error) error

// keep writes the folder, in the place of one of an earlier run of the same seed. more
// writes what a lab has to add; nil: there is none. It goes on after errors: the disk may
// have room for some of it.
func (e *evidence) keep(result *report.Run, more func(evidenceFile) error) error {
	if err := os.RemoveAll(e.folder); err != nil {
		return err
	}
	if err := os.MkdirAll(e.folder, 0o777); err != nil {
		return err
	}
	file := func(name string, write func(io.Writer) error) error {
		return writeWhole(filepath.Join(e.folder, name), write)
	}
	problems := errors.Join(
		file("replay.txt", func(w io.Writer) error { _, err := fmt.Fprintln(w, e.replay); return err }),
		file(topologyCopy, func(w io.Writer) error { _, err := w.Write(e.topology.data); return err }),
	)
	if result != nil {
		problems = errors.Join(problems,
			file("report.txt", func(w io.Writer) error { return report.WriteText(w, result) }),
			file("report.json", func(w io.Writer) error { return report.WriteJSON(w, result) }),
		)
	}
	if more != nil {
		problems = errors.Join(problems, more(file))
	}
	return problems
}
