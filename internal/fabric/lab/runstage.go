package lab

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/scenario"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// A runStage is the lab as a scenario is played on it (scenario.Stage): each method
// makes its requests on a goroutine of its own. It sees the lab as it was when the run
// began, in which no node and no link comes or goes meanwhile.
type runStage struct {
	*Supervisor
	caller   context.Context // ends when nobody waits for the run any more
	ctx      context.Context // ends with the run, which then has been tidied up
	end      context.CancelFunc
	began    *beginning
	dilation int           // the lab's
	requests chan struct{} // holds a token for each request to an agent that does not take long
	serverID atomic.Uint64 // numbers commands that are waited for

	mu      sync.Mutex // guards what follows
	servers map[flowEnd]*life
	clients map[flowEnd]*runClient
}

// A flowEnd is the server or the client of a workload's flow in a node.
type flowEnd struct {
	node, workload string
	flow           int
}

// A runClient is a client that runs.
type runClient struct {
	agent  *node.Client
	giveUp context.CancelCauseFunc // has the stage wait for it no longer
}

// Bounds on the times of requests to the lab. A server and a client have large pieces of
// memory to register and to give back, on a machine that may be busy.
const (
	serveTime  = 10 * time.Second
	abortTime  = 5 * time.Second
	linksTime  = 10 * time.Second
	changeTime = 2 * time.Minute // a node that starts may have stages to go through
)

func newRunStage(ctx context.Context, s *Supervisor, began *beginning) *runStage {
	r := &runStage{
		Supervisor: s, caller: ctx, began: began, requests: make(chan struct{}, requestsAtOnce),
		servers: map[flowEnd]*life{}, clients: map[flowEnd]*runClient{},
	}
	r.dilation = r.topology().DilationFactor()
	r.ctx, r.end = context.WithCancel(context.Background())
	return r
}

// Clock is the fabric's time.
func (r *runStage) Clock() clock.Clock { return clock.Dilated(clock.Real(), r.dilation) }

// request makes a request of a node's agent that is answered within a limit or is an
// error.
func (r *runStage) request(limit time.Duration, name string, make func(ctx context.Context) error) error {
	r.requests <- struct{}{}
	defer func() { <-r.requests }()
	ctx, cancel := context.WithTimeout(r.ctx, limit)
	defer cancel()
	err := make(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("node %s does not answer within %v", name, limit)
	}
	return err
}

// Serve has a host listen for a client.
func (r *runStage) Serve(name string, spec workload.Spec, at netip.AddrPort, done func(error)) {
	go func() {
		done(r.request(serveTime, name, func(ctx context.Context) error {
			l, err := r.host(name)
			if err != nil {
				return err
			}
			r.mu.Lock()
			r.servers[flowEnd{name, spec.Name, spec.Flow}] = l
			r.mu.Unlock()
			return l.client.Workloads.Serve(ctx, spec, at)
		}))
	}()
}

// Unserve ends a server, if it is still in the life of its node in which it began.
func (r *runStage) Unserve(name, w string, flow int, done func(workload.ServerResult, error)) {
	go func() {
		var found workload.ServerResult
		err := r.request(serveTime, name, func(ctx context.Context) error {
			r.mu.Lock()
			served := r.servers[flowEnd{name, w, flow}]
			r.mu.Unlock()
			l, err := r.host(name)
			if err != nil {
				return err
			}
			if l != served {
				return fmt.Errorf("node %s was started again, and what its server had found is lost", name)
			}
			found, err = l.client.Workloads.Unserve(ctx, w, flow)
			return err
		})
		done(found, err)
	}()
}

// Run runs a client.
func (r *runStage) Run(name string, spec workload.Spec, from netip.Addr, to netip.AddrPort, done func(workload.Result, error)) {
	agent, err := r.agent(name)
	if err != nil {
		go done(workload.Result{}, err)
		return
	}
	ctx, giveUp := context.WithCancelCause(r.ctx)
	end, client := flowEnd{name, spec.Name, spec.Flow}, &runClient{agent, giveUp}
	r.mu.Lock()
	r.clients[end] = client
	r.mu.Unlock()
	go func() {
		defer giveUp(nil)
		result, err := agent.Workloads.Run(ctx, spec, from, to)
		r.mu.Lock()
		delete(r.clients, end)
		r.mu.Unlock()
		switch {
		case errors.Is(err, control.ErrClosed):
			err = fmt.Errorf("node %s went down", name)
		case err != nil && ctx.Err() != nil:
			err = context.Cause(ctx)
		}
		done(result, err)
	}()
}

func (r *runStage) client(end flowEnd) *runClient {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clients[end]
}

// Stop ends a client in good order.
func (r *runStage) Stop(name, w string, flow int) {
	c := r.client(flowEnd{name, w, flow})
	if c == nil {
		return
	}
	go func() {
		if err := r.request(serveTime, name, func(ctx context.Context) error { return c.agent.Workloads.Stop(ctx, w, flow) }); err != nil {
			log.Printf("workload %s: stop: %v", w, err) // if it does not end, the scenario ends it
		}
	}()
}

// Abort ends a client, and if its agent does not answer gives it up.
func (r *runStage) Abort(name, w string, flow int, reason string) {
	c := r.client(flowEnd{name, w, flow})
	if c == nil {
		return
	}
	time.AfterFunc(abortTime, func() { c.giveUp(errors.New(reason)) })
	go func() {
		ctx, cancel := context.WithTimeout(r.ctx, abortTime)
		defer cancel()
		if err := c.agent.Workloads.Abort(ctx, w, flow, reason); err != nil {
			c.giveUp(errors.New(reason))
		}
	}()
}

// Progress asks a host how far its clients are.
func (r *runStage) Progress(name string, done func([]workload.Progress, error)) {
	go func() {
		var all []workload.Progress
		err := r.request(answerTime, name, func(ctx context.Context) error {
			agent, err := r.agent(name)
			if err == nil {
				all, err = agent.Workloads.Progress(ctx)
			}
			return err
		})
		done(all, err)
	}()
}

// Change has an event of the timeline happen to links or a node.
func (r *runStage) Change(e *topology.Event, done func(error)) {
	go func() {
		ctx, cancel := context.WithTimeout(r.caller, changeTime)
		defer cancel()
		var err error
		if e.Storm != nil {
			err = r.storm(ctx, e.Node, e.Storm)
		} else {
			_, err = r.ask(ctx, core.ByRun, core.CommandOf(e))
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: it takes longer than %v", err, changeTime)
		}
		done(err)
	}()
}

// keptOutput bounds the lines that are kept of the standard output of a scenario's program, in
// which there may be figures, and lastLines of its standard error. The lab's log has all.
const keptOutput = 4096

// Exec runs a program in a node, in the folder where the lab was started, with the
// environment of who started it.
func (r *runStage) Exec(name string, c scenario.Command, done func(scenario.Exit, error)) (cancel func()) {
	ctx, cancel := context.WithCancel(r.ctx)
	limited := ctx
	stop := cancel
	if c.Timeout > 0 {
		limited, stop = context.WithTimeout(ctx, c.Timeout)
	}
	go func() {
		defer stop()
		exit, err := r.program(limited, name, c)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			exit.TimedOut, err = true, nil
			fallthrough
		case errors.Is(err, context.Canceled):
			exit.Status, err = 128+int(unix.SIGTERM), nil
		case errors.Is(err, control.ErrClosed):
			err = fmt.Errorf("node %s went down", name)
		}
		done(exit, err)
	}()
	return cancel
}

func (r *runStage) program(ctx context.Context, name string, c scenario.Command) (e scenario.Exit, err error) {
	agent, err := r.agent(name)
	if err != nil {
		return e, err
	}
	out, stdout, err := newTranscript(log.Writer(), "node "+name+": ", keptOutput)
	if err != nil {
		return e, err
	}
	defer stdout.Close()
	errs, stderr, err := newTranscript(log.Writer(), "node "+name+": ", lastLines)
	if err != nil {
		return e, err
	}
	defer stderr.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return e, err
	}
	defer null.Close()
	cmd := node.Command{Args: c.Args, Env: append(node.Environment(), c.Env...), Dir: r.dir}
	if c.Ready != nil {
		cmd.ID = fmt.Sprintf("server %d", r.serverID.Add(1))
		cmd.Started = func() { callWhenReady(ctx, agent, cmd.ID, &c) }
	}
	e.Status, err = agent.Exec(ctx, cmd, null, stdout, stderr)
	e.Output, e.Errors = strings.Join(out.ended(), "\n"), strings.Join(errs.ended(), "\n")
	return e, err
}

// callWhenReady waits until a server that has been started is ready, and calls c.Ready.
func callWhenReady(ctx context.Context, agent *node.Client, id string, c *scenario.Command) {
	if !c.Readiness.Started {
		err := agent.Listening(ctx, id, c.Readiness.Port)
		if err != nil && ctx.Err() == nil && !errors.Is(err, node.ErrNotListening) && !errors.Is(err, control.ErrClosed) {
			log.Printf("%v", err) // the scenario has a limit for it
		}
		if err != nil {
			return
		}
	}
	c.Ready()
}

// Nodes is the state of nodes, which count from the beginning of the run.
func (r *runStage) Nodes(names []string, done func([]report.Node)) {
	go func() {
		if names == nil {
			done(r.began.since(r.Supervisor, r.inspectAll(r.ctx, r.topology())))
			return
		}
		done(r.began.since(r.Supervisor, r.inspectNodes(r.ctx, r.named(names))))
	}()
}

// named is the hosts and routers among the names.
func (r *runStage) named(names []string) []*topology.Node {
	return slices.DeleteFunc(withProcesses(r.topology()), func(n *topology.Node) bool { return !slices.Contains(names, n.Name) })
}

// Away is the nodes that commands have switched off or paused.
func (r *runStage) Away() (names []string) {
	r.look(func(l *core.Lab) {
		for _, n := range l.Topology().Nodes {
			if state, _ := l.StateByHand(n.Name); state != "" {
				names = append(names, n.Name)
			}
		}
	})
	return names
}

// Links is the state of all links, which count likewise.
func (r *runStage) Links(done func([]report.Link, error)) {
	go func() {
		ctx, cancel := context.WithTimeout(r.ctx, linksTime)
		defer cancel()
		var topo *topology.Topology
		var states []core.LinkStatus
		r.look(func(l *core.Lab) { topo, states = l.Topology(), linkStates(l) })
		done(r.linkFigures(ctx, topo, states, r.began))
	}()
}

// Buffers returns the figures of packet buffers. If they cannot be had, the report goes without: the engine has ended, and
// the lab with it.
func (r *runStage) Buffers(done func([]report.Buffer, []report.Deadlock, *report.Series)) {
	go func() {
		ctx, cancel := context.WithTimeout(r.ctx, linksTime)
		defer cancel()
		figures, err := r.bufferFigures(ctx)
		if err != nil {
			log.Printf("buffers: %v", err)
		}
		done(figures.Buffers, figures.Deadlocks, figures.Series)
	}()
}

// Adapters is the state of the hosts' adapters.
func (r *runStage) Adapters(names []string, done func([]report.NodeAdapter)) {
	go func() {
		nodes, _ := r.pick("") // of all, it has none that there is not
		if names != nil {
			nodes = r.named(names)
		}
		done(r.adapters(r.ctx, nodes))
	}()
}

// Watch passes on the lab's events but those that Publish has told of.
func (r *runStage) Watch(tell func(event.Event)) (stop func()) {
	done := make(chan struct{})
	next := r.history.next()
	go r.history.send(done, next, func(e event.Event) error {
		if !event.OfRun(e.Kind) && e.Kind != event.EventsLost {
			e.At = (clock.Real().Now() - time.Since(e.Time)) / time.Duration(r.dilation)
			tell(e)
		}
		return nil
	})
	return sync.OnceFunc(func() { close(done) })
}
