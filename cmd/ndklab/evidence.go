package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/ndklab/ndklab/internal/fabric/suite"
	"github.com/ndklab/ndklab/topology"
)

// evidenceHelp is the part of run's help about what a run leaves that has failed.
const evidenceHelp = `the
report, the topology, the log of the lab and its events, the counters, the last
packets of every link and what the link engine last dropped or changed.`

// topologyCopy is the file of the evidence that is the topology.
const topologyCopy = "topology.yaml"

// evidence has what a run leaves if it fails, beside what the lab has.
type evidence struct {
	topology *topologyText
	folder   string
	replay   string          // the command that runs it again
	log      []byte          // of a lab that has not come up
	baseline *suite.Baseline // of a simulated run; nil: none
	share    share           // of a simulated run
}

// evidence is that of a run of a topology, which was read as text from a file.
func (f *runFlags) evidence(text *topologyText, file string, t *topology.Topology) *evidence {
	e := &evidence{topology: text, folder: filepath.Join(*f.artifacts, fmt.Sprintf("%s-%d", t.Name, t.Seed)), baseline: f.baseline.read, share: share{*f.memory, f.jobs()}}
	if text.gone { // the folder has it
		file = filepath.Join(e.folder, topologyCopy)
	}
	e.replay = f.again(file, t.Seed, text.variables)
	return e
}

// run runs a lab to its end and, if that fails, keeps the evidence of it.
func (e *evidence) run(ctx context.Context, l *lab.Lab, say func(format string, args ...any)) (*report.Run, error) {
	memory, err := l.Remember(ctx)
	if err != nil {
		return nil, err
	}
	result, err := reported(l.Run(ctx))
	if err == nil {
		result.Replay = e.replay
	}
	if ctx.Err() != nil || err == nil && result.Passed {
		return result, err
	}
	kept := e.keep(result, say, func(file evidenceFile) error { return memory.Write(ctx, file) })
	if err != nil && kept {
		err = fmt.Errorf("%w; evidence is in %s", err, e.folder)
	}
	return result, err
}

// reported is a run that may have been interrupted: if there is a report all the same, that
// says so, and there is no error.
func reported(r *report.Run, err error) (*report.Run, error) {
	if r != nil {
		return r, nil
	}
	return nil, err
}

// takeLog is a lab's Options.NotStarted.
func (e *evidence) takeLog(log io.Reader) {
	// A log that cannot be read is left out.
	e.log, _ = io.ReadAll(log)
}

// notStarted keeps the evidence of a lab that has not come up, unless the topology or the
// machine is to blame, and adds to the error where it is.
func (e *evidence) notStarted(ctx context.Context, err error, say func(format string, args ...any)) error {
	if code := control.CodeOf(err); e.log == nil || ctx.Err() != nil || code == control.Usage || code == control.Unable {
		return err
	}
	kept := e.keep(nil, say, func(file evidenceFile) error {
		return errors.Join(
			file("error.txt", func(w io.Writer) error { _, e := fmt.Fprintln(w, err); return e }),
			file("lab.log", func(w io.Writer) error { _, err := w.Write(e.log); return err }),
		)
	})
	if !kept {
		return err
	}
	return fmt.Errorf("%w\nevidence is in %s", err, e.folder)
}

// An evidenceFile writes a file of the evidence.
type evidenceFile = func(name string, write func(io.Writer) error) error

// keep writes the folder of a run that has failed, and notes it in the report, which is nil
// if there is none. more writes what a lab has to add; nil: there is none. A failure to
// write is told, and does not change the verdict; keep reports whether there is a folder.
func (e *evidence) keep(result *report.Run, say func(format string, args ...any), more func(evidenceFile) error) bool {
	// In the place of one of an earlier run of the same seed.
	err := os.RemoveAll(e.folder)
	if err == nil {
		err = os.MkdirAll(e.folder, 0o777)
	}
	if err != nil {
		say("there is no evidence: %v", err)
		return false
	}
	if result != nil {
		result.Artifacts = e.folder
	}
	if err := e.write(result, more); err != nil {
		say("evidence is not complete: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return true
}

// write writes the files of the folder. It goes on after errors: the disk may have room
// for some of it.
func (e *evidence) write(result *report.Run, more func(evidenceFile) error) error {
	file := func(name string, write func(io.Writer) error) error {
		return writeWhole(filepath.Join(e.folder, name), write)
	}
	problems := errors.Join(
		file("replay.txt", func(w io.Writer) error { _, err := fmt.Fprintln(w, e.replay); return err }),
		file(topologyCopy, func(w io.Writer) error { _, err := w.Write(e.topology.data); return err }),
	)
	if result != nil {
		problems = errors.Join(problems,
			file("report.txt", func(w io.Writer) error { return text.WriteRun(w, result, text.Full) }),
			file("report.json", func(w io.Writer) error { return report.WriteJSON(w, result) }),
		)
	}
	if more != nil {
		problems = errors.Join(problems, more(file))
	}
	return problems
}
