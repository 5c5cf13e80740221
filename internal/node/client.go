package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/ndklab/ndklab/internal/control"
)

// A Client makes requests of a node's agent: one that this process has started (Agent), or one behind a channel
// (NewClient, Agent.Requests). Its methods and those of its fields may be called from any goroutine.
type Client struct {
	Workloads Workloads // that run in the node
	node      string
	conn      control.Caller
	commands  commands // that Exec runs
	// prepare has the agent ready for a command, which it completes. It is nil where Agent.Requests does that.
	prepare func(context.Context, *Command) error
	// idleAnswer returns what Observe finds of a node without a process; nil: the node has one. It is nil where Agent.Requests
	// answers.
	idleAnswer func() *Observation
	// observer has what Observe was answered. It is nil where Agent.Requests answers, whose agent has one.
	observer *observer
}

// newClient returns a client without a channel, whose commands have IDs of that prefix unless they come with one.
func newClient(name, prefix string) *Client {
	c := &Client{node: name, commands: commands{prefix: prefix, running: map[string]*commandStart{}}}
	c.Workloads = Workloads{c}
	return c
}

// NewClient returns a client of an agent whose Requests answer what goes to conn.
// The caller passes the notices on that come from there (Client.Notices).
func NewClient(name string, conn control.Caller) *Client {
	c := newClient(name, "~")
	c.conn = conn
	return c
}

// Notices handles what comes from Agent.Requests.
func (c *Client) Notices() *control.Mux {
	var mux control.Mux
	noticeStarted.Handle(&mux, c.commands.noteStarted)
	return &mux
}

// Requests answers a client somewhere else, as NewClient makes it, with what the agent does. tell sends it notices.
func (a *Agent) Requests(tell control.Caller) *control.Mux {
	var mux control.Mux
	methodExec.Handle(&mux, func(ctx context.Context, r *control.Request, cmd Command) (int, error) {
		cmd.Started = func() {
			// It fails where the client is gone, and with it the command.
			_ = noticeStarted.Send(tell, cmd.ID)
		}
		status, err := a.Exec(ctx, cmd, r.Files...)
		return status, unnamed(err)
	})
	methodSignal.Handle(&mux, func(ctx context.Context, _ *control.Request, params signalParams) error {
		return unnamed(a.Signal(ctx, params.ID, params.Signal))
	})
	methodListening.Handle(&mux, func(ctx context.Context, _ *control.Request, params listeningParams) (bool, error) {
		return a.listens(ctx, params)
	})
	methodObserve.Handle(&mux, func(ctx context.Context, _ *control.Request, bounds []int64) (Observation, error) {
		o, err := a.Observe(ctx, bounds)
		return o, unnamed(err)
	})
	methodCounters.Handle(&mux, func(ctx context.Context, _ *control.Request, _ control.None) (Counters, error) {
		counters, err := a.Counters(ctx)
		return counters, unnamed(err)
	})
	mux.Rest(func(ctx context.Context, r *control.Request) (any, error) {
		conn, err := a.begin()
		if err != nil {
			return nil, err
		}
		return control.Relay(ctx, r, conn)
	})
	return &mux
}

// Name returns the node's name.
func (c *Client) Name() string { return c.node }

// answerWithout returns what Observe finds of a node without a process; nil if that has to be asked.
func (c *Client) answerWithout() *Observation {
	if c.idleAnswer == nil {
		return nil
	}
	return c.idleAnswer()
}

// named adds the node's name to an error.
func (c *Client) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("node %s: %w", c.node, err)
}

// unnamed takes the node's name off an error, which the client adds again.
func unnamed(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

// call makes a request of an agent.
func call[Params, Result any](ctx context.Context, c *Client, m control.Method[Params, Result], params Params, files ...*os.File) (Result, error) {
	result, err := m.Call(ctx, c.conn, params, files...)
	return result, c.named(err)
}

// Counters reads the node's counters.
func (c *Client) Counters(ctx context.Context) (Counters, error) {
	if idle := c.answerWithout(); idle != nil {
		if idle.InUse == nil {
			return Counters{NDK: map[string]uint64{}, Transport: map[string]uint64{}}, nil
		}
		return Counters{NDK: maps.Clone(idle.NDK), Transport: maps.Clone(idle.Transport)}, nil
	}
	return call(ctx, c, methodCounters, nil)
}
