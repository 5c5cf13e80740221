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
	if (&Payloads{}).Constant(patterns[0].bytes) {
		t.Error("without patterns something is said not to change")
	}
}
