package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ndklab/ndklab/control"
	"github.com/ndklab/ndklab/node/workload"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// The requests about workloads.
const (
	methodServe    = "serve"    // serveParams
	methodUnserve  = "unserve"  // flowParams -> workload.ServerResult
	methodRun      = "run"      // runParams -> workload.Result
	methodStop     = "stop"     // flowParams
	methodAbort    = "abort"    // abortParams
	methodProgress = "progress" // -> []workload.Progress
	methodClear    = "clear"    // reason
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

// Serve has the node listen for the client of a workload's flow, until Unserve.
func (a *Agent) Serve(ctx context.Context, spec workload.Spec, at netip.AddrPort) error {
	return a.traffic(ctx, methodServe, serveParams{spec, at}, nil)
}

// Unserve ends what Serve began and returns what the server found.
func (a *Agent) Unserve(ctx context.Context, name string, flow int) (workload.ServerResult, error) {
	var result workload.ServerResult
	err := a.traffic(ctx, methodUnserve, flowParams{name, flow}, &result)
	return result, err
}

// Run runs the client of a workload's flow in the node and returns when it is done. When
// ctx ends first, so does the client.
func (a *Agent) Run(ctx context.Context, spec workload.Spec, from netip.Addr, to netip.AddrPort) (workload.Result, error) {
	var result workload.Result
	err := a.traffic(ctx, methodRun, runParams{spec, from, to}, &result)
	return result, err
}

// StopClient has Run return early: what is in flight is completed, and nothing more is
// begun. A client that does not run is left alone.
func (a *Agent) StopClient(ctx context.Context, name string, flow int) error {
	return a.traffic(ctx, methodStop, flowParams{name, flow}, nil)
}

// AbortClient has Run return at once, with the reason as the result's error unless there
// is one. A client that does not run is left alone.
func (a *Agent) AbortClient(ctx context.Context, name string, flow int, reason string) error {
	return a.traffic(ctx, methodAbort, abortParams{flowParams{name, flow}, reason}, nil)
}

// Progress says how far the workloads' clients are that run in the node.
func (a *Agent) Progress(ctx context.Context) ([]workload.Progress, error) {
	var progress []workload.Progress
	err := a.traffic(ctx, methodProgress, nil, &progress)
	return progress, err
}

// Clear ends whatever runs or is served of workloads in the node, with the reason as its
// error, and returns when nothing is left of it.
func (a *Agent) Clear(ctx context.Context, reason string) error {
	return a.traffic(ctx, methodClear, reason, nil)
}

// traffic makes a request about workloads.
func (a *Agent) traffic(ctx context.Context, method string, params, result any) error {
	if err := a.conn.Call(ctx, method, params, result); err != nil {
		return fmt.Errorf("node %s: %w", a.cfg.Name, err)
	}
	return nil
}

// traffic is the workloads that run on an agent's device.
type traffic struct {
	node   string // LAB/NODE
	device *provider.Miniport
	host   *workload.Host
}

func newTraffic(node string, m *provider.Miniport, c clock.Clock) *traffic {
	return &traffic{node: node, device: m, host: workload.NewHost(m, c)}
}

// handle answers the requests about workloads; ok is false if r is none.
func (t *traffic) handle(ctx context.Context, r *control.Request) (result any, ok bool, err error) {
	switch r.Method {
	case methodServe:
		return nil, true, t.serve(r)
	case methodUnserve:
		result, err = t.unserve(ctx, r)
	case methodRun:
		result, err = t.run(ctx, r)
	case methodStop:
		return nil, true, t.stop(r)
	case methodAbort:
		return nil, true, t.abort(r)
	case methodProgress:
		result = t.host.Progress()
	case methodClear:
		return nil, true, t.clear(ctx, r)
	default:
		return nil, false, nil
	}
	return result, true, err
}

func (t *traffic) serve(r *control.Request) error {
	var p serveParams
	if err := r.Decode(&p); err != nil {
		return err
	}
	return t.explained(t.host.Serve(p.Spec, p.At))
}

func (t *traffic) unserve(ctx context.Context, r *control.Request) (workload.ServerResult, error) {
	var p flowParams
	if err := r.Decode(&p); err != nil {
		return workload.ServerResult{}, err
	}
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

func (t *traffic) run(ctx context.Context, r *control.Request) (workload.Result, error) {
	var p runParams
	if err := r.Decode(&p); err != nil {
		return workload.Result{}, err
	}
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

func (t *traffic) stop(r *control.Request) error {
	var p flowParams
	if err := r.Decode(&p); err != nil {
		return err
	}
	t.host.Stop(p.Name, p.Flow)
	return nil
}

func (t *traffic) abort(r *control.Request) error {
	var p abortParams
	if err := r.Decode(&p); err != nil {
		return err
	}
	t.host.Abort(p.Name, p.Flow, p.Reason)
	return nil
}

func (t *traffic) clear(ctx context.Context, r *control.Request) error {
	var reason string
	if err := r.Decode(&reason); err != nil {
		return err
	}
	done := make(chan struct{})
	t.host.Clear(reason, func() { close(done) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// explained is why a workload could not be started or ended, in terms of the prompt if
// the adapter is disabled.
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
