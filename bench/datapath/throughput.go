package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/provider"
)

// A Throughput holds what one end saw complete.
type Throughput struct {
	Gbps     float64 `json:"gbps"`
	Messages float64 `json:"messages_per_second"`
	// Flows is the Gb/s to each peer, of an end that has several.
	Flows map[string]float64 `json:"flows,omitempty"`
	Cost
}

// receivesPerRequest is the number of receives that a server has for each SEND that its
// peer has in flight: the peer's next ones may arrive before it has seen the completions.
const receivesPerRequest = 4

// A stream keeps all flows busy: whatever completes is posted again.
//
// Everything but stop, failure and flow.done belongs to whoever takes the completions:
// the notification callback, or the goroutine that polls.
type stream struct {
	*group
	receive bool // the requests are receives
	results [64]provider.ResultEx
	owing   []*flow

	stop    atomic.Bool
	failure chan error
}

// newStream makes a stream of connections, each with depth requests in flight.
func (d *device) newStream(connections, depth int, receive bool) (_ *stream, err error) {
	s := &stream{receive: receive, failure: make(chan error, 1)}
	receives, requests := 0, depth
	if receive {
		receives, requests = depth, 0
	}
	s.group, err = d.newGroup(connections, receives, requests, s.notified)
	return s, err
}

func (s *stream) fail(err error) {
	s.stop.Store(true)
	select {
	case s.failure <- err:
	default:
	}
}

// notified implements the completion queue's callback.
func (s *stream) notified(_ any, status provider.Status) {
	if status != provider.StatusSuccess {
		s.fail(fmt.Errorf("completion queue: %w", status))
		return
	}
	for s.take() > 0 {
	}
	if !s.stop.Load() {
		s.cq.Arm(provider.NotifyAny)
	}
}

// poll takes completions until it is stopped.
func (s *stream) poll() {
	runtime.LockOSThread()
	for !s.stop.Load() {
		s.take()
	}
}

// take takes what has completed, and posts as much again.
func (s *stream) take() int {
	n := s.cq.ResultsEx(s.results[:])
	if n == 0 {
		return 0
	}
	for i := range s.results[:n] {
		r := &s.results[i]
		if r.Status != provider.StatusSuccess {
			if !s.stop.Load() {
				s.fail(fmt.Errorf("request failed: %w", r.Status))
			}
			return 0
		}
		f := r.RequestContext.(*flow)
		if f.owed == 0 {
			s.owing = append(s.owing, f)
		}
		f.owed++
	}
	for _, f := range s.owing {
		f.done.Add(uint64(f.owed))
		if !s.stop.Load() {
			if err := s.post(f, f.owed); err != nil {
				s.fail(err)
			}
		}
		f.owed = 0
	}
	s.owing = s.owing[:0]
	return n
}

// post posts n requests.
func (s *stream) post(f *flow, n int) error {
	for i := range n {
		var flags provider.OpFlags
		if s.Defer && i < n-1 {
			flags = provider.OpDefer
		}
		var status provider.Status
		switch {
		case s.receive:
			status = f.qp.Receive(f, f.sgl)
		case s.Op == "send":
			status = f.qp.Send(f, f.sgl, flags)
		case s.Op == "write":
			status = f.qp.Write(f, f.sgl, f.sgl[0].VirtualAddress, f.token, flags)
		default:
			status = f.qp.Read(f, f.sgl, f.sgl[0].VirtualAddress, f.token, flags)
		}
		if status != provider.StatusSuccess {
			return fmt.Errorf("post: %w", status)
		}
	}
	return nil
}

// begin has completions taken from now on.
func (s *stream) begin() {
	if s.Poll {
		go s.poll()
	} else {
		s.cq.Arm(provider.NotifyAny)
	}
}

// throughput runs an end that sends, or receives, as much as it can.
func (d *device) throughput(ctx context.Context) error {
	switch d.Role {
	case "server":
		return d.serveThroughput(ctx)
	case "client":
		return d.measureThroughput(ctx)
	}
	return d.mesh(ctx)
}

// receiver returns a stream that takes what the peers send, on so many connections.
func (d *device) receiver(connections int) (*stream, error) {
	depth := min(receivesPerRequest*d.Depth, maxDepth)
	s, err := d.newStream(connections, depth, true)
	if err == nil && d.Op == "send" {
		s.prepare = func(f *flow) error { return s.post(f, depth) }
	}
	return s, err
}

// serve serves until the peer disconnects.
func (d *device) serve(ctx context.Context) error {
	s, err := d.receiver(d.QPs)
	if err != nil {
		return err
	}
	l, err := d.listen(ctx)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if err := s.accept(ctx, l, d.QPs); err != nil {
		return err
	}
	s.begin()
	defer s.stop.Store(true)
	select {
	case err := <-s.failure:
		return err
	case <-d.gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *device) serveThroughput(ctx context.Context) error {
	stop, err := d.profile()
	if err != nil {
		return err
	}
	before := used()
	err = d.serve(ctx)
	cost := used().since(before)
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(cost)
}

func (d *device) measureThroughput(ctx context.Context) error {
	s, err := d.newStream(d.QPs*len(d.Peers), d.Depth, false)
	if err != nil {
		return err
	}
	if err := s.dial(ctx); err != nil {
		return err
	}
	t, err := s.measure(ctx)
	if err != nil {
		return err
	}
	s.stop.Store(true)
	if err := s.disconnect(ctx); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(t)
}

// measure fills the flows and counts what completes after the warm-up.
func (s *stream) measure(ctx context.Context) (*Throughput, error) {
	for _, f := range s.flows {
		if err := s.post(f, s.Depth); err != nil {
			return nil, err
		}
	}
	s.begin()
	if err := s.wait(ctx, s.WarmUp, s.failure); err != nil {
		return nil, err
	}
	stop, err := s.profile()
	if err != nil {
		return nil, err
	}
	before, begin, done := used(), time.Now(), s.counts()
	err = s.wait(ctx, s.Length, s.failure)
	// An end that was not scheduled all that time has found nothing. 0 is no figure.
	for err == nil && slices.Equal(s.counts(), done) {
		err = s.wait(ctx, time.Millisecond, s.failure)
	}
	after, length := s.counts(), time.Since(begin)
	cost := used().since(before)
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	t := &Throughput{Flows: map[string]float64{}, Cost: cost}
	gbps := func(messages uint64) float64 { return float64(messages) * float64(s.Size) * 8 / length.Seconds() / 1e9 }
	total := uint64(0)
	for i, f := range s.flows {
		n := after[i] - done[i]
		total += n
		t.Flows[f.peer.String()] += gbps(n)
	}
	if len(t.Flows) == 1 {
		t.Flows = nil
	}
	t.Messages, t.Gbps = float64(total)/length.Seconds(), gbps(total)
	return t, nil
}

// counts returns the number of requests that each flow has completed so far.
func (s *stream) counts() []uint64 {
	counts := make([]uint64, len(s.flows))
	for i, f := range s.flows {
		counts[i] = f.done.Load()
	}
	return counts
}
