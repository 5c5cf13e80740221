package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"golang.org/x/sys/unix"
)

// This file reads a lab's log, which all of its processes write to. It needs no answer of
// the lab, so that the log of a lab that hangs can be read.

// LogOptions say what of a log is read.
type LogOptions struct {
	Nodes  []string // only lines of these nodes and about them; nil: all
	Tail   int      // only so many of the last lines that there are; negative: all
	Follow bool     // go on until the lab is over or ctx ends, which is no error
}

// logPoll lies between two looks at a log that is followed: one stat and one flock.
const logPoll = 50 * time.Millisecond

// Logs calls line for the lines of a lab's log, without the ends of lines, oldest
// first, until it returns an error. The slice is valid for the call. A log that is
// cut short while it is followed is read from its new beginning.
func Logs(ctx context.Context, name string, options LogOptions, line func([]byte) error) error {
	p, err := placeOf(name)
	if err != nil {
		return err
	}
	r := &logReader{wanted: linesOf(options.Nodes)}
	if r.life, err = os.OpenFile(p.stateFile(), os.O_RDONLY|unix.O_NOFOLLOW, 0); err == nil {
		defer r.life.Close()
		r.log, err = os.Open(p.logFile())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return control.Errorf(control.Usage, "lab %s is not up: a lab's log goes with it", name)
	}
	if err != nil {
		return err
	}
	defer r.log.Close()
	if err := p.hasNodes(ctx, options.Nodes); err != nil {
		return err
	}
	if err := r.tail(options.Tail, line); err != nil || !options.Follow {
		return err
	}
	return r.follow(ctx, line)
}

// hasNodes says that the lab has no node of one of the names, if the lab can be asked. One
// that is being made or does not answer may have them.
func (p place) hasNodes(ctx context.Context, nodes []string) error {
	if nodes == nil {
		return nil
	}
	l, err := open(ctx, p, answerTimeout)
	if err != nil {
		return nil
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	names, err := l.Names(ctx)
	if err != nil {
		return nil
	}
	for _, node := range nodes {
		if !slices.Contains(names.Nodes, node) && !slices.Contains(names.Switches, node) {
			return control.Errorf(control.Usage, "lab %s has no node %q", p.name, node)
		}
	}
	return nil
}

// linesOf matches the lines of some nodes, or all lines for nil: those that the nodes wrote
// themselves, which begin with their names, and those that name them.
func linesOf(nodes []string) *regexp.Regexp {
	if nodes == nil {
		return regexp.MustCompile("")
	}
	quoted := make([]string, len(nodes))
	for i, node := range nodes {
		quoted[i] = regexp.QuoteMeta(node)
	}
	return regexp.MustCompile(`\bnode (` + strings.Join(quoted, "|") + `)($|[^a-z0-9-])`)
}

// A logReader reads a log that grows.
type logReader struct {
	wanted *regexp.Regexp
	life   *os.File // the state file, whose lock tells when the lab is over
	log    *os.File
	at     int64  // where log is read next
	part   []byte // of a line whose end is not there yet
}

// mostLine bounds a line without an end that is waited for, in bytes.
const mostLine = 1 << 20

// read calls line for the wanted lines up to the present end.
func (r *logReader) read(line func([]byte) error) error {
	info, err := r.log.Stat()
	if err != nil {
		return err
	}
	if info.Size() < r.at {
		r.at, r.part = 0, nil
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := r.log.ReadAt(buf, r.at)
		r.at += int64(n)
		r.part = append(r.part, buf[:n]...)
		for {
			text, rest, ended := bytes.Cut(r.part, []byte("\n"))
			if !ended && len(text) < mostLine {
				break
			}
			r.part = rest
			if r.wanted.Match(text) {
				if err := line(text); err != nil {
					return err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			r.part = bytes.Clone(r.part) // lets go of what is behind it
			return nil
		}
		if err != nil {
			return fmt.Errorf("log: %w", err)
		}
	}
}

// tail reads what there is and calls line for the last n lines of it.
func (r *logReader) tail(n int, line func([]byte) error) error {
	if n < 0 {
		return r.read(line)
	}
	var last [][]byte
	err := r.read(func(text []byte) error {
		if last = append(last, bytes.Clone(text)); len(last) > n {
			last = last[1:]
		}
		return nil
	})
	for _, text := range last {
		if err == nil {
			err = line(text)
		}
	}
	return err
}

// follow reads what comes.
func (r *logReader) follow(ctx context.Context, line func([]byte) error) error {
	tick := time.NewTicker(logPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		over := tryLock(r.life)
		if err := r.read(line); err != nil || over == nil {
			return err // of what was written before the lab was over, nothing is missing
		}
		if !errors.Is(over, errLocked) {
			return over
		}
	}
}
