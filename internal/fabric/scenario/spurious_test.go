package scenario

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// Where nothing was lost, hardly anything may be sent again.
func TestSpurious(t *testing.T) {
	run := func(again, dropped, overflow uint64) *report.Run {
		r := &report.Run{Nodes: []report.Node{{Transport: map[string]uint64{
			"packets_sent": 2000, "spurious_retransmissions": again, "receive_overflow": overflow,
		}}}}
		r.Links = make([]report.Link, 1)
		r.Links[0].Directions[1].Dropped = dropped
		return r
	}
	for _, test := range []struct {
		again, dropped, overflow uint64
		fails                    bool
	}{{0, 0, 0, false}, {2, 0, 0, false}, {3, 0, 0, true}, {3, 1, 0, false}, {3, 0, 1, false}} {
		if text := spurious(&topology.Topology{}, run(test.again, test.dropped, test.overflow)); (text != "") != test.fails {
			t.Errorf("%+v: %q", test, text)
		}
		simulated := run(test.again, test.dropped, test.overflow)
		simulated.Simulated = true
		if text, fails := spurious(&topology.Topology{}, simulated), test.again > 0 && test.dropped+test.overflow == 0; (text != "") != fails {
			t.Errorf("%+v in virtual time: %q", test, text)
		}
	}
}

// Packets that a shared buffer drops are lost, too.
func TestSpuriousAfterDrops(t *testing.T) {
	r := &report.Run{Nodes: []report.Node{{Transport: map[string]uint64{"packets_sent": 2000, "spurious_retransmissions": 9}}}}
	class := report.BufferClass{Class: 3, Packets: 1}
	r.Buffers = []report.Buffer{{Node: "s", Ports: []report.BufferPort{{Interface: "e0", Classes: []report.BufferClass{class}}}}}
	if spurious(&topology.Topology{}, r) == "" {
		t.Error("a buffer that dropped nothing is a reason to send again")
	}
	r.Buffers[0].Ports[0].Classes[0].Dropped = map[string]uint64{"queue": 1}
	if text := spurious(&topology.Topology{}, r); text != "" {
		t.Errorf("after a drop: %s", text)
	}
}

// A play that is told so has virtual time, where one packet sent again is too much.
func TestSpuriousInVirtualTime(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		topo := hosts(2)
		topo.Workloads = []topology.Workload{pair("w", 100*time.Millisecond)}
		s := newStage(t, topo)
		s.transport = map[string]uint64{"packets_sent": 2000, "spurious_retransmissions": 1}
		r, err := s.begin(func(p *Play) {
			if virtual {
				p.InVirtualTime()
			}
		})
		if err != nil || r.Simulated != virtual || r.Passed == virtual {
			t.Errorf("virtual time: %v; simulated %v, passed %v, problems %q, %v", virtual, r.Simulated, r.Passed, r.Problems, err)
		}
	}
}

// A check of the counter holds instead, for the nodes that it is about.
func TestSpuriousIsChecked(t *testing.T) {
	for _, test := range []struct {
		check string
		fails bool
	}{
		{`{counter: spurious_retransmissions, value: "<= 5"}`, false},
		{`{counter: spurious_retransmissions, node: b, value: "<= 5"}`, false},
		{`{counter: spurious_retransmissions, node: a, value: "<= 5"}`, true},
		{`{counter: spurious_retransmissions, at: 1s, value: "<= 5"}`, true},
		{`{counter: retransmitted, value: "<= 5"}`, true},
	} {
		topo, err := topology.Parse("x.ndklab.yaml", []byte(`
topology: {nodes: {a: , b: }, links: [{endpoints: ["a:eth0", "b:eth0"]}]}
checks: [`+test.check+"]"))
		if err != nil {
			t.Fatal(err)
		}
		r := &report.Run{}
		for i, name := range []string{"a", "b"} {
			n := report.Node{NodeState: report.NodeState{Name: name}, Transport: map[string]uint64{"packets_sent": 1000, "spurious_retransmissions": uint64(4 * i)}}
			r.Nodes = append(r.Nodes, n)
		}
		if text := spurious(topo, r); (text != "") != test.fails {
			t.Errorf("%s: %q", test.check, text)
		}
	}
}
