package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/capture"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/topology/filter"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// A Recording is a capture of some interfaces to a file.
type Recording struct {
	topology.Capture
	Count  uint64              // end after so many packets; 0: no limit
	Stream io.Writer           // write to it instead of a file
	Marks  <-chan capture.Mark // comments on instants, as they come; may be nil
	Began  func()              // called when the capture has begun; may be nil
	// Lost is called when an interface has gone before the capture ends, with the
	// reason; may be nil. The capture goes on with the others.
	Lost func(endpoint string, reason error)
}

// Record captures interfaces until ctx ends, or the lab, or enough packets are
// recorded, and returns with the file complete. The counts are in the order of
// the interfaces.
func (l *Lab) Record(ctx context.Context, r Recording) ([]capture.Counts, error) {
	options := capture.Options{Snaplen: r.Snaplen, Count: r.Count, Marks: r.Marks}
	if r.Filter != "" {
		var err error
		if options.Filter, err = filter.Parse(r.Filter); err != nil {
			return nil, control.Errorf(control.Usage, "%v", err)
		}
	}
	l.recordings.Add(1)
	defer l.recordings.Done()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-l.over: // the engine lives a little longer, and with it the taps
			stop()
		case <-ctx.Done():
		}
	}()
	sourceCtx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a source's end is not the capture's
	defer cancel()
	var sources []capture.Source
	var watching sync.WaitGroup
	defer watching.Wait()
	finished := make(chan struct{})
	defer close(finished)
	fail := func(err error) ([]capture.Counts, error) {
		for _, s := range sources {
			s.Close()
		}
		return nil, err
	}
	for _, e := range r.Interfaces {
		s, why, err := l.beginCapture(sourceCtx, e.String())
		if err != nil {
			return fail(err)
		}
		sources = append(sources, s)
		watching.Go(func() {
			select {
			case <-s.Gone:
			case <-finished:
			}
			// An end that is not the node's is told of otherwise.
			if !isClosed(s.Gone) || isClosed(l.over) || r.Lost == nil {
				return
			}
			if err := why(); err != nil && !errors.Is(err, context.Canceled) {
				r.Lost(e.String(), err)
			}
		})
	}
	files, err := r.files()
	if err != nil {
		return fail(err)
	}
	if r.Began != nil {
		r.Began()
	}
	counts, err := capture.Run(ctx, sources, files, options)
	return counts, writeError(err)
}

// Marks has the marks of the lab's timeline sent to channels from now on, for Recordings.
// It takes the place of Watch.
func (l *Lab) Marks(ctx context.Context, to ...chan<- capture.Mark) error {
	return l.Watch(ctx, func(e event.Event) {
		if e.Kind != event.Marked {
			return
		}
		for _, c := range to {
			select {
			case c <- capture.Mark{Stamp: e.Time.UnixNano(), Text: e.Text}:
			default: // nobody has taken the last ones
			}
		}
	})
}

// NewMarks is a channel for Marks and Recording.Marks.
func NewMarks() chan capture.Mark { return make(chan capture.Mark, 64) }

// files opens what is written to.
func (r *Recording) files() (files *capture.Files, err error) {
	switch {
	case r.Stream != nil:
		return capture.Stream(r.Stream), nil
	case r.RingSize > 0:
		files, err = capture.Ring(r.File, r.RingSize, r.RingFiles)
	default:
		files, err = capture.File(r.File)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EISDIR) {
		return nil, control.Errorf(control.Usage, "capture: %v", err)
	}
	return files, writeError(err)
}

// writeError gives an error of writing a capture its kind: that a file cannot be
// written, or takes no more, is the machine's failure. That nobody reads a pipe is
// known by its own error.
func writeError(err error) error {
	var no unix.Errno
	if err == nil || !errors.As(err, &no) || no == unix.EPIPE {
		return err
	}
	return control.Errorf(control.Unable, "%v", err)
}

// Summary says what a capture took and missed of an interface.
func Summary(endpoint string, c capture.Counts) string {
	text := fmt.Sprintf("%s: packets: %d, dropped from the capture: %d", endpoint, c.Packets, c.Dropped)
	if c.Other > 0 {
		text += fmt.Sprintf(", not taken by the filter: %d", c.Other)
	}
	if c.Fateless > 0 {
		text += fmt.Sprintf(", without the link's decision: %d", c.Fateless)
	}
	return text
}
