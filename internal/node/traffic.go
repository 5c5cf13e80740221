package node

import (
	"context"
	"errors"
	"net/netip"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/provider"
)

// The requests about workloads.
var (
	methodServe    = control.NewProcedure[serveParams]("serve")
	methodUnserve  = control.NewMethod[flowParams, workload.ServerResult]("unserve")
	methodRun      = control.NewMethod[runParams, workload.Result]("run")
	methodStop     = control.NewProcedure[flowParams]("stop")
	methodAbort    = control.NewProcedure[abortParams]("abort")
	methodProgress = control.NewMethod[control.None, []workload.Progress]("progress")
	methodClear    = control.NewProcedure[string]("clear") // with the reason
)

type serveParams struct {
	Spec workload.Spec
	At   netip.AddrPort
}

type runParams struct {
	Spec workload.Spec
	From netip.Addr
	To   netip.AddrPort
}

// flowParams is a flow of a workload.
type flowParams struct {
	Name string
	Flow int
}

type abortParams struct {
	flowParams
	Reason string
}

// Workloads are the workloads of a node. They are clients and servers of flows.
type Workloads struct{ *Client }

// Serve has the node listen for the client of a workload's flow, until Unserve.
func (w Workloads) Serve(ctx context.Context, spec workload.Spec, at netip.AddrPort) error {
	return w.named(methodServe.Call(ctx, w.conn, serveParams{spec, at}))
}

// Unserve ends what Serve began and returns what the server found.
func (w Workloads) Unserve(ctx context.Context, name string, flow int) (workload.ServerResult, error) {
	return call(ctx, w.Client, methodUnserve, flowParams{name, flow})
}

// Run runs the client of a workload's flow in the node and returns when it is done. When
// ctx ends first, so does the client.
func (w Workloads) Run(ctx context.Context, spec workload.Spec, from netip.Addr, to netip.AddrPort) (workload.Result, error) {
	return call(ctx, w.Client, methodRun, runParams{spec, from, to})
}

// Stop has Run return early: what is in flight is completed, and nothing more is
// begun. A client that does not run is left alone.
func (w Workloads) Stop(ctx context.Context, name string, flow int) error {
	return w.named(methodStop.Call(ctx, w.conn, flowParams{name, flow}))
}

// Abort has Run return at once, with the reason as the result's error unless there
// is one. A client that does not run is left alone.
func (w Workloads) Abort(ctx context.Context, name string, flow int, reason string) error {
	return w.named(methodAbort.Call(ctx, w.conn, abortParams{flowParams{name, flow}, reason}))
}

// Progress returns the progress of the workloads' clients that run in the node.
func (w Workloads) Progress(ctx context.Context) ([]workload.Progress, error) {
	return call(ctx, w.Client, methodProgress, nil)
}

// Clear ends all clients and servers in the node, with the reason as their error, and
// returns when they have ended.
func (w Workloads) Clear(ctx context.Context, reason string) error {
	return w.named(methodClear.Call(ctx, w.conn, reason))
}

// traffic answers the requests about workloads, which run on an agent's device. Its fields
// are set before a handler is called.
type traffic struct {
	node   string // LAB/NODE
	device *provider.Miniport
	host   *workload.Host
}

// answer adds the requests about workloads to mux.
func (t *traffic) answer(mux *control.Mux) {
	methodServe.Handle(mux, t.serve)
	methodUnserve.Handle(mux, t.unserve)
	methodRun.Handle(mux, t.run)
	methodStop.Handle(mux, t.stop)
	methodAbort.Handle(mux, t.abort)
	methodProgress.Handle(mux, t.progress)
	methodClear.Handle(mux, t.clear)
}

func (t *traffic) serve(_ context.Context, _ *control.Request, p serveParams) error {
	return t.explained(t.host.Serve(p.Spec, p.At))
}

func (t *traffic) unserve(ctx context.Context, _ *control.Request, p flowParams) (workload.ServerResult, error) {
	done := make(chan workload.ServerResult, 1)
	if err := t.host.Unserve(p.Name, p.Flow, func(result workload.ServerResult) { done <- result }); err != nil {
		return workload.ServerResult{}, t.explained(err)
	}
	select {
	case result := <-done:
		return result, nil
	case <-ctx.Done():
		return workload.ServerResult{}, ctx.Err()
	}
}

func (t *traffic) run(ctx context.Context, _ *control.Request, p runParams) (workload.Result, error) {
	done := make(chan workload.Result, 1)
	if err := t.host.Run(p.Spec, p.From, p.To, func(result workload.Result) { done <- result }); err != nil {
		return workload.Result{}, t.explained(err)
	}
	select {
	case result := <-done:
		return result, nil
	case <-ctx.Done():
		t.host.Abort(p.Spec.Name, p.Spec.Flow, "nobody waits for the result any more")
		<-done
		return workload.Result{}, ctx.Err()
	}
}

func (t *traffic) stop(_ context.Context, _ *control.Request, p flowParams) error {
	t.host.Stop(p.Name, p.Flow)
	return nil
}

func (t *traffic) abort(_ context.Context, _ *control.Request, p abortParams) error {
	t.host.Abort(p.Name, p.Flow, p.Reason)
	return nil
}

func (t *traffic) progress(context.Context, *control.Request, control.None) ([]workload.Progress, error) {
	return t.host.Progress(), nil
}

func (t *traffic) clear(ctx context.Context, _ *control.Request, reason string) error {
	done := make(chan struct{})
	t.host.Clear(reason, func() { close(done) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// explained returns the error of a workload that could not be started or ended, with the
// remedy if the adapter is disabled.
func (t *traffic) explained(err error) error {
	switch {
	case errors.Is(err, workload.ErrServed), errors.Is(err, workload.ErrNotServed), errors.Is(err, workload.ErrRunning):
		return control.Errorf(control.Usage, "%v", err)
	case !errors.Is(err, provider.StatusAdapterNotReady):
		return err
	case t.device.Configuration().NetworkDirect == 0:
		return control.Errorf(control.Usage, "the adapter is disabled: the topology has network_direct: false for it")
	default:
		return control.Errorf(control.Usage, "the adapter is disabled: `ndklab adapter %s --enable` enables it", t.node)
	}
}
