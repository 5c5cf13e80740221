package workload

import (
	"testing"

	"github.com/ndklab/ndklab/topology"
)

// Only patterns are said not to change, whatever part of them and from wherever; neither is
// where messages arrive, nor memory of others.
func TestConstant(t *testing.T) {
	var p Payloads
	var patterns []*pattern
	for seed := range uint64(20) {
		spec := Spec{Operation: topology.Write, Size: 100, Seed: seed}
		made := p.pattern(&spec)
		patterns = append(patterns, made)
		if again := p.pattern(&spec); again.random != made.random {
			t.Error("two flows of a workload have patterns of their own")
		}
	}
	if len(p.patterns) != len(patterns) {
		t.Errorf("%d patterns are known, want %d", len(p.patterns), len(patterns))
	}
	for i, made := range patterns {
		for _, part := range [][]byte{made.bytes, made.bytes[:1], made.message(7), made.bytes[len(made.bytes)-1:]} {
			if !p.Constant(part) {
				t.Errorf("pattern %d may change", i)
			}
		}
	}
	spec := Spec{Operation: topology.Write, Size: 100}
	other := newPattern(&Spec{Operation: topology.Write, Size: 100, Seed: 1000})
	for name, bytes := range map[string][]byte{"the sink": p.sink(&spec, 100), "another": make([]byte, 100), "a pattern that no flow has here": other.bytes} {
		if p.Constant(bytes) {
			t.Errorf("%s is said not to change", name)
		}
	}
	room := make([]byte, 300)
	between := Payloads{patterns: []*random{{bytes: room[100:200]}}}
	if between.Constant(room[99:]) || !between.Constant(room[100:]) || !between.Constant(room[199:]) || between.Constant(room[200:]) {
		t.Error("memory beside a pattern is said not to change, or part of it to change")
	}
	if (&Payloads{}).Constant(patterns[0].bytes) {
		t.Error("without patterns something is said not to change")
	}
}

// TestReceives: an end has receives for what the other sends it, and none where that sends
// nothing: messages of sends, and notices of writes that are compared or measured one by one.
func TestReceives(t *testing.T) {
	for _, test := range []struct {
		operation      topology.Operation
		measure        topology.Measure
		verify         bool
		server, client bool
	}{
		{topology.Send, topology.Bandwidth, false, true, false},
		{topology.Send, topology.Bandwidth, true, true, false},
		{topology.Send, topology.Latency, false, true, true},
		{topology.Write, topology.Bandwidth, false, false, false},
		{topology.Write, topology.Bandwidth, true, true, true},
		{topology.Write, topology.Latency, false, true, true},
		{topology.Read, topology.Bandwidth, true, false, false},
		{topology.Read, topology.Latency, true, false, false},
	} {
		for _, srq := range []bool{false, true} {
			spec := Spec{Name: "w", Operation: test.operation, Measure: test.measure, Verify: test.verify, SRQ: srq, Size: 64, Depth: 3, QPs: 2, Count: 10}
			server, notices := false, false
			newLab(t).run(spec, func(s *target) { server, notices = len(s.receives) > 0 || s.srq != nil, s.notices != nil })
			if client := spec.clientReceives() > 0; server != test.server || client != test.client {
				t.Errorf("%+v: the server has receives: %v, the client: %v", spec, server, client)
			}
			if want := test.server && test.operation == topology.Write; notices != want {
				t.Errorf("%+v: the server has memory for notices: %v", spec, notices)
			}
		}
	}
}
