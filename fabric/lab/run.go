package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ndklab/ndklab/control"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/node"
	"github.com/ndklab/ndklab/node/workload"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// Kinds of events of a run.
const (
	WorkloadStarted  = "workload-started"
	WorkloadProgress = "workload-progress"
	WorkloadDone     = "workload-done"
	TimelineLeft     = "timeline-left" // no workload runs any more, and entries are to come
)

// progressInterval is how often a run says how far its workloads are.
const progressInterval = time.Second

// firstPort is the rdma_cm port of the first workload's server, which is
// perftest's; the others follow.
const firstPort = 18515

// Run runs the lab's workloads, timeline and checks, and returns when all is
// done. What it has to say meanwhile are events.
func (l *Lab) Run(ctx context.Context) (*report.Run, error) {
	r := new(report.Run)
	if err := l.call(ctx, methodRun, nil, r); err != nil {
		return nil, err
	}
	return r, nil
}

// A run is one pass through a topology's workloads and timeline.
type run struct {
	*Supervisor
	ctx     context.Context   // ends when nobody waits for the result any more
	over    chan struct{}     // closed when the run is
	results []report.Workload // in the order of the topology; each written by its own goroutine
	servers []*life           // of the nodes with the workloads' servers, in the same order; set by serve

	mu       sync.Mutex // guards what follows
	problems []string
	done     map[string]Awaited // how workloads ended, by name
}

// run answers methodRun.
func (s *Supervisor) run(ctx context.Context) (*report.Run, error) {
	r := &run{Supervisor: s, ctx: ctx, over: make(chan struct{}), done: map[string]Awaited{}}
	if err := r.begin(); err != nil {
		return nil, err
	}
	defer close(r.over)
	r.Supervisor = s.now() // which does not change while the lab runs
	r.results, r.servers = make([]report.Workload, len(r.topo.Workloads)), make([]*life, len(r.topo.Workloads))
	return r.all(ctx)
}

// begin sees to it that only one run goes on at a time. One that was interrupted
// is waited for.
func (r *run) begin() error {
	for {
		r.Supervisor.mu.Lock()
		if err := r.mayRun(); err != nil {
			r.Supervisor.mu.Unlock()
			return err
		}
		before := r.running
		if before == nil || isClosed(before.over) {
			r.running = r
			r.Supervisor.mu.Unlock()
			return nil
		}
		r.Supervisor.mu.Unlock()
		if before.ctx.Err() == nil {
			return control.Errorf(control.Usage, "lab %s is running its workloads already", r.name)
		}
		select {
		case <-before.over:
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (r *run) all(ctx context.Context) (*report.Run, error) {
	result := &report.Run{
		Lab: r.name, Seed: r.topo.Seed, Started: time.Now().Format(time.RFC3339), Host: host(),
		Workloads: r.results, Checks: []report.Check{},
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var parts, workloads sync.WaitGroup
	serving := make([]bool, len(r.topo.Workloads))
	// The error is that of ctx, which is looked at below.
	_ = parallel(ctx, requestsAtOnce, len(serving), func(ctx context.Context, i int) error {
		w := &r.topo.Workloads[i]
		r.results[i] = report.Workload{
			Name: w.Name, From: w.From, To: w.To, Operation: string(w.Operation), Size: w.Size, Depth: w.Depth,
		}
		if err := r.serve(ctx, i); err != nil {
			r.failed(i, err)
			serving[i] = ctx.Err() != nil // then nobody knows
			return nil
		}
		serving[i] = true
		return nil
	})
	zero := time.Now() // every node is ready, and so is every server
	for i := range r.topo.Workloads {
		if serving[i] {
			workloads.Go(func() { r.workload(ctx, i, zero) })
		}
	}
	parts.Go(func() { r.timeline(ctx, zero) })
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		r.reportProgress(ctx)
	}()
	workloads.Wait()
	if last := r.lastEvent(); ctx.Err() == nil && time.Until(zero.Add(last)) > progressInterval {
		r.Publish(Event{Kind: TimelineLeft, Text: fmt.Sprintf("no workload is left: the timeline goes on until %s", topology.FormatDuration(last))})
	}
	parts.Wait()
	result.Seconds = time.Since(zero).Seconds()
	interrupted := context.Cause(ctx)
	cancel()
	<-reported
	// A lab that stays up after an interrupted run can run its workloads again.
	ctx = context.WithoutCancel(ctx)
	_ = parallel(ctx, requestsAtOnce, len(serving), func(ctx context.Context, i int) error { // nor does this
		if serving[i] {
			r.unserve(ctx, i)
		}
		return nil
	})
	if interrupted != nil {
		return nil, interrupted
	}
	return result, r.conclude(ctx, result)
}

// conclude adds the state of nodes and links, and the verdict.
func (r *run) conclude(ctx context.Context, result *report.Run) error {
	result.Nodes = r.InspectNodes(ctx)
	for i := range result.Nodes {
		n := &result.Nodes[i]
		n.PID = 0 // it says nothing any more when the report is read
		if n.State != nodeReady {
			r.problem("node %s is %s", n.Name, n.InWords())
		}
	}
	var err error
	if result.Links, err = r.InspectLinks(ctx); err != nil {
		return err
	}
	for i := range result.Links {
		for d, l := 0, &result.Links[i]; d < 2; d++ {
			for _, o := range l.Directions[d].Overruns {
				if !o.Allowed {
					text := fmt.Sprintf("overrun of link %s to %s: %s: tolerated %s, got %s", l.Endpoints[d], l.Endpoints[1-d], o.Figure, o.Tolerated, o.Got)
					r.problem("%s", text)
					r.Publish(Event{Kind: LinkOverrun, Link: l.Endpoints[d], Text: text})
				}
			}
		}
	}
	if result.Recorded, err = r.recorded(ctx); err != nil {
		return err
	}
	if result.Recorded != nil && result.Recorded.Error != "" {
		r.problem("the log %s ends early: %s", r.recording, result.Recorded.Error)
	}
	result.Checks = check(r.topo.Checks, result.Workloads)
	r.mu.Lock()
	defer r.mu.Unlock()
	result.Problems = r.problems
	result.Passed = len(result.Problems) == 0 && verdict(r.topo.Checks, result)
	return nil
}

func (r *run) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// failed records that workload i could not do what it was to do.
func (r *run) failed(i int, err error) {
	w := &r.results[i]
	w.Errors++
	if w.Error == "" {
		w.Error = err.Error()
	}
	r.tellDone(w, fmt.Sprintf("workload %s failed: %v", w.Name, err))
}

// tellDone tells who watches and who waits that a workload is done.
func (r *run) tellDone(w *report.Workload, text string) {
	r.mu.Lock()
	r.done[w.Name] = Awaited{Reached: true, Failed: w.Errors > 0, Got: text}
	r.mu.Unlock()
	r.Publish(Event{Kind: WorkloadDone, Node: w.From, Workload: w.Name, Text: text})
}

// spec is workload i as its two ends see it.
func (r *run) spec(i int) workload.Spec {
	w := &r.topo.Workloads[i]
	return workload.NewSpec(w, 0, r.topo.SeedOf("workload "+w.Name))
}

// addresses is where workload i's client and server are.
func (r *run) path(i int) (from netip.Addr, to netip.AddrPort, err error) {
	w := &r.topo.Workloads[i]
	path, ok := r.topo.Path(w.From, w.To)
	if !ok {
		return from, to, fmt.Errorf("%s does not reach %s", w.From, w.To)
	}
	return path.From.Address, netip.AddrPortFrom(path.To.Address, firstPort+uint16(i)), nil
}

func (r *run) serve(ctx context.Context, i int) error {
	n, err := r.host(r.topo.Workloads[i].To)
	if err != nil {
		return err
	}
	_, at, err := r.path(i)
	if err != nil {
		return err
	}
	r.servers[i] = n.current()
	return r.servers[i].agent.Serve(ctx, r.spec(i), at)
}

// workload runs workload i at its time.
func (r *run) workload(ctx context.Context, i int, zero time.Time) {
	w := &r.topo.Workloads[i]
	if !wait(ctx, zero.Add(w.Start)) {
		return
	}
	r.Publish(Event{Kind: WorkloadStarted, Node: w.From, Workload: w.Name, Text: fmt.Sprintf("workload %s: %s of %s from %s to %s",
		w.Name, w.Operation, topology.FormatSize(w.Size), w.From, w.To)})
	agent, err := r.Node(w.From)
	if err != nil {
		r.failed(i, err)
		return
	}
	from, to, err := r.path(i)
	if err != nil {
		r.failed(i, err)
		return
	}
	got, err := r.client(ctx, agent, i, from, to)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.failed(i, err)
		return
	}
	result := &r.results[i]
	result.Messages, result.Bytes = got.Messages, got.Bytes
	result.Errors, result.Error = got.Errors, got.Error
	result.Seconds = got.Seconds
	if got.Seconds > 0 {
		result.Gbps = float64(got.Bytes) * 8 / got.Seconds / 1e9
	}
	var took workload.Latencies
	if err := took.Add(got.Latency); err != nil {
		r.failed(i, err)
		return
	}
	result.Latency = report.Latency{
		Min: took.Micros(0), P50: took.Micros(50), P90: took.Micros(90), P99: took.Micros(99),
		P999: took.Micros(99.9), P9999: took.Micros(99.99), Max: took.Micros(100),
	}
	result.Verified = w.Verify && w.Operation == topology.Read && got.Errors == 0
	r.tellDone(result, fmt.Sprintf("workload %s done: messages: %d, errors: %d, %s",
		w.Name, result.Messages, result.Errors, report.Rate(result.Gbps)))
}

// noticeTime is how long a client may take to notice that its server's node has
// gone down. Its adapter does so in 3.8 s if it was connected, and reports what a
// consumer would see; while it is connecting it would try for 30 s.
const noticeTime = 6 * time.Second

// client runs workload i's client to its end, or until one of its nodes is gone.
func (r *run) client(ctx context.Context, agent *node.Agent, i int, from netip.Addr, to netip.AddrPort) (workload.Result, error) {
	w := &r.topo.Workloads[i]
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-r.servers[i].down:
		case <-ctx.Done():
			return
		}
		if wait(ctx, time.Now().Add(noticeTime)) {
			cancel(fmt.Errorf("node %s went down", w.To))
		}
	}()
	got, err := agent.Run(ctx, r.spec(i), from, to)
	switch {
	case errors.Is(err, control.ErrClosed):
		return got, fmt.Errorf("node %s went down", w.From)
	case err != nil && ctx.Err() != nil:
		return got, context.Cause(ctx)
	}
	return got, err
}

// unserve ends workload i's server and adds what that has found: sends and
// writes are verified where they arrive.
func (r *run) unserve(ctx context.Context, i int) {
	w, result := &r.topo.Workloads[i], &r.results[i]
	agent, err := r.Node(w.To)
	if err != nil {
		r.failed(i, err)
		return
	}
	if agent != r.servers[i].agent {
		r.failed(i, fmt.Errorf("node %s was started again, and what its server had found is lost", w.To))
		return
	}
	found, err := agent.Unserve(ctx, w.Name, 0)
	if err != nil {
		r.failed(i, err)
		return
	}
	result.Errors += found.Mismatches
	switch {
	case found.Error == "":
	case result.Error == "":
		result.Error = found.Error
	default:
		result.Error += "; at the server: " + found.Error
	}
	if w.Verify && w.Operation != topology.Read {
		result.Verified = result.Errors == 0 && found.Verified == result.Messages
	}
	if w.Verify && !result.Verified && result.Errors == 0 {
		result.Errors = result.Messages - min(found.Verified, result.Messages)
		result.Error = fmt.Sprintf("%d of %d messages were not verified", result.Errors, result.Messages)
	}
}

// reportProgress says from time to time how far the workloads are.
func (r *run) reportProgress(ctx context.Context) {
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	before := map[string]uint64{} // bytes, by workload
	clients := r.clients()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		for _, client := range clients {
			agent, err := r.Node(client)
			if err != nil {
				continue // the node's end is an event of its own
			}
			progress, err := agent.Progress(ctx)
			if err != nil {
				continue
			}
			for _, p := range progress {
				gbps := float64(p.Bytes-before[p.Name]) * 8 / progressInterval.Seconds() / 1e9
				r.Publish(Event{Kind: WorkloadProgress, Node: client, Workload: p.Name, Text: fmt.Sprintf("workload %s: messages: %d, %s",
					p.Name, p.Messages, report.Rate(gbps))})
				before[p.Name] = p.Bytes
			}
		}
	}
}

// clients are the nodes that workloads run from.
func (r *run) clients() []string {
	var nodes []string
	for _, w := range r.topo.Workloads {
		if !slices.Contains(nodes, w.From) {
			nodes = append(nodes, w.From)
		}
	}
	return nodes
}

// wait waits until an instant; false if ctx ends first.
func wait(ctx context.Context, until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// host says what machine this is.
func host() string {
	var u unix.Utsname
	// It fails only for a bad address.
	_ = unix.Uname(&u)
	return fmt.Sprintf("%s %s %s, cores: %d", unix.ByteSliceToString(u.Sysname[:]),
		unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:]), runtime.NumCPU())
}
