package scenario

import (
	"testing"

	"github.com/ndklab/ndklab/fabric/report"
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
