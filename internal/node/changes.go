package node

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
)

// This file spares a lab that is watched the work of asking nodes in which nothing happens. An agent and its supervisor share a
// word of memory. It has the number of the agent's last observation, for as long as an answer with that number would be the same. Of
// an agent without connections, objects, workloads and the like all that changes an answer comes from a few places: packets, requests
// and processes that share the adapter. Each of them clears the word when it is done. Any other agent is asked.

// changesFD is the descriptor on which an agent inherits the word.
const changesFD = controlFD + 1

// patience bounds the time for which an agent in which nothing happens is not asked: in that time one is found that does not answer any
// more. It is that much or up to twice as much, so that agents are not asked all at once.
const patience = time.Minute

// A changes is the word, as either side has it.
type changes struct {
	observed *atomic.Uint64 // the number; 0: something has changed since
}

// newChanges makes the word.
func newChanges() (*os.File, error) {
	fd, err := unix.MemfdCreate("ndklab-changes", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "changes")
	if err := f.Truncate(int64(os.Getpagesize())); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// openChanges maps the word in f for as long as it is in use.
func openChanges(f *os.File) (*changes, error) {
	memory, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("changes: %w", os.NewSyscallError("mmap", err))
	}
	c := &changes{observed: (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(memory)))}
	runtime.AddCleanup(c, func(memory []byte) {
		_ = unix.Munmap(memory) // it fails only for memory that is not mapped
	}, memory)
	return c, nil
}

// note tells the supervisor that something has changed. It is called once that shows.
func (c *changes) note() {
	if c.observed.Load() != 0 {
		c.observed.Store(0)
	}
}

// An activity is the agent's side of the word.
type activity struct {
	*changes
	numbers  atomic.Uint64 // of observations
	requests atomic.Int64  // that are being answered, but for observations
}

// observe returns the number of an observation that begins.
func (a *activity) observe() uint64 {
	n := a.numbers.Add(1)
	a.observed.Store(n)
	return n
}

// noting has a handler note all requests but observations: when they begin, since they may last, and when they are answered.
func (a *activity) noting(handle control.Handler) control.Handler {
	return func(ctx context.Context, r *control.Request) (any, error) {
		if r.Method == observeName {
			return handle(ctx, r)
		}
		a.requests.Add(1)
		a.note()
		defer func() {
			a.requests.Add(-1)
			a.note()
		}()
		return handle(ctx, r)
	}
}

// An observer remembers, for the supervisor, what an agent has answered.
type observer struct {
	mu sync.Mutex // guards what follows
	*changes
	patience time.Duration // of its agent
	last     Observation
	asked    time.Time
}

// begin has the observer observe an agent, which has just been started.
func (o *observer) begin(c *changes, patience time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes, o.patience = c, patience
}

// unchanged returns the last answer if the agent would give it again.
func (o *observer) unchanged(now time.Time) (last Observation, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last, o.last.Number != 0 && o.last.Number == o.observed.Load() && now.Sub(o.asked) < o.patience
}

// remember takes an answer to a question that was asked at an instant.
func (o *observer) remember(answer *Observation, asked time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last, o.asked = *answer, asked
}
