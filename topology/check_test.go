package topology

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

// TestCheck has what is wrong with an impairment, as programs may give it; that it
// is wrong in a file, testdata/bad-impairments.txt has.
func TestCheck(t *testing.T) {
	fault := func(m Match) Impairment { return Impairment{Faults: []Fault{{Match: m, Action: Drop}}} }
	delayed := Impairment{Delay: time.Millisecond}
	with := func(change func(*Impairment)) Impairment {
		i := delayed
		change(&i)
		return i
	}
	tests := []struct {
		i    Impairment
		key  string
		want string // "": nothing is wrong
	}{
		{Impairment{}, "", ""},
		{Impairment{Delay: time.Minute, Jitter: Jitter{Spread: time.Minute, Distribution: Uniform}}, "", ""},
		{Impairment{Delay: -1}, "delay", "delay -1ns is out of range, expected 0s to 1m"},
		{Impairment{Delay: time.Minute + 1}, "delay", "delay 1m0.000000001s is out of range, expected 0s to 1m"},
		{Impairment{Jitter: Jitter{Spread: -1}}, "jitter", "jitter -1ns is out of range, expected 0s to 1m"},
		{Impairment{Jitter: Jitter{Spread: 1}}, "jitter", "jitter 1ns exceeds delay 0ms, expected at most the delay"},
		{Impairment{Jitter: Jitter{Distribution: "gauss"}}, "jitter", `jitter has the distribution "gauss", expected uniform, normal, pareto or samples`},
		{Impairment{Jitter: Jitter{Distribution: Normal, Samples: []time.Duration{1}}}, "jitter", `jitter has samples and the distribution "normal", expected one of them`},
		{Impairment{Jitter: Jitter{Distribution: Sampled, Samples: []time.Duration{1}, Spread: 1}}, "jitter", "jitter has samples and a spread, expected one of them"},
		{Impairment{Jitter: Jitter{Distribution: Sampled}}, "jitter", "jitter has 0 samples, expected 1 to 16384"},
		{Impairment{Jitter: Jitter{Distribution: Sampled, Samples: make([]time.Duration, maxSamples+1)}}, "jitter", "jitter has 16385 samples, expected 1 to 16384"},
		{Impairment{Jitter: Jitter{Distribution: Sampled, Samples: make([]time.Duration, maxSamples)}}, "", ""},
		{Impairment{Jitter: Jitter{Distribution: Sampled, Samples: []time.Duration{time.Hour}}}, "jitter", "jitter has the sample 1h0m0s, expected at most 1m"},
		{with(func(i *Impairment) {
			i.Jitter = Jitter{Distribution: Sampled, Samples: []time.Duration{5, -2 * time.Millisecond}}
		}), "jitter",
			"jitter has the sample -2ms with delay 1ms, expected at least minus the delay"},
		{Impairment{Loss: Loss{Rate: math.NaN()}}, "loss", "loss NaN is out of range, expected 0 to 1"},
		{Impairment{Loss: Loss{Rate: 1.2}}, "loss", "loss 1.2 is out of range, expected 0 to 1"},
		{Impairment{Loss: Loss{Rate: 0.5, Burst: 0.5}}, "loss", "loss has bursts of 0.5, expected 1 to 1000000 packets"},
		{Impairment{Loss: Loss{Rate: 0.5, Burst: math.NaN()}}, "loss", "loss has bursts of NaN, expected 1 to 1000000 packets"},
		{Impairment{Loss: Loss{Burst: 2}}, "loss", "loss in bursts of 2 has no rate, expected a rate above 0%"},
		{Impairment{Loss: Loss{Rate: 0.5, Burst: 1}}, "", ""},
		{Impairment{Loss: Loss{Rate: 0.51, Burst: 1}}, "loss", "loss 51% cannot come in bursts of 1, expected at most 50%, or longer bursts"},
		{Impairment{Loss: Loss{Packets: []uint64{0}}}, "loss", "loss has packet 0 in the wrong place, expected 1 for the first, and ascending"},
		{Impairment{Loss: Loss{Packets: []uint64{2, 2}}}, "loss", "loss has packet 2 in the wrong place, expected 1 for the first, and ascending"},
		{Impairment{Loss: Loss{Packets: make([]uint64, maxPlaces+1)}}, "loss", "loss has 4097 packets, expected at most 4096"},
		{Impairment{Duplicate: -0.1}, "duplicate", "duplicate -0.1 is out of range, expected 0 to 1"},
		{with(func(i *Impairment) { i.Reorder.Probability = 2 }), "reorder", "reorder 2 is out of range, expected 0 to 1"},
		{with(func(i *Impairment) { i.Reorder.Depth = -1 }), "reorder", "reorder has the depth -1, expected 0 to 256"},
		{Impairment{Reorder: Reorder{Probability: 1}}, "reorder", "reorder stands without delay, expected a delay too: without it there is no packet on its way to overtake"},
		{Impairment{Reorder: Reorder{Probability: 1}, Jitter: Jitter{Distribution: Sampled, Samples: []time.Duration{5}}}, "", ""},
		{with(func(i *Impairment) { i.Reorder = Reorder{1, 256} }), "", ""},
		{Impairment{Corrupt: Corrupt{Probability: math.Inf(1)}}, "corrupt", "corrupt +Inf is out of range, expected 0 to 1"},
		{Impairment{Corrupt: Corrupt{Bits: 9}}, "corrupt", "corrupt flips 9 bits, expected 0 to 8"},
		{Impairment{Rate: 1e12}, "", ""},
		{Impairment{Rate: 1e12 + 1}, "rate", "rate 1.000000000001tbit is too large, expected at most 1tbit"},
		{Impairment{Burst: 1<<40 + 1}, "burst", "burst 1099511627777B is too large, expected at most 1TiB"},
		{Impairment{Queue: Queue{Bytes: 1}}, "queue", "queue 1B is out of range, expected 1KiB to 1TiB"},
		{Impairment{Queue: Queue{Packets: 1<<30 + 1}}, "queue", "queue of 1073741825 packets is too large, expected at most 1073741824"},
		{Impairment{ECN: ECN{Min: 1}}, "ecn", "ecn has min 1B and max 0B, expected max no less than min"},
		{Impairment{ECN: ECN{Min: 6, Max: 5}}, "ecn", "ecn has min 6B and max 5B, expected max no less than min"},
		{Impairment{ECN: ECN{Min: 5, Max: 5}}, "", ""},
		{Impairment{ECN: ECN{Probability: 0.2}}, "ecn", "ecn has min 0B and max 0B, expected max no less than min"},
		{Impairment{ECN: ECN{Max: 5, Probability: 1.1}}, "ecn", "ecn has the probability 1.1, expected 0 to 1"},
		{Impairment{ECN: ECN{Max: 5, Probability: -0.1}}, "ecn", "ecn has the probability -0.1, expected 0 to 1"},
		{Impairment{ECN: ECN{Max: 5, Probability: 1}}, "", ""},
		{Impairment{ECN: ECN{Max: 1 << 41}}, "ecn", "ecn max 2TiB is too large, expected at most 1TiB"},
		{Impairment{ECN: ECN{Max: 4096}, Queue: Queue{Bytes: 2048}}, "ecn", "ecn max 4KiB exceeds queue 2KiB, expected at most the queue"},
		{Impairment{ECN: ECN{Max: 4096}, Queue: Queue{Packets: 1}}, "", ""},
		{Impairment{Flap: Flap{Period: 1}}, "flap", "flap has the period 1ns, expected 1ms to 24h"},
		{Impairment{Flap: Flap{Period: time.Second}}, "flap", "flap is down for 0s of 1s, expected more than 0ms and less than the period"},
		{Impairment{Faults: make([]Fault, maxFaults+1)}, "faults", "there are 65 faults, expected at most 64"},
		{Impairment{Faults: []Fault{{Action: "lose"}}}, "faults", `a fault has the action "lose", expected drop, delay, duplicate or corrupt`},
		{Impairment{Faults: []Fault{{Action: Postpone, Delay: time.Hour}}}, "faults", "a fault delays by 1h0m0s, expected more than 0s, up to 1m"},
		{Impairment{Faults: []Fault{{Action: Drop, Delay: 1}}}, "faults", "a fault with the action drop has a delay, expected it only with the action delay"},
		{fault(Match{QP: new(uint32(1 << 24))}), "faults", "a fault matches QP 0x1000000, expected at most 0xffffff"},
		{fault(Match{PSN: &PSNs{1, 1 << 24}}), "faults", "a fault matches PSN 0x1000000, expected at most 0xffffff"},
		{fault(Match{PSN: &PSNs{1<<24 - 1, 0}}), "", ""},
		{fault(Match{Probability: -1}), "faults", "a fault has the probability -1, expected 0 to 1"},
		{fault(Match{Syndromes: []string{"nack"}}), "faults", `a fault matches the syndrome "nack", expected ack, nak or rnr`},
		{fault(Match{CM: []uint16{16}, Opcodes: []uint8{4}}), "faults", "a fault matches CM messages, but not the opcode that they have, expected UD_SEND_ONLY among the opcodes, or none"},
		{fault(Match{CM: []uint16{16}, Opcodes: []uint8{4, 0x64}}), "", ""},
		{fault(Match{Syndromes: []string{"nak"}, Opcodes: []uint8{4}}), "faults", "a fault matches syndromes, but no opcode that has them, expected ack among the opcodes, or none"},
		{fault(Match{Syndromes: []string{"nak"}, Opcodes: []uint8{4, 0xd1}}), "", ""},
		{fault(Match{Syndromes: []string{"nak"}, CM: []uint16{16}}), "faults", "a fault matches syndromes and CM messages, which no packet has both, expected one of them"},
		{fault(Match{CM: []uint16{0}}), "faults", "a fault matches the CM attribute 0, expected those of CM, from 0x10 on"},
		{fault(Match{CM: []uint16{16}, QP: new(uint32(1))}), "", ""},
		{fault(Match{CM: []uint16{16}, QP: new(uint32(2))}), "faults", "a fault matches CM messages to QP 0x2, expected 1, which they all go to, or none"},
		{fault(Match{Packets: []uint64{5, 3}}), "faults", "a fault matches packet 3 in the wrong place, expected 1 for the first, and ascending"},
	}
	for _, test := range tests {
		err := test.i.Check()
		var bad *ImpairmentError
		switch {
		case test.want == "":
			if err != nil {
				t.Errorf("%+v: %v", test.i, err)
			}
		case !errors.As(err, &bad):
			t.Errorf("%+v passes, want %s", test.i, test.want)
		case err.Error() != test.want || bad.Keys[0] != test.key:
			t.Errorf("about %s: %v\nwant about %s: %s", bad.Keys, err, test.key, test.want)
		case slices.ContainsFunc(bad.Keys, func(key string) bool { return !slices.Contains(impairmentTable().names(), key) }):
			t.Errorf("%v is about %s", err, bad.Keys)
		}
	}
}
