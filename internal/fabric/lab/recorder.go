package lab

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/capture"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// This file is the recorder, the process that writes the captures which a
// topology asks for. It is a client of the lab like any command, outside of its
// namespaces, with the rights and the files of the user, and starts before
// any workload. It outlives the command that starts the lab, if the lab does, and
// the lab for as long as it takes to complete the files: it shares the lock by which
// others tell that the lab is over. The lab does not depend on it.

// methodRecord has the recorder begin captures, with absolute paths. The command that starts
// the lab asks for it. It returns when all captures have begun.
var methodRecord = control.NewProcedure[[]topology.Capture]("record")

// startRecorder starts the recorder, which waits for startCaptures.
func (l *Lab) startRecorder(logFile, locked *os.File) error {
	conn, theirs, err := control.Pair(l.requests().Serve)
	if err != nil {
		return err
	}
	defer theirs.Close()
	recorder := childCommand(recorderName, l.place.name, logFile, theirs, locked)
	recorder.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of the reach of the terminal's signals
	if err := recorder.Start(); err != nil {
		conn.Close()
		return fmt.Errorf("start recorder: %w", err)
	}
	go func() {
		// Its files tell how it has ended.
		_ = recorder.Wait()
	}()
	l.recorder = conn
	return nil
}

// startCaptures begins the captures of a topology. Paths that are not absolute
// are below the present folder.
func (l *Lab) startCaptures(ctx context.Context, captures []topology.Capture) error {
	if len(captures) == 0 {
		return nil
	}
	captures = append([]topology.Capture(nil), captures...)
	for i := range captures {
		path, err := filepath.Abs(captures[i].File)
		if err != nil {
			return err
		}
		captures[i].File = path
	}
	return methodRecord.Call(ctx, l.recorder, captures)
}

// record is the recorder process.
func record(name string) error {
	owner := inherited(firstFile, "owner")
	locked := inherited(firstFile+1, "state")
	defer runtime.KeepAlive(locked) // the lock is held to the very end of the process
	if err := closeInherited(); err != nil {
		return err
	}
	if err := capture.StandBack(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	var asked atomic.Bool
	recorded := make(chan error, 1)
	var mux control.Mux
	methodRecord.Handle(&mux, func(_ context.Context, r *control.Request, captures []topology.Capture) error {
		asked.Store(true)
		began := make(chan error, 1)
		go func() { recorded <- recordAll(ctx, name, captures, r.Conn, began) }()
		return <-began
	})
	conn, err := control.FromFile(owner, mux.Serve)
	if err != nil {
		return err
	}
	defer conn.Close()
	select {
	case <-conn.Done(): // the command has gone, which need not be the lab's end
		if asked.Load() {
			<-recorded
		}
	case err := <-recorded:
		if err != nil {
			<-conn.Done() // the command has to hear of it first
		}
	}
	return nil
}

// recordAll records to the end of the lab, and tells the owner and the log what came
// of it. began is told when all captures have begun, or of the first that did
// not; then there are none.
func recordAll(ctx context.Context, name string, captures []topology.Capture, owner *control.Conn, began chan<- error) error {
	l, err := Open(ctx, name)
	if err != nil {
		began <- err
		return err
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	say := func(kind, format string, args ...any) {
		e := event.Event{Kind: kind, Text: fmt.Sprintf(format, args...)}
		log.Print(e.Text)
		// The owner may have gone.
		_ = noticeEvent.Send(owner, e)
	}
	var running sync.WaitGroup
	starts := make(chan error)
	marks, sinks := make([]chan capture.Mark, len(captures)), make([]chan<- capture.Mark, len(captures))
	for i := range captures {
		marks[i] = NewMarks()
		sinks[i] = marks[i]
	}
	if err := l.Marks(ctx, sinks...); err != nil {
		began <- err
		return err
	}
	for i, c := range captures {
		running.Go(func() {
			started := false
			counts, err := l.Record(ctx, Recording{
				Capture: c,
				Marks:   marks[i],
				Began:   func() { started = true; starts <- nil },
				Lost: func(endpoint string, reason error) {
					say(event.Warning, "capture %s: %s is captured no more: %v", c.File, endpoint, reason)
				},
			})
			if !started {
				starts <- err
				return
			}
			for i, n := range counts {
				say(event.Captured, "capture %s: %s", c.File, Summary(c.Interfaces[i].String(), n))
			}
			if err != nil {
				say(event.Warning, "capture %s ends early: %v", c.File, err)
			}
		})
	}
	for range captures {
		if e := <-starts; e != nil && err == nil {
			err = e
			cancel()
		}
	}
	began <- err
	complete := make(chan struct{})
	go func() {
		running.Wait()
		close(complete)
	}()
	select {
	case <-complete:
		return err
	case <-l.Done():
	}
	select {
	case <-complete:
	case <-time.After(completeTime):
		say(event.Warning, "captures are not complete: what they are written to takes no more")
	}
	return err
}

// completeTime bounds the time in which captures are completed when the lab is over. They
// may be written to a pipe that nobody reads.
const completeTime = 5 * time.Second
