package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/html"
	"github.com/ndklab/ndklab/internal/fabric/sweep"
	"golang.org/x/sys/unix"
)

// The files of a sweep's folder, and the folder in it with a report of each run.
const (
	sweepJSON = "sweep.json"
	sweepCSV  = "sweep.csv"
	sweepHTML = "sweep.html"
	sweepRuns = "runs"
)

// A sweepFolder is the folder with the results of a sweep. A file in it is there when all of it is, so
// that however a sweep ended, what is there is what was made.
type sweepFolder struct {
	path  string
	sweep *report.Sweep
	lock  *os.File // the folder itself, which one sweep at a time has locked
}

// openSweepFolder makes the folder of a sweep, or takes the one that such a sweep was begun in.
func openSweepFolder(path string, s *report.Sweep) (*sweepFolder, error) {
	unable := func(err error) error { return control.Errorf(control.Unable, "--out: %v", err) }
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return nil, control.Errorf(control.Usage, "--out: %s is a file, expected a folder", path)
	}
	if err := os.MkdirAll(filepath.Join(path, sweepRuns), 0o777); err != nil {
		return nil, unable(err)
	}
	lock, err := os.Open(path)
	if err != nil {
		return nil, unable(err)
	}
	f := &sweepFolder{path: path, sweep: s, lock: lock}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = control.Errorf(control.Usage, "--out: another sweep runs in %s, expected another folder", path)
	case err != nil:
		err = unable(err)
	default:
		err = f.check()
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return f, nil
}

// close gives the folder free for others.
func (f *sweepFolder) close() { _ = f.lock.Close() } // nothing was written to it

// check finds whether the folder is this sweep's, or empty.
func (f *sweepFolder) check() error {
	text, err := os.ReadFile(filepath.Join(f.path, sweepJSON))
	if errors.Is(err, fs.ErrNotExist) {
		return f.empty()
	}
	if err != nil {
		return control.Errorf(control.Unable, "--out: %v", err)
	}
	var begun report.Sweep
	if err := json.Unmarshal(text, &begun); err != nil {
		return control.Errorf(control.Usage, "--out: %s is no sweep's: %v; expected another folder, or that this one is removed", filepath.Join(f.path, sweepJSON), err)
	}
	if differs := sweep.Differs(&begun, f.sweep); differs != "" {
		return control.Errorf(control.Usage, "--out: %s has another sweep: %s; expected the arguments that it was begun with, another folder, or that this one is removed", f.path, differs)
	}
	return nil
}

// partial matches the names of files that were being written when a sweep was killed (writeWhole).
var partial = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\.(sweep\.(json|csv|html)|[0-9]+\.json|.*\.svg)\.[0-9]+$`)
})

// empty reports as an error that the folder has something that is no sweep's.
func (f *sweepFolder) empty() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return control.Errorf(control.Unable, "--out: %v", err)
	}
	for _, e := range entries {
		if e.Name() != sweepRuns && !partial().MatchString(e.Name()) {
			return control.Errorf(control.Usage, "--out: folder %s has %s, and no %s: expected a new folder, or a sweep's", f.path, e.Name(), sweepJSON)
		}
	}
	return nil
}

// begin removes what a sweep that was killed was writing, notes what is to be run, and takes the reports
// that are there. It returns their number.
func (f *sweepFolder) begin() (before int, err error) {
	for _, folder := range []string{f.path, filepath.Join(f.path, sweepRuns)} {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return 0, control.Errorf(control.Unable, "--out: %v", err)
		}
		for _, e := range entries {
			if partial().MatchString(e.Name()) {
				if err := os.Remove(filepath.Join(folder, e.Name())); err != nil {
					return 0, control.Errorf(control.Unable, "--out: %v", err)
				}
			}
		}
	}
	for i := range f.sweep.Runs {
		of := &f.sweep.Runs[i]
		text, err := os.ReadFile(filepath.Join(f.path, reportName(of)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, control.Errorf(control.Unable, "--out: %v", err)
		}
		var made report.Run
		if json.Unmarshal(text, &made) != nil || made.Seed != of.Seed || made.Lab != f.sweep.Lab || made.Interrupted || made.Replay != of.Command {
			continue // it runs again
		}
		of.Report = reportName(of)
		sweep.Take(f.sweep, i, &made)
		before++
	}
	return before, f.write(sweepJSON, func(w io.Writer) error { return report.WriteJSON(w, f.sweep) })
}

// keep writes the report of a run.
func (f *sweepFolder) keep(of *report.SweepRun, made *report.Run) error {
	of.Report = reportName(of)
	return f.write(of.Report, func(w io.Writer) error { return report.WriteJSON(w, made) })
}

// reportName returns the name of a run's report, below the folder.
func reportName(of *report.SweepRun) string {
	return filepath.Join(sweepRuns, fmt.Sprintf("%06d.json", of.Number))
}

// finish writes the results of a sweep that is finished, and returns the number of its plots.
func (f *sweepFolder) finish() (plots int, err error) {
	all := sweep.Plots(f.sweep)
	for _, p := range all {
		err = errors.Join(err, f.write(p.File, func(w io.Writer) error { _, err := io.WriteString(w, p.SVG); return err }))
	}
	return len(all), errors.Join(err,
		f.write(sweepCSV, func(w io.Writer) error { return sweep.WriteCSV(w, f.sweep) }),
		f.write(sweepHTML, func(w io.Writer) error { return html.WriteSweep(w, f.sweep, all) }),
		f.write(sweepJSON, func(w io.Writer) error { return report.WriteJSON(w, f.sweep) }))
}

// write writes a file of the folder.
func (f *sweepFolder) write(name string, write func(io.Writer) error) error {
	if err := writeWhole(filepath.Join(f.path, name), write); err != nil {
		return control.Errorf(control.Unable, "--out: %s", strings.TrimSpace(err.Error()))
	}
	return nil
}
