package workload

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ndklab/ndklab/internal/histogram"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// A Host has the ends of workloads that are on one device: any number of servers and
// of clients, each known by its workload's name and its flow's index. Its methods may
// be called from any goroutine and do not wait; what ends later calls back, never from
// within the call that asked for it and with no lock held.
type Host struct {
	// Payloads is the memory for messages that the host's flows share. If it is nil, each has
	// memory of its own. It is set before anything else is done with the host.
	Payloads *Payloads

	device *provider.Miniport
	clock  clock.Clock

	mu      sync.Mutex // guards what follows
	servers map[end]server
	clients map[end]client
	ending  int      // servers that are not among those any more, and not closed yet
	cleared []func() // are called when nothing is left

	leaving atomic.Int32 // clients whose results may come soon
}

// end is which end of a workload something is, among the servers or the clients of a
// host.
type end struct {
	name string
	flow int
}

// A client is the end of a flow that connects, whatever its operation is. Its result
// goes to the function that it was started with.
type client interface {
	// Stop ends it early: nothing more is begun, and what is under way is completed.
	Stop()
	// Abort ends it at once, with the reason as its error unless it has one.
	Abort(reason string)
	// Progress tells how far it is; Name and Flow are not filled in.
	Progress() Progress
	// WhenEnding has f called once, as soon as its result may come soon, with its lock held.
	WhenEnding(f func())
	// Latency returns the latencies so far, without those of the warm-up, by bounds in
	// nanoseconds, which ascend.
	Latency(bounds []int64) histogram.Bars
}

// A server is the end of a flow that listens.
type server interface {
	// Stop ends it, whatever it is in the middle of, and calls done with what it has found
	// when everything is closed. It may be called again.
	Stop(done func(ServerResult))
}

// Progress tells how far a client is.
type Progress struct {
	Name     string
	Flow     int
	Messages uint64 // completed with success, also while warming up
	Bytes    uint64 // payload of those
	Errors   uint64
}

// Errors of what a Host is asked for.
var (
	ErrServed    = errors.New("it is served already")
	ErrNotServed = errors.New("it is not served")
	ErrRunning   = errors.New("it is running already")
)

// NewHost makes a host of workloads on a device. Its clients and servers take their
// time from c.
func NewHost(m *provider.Miniport, c clock.Clock) *Host {
	return &Host{device: m, clock: c, servers: map[end]server{}, clients: map[end]client{}}
}

// Serve has the host listen at an address of its device for the client of a flow, until
// Unserve. The error may be ErrServed.
func (h *Host) Serve(spec Spec, at netip.AddrPort) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := end{spec.Name, spec.Flow}
	if h.servers[e] != nil {
		return fmt.Errorf("workload %s: %w", spec.Name, ErrServed)
	}
	s, err := h.listen(spec, at)
	if err != nil {
		return fmt.Errorf("workload %s: serve at %s: %w", spec.Name, at, err)
	}
	h.servers[e] = s
	return nil
}

// listen starts the server of a flow.
func (h *Host) listen(spec Spec, at netip.AddrPort) (server, error) {
	switch spec.Operation {
	case topology.Send, topology.Write, topology.Read:
		return serveMessages(h.device, h.clock, h.Payloads, spec, at)
	case topology.Connect:
		return serveStorm(h.device, h.clock, spec, at)
	case topology.Storage:
		return serveStorage(h.device, h.clock, spec, at)
	case topology.AllReduce:
		if err := spec.ringFits(); err != nil {
			return nil, err
		}
		rank, _ := h.clients[end{spec.Name, (spec.Flow + 1) % spec.Ranks}].(*rank)
		return serveRing(h.device, h.clock, spec, rank, at)
	case topology.Rping:
		return serveRping(h.device, h.clock, spec, at)
	default:
		return nil, fmt.Errorf("no such operation: %s", spec.Operation)
	}
}

// Run starts the client of a flow, which connects from a local address of the device to
// its server. done is called once, later, with the result when everything is closed. The
// error says why it could not be started, and may be ErrRunning; done is not called then.
func (h *Host) Run(spec Spec, from netip.Addr, to netip.AddrPort, done func(Result)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := end{spec.Name, spec.Flow}
	if h.clients[e] != nil {
		return fmt.Errorf("workload %s: %w", spec.Name, ErrRunning)
	}
	c, err := h.connect(spec, from, to, func(r Result) {
		h.mu.Lock()
		delete(h.clients, e)
		h.leaving.Add(-1)
		cleared := h.ifClear()
		h.mu.Unlock()
		done(r)
		callAll(cleared)
	})
	if err != nil {
		return fmt.Errorf("workload %s: connect from %s to %s: %w", spec.Name, from, to, err)
	}
	h.clients[e] = c
	c.WhenEnding(func() { h.leaving.Add(1) })
	return nil
}

// connect starts the client of a flow. It calls done later, not from within.
func (h *Host) connect(spec Spec, from netip.Addr, to netip.AddrPort, done func(Result)) (client, error) {
	switch spec.Operation {
	case topology.Send, topology.Write, topology.Read:
		return runStream(h.device, h.clock, h.Payloads, spec, from, to, done)
	case topology.Connect:
		return runStorm(h.device, h.clock, spec, from, to, done)
	case topology.Storage:
		return runStorage(h.device, h.clock, spec, from, to, done)
	case topology.Rping:
		return runRping(h.device, h.clock, spec, from, to, done)
	case topology.AllReduce:
		if err := spec.ringFits(); err != nil {
			return nil, err
		}
		inbox, _ := h.servers[end{spec.Name, (spec.Flow + spec.Ranks - 1) % spec.Ranks}].(*inbox)
		return runRing(h.device, h.clock, spec, inbox, from, to, done)
	default:
		return nil, fmt.Errorf("no such operation: %s", spec.Operation)
	}
}

// Stop ends a client early but in good order: nothing more is begun, what is under way
// is completed, and its result is as if that was all that it had to do. One that does
// not run, any more or yet, is left alone.
func (h *Host) Stop(name string, flow int) {
	if c := h.client(name, flow); c != nil {
		c.Stop()
	}
}

// Abort ends a client at once. Unless something else failed before, the error in its
// result is the reason. One that does not run is left alone.
func (h *Host) Abort(name string, flow int, reason string) {
	if c := h.client(name, flow); c != nil {
		c.Abort(reason)
	}
}

func (h *Host) client(name string, flow int) client {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.clients[end{name, flow}]
}

// Unserve ends what Serve began, and calls done with what the server has found when
// everything is closed; the flow may be served again from now on. The error may be
// ErrNotServed; done is not called then.
func (h *Host) Unserve(name string, flow int, done func(ServerResult)) error {
	h.mu.Lock()
	e := end{name, flow}
	s := h.servers[e]
	if s != nil {
		h.ending++
	}
	delete(h.servers, e)
	h.mu.Unlock()
	if s == nil {
		return fmt.Errorf("workload %s: %w", name, ErrNotServed)
	}
	s.Stop(func(r ServerResult) {
		h.mu.Lock()
		h.ending--
		cleared := h.ifClear()
		h.mu.Unlock()
		done(r)
		callAll(cleared)
	})
	return nil
}

// Clear ends all clients, with the reason as their errors, and all servers, and calls
// done when nothing of them is left, nor of those that were ended before.
func (h *Host) Clear(reason string, done func()) {
	h.mu.Lock()
	h.cleared = append(h.cleared, done)
	clients, servers := slices.Collect(maps.Values(h.clients)), slices.Collect(maps.Keys(h.servers))
	cleared := h.ifClear()
	h.mu.Unlock()
	for _, c := range clients {
		c.Abort(reason)
	}
	for _, e := range servers {
		// That somebody else has ended it is as well.
		_ = h.Unserve(e.name, e.flow, func(ServerResult) {})
	}
	if len(cleared) > 0 {
		h.clock.Go(func() { callAll(cleared) })
	}
}

// ifClear is whom to call now if nothing is left. h.mu is held.
func (h *Host) ifClear() []func() {
	if len(h.clients)+len(h.servers)+h.ending > 0 {
		return nil
	}
	cleared := h.cleared
	h.cleared = nil
	return cleared
}

func callAll(functions []func()) {
	for _, f := range functions {
		f()
	}
}

// Progress returns how far each of the clients is, sorted by name and flow.
func (h *Host) Progress() []Progress {
	running := h.running()
	all := make([]Progress, 0, len(running))
	for e, c := range running {
		p := c.Progress()
		p.Name, p.Flow = e.name, e.flow
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Progress) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Flow, b.Flow))
	})
	return all
}

// Ending reports whether somebody may be called back soon, who waits for a client or a server. Nobody else is before a client has told
// its peer that it disconnects, and heard that the peer knows, unless something goes wrong.
func (h *Host) Ending() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ending > 0 || h.leaving.Load() > 0
}

// running returns the clients that run.
func (h *Host) running() map[end]client {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.clients)
}

// Observed sums up the progress of a workload's clients on a host.
type Observed struct {
	Name                    string
	Clients                 int
	Messages, Bytes, Errors uint64         // as in Progress
	Latency                 histogram.Bars // nanoseconds; not of the warm-up
}

// Observe returns how far the clients of each workload are, sorted by name, with their latencies
// by bounds in nanoseconds, which ascend.
func (h *Host) Observe(bounds []int64) []Observed {
	byName := map[string]*Observed{}
	for e, c := range h.running() {
		o := byName[e.name]
		if o == nil {
			o = &Observed{Name: e.name}
			byName[e.name] = o
		}
		p := c.Progress()
		o.Clients++
		o.Messages, o.Bytes, o.Errors = o.Messages+p.Messages, o.Bytes+p.Bytes, o.Errors+p.Errors
		o.Latency.Add(c.Latency(bounds))
	}
	var all []Observed
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, *byName[name])
	}
	return all
}
