package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/scenario"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// This file runs a lab's scenario, at both ends of the lab's channel. Package scenario
// decides its course; runstage.go carries out what that asks for.

// Run runs the lab's workloads, timeline and checks, and returns when all is
// done. Events tell of it meanwhile. When ctx ends first, the run is
// interrupted: Run returns the report of what was until then, if the lab makes one
// soon, beside the reason that ctx has.
func (l *Lab) Run(ctx context.Context) (*report.Run, error) { return l.run(ctx, runParams{}) }

// RunWorkloads runs some workloads of the caller's in the lab, in place of those of its
// topology and without its timeline and checks.
func (l *Lab) RunWorkloads(ctx context.Context, workloads ...topology.Workload) (*report.Run, error) {
	return l.run(ctx, runParams{Others: true, Workloads: workloads})
}

func (l *Lab) run(ctx context.Context, params runParams) (*report.Run, error) {
	params.Token = rand.Text()
	var r *report.Run
	running, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(nil)
	ended := make(chan error, 1)
	go func() {
		var err error
		r, err = call(running, l.session, methodRun, params)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			return nil, err
		}
		return r, nil
	case <-ctx.Done():
	}
	soon, cancel := context.WithTimeout(running, reportTime)
	defer cancel()
	if methodInterrupt.Call(soon, l.conn, params.Token) != nil { // it has not begun, or is over
		cancel()
	}
	var err error
	select {
	case err = <-ended:
	case <-soon.Done():
		giveUp(context.Cause(ctx))
		err = <-ended
	}
	switch {
	case err != nil:
		return nil, context.Cause(ctx)
	case r.Interrupted:
		return r, context.Cause(ctx)
	}
	return r, nil // it was over
}

// reportTime bounds the time that an interrupted run takes to end and report. Nodes that do
// not answer are given up by then.
const reportTime = 20 * time.Second

type runParams struct {
	Others    bool // Workloads are run instead of the topology's scenario
	Workloads []topology.Workload
	Token     string // by which the caller may interrupt it
}

// A run is one pass through a scenario.
type run struct {
	token     string
	ctx       context.Context // ends when the run is to end early
	interrupt context.CancelCauseFunc
	over      chan struct{} // closed when the run is
	play      atomic.Pointer[scenario.Play]
}

// A runAPI plays the lab's scenario for commands, one run at a time.
type runAPI struct {
	*Supervisor

	mu      sync.Mutex // guards what follows
	running *run       // the last one that began
}

// run answers methodRun.
func (a *runAPI) run(ctx context.Context, _ *control.Request, params runParams) (*report.Run, error) {
	r := &run{token: params.Token, over: make(chan struct{})}
	r.ctx, r.interrupt = context.WithCancelCause(ctx)
	defer r.interrupt(nil)
	again, err := a.beginRun(ctx, r)
	if err != nil {
		return nil, err
	}
	defer a.endRun(r)
	if again {
		a.clearHosts(ctx)
	}
	topo := a.topology()
	if params.Others {
		topo = topo.Only(params.Workloads...)
	}
	began, err := a.beginFigures(ctx)
	if err != nil {
		return nil, err
	}
	return a.playRun(r, topo, began)
}

// errReport is the cause by which a run ends early whose report is wanted all the same.
var errReport = errors.New("the run is interrupted")

// interruptRun answers methodInterrupt: the run with that token ends, and is answered with
// what was until then.
func (a *runAPI) interruptRun(_ context.Context, _ *control.Request, token string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running == nil || a.running.token != token || isClosed(a.running.over) {
		return control.Errorf(control.Usage, "lab %s runs no such scenario", a.name)
	}
	a.running.interrupt(errReport)
	return nil
}

// interruptTime bounds how late the interruption of a run may come after the next request:
// a client does not wait until it has arrived.
const interruptTime = time.Second

// beginRun sees to it that only one run goes on at a time. One that was interrupted
// is waited for. again says that there was one before, of which nothing is left.
func (a *runAPI) beginRun(ctx context.Context, r *run) (again bool, err error) {
	a.mu.Lock()
	before := a.running
	a.mu.Unlock()
	if before != nil && clock.Within(interruptTime, before.ctx.Done()) { // which comes with its end, too
		select {
		case <-before.over:
		case <-r.ctx.Done():
			return false, r.ctx.Err()
		}
	}
	a.mu.Lock()
	if before = a.running; before == nil || isClosed(before.over) {
		a.running = r // so that it can be interrupted
	}
	a.mu.Unlock()
	answer, err := a.ask(ctx, core.ByHand, core.BeginRun{})
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.running = r
	case a.running == r:
		a.running = before
		close(r.over)
	}
	return answer.Restored, err
}

// endRun ends what beginRun began.
func (a *runAPI) endRun(r *run) {
	_, _ = a.ask(context.Background(), core.ByHand, core.EndRun{}) // which cannot fail
	close(r.over)
}

// clearHosts ends what an earlier run has left on hosts: of a node that was paused or did
// not answer, a run gives up its clients and servers, which go on when the node does. A
// host that does not answer in time is one that this run will find so, too.
func (a *runAPI) clearHosts(ctx context.Context) {
	hosts, _ := a.pick("") // which fails for a name only
	_ = parallel(ctx, requestsAtOnce, len(hosts), func(ctx context.Context, i int) error {
		l, err := a.alive(hosts[i].Name)
		if err != nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		_ = l.client.Workloads.Clear(ctx, "another run has begun")
		return nil
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// playRun plays a scenario to its end, or until nobody waits for the result.
func (a *runAPI) playRun(r *run, topo *topology.Topology, beginning *beginning) (*report.Run, error) {
	began := time.Now()
	var setByHand []string
	a.look(func(l *core.Lab) { setByHand = l.SetByHand() })
	stage := newRunStage(r.ctx, a.Supervisor, beginning)
	defer stage.end()
	done := make(chan error, 1)
	var result *report.Run
	var watched *runWatch
	if topo.Series != nil {
		watched = a.watchRun(stage.ctx, topo.Series.Period, stage.dilation)
		defer watched.end()
	}
	play := scenario.Begin(stage, topo, func(report *report.Run, err error) {
		result = report
		done <- err
	})
	r.play.Store(play)
	var err error
	select {
	case err = <-done:
	case <-r.ctx.Done():
		play.Interrupt()
		err = <-done
	}
	if errors.Is(err, scenario.ErrInterrupted) && context.Cause(r.ctx) != errReport {
		return nil, context.Cause(r.ctx)
	}
	if watched != nil {
		if result.Series == nil {
			result.Series = watched.end()
		} else {
			result.Series.Watched = watched.end()
		}
	}
	if result.Dilation = topo.Dilation; result.Dilation > 0 {
		result.MachineSeconds = result.Seconds * float64(result.Dilation)
	}
	result.Started, result.Host, result.SetByHand = began.Format(time.RFC3339), host(), setByHand
	result.Hosts = a.machines.report()
	if result.Recorded, err = a.decisions.recorded(context.WithoutCancel(r.ctx)); err != nil {
		return nil, err
	}
	if result.Recorded != nil && result.Recorded.Error != "" {
		result.Problems = append(result.Problems, fmt.Sprintf("the log %s ends early: %s", a.decisions.file, result.Recorded.Error))
		result.Passed = false
	}
	return result, nil
}

// host says what machine this is.
func host() string {
	var u unix.Utsname
	// It fails only for a bad address.
	_ = unix.Uname(&u)
	return fmt.Sprintf("%s %s %s, cores: %d", unix.ByteSliceToString(u.Sysname[:]),
		unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:]), runtime.NumCPU())
}
