package workload

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// An endpoint holds what either end of a flow has: an instance of the adapter, a protection
// domain, connections, and one CQ for all of them. The session of a connection does the work
// of an end on that connection, and the endpoint's owner that of all connections together.
type endpoint struct {
	spec    *Spec // perhaps shared with other flows of the workload (Payloads.spec)
	clock   clock.Clock
	device  *provider.Miniport
	owner   owner
	adapter *instance
	pd      *provider.PD
	cq      *provider.CQ
	shared  []closer // objects that all connections use, closed when the last connection is

	mu      *sync.Mutex // guards what follows, and the state of the end and of its sessions
	conns   connections // including those being closed
	closing int32       // of those: being closed
	maxQPs  uint32      // that the device has for all consumers
	over    bool        // the endpoint is being closed: completions and events are ignored
	looks   clock.Timer // for the next looks at the CQ, when polling
}

// An owner decides about the connections of an endpoint. Its methods are called with the
// endpoint's lock held.
type owner interface {
	// lost reports that a connection could not be made, or has ended without being asked to.
	// It is being closed already.
	lost(c *connection, why string)
	// gone reports that everything of a connection is closed.
	gone(c *connection)
	// advance does what there is to do now. It is called after everything else.
	advance()
}

// A need is a limit of an adapter, under its NDK name, and the least value that a workload
// needs.
type need struct {
	limit       string
	needed, has uint64
}

// newEndpoint returns an endpoint that has nothing open yet.
func newEndpoint(m *provider.Miniport, c clock.Clock, spec *Spec) endpoint {
	return endpoint{spec: spec, clock: c, device: m, mu: new(sync.Mutex)}
}

// cqEntries returns the number of entries of a CQ for so many connections at once, each of
// which takes so many, and one for its probe.
func cqEntries(connections, each int) uint64 { return uint64(connections) * uint64(each+1) }

// open opens the adapter's instance and creates the PD and the CQ. disable is called, with
// no lock held, when the device asks for the instance to be closed. The error says which of
// the device's limits are too narrow.
func (e *endpoint) open(needs func(provider.AdapterInfo) []need, entries uint64, disable func()) error {
	fits := func(info provider.AdapterInfo) error {
		return satisfied(append(needs(info), need{"MaxCqDepth", entries, uint64(info.MaxCqDepth)}))
	}
	e.maxQPs = e.device.Attributes().Capabilities.MaxQpCount
	var err error
	var status provider.Status
	if e.adapter, err = openInstance(e.device, fits, disable); err != nil {
		return err
	}
	if e.pd, status = e.adapter.CreatePD(nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create PD: %w", status)
	}
	if e.cq, status = e.adapter.CreateCQ(uint32(entries), e.notified, nil, nil, nil, nil); status != provider.StatusSuccess {
		return fmt.Errorf("create CQ: %w", status)
	}
	return nil
}

// register registers memory that the whole end uses.
func (e *endpoint) register(bytes []byte, flags provider.MRFlags) (*memory, error) {
	m, err := register(e.pd, bytes, flags)
	if err == nil {
		e.shared = append(e.shared, m.mr)
	}
	return m, err
}

// await begins to await completions. It is called once.
func (e *endpoint) await() {
	if e.spec.Polling {
		e.looks = e.clock.AfterFunc(0, e.poll)
		return
	}
	e.cq.Arm(provider.NotifyAny)
}

// notified handles a notification of the CQ.
func (e *endpoint) notified(any, provider.Status) {
	if e.spec.Polling {
		e.poll()
		return
	}
	if _, over := e.look(); !over {
		e.cq.Arm(provider.NotifyAny)
	}
}

// look handles the completions that there are, and returns their number. over reports that
// the endpoint needs no more looks.
func (e *endpoint) look() (n int, over bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return 0, true
	}
	if n = e.drain(); n > 0 {
		e.owner.advance()
	}
	return n, e.over
}

// The pace of polling in real time.
const (
	// pollLooks is the number of looks before a pause, between which other goroutines run.
	pollLooks = 16
	// pollPause is for the sake of Go's scheduler, which asks the kernel for packets that
	// have arrived when there is nothing else to run.
	pollPause = time.Microsecond
)

// poll looks, and has itself called again, until the endpoint is over. Where no time passes
// between two looks, as in a simulation, looking again shows nothing: then it waits for a
// notification, which is no later.
func (e *endpoint) poll() {
	last := time.Duration(-1)
	for range pollLooks {
		n, over := e.look()
		now := e.clock.Now()
		switch {
		case over:
			return
		case n == 0 && now == last:
			e.cq.Arm(provider.NotifyAny)
			return
		}
		last = now
		runtime.Gosched()
	}
	e.looks.Reset(pollPause)
}

// atOnce is the number of completions that are taken off a CQ at a time.
const atOnce = 32

// drain hands every completion that there is to its connection, and returns their number.
// e.mu is held.
func (e *endpoint) drain() (handled int) {
	now := e.clock.Now()
	var results [atOnce]provider.ResultEx
	for n := len(results); n == len(results); handled += n {
		n = e.cq.ResultsEx(results[:])
		for i := range results[:n] {
			results[i].QPContext.(*connection).completed(now, &results[i])
		}
	}
	return handled
}

// soon has the owner advance, later.
func (e *endpoint) soon() {
	e.clock.Go(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.owner.advance()
	})
}

// end closes what belongs to all connections, of which none is left, and calls done when
// everything is closed. objects are closed first. e.mu is held.
func (e *endpoint) end(done func(), objects ...closer) {
	e.over = true
	objects = append(objects, e.shared...)
	if e.cq != nil {
		objects = append(objects, e.cq)
	}
	if e.pd != nil {
		objects = append(objects, e.pd)
	}
	e.clock.Go(func() { closeAll(objects, e.adapter, done) })
}

// dropAll drops every connection. e.mu is held.
func (e *endpoint) dropAll() {
	for c := e.conns.first; c != nil; c = c.next {
		c.drop()
	}
}

// A client that waits for its server, and has sent nothing that is not acknowledged, would
// never learn that the server is gone. So it probes: it writes no bytes, which the server's
// adapter acknowledges whatever the server is doing. An adapter gives up a peer that does
// not acknowledge after 4 s.

// probe is the context of a probe.
var probe any = new(byte)

// probeInterval is the time after which a client probes, at most twice that.
const probeInterval = time.Second

// startProbes has the endpoint probe, from now on, the peers that its sessions wait for.
func (e *endpoint) startProbes() {
	e.clock.AfterFunc(probeInterval, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.over {
			return
		}
		for c := e.conns.first; c != nil; c = c.next {
			c.probe()
		}
		e.owner.advance()
		e.startProbes()
	})
}
