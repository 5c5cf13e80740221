package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/topology"
)

// A shared buffer is one that a status writes to while a test reads it.
type shared struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *shared) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.b.String()
	s.b.Reset()
	return text
}

// passes lets virtual time pass.
func passes(d time.Duration) {
	time.Sleep(d) // of the bubble
	synctest.Wait()
}

// A log gets a line about how far a run is every 10 s, and no more often; with quiet none; and none that
// says nothing new.
func TestRunInLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b, q shared
		topo := &topology.Topology{Name: "pair", Workloads: []topology.Workload{{Duration: 60 * time.Second}}}
		p, quiet := newProgress(&b, false), newProgress(&q, true)
		p.run(topo)
		quiet.run(topo)
		passes(9999 * time.Millisecond)
		if text := b.take(); text != "" {
			t.Errorf("before 10 s: %q", text)
		}
		passes(2 * time.Millisecond)
		if text := b.take(); text != "lab pair: starting for 10 s\n" {
			t.Errorf("after 10 s: %q", text)
		}
		for range 10 { // events do not have it told more often
			p.event(event.Event{Kind: event.WorkloadProgress, At: 15 * time.Second, Text: "goes on"})
			quiet.event(event.Event{Kind: event.WorkloadProgress, At: 15 * time.Second, Text: "goes on"})
		}
		passes(10 * time.Second)
		want := strings.Repeat("  15.0 s  goes on\n", 10) + "lab pair: 15.0 s of 60.0 s, 25 %, about 60 s left\n"
		if diff := cmp.Diff(want, b.take()); diff != "" {
			t.Error(diff)
		}
		p.reach(30 * time.Second) // as a simulation does without an event
		passes(10 * time.Second)
		if text := b.take(); text != "lab pair: 30.0 s of 60.0 s, 50 %, about 30 s left\n" {
			t.Errorf("after 30 s: %q", text)
		}
		p.close()
		quiet.close()
		if text := b.take() + strings.ReplaceAll(q.take(), "  15.0 s  goes on\n", ""); text != "" {
			t.Errorf("at the end: %q", text)
		}
	})
}

// Of a run whose workloads count messages nobody knows the end: it says how far it is.
func TestRunWithoutBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b shared
		p := newProgress(&b, false)
		defer p.close()
		p.run(&topology.Topology{Name: "pair", Workloads: []topology.Workload{{Count: 10}}})
		p.reach(1500 * time.Microsecond)
		passes(10 * time.Second)
		if text := b.take(); text != "lab pair: at 1.5 ms, for 10 s\n" {
			t.Errorf("%q", text)
		}
	})
}

// A log is not told twice what it has been told.
func TestNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b shared
		s := newStatus(&b, false, func() []string { return []string{"half"} })
		defer s.close()
		passes(35 * time.Second)
		if text := b.take(); text != "half\n" {
			t.Errorf("%q", text)
		}
	})
}
