package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/ndklab/ndklab/control"
	"github.com/ndklab/ndklab/node/workload"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// The requests about workloads.
const (
	methodServe    = "serve"    // serveParams
	methodUnserve  = "unserve"  // name -> workload.ServerResult
	methodRun      = "run"      // runParams -> workload.Result
	methodProgress = "progress" // -> map of Progress by name
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

// Progress is how far a workload has come.
type Progress struct {
	Messages, Bytes uint64
}

// Serve has the node listen for a workload's client, until Unserve.
func (a *Agent) Serve(ctx context.Context, spec workload.Spec, at netip.AddrPort) error {
	if err := a.conn.Call(ctx, methodServe, serveParams{spec, at}, nil); err != nil {
		return fmt.Errorf("node %s: %w", a.cfg.Name, err)
	}
	return nil
}

// Unserve ends what Serve began and returns what the server found.
func (a *Agent) Unserve(ctx context.Context, name string) (workload.ServerResult, error) {
	var result workload.ServerResult
	if err := a.conn.Call(ctx, methodUnserve, name, &result); err != nil {
		return result, fmt.Errorf("node %s: %w", a.cfg.Name, err)
	}
	return result, nil
}

// Run runs a workload's client in the node and returns when it is done. When ctx
// ends first, so does the client.
func (a *Agent) Run(ctx context.Context, spec workload.Spec, from netip.Addr, to netip.AddrPort) (workload.Result, error) {
	var result workload.Result
	if err := a.conn.Call(ctx, methodRun, runParams{spec, from, to}, &result); err != nil {
		return result, fmt.Errorf("node %s: %w", a.cfg.Name, err)
	}
	return result, nil
}

// Progress says how far the workloads have come whose clients run in the node,
// by name.
func (a *Agent) Progress(ctx context.Context) (map[string]Progress, error) {
	var progress map[string]Progress
	if err := a.conn.Call(ctx, methodProgress, nil, &progress); err != nil {
		return nil, fmt.Errorf("node %s: %w", a.cfg.Name, err)
	}
	return progress, nil
}

// traffic is the workloads that run on an agent's device.
type traffic struct {
	node   string // LAB/NODE
	device *provider.Miniport
	clock  clock.Clock

	mu      sync.Mutex // guards what follows
	servers map[string]*workload.Server
	clients map[string]*workload.Client
}

func newTraffic(node string, m *provider.Miniport, c clock.Clock) *traffic {
	return &traffic{node: node, device: m, clock: c, servers: map[string]*workload.Server{}, clients: map[string]*workload.Client{}}
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
	case methodProgress:
		result = t.progress()
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
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.servers[p.Spec.Name] != nil {
		return control.Errorf(control.Usage, "workload %s is served already", p.Spec.Name)
	}
	server, err := workload.Serve(t.device, p.Spec, p.At)
	if err != nil {
		return t.explained(err)
	}
	t.servers[p.Spec.Name] = server
	return nil
}

func (t *traffic) unserve(ctx context.Context, r *control.Request) (workload.ServerResult, error) {
	var name string
	if err := r.Decode(&name); err != nil {
		return workload.ServerResult{}, err
	}
	t.mu.Lock()
	server := t.servers[name]
	delete(t.servers, name)
	t.mu.Unlock()
	if server == nil {
		return workload.ServerResult{}, control.Errorf(control.Usage, "workload %s is not served", name)
	}
	done := make(chan workload.ServerResult, 1)
	server.Stop(func(result workload.ServerResult) { done <- result })
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
	client, err := workload.Run(t.device, t.clock, p.Spec, p.From, p.To, func(result workload.Result) { done <- result })
	if err != nil {
		return workload.Result{}, t.explained(err)
	}
	t.mu.Lock()
	t.clients[p.Spec.Name] = client
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.clients[p.Spec.Name] == client { // which a later run's may have followed
			delete(t.clients, p.Spec.Name)
		}
	}()
	select {
	case result := <-done:
		return result, nil
	case <-ctx.Done():
		client.Abort("nobody waits for the result any more")
		<-done
		return workload.Result{}, ctx.Err()
	}
}

// explained is the error of a workload that could not be started, in terms of
// the prompt if the adapter is disabled.
func (t *traffic) explained(err error) error {
	switch {
	case !errors.Is(err, provider.StatusAdapterNotReady):
		return err
	case t.device.Configuration().NetworkDirect == 0:
		return control.Errorf(control.Usage, "the adapter is disabled: the topology has network_direct: false for it")
	default:
		return control.Errorf(control.Usage, "the adapter is disabled: `ndklab adapter %s --enable` enables it", t.node)
	}
}

func (t *traffic) progress() map[string]Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	progress := map[string]Progress{}
	for name, client := range t.clients {
		messages, bytes := client.Progress()
		progress[name] = Progress{messages, bytes}
	}
	return progress
}
