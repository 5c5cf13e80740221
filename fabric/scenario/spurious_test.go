package scenario

import (
	"testing"
	"time"

	"github.com/ndklab/ndklab/fabric/report"
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
		if text := spurious(run(test.again, test.dropped, test.overflow)); (text != "") != test.fails {
			t.Errorf("%+v: %q", test, text)
		}
		simulated := run(test.again, test.dropped, test.overflow)
		simulated.Simulated = true
		if text, fails := spurious(simulated), test.again > 0 && test.dropped+test.overflow == 0; (text != "") != fails {
			t.Errorf("%+v in virtual time: %q", test, text)
		}
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
