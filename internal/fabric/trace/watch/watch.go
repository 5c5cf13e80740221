// Package watch captures the packets of a lab's links while somebody looks at them, and shows the last of each as package trace
// does. A link that nobody asks about costs nothing.
//
// Each capture has a goroutine (capture.go), which begins with the first request for its interface, and ends some time after the last.
//
// Start reading at Watch.
package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/trace"
)

const (
	// idle is the time after the last request for an interface when its capture ends.
	idle = 10 * time.Second
	// remembered bounds the packets of a link that are kept: enough for a sequence of some round trips of a fast link.
	remembered = 20_000
)

// A Watch has the last packets of the links of a lab. Its methods are for any goroutine.
type Watch struct {
	record recorder
	since  int64 // ns since 1970
	ctx    context.Context
	end    context.CancelFunc

	mu       sync.Mutex          // guards what follows
	captures map[string]*capture // by endpoint
	running  sync.WaitGroup      // of captures; none is added once ctx has ended
}

// A recorder captures the link that an interface is an end of until ctx ends, or the interface is gone. It calls began once it has begun,
// and add with each packet.
type recorder func(ctx context.Context, endpoint string, began func(), add func(*trace.Packet)) error

// A capture is that of a link.
type capture struct {
	began chan struct{} // closed when it has begun, or will not, which failed then says
	timer *time.Timer   // ends it; guarded by mu of the Watch

	mu     sync.Mutex // guards what follows
	ring   *trace.Ring
	failed error
}

// New makes a Watch of a lab. The times of all that it shows are since an instant, which is usually that when the lab was
// ready.
func New(l *lab.Lab, since time.Time) *Watch {
	return newWatch(since, func(ctx context.Context, endpoint string, began func(), add func(*trace.Packet)) error {
		return record(ctx, l, endpoint, began, add)
	})
}

func newWatch(since time.Time, record recorder) *Watch {
	w := &Watch{record: record, since: since.UnixNano(), captures: map[string]*capture{}}
	w.ctx, w.end = context.WithCancel(context.Background())
	return w
}

// Close ends all captures.
func (w *Watch) Close() {
	w.mu.Lock()
	w.end()
	w.mu.Unlock()
	w.running.Wait()
}

// Rows returns the last n packets of the link that an interface, node:interface, is an end of, the oldest first. There are none before
// the first request.
func (w *Watch) Rows(ctx context.Context, endpoint string, n int) ([]trace.Row, error) {
	c, err := w.capture(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ring.Rows(n, w.since), nil
}

// Sequence returns that of a queue pair, by the last packets of its interface's link.
func (w *Watch) Sequence(ctx context.Context, qp trace.QueuePair) (trace.Sequence, error) {
	c, err := w.capture(ctx, qp.Endpoint)
	if err != nil {
		return trace.Sequence{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ring.Sequence(qp, w.since), nil
}

// errClosed says that a Watch was closed.
var errClosed = errors.New("the lab is no longer watched")

// capture returns that of an interface, once it has begun.
func (w *Watch) capture(ctx context.Context, endpoint string) (*capture, error) {
	c, err := w.wanted(endpoint)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.began:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c, c.failed
}

// wanted returns the capture of an interface, which goes on for some time from now, and starts it unless it runs.
func (w *Watch) wanted(endpoint string) (*capture, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return nil, errClosed
	}
	if c := w.captures[endpoint]; c != nil {
		c.timer.Reset(idle)
		return c, nil
	}
	ctx, cancel := context.WithCancel(w.ctx)
	c := &capture{began: make(chan struct{}), ring: trace.NewRing(remembered)}
	forget := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.captures[endpoint] == c {
			delete(w.captures, endpoint)
		}
		cancel()
	}
	c.timer = time.AfterFunc(idle, forget)
	w.captures[endpoint] = c
	w.running.Go(func() {
		defer c.timer.Stop()
		defer forget()
		c.run(ctx, endpoint, w.record)
	})
	return c, nil
}

// run captures until ctx ends, or the interface is gone.
func (c *capture) run(ctx context.Context, endpoint string, record recorder) {
	begin := sync.OnceFunc(func() { close(c.began) })
	defer begin()
	err := record(ctx, endpoint, begin, func(p *trace.Packet) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ring.Add(p)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed = err; err == nil {
		c.failed = fmt.Errorf("the capture of %s is over", endpoint)
	}
}
