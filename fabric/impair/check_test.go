package impair

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
)

func TestCheckRefuses(t *testing.T) {
	big := uint32(1 << 24)
	two := uint32(2)
	fault := func(m topology.Match) topology.Impairment {
		return topology.Impairment{Faults: []topology.Fault{{Action: topology.Drop}, {Match: m, Action: topology.Drop}}}
	}
	for _, c := range []struct {
		bad  topology.Impairment
		says string
	}{
		{topology.Impairment{Delay: -1}, "delay -1ns is negative"},
		{topology.Impairment{Delay: 2 * time.Hour}, "more than 1h"},
		{topology.Impairment{Jitter: topology.Jitter{Spread: -1}}, "jitter -1ns is negative"},
		{topology.Impairment{Jitter: topology.Jitter{Spread: 2 * time.Hour}}, "more than 1h"},
		{topology.Impairment{Jitter: topology.Jitter{Spread: 1, Distribution: "even"}}, `unknown distribution "even"`},
		{topology.Impairment{Jitter: topology.Jitter{Distribution: topology.Sampled}}, "no samples"},
		{topology.Impairment{Jitter: topology.Jitter{Distribution: topology.Sampled, Spread: 1, Samples: []time.Duration{1}}}, "spread"},
		{topology.Impairment{Jitter: topology.Jitter{Samples: []time.Duration{1}}}, "distribution is not samples"},
		{topology.Impairment{Jitter: topology.Jitter{Distribution: topology.Sampled, Samples: []time.Duration{-2 * time.Hour}}}, "sample -2h"},
		{topology.Impairment{Loss: topology.Loss{Rate: -0.1}}, "loss -0.1 is not between 0 and 1"},
		{topology.Impairment{Loss: topology.Loss{Rate: 1.2}}, "loss 1.2 is not between 0 and 1"},
		{topology.Impairment{Loss: topology.Loss{Rate: math.NaN()}}, "not between"},
		{topology.Impairment{Loss: topology.Loss{Rate: 0.1, Burst: 0.5}}, "1 or more"},
		{topology.Impairment{Loss: topology.Loss{Rate: 0.1, Burst: math.NaN()}}, "1 or more"},
		{topology.Impairment{Loss: topology.Loss{Rate: 0.1, Burst: math.Inf(1)}}, "1 or more"},
		{topology.Impairment{Loss: topology.Loss{Burst: 3}}, "needs a rate"},
		{topology.Impairment{Loss: topology.Loss{Rate: 1, Burst: 3}}, "needs a rate"},
		{topology.Impairment{Loss: topology.Loss{Rate: 0.8, Burst: 3}}, "at most 0.75"},
		{topology.Impairment{Loss: topology.Loss{Packets: []uint64{0}}}, "the first packet is 1"},
		{topology.Impairment{Loss: topology.Loss{Packets: []uint64{1, 3, 3}}}, "ascend"},
		{topology.Impairment{Duplicate: 2}, "duplicate 2 is not"},
		{topology.Impairment{Delay: 1, Reorder: topology.Reorder{Probability: 2}}, "reorder 2 is not"},
		{topology.Impairment{Delay: 1, Reorder: topology.Reorder{Probability: 0.5, Depth: -1}}, "reorder depth -1"},
		{topology.Impairment{Delay: 1, Reorder: topology.Reorder{Probability: 0.5, Depth: MaxDepth + 1}}, "reorder depth 257"},
		{topology.Impairment{Reorder: topology.Reorder{Probability: 0.5}}, "reorder needs a delay or a jitter"},
		{topology.Impairment{Corrupt: topology.Corrupt{Probability: -1}}, "corrupt -1"},
		{topology.Impairment{Corrupt: topology.Corrupt{Probability: 0.5, Bits: MaxFlips + 1}}, "corrupt bits 9"},
		{topology.Impairment{Burst: 1}, "burst without a rate"},
		{topology.Impairment{Queue: topology.Queue{Packets: 1}}, "queue without a rate"},
		{topology.Impairment{ECN: topology.ECN{Max: 1}}, "ecn without a rate"},
		{topology.Impairment{Rate: 1, Queue: topology.Queue{Bytes: 83}}, "the shortest packet takes 84"},
		{topology.Impairment{Rate: 1, ECN: topology.ECN{Min: 2, Max: 1}}, "ecn marks none up to 2 bytes"},
		{topology.Impairment{Rate: 1, ECN: topology.ECN{Min: 1000, Max: 2000}, Queue: topology.Queue{Bytes: 1000}}, "never holds"},
		{topology.Impairment{Flap: topology.Flap{Down: 1}}, "period"},
		{topology.Impairment{Flap: topology.Flap{Period: -1}}, "period"},
		{topology.Impairment{Flap: topology.Flap{Period: 5}}, "more than nothing"},
		{topology.Impairment{Flap: topology.Flap{Period: 5, Down: 5}}, "less than all"},
		{topology.Impairment{Faults: []topology.Fault{{}}}, `fault 1: unknown action ""`},
		{topology.Impairment{Faults: []topology.Fault{{Action: topology.Postpone}}}, "by nothing"},
		{topology.Impairment{Faults: []topology.Fault{{Action: topology.Postpone, Delay: -1}}}, "negative"},
		{topology.Impairment{Faults: []topology.Fault{{Action: topology.Drop, Delay: 1}}}, "with the action drop"},
		{topology.Impairment{Faults: make([]topology.Fault, 1<<16)}, "65536 faults"},
		{fault(topology.Match{Probability: 1.5}), "fault 2: probability 1.5"},
		{fault(topology.Match{QP: &big}), "qp 0x1000000"},
		{fault(topology.Match{PSN: &topology.PSNs{Last: big}}), "psn 0x1000000"},
		{fault(topology.Match{Syndromes: []string{"ACK"}}), `unknown syndrome "ACK"`},
		{fault(topology.Match{Syndromes: []string{"ack"}, CM: []uint16{0x10}}), "no packet"},
		{fault(topology.Match{Syndromes: []string{"ack"}, Opcodes: []uint8{0x10}}), "no acknowledgement"},
		{fault(topology.Match{CM: []uint16{0x10}, Opcodes: []uint8{0x11}}), "0x64"},
		{fault(topology.Match{CM: []uint16{0}}), "attribute 0"},
		{fault(topology.Match{CM: []uint16{0x10}, QP: &two}), "QP 2"},
		{fault(topology.Match{Packets: []uint64{2, 1}}), "ascend"},
	} {
		if err := Check(c.bad); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want an error with %q", c.bad, err, c.says)
		}
	}
}

func TestCheckAccepts(t *testing.T) {
	one := uint32(1)
	for _, good := range []topology.Impairment{
		{},
		everything(),
		{Delay: time.Hour, Jitter: topology.Jitter{Spread: 2}, Loss: topology.Loss{Rate: 1}, Rate: 1},
		{Loss: topology.Loss{Rate: 0.75, Burst: 3}},
		{Jitter: topology.Jitter{Distribution: topology.Sampled, Samples: []time.Duration{-5, 5}}, Reorder: topology.Reorder{Probability: 1}},
		{Rate: math.MaxUint64, Burst: math.MaxUint64, ECN: topology.ECN{Min: 5, Max: 5}},
		{Cut: true},
		{Faults: []topology.Fault{
			{Match: topology.Match{CM: []uint16{0x10}, QP: &one, Opcodes: []uint8{0x11, 0x64}}, Action: topology.Drop},
			{Match: topology.Match{Syndromes: []string{"rnr"}, Opcodes: []uint8{0x11, 0x00}, PSN: &topology.PSNs{First: 0xffffff}}, Action: topology.Corrode},
		}},
	} {
		if err := Check(good); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
}
