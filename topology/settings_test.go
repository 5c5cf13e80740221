package topology

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// badSettings are words that ParseChange does not take.
var badSettings = []struct {
	words []string
	want  string
}{
	{nil, `nothing to set, expected KEY=VALUE such as loss=1% or rate=none`},
	{[]string{"loss"}, `found "loss", expected KEY=VALUE such as loss=1%`},
	{[]string{"los=1%"}, `unknown key "los", expected "loss"?`},
	{[]string{"loss=120%"}, `loss: 120% is out of range, expected 0% to 100%`},
	{[]string{"delay=-1ms"}, `delay: -1ms is out of range, expected 0ms to 60s`},
	{[]string{"rate=0bit"}, `rate: 0bit passes nothing, expected 1bit to 1tbit, none for no limit, or cut: true`},
	{[]string{"loss=1%", "loss=none"}, `loss a second time, expected it once`},
	{[]string{"delay="}, `delay: found nothing, expected a single value`},
	{[]string{"jitter={spread: 5, distribtion: normal}"}, `jitter: spread: 5 has no unit, expected a duration (5ms?)
jitter: unknown key "distribtion" in jitter, expected "distribution"?`},
	{[]string{"jitter={spread: 5us"}, `jitter: not YAML: did not find expected ',' or '}'; check indentation, brackets and commas from here on`},
	{[]string{"jitter={file: none.txt}"}, `jitter: file: no samples: there is no file none.txt`},
	{[]string{"jitter={file: bad.txt}"}, `bad.txt:2:3: 2 has no unit, expected a duration (2ms?)
bad.txt:3:1: found "fast", expected a duration such as 5ms
bad.txt:4:1: 61s is out of range, expected -60s to 60s
bad.txt:5:1: found "", expected a duration such as 5ms`},
	{[]string{"jitter={file: junk.txt}"}, `junk.txt:1:1: found "bad", expected a duration such as 5ms
junk.txt:2:1: found "bad", expected a duration such as 5ms
junk.txt:3:1: found "bad", expected a duration such as 5ms
junk.txt:4:1: found "bad", expected a duration such as 5ms
junk.txt:5:1: found "bad", expected a duration such as 5ms
junk.txt:6:1: found "bad", and no durations in 994 other lines, expected one on each line`},
	{[]string{"down=true"}, `down: no setting, expected "ndklab link down" or "ndklab link up"`},
	{[]string{"faults=[{match: {nth: [3, 9], every: 2}, action: drop}]"}, `faults: a fault matches nth 3, 9 and every 2, which no packet is, expected places that are multiples of 2`},
	{[]string{"faults=[{match: {psn: 20-5}, action: drop}]"}, `faults: a fault matches PSN 20-5, which is nearly all, past 0xffffff, expected 5-20`},
	{[]string{"loss=*x"}, `loss: unknown anchor "x", expected one that the file defines above`},
	{[]string{"loss=1%\n---\n2%"}, `loss: a second YAML document, expected only one`},
	{[]string{"faults=[{match: {}, action: drop, from: a}]"}, `faults: from stands in a fault, expected none: the direction is chosen for all settings`},
	{[]string{"mtu=1500", "delay=1", "cut=1"}, `mtu: fixed while the lab is up, expected a change of the topology file
delay: 1 has no unit, expected a duration (1ms?)
cut: found "1", expected true or false`},
}

func TestBadSettings(t *testing.T) {
	for _, test := range badSettings {
		if _, err := ParseChange(readSamples, test.words); err == nil || err.Error() != test.want {
			t.Errorf("%q:\ngot  %v\nwant %s", test.words, err, test.want)
		}
	}
	if _, err := ParseChange(nil, []string{"jitter={file: good.txt}"}); err == nil || err.Error() != noFiles {
		t.Errorf("got %v, want %s", err, noFiles)
	}
}

func TestSettings(t *testing.T) {
	tests := []struct {
		words string // separated by |
		want  Change
		text  string
		again string // what Settings says, if that is something else than words
	}{
		{"delay=1.5ms|rate=10gbit|loss=1%",
			Change{Delay: new(1500 * time.Microsecond), Rate: new(uint64(10e9)), Loss: &Loss{Rate: 0.01}},
			"delay 1.5ms, loss 1%, rate 10gbit", "delay=1.5ms|loss=1%|rate=10gbit"},
		{"jitter=50us", Change{Jitter: &Jitter{Spread: 50 * time.Microsecond}}, "jitter 50us", ""},
		{"jitter={spread: 50us, distribution: uniform}", Change{Jitter: &Jitter{Spread: 50 * time.Microsecond}}, "jitter 50us", "jitter=50us"},
		{"jitter={spread: 50us, distribution: normal}", Change{Jitter: &Jitter{Spread: 50 * time.Microsecond, Distribution: Normal}}, "jitter 50us normal", ""},
		{"jitter={distribution: pareto, spread: 1s}", Change{Jitter: &Jitter{Spread: time.Second, Distribution: Pareto}}, "jitter 1s pareto", "jitter={spread: 1s, distribution: pareto}"},
		{"jitter={samples: [1ms, -50us, 0ms]}", Change{Jitter: goodSamples()}, "jitter of 3 samples", ""},
		{"jitter={file: good.txt}", Change{Jitter: goodSamples()}, "jitter of 3 samples", "jitter={samples: [1ms, -50us, 0ms]}"},
		{"loss={rate: 1%, burst: 5}", Change{Loss: &Loss{Rate: 0.01, Burst: 5}}, "loss 1% in bursts of 5", ""},
		{"loss={rate: 1%, burst: 2.5, every: 100, packets: [17, 3, 3]}",
			Change{Loss: &Loss{Rate: 0.01, Burst: 2.5, Every: 100, Packets: []uint64{3, 17}}},
			"loss 1% in bursts of 2.5 and every 100 packets and packet 3 17", "loss={rate: 1%, burst: 2.5, every: 100, packets: [3, 17]}"},
		{"loss={every: 100}", Change{Loss: &Loss{Every: 100}}, "loss every 100 packets", ""},
		{"loss={packets: 7}", Change{Loss: &Loss{Packets: []uint64{7}}}, "loss packet 7", ""},
		{"duplicate=0.5%", Change{Duplicate: new(0.005)}, "duplicate 0.5%", ""},
		{"reorder=1%", Change{Reorder: &Reorder{Probability: 0.01}}, "reorder 1%", ""},
		{"reorder={probability: 1%, depth: 3}", Change{Reorder: &Reorder{0.01, 3}}, "reorder 1% by up to 3", ""},
		{"corrupt=0.1%", Change{Corrupt: &Corrupt{Probability: 0.001}}, "corrupt 0.1%", ""},
		{"corrupt={probability: 0.1%, where: payload}", Change{Corrupt: &Corrupt{Probability: 0.001}}, "corrupt 0.1%", "corrupt=0.1%"},
		{"corrupt={probability: 0.1%, where: anywhere, bits: 2}", Change{Corrupt: &Corrupt{0.001, true, 2}}, "corrupt 0.1% in 2 bits anywhere", ""},
		{"burst=64KiB|queue=4MiB", Change{Burst: new(uint64(64 << 10)), Queue: &Queue{Bytes: 4 << 20}}, "burst 64KiB, queue 4MiB", ""},
		{"queue=1000packets", Change{Queue: &Queue{Packets: 1000}}, "queue 1000packets", ""},
		{"queue={bytes: 4MiB, packets: 1000}", Change{Queue: &Queue{4 << 20, 1000}}, "queue 4MiB or 1000packets", ""},
		{"ecn={min: 100KiB, max: 400KiB}", Change{ECN: &ECN{Min: 100 << 10, Max: 400 << 10}}, "ecn from 100KiB to 400KiB", ""},
		{"ecn={min: 100KiB, max: 400KiB, probability: 20%}", Change{ECN: &ECN{100 << 10, 400 << 10, 0.2}}, "ecn from 100KiB to 400KiB with up to 20%", ""},
		{"ecn={min: 0B, max: 1KiB, probability: 100%}", Change{ECN: &ECN{Max: 1 << 10}}, "ecn from 0B to 1KiB", "ecn={min: 0B, max: 1KiB}"},
		{"cut=true", Change{Cut: new(true)}, "cut true", ""},
		{"cut=false", Change{Cut: new(false)}, "cut false", ""},
		{"flap={period: 1s, down: 100ms}", Change{Flap: &Flap{time.Second, 100 * time.Millisecond}}, "flap 100ms of every 1s", ""},
		{"faults=[]", Change{Faults: &[]Fault{}}, "faults none", ""},
		{"faults=[{match: {opcode: write}, action: drop}]",
			Change{Faults: &[]Fault{{Match: Match{Opcodes: []uint8{0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b}}, Action: Drop}}},
			"faults drop {opcode: write}", ""},
		{"faults=[{match: {opcode: RC SEND Last with Immediate}, action: drop}]",
			Change{Faults: &[]Fault{{Match: Match{Opcodes: []uint8{3}}, Action: Drop}}},
			"faults drop {opcode: SEND_LAST_IMMEDIATE}", "faults=[{match: {opcode: SEND_LAST_IMMEDIATE}, action: drop}]"},
		{"faults=[{match: {opcode: [WRITE_FIRST, RC Acknowledge, 0xd2, cnp, read], nth: 3}, action: duplicate}]",
			Change{Faults: &[]Fault{{Match: Match{Opcodes: []uint8{6, 12, 17, 0x81, 0xd2}, Packets: []uint64{3}}, Action: Double}}},
			"faults duplicate {opcode: [WRITE_FIRST, read, ACKNOWLEDGE, cnp, 0xd2], nth: 3}",
			"faults=[{match: {opcode: [WRITE_FIRST, read, ACKNOWLEDGE, cnp, 0xd2], nth: 3}, action: duplicate}]"},
		{"faults=[{match: {syndrome: [rnr, nak], qp: 18, psn: 0xfffffe-2, nth: [6, 3], every: 2, count: 4, probability: 50%}, action: delay, delay: 1ms}, {match: {cm: [rep, 0x1]}, action: corrupt}]",
			Change{Faults: &[]Fault{
				{Match: Match{Syndromes: []string{"nak", "rnr"}, QP: new(uint32(18)), PSN: &PSNs{0xfffffe, 2}, Packets: []uint64{3, 6}, Every: 2, Count: 4, Probability: 0.5},
					Action: Postpone, Delay: time.Millisecond},
				{Match: Match{CM: []uint16{1, 0x13}}, Action: Corrode},
			}},
			"faults delay {syndrome: [nak, rnr], qp: 0x12, psn: 16777214-2, nth: [3, 6], every: 2, count: 4, probability: 50%} by 1ms or corrupt {cm: [0x0001, REP]}",
			"faults=[{match: {syndrome: [nak, rnr], qp: 0x12, psn: 16777214-2, nth: [3, 6], every: 2, count: 4, probability: 50%}, action: delay, delay: 1ms}, {match: {cm: [0x0001, REP]}, action: corrupt}]"},
		{"delay=none|jitter=none|loss=none|duplicate=none|reorder=none|corrupt=none|rate=none|burst=none|queue=none|ecn=none|cut=none|flap=none|faults=none",
			Change{new(time.Duration), new(Jitter), new(Loss), new(float64), new(Reorder), new(Corrupt), new(uint64), new(uint64), new(Queue), new(ECN), new(bool), new(Flap), &[]Fault{}},
			"delay 0ms, jitter 0ms, loss 0%, duplicate 0%, reorder 0%, corrupt 0%, rate none, burst none, queue none, ecn none, cut false, flap none, faults none",
			"delay=0ms|jitter=0ms|loss=0%|duplicate=0%|reorder=0%|corrupt=0%|rate=none|burst=none|queue=none|ecn=none|cut=false|flap=none|faults=[]"},
	}
	for _, test := range tests {
		t.Run(test.words, func(t *testing.T) {
			got, err := ParseChange(readSamples, strings.Split(test.words, "|"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Change (-want +got):\n%s", diff)
			}
			if got.String() != test.text {
				t.Errorf("in words %q, want %q", got, test.text)
			}
			if test.again == "" {
				test.again = test.words
			}
			if again := strings.Join(got.Settings(), "|"); again != test.again {
				t.Errorf("settings %s, want %s", again, test.again)
			}
			encoded, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			var decoded Change
			if err := json.Unmarshal(encoded, &decoded); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, decoded); diff != "" {
				t.Errorf("through JSON (-want +got):\n%s", diff)
			}
		})
	}
}

func goodSamples() *Jitter {
	return &Jitter{Distribution: Sampled, Samples: []time.Duration{time.Millisecond, -50 * time.Microsecond, 0}}
}

func TestEqual(t *testing.T) {
	sampled := func(samples ...time.Duration) Impairment {
		return Impairment{Jitter: Jitter{Distribution: Sampled, Samples: samples}}
	}
	fault := func(qp uint32) Impairment { return Impairment{Faults: []Fault{{Match: Match{QP: &qp}, Action: Drop}}} }
	tests := []struct {
		a, b Impairment
		want bool
	}{
		{Impairment{}, Impairment{Faults: []Fault{}}, true},
		{sampled(1, 2), sampled(1, 2), true},
		{sampled(1, 2), sampled(1, 3), false},
		{fault(1), fault(1), true},
		{fault(1), fault(2), false},
		{Impairment{}, Impairment{Cut: true}, false},
	}
	for _, test := range tests {
		if got := test.a.Equal(test.b); got != test.want {
			t.Errorf("%v and %v: %v, want %v", test.a, test.b, got, test.want)
		}
	}
}

func TestImpairmentInWords(t *testing.T) {
	i := Impairment{Delay: time.Millisecond, Jitter: Jitter{Spread: 50 * time.Microsecond, Distribution: Normal}, Loss: Loss{Rate: 0.01, Burst: 5}}
	if got, want := i.String(), "delay 1ms, jitter 50us normal, loss 1% in bursts of 5"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := (Impairment{}).String(); got != "no impairment" {
		t.Error(got)
	}
	if got := (Change{}).String(); got != "no change" {
		t.Error(got)
	}
	many := Impairment{Loss: Loss{Packets: make([]uint64, listed+1)}}
	if got, want := many.String(), "loss packet 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 ... (17 in all)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestSettingsAreExact checks that what Settings writes is the same change to
// ParseChange, and in a file.
func TestSettingsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawChange(t)
		if len(want.Settings()) == 0 {
			t.Skip("no change")
		}
		got, err := ParseChange(nil, want.Settings())
		if err != nil {
			t.Fatalf("%q: %v", want.Settings(), err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", want.Settings(), diff)
		}
		var lines []string
		for _, setting := range want.Settings() {
			lines = append(lines, strings.Replace(setting, "=", ": ", 1))
		}
		r := &reader{}
		n, _ := r.value([]byte(strings.Join(lines, "\n")))
		m := impairmentTable().read(r, n)
		if diff := cmp.Diff(want, m.is.change); diff != "" || r.errors != nil {
			t.Errorf("in a file (-want +got):\n%s\n%v", diff, r.errors)
		}
	})
}

// drawChange is any change, each value in the form that a file gives it.
func drawChange(t *rapid.T) Change {
	probability := rapid.Float64Range(1e-9, 1)
	duration := rapid.Map(rapid.Int64Range(0, int64(maxDelay)), func(n int64) time.Duration { return time.Duration(n) })
	samples := rapid.Map(rapid.Int64Range(-int64(maxDelay), int64(maxDelay)), func(n int64) time.Duration { return time.Duration(n) })
	size := rapid.Uint64Range(minQueue, maxBytes)
	places := rapid.Custom(func(t *rapid.T) []uint64 {
		list := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 1<<40), 1, 5, rapid.ID).Draw(t, "places")
		slices.Sort(list)
		return list
	})
	var i Impairment
	i.Delay = duration.Draw(t, "delay")
	switch d := rapid.SampledFrom([]Distribution{"", Normal, Pareto, Sampled}).Draw(t, "distribution"); d {
	case Sampled:
		i.Jitter = Jitter{Distribution: d, Samples: rapid.SliceOfN(samples, 1, 5).Draw(t, "samples")}
	default:
		i.Jitter = Jitter{Distribution: d, Spread: duration.Draw(t, "spread")}
	}
	switch rapid.IntRange(0, 3).Draw(t, "loss") {
	case 0:
		i.Loss.Rate = probability.Draw(t, "rate")
	case 1:
		i.Loss = Loss{Rate: probability.Draw(t, "rate"), Burst: rapid.Float64Range(1, maxBurst).Draw(t, "burst")}
	case 2:
		i.Loss = Loss{Rate: probability.Draw(t, "rate"), Burst: 2, Every: 7, Packets: places.Draw(t, "packets")}
	}
	i.Duplicate = probability.Draw(t, "duplicate")
	i.Reorder = Reorder{probability.Draw(t, "reorder"), rapid.IntRange(0, MaxReorderDepth).Draw(t, "depth")}
	i.Corrupt = Corrupt{probability.Draw(t, "corrupt"), rapid.Bool().Draw(t, "anywhere"), rapid.IntRange(0, MaxCorruptBits).Draw(t, "bits")}
	i.Rate = rapid.Uint64Range(0, maxRate).Draw(t, "rate")
	i.Burst = rapid.Uint64Range(0, maxBytes).Draw(t, "burst")
	i.Queue = Queue{rapid.OneOf(rapid.Just(uint64(0)), size).Draw(t, "bytes"), rapid.Uint64Range(0, maxPackets).Draw(t, "packets")}
	least := rapid.Uint64Range(0, maxBytes-1).Draw(t, "min")
	i.ECN = ECN{least, rapid.Uint64Range(least+1, maxBytes).Draw(t, "max"), rapid.SampledFrom([]float64{0, 0.2, 1e-9}).Draw(t, "probability")}
	i.Cut = rapid.Bool().Draw(t, "cut")
	period := rapid.Int64Range(int64(minPeriod), int64(maxPeriod)).Draw(t, "period")
	i.Flap = Flap{time.Duration(period), time.Duration(rapid.Int64Range(1, period).Draw(t, "down"))}
	i.Faults = rapid.SliceOfN(rapid.Custom(drawFault), 0, 3).Draw(t, "faults")

	c := Change{&i.Delay, &i.Jitter, &i.Loss, &i.Duplicate, &i.Reorder, &i.Corrupt, &i.Rate, &i.Burst, &i.Queue, &i.ECN, &i.Cut, &i.Flap, &i.Faults}
	forget := func(key string) bool { return rapid.Bool().Draw(t, "without "+key) }
	v := reflect.ValueOf(&c).Elem()
	for n := range v.NumField() {
		if forget(v.Type().Field(n).Name) {
			v.Field(n).SetZero()
		}
	}
	return c
}

func drawFault(t *rapid.T) Fault {
	sorted := func(n uint64) []uint64 { return []uint64{n, n + 1} }
	f := Fault{Action: rapid.SampledFrom([]Action{Drop, Postpone, Double, Corrode}).Draw(t, "action")}
	if f.Action == Postpone {
		f.Delay = time.Duration(rapid.Int64Range(1, int64(maxDelay)).Draw(t, "delay"))
	}
	m := &f.Match
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		m.Opcodes = slices.Sorted(maps.Keys(rapid.MapOfN(rapid.Uint8(), rapid.Just(true), 1, 40).Draw(t, "opcodes")))
	case 1:
		m.Syndromes = []string{"nak", "rnr"}
	case 2:
		m.CM = slices.Sorted(maps.Keys(rapid.MapOfN(rapid.Uint16Range(1, 40), rapid.Just(true), 1, 9).Draw(t, "messages")))
	}
	if rapid.Bool().Draw(t, "numbers") {
		qp := rapid.Uint32Range(0, max24)
		if m.CM != nil {
			qp = rapid.Just(uint32(1))
		}
		m.QP = new(qp.Draw(t, "qp"))
		first := rapid.Uint32Range(0, max24).Draw(t, "first")
		m.PSN = &PSNs{first, (first + rapid.Uint32Range(0, halfPSNs).Draw(t, "length")) & max24}
		m.Packets = sorted(rapid.Uint64Range(1, 1<<39).Draw(t, "nth"))
		m.Every = rapid.SampledFrom([]uint64{0, 1, m.Packets[0]}).Draw(t, "every")
		m.Count = rapid.Uint64Range(0, 1<<40).Draw(t, "count")
		m.Probability = rapid.Float64Range(1e-9, 1).Draw(t, "probability")
	}
	return f
}

// Every key of an impairment means the same in a link, in a timeline and on the
// command line.
func TestKeysAreTheSameEverywhere(t *testing.T) {
	keys := make(map[string]bool)
	for _, setting := range []string{
		"delay=3s", "jitter=50us", "jitter={file: good.txt}", "jitter={samples: [1ms, -1ms]}", "jitter={spread: 1ms, distribution: pareto}",
		"loss=1%", "loss={rate: 1%, burst: 5}", "loss={every: 7}", "loss={packets: [3, 17]}",
		"duplicate=1%", "reorder={probability: 1%, depth: 3}", "corrupt={probability: 1%, where: anywhere, bits: 2}",
		"rate=400gbit", "burst=64KiB", "queue=1MiB", "queue=100packets", "ecn={min: 1KiB, max: 2KiB}", "ecn={min: 1KiB, max: 2KiB, probability: 5%}", "cut=true", "flap={period: 1s, down: 100ms}",
		"faults=[{match: {opcode: ack, qp: 0x12, psn: 0xfffff0-0xf, nth: 3}, action: delay, delay: 1ms}, {match: {cm: REQ}, action: corrupt}]",
	} {
		key, value, _ := strings.Cut(setting, "=")
		keys[key] = true
		change, err := ParseChange(readSamples, []string{setting})
		if err != nil {
			t.Fatal(err)
		}
		for place, file := range map[string]string{
			"link":     `{endpoints: ["a:e", "b:e"], %s}]}`,
			"reverse":  `{endpoints: ["a:e", "b:e"], reverse: {%s}}]}`,
			"defaults": `{endpoints: ["a:e", "b:e"]}], defaults: {link: {%s}}}`,
			"timeline": `{endpoints: ["a:e", "b:e"], delay: 1s}]}` + "\n" + `timeline: [{at: 1s, link: "a:e", set: {%s}}]`,
		} {
			given, before := key+": "+value, Impairment{}
			if key != "delay" && place != "timeline" { // which some need
				given, before.Delay = given+", delay: 1s", time.Second
			}
			text := "topology: {nodes: {a: , b: }, links: [" + fmt.Sprintf(file, given)
			lab, err := ParseWith(Options{Read: readSamples}, "x.ndklab.yaml", []byte(text))
			if err != nil {
				t.Errorf("%s in %s: %v", setting, place, err)
				continue
			}
			want, got := any(change.Apply(before)), any(lab.Links[0].Directions[0])
			switch place {
			case "reverse":
				got = lab.Links[0].Directions[1]
			case "timeline":
				want, got = change, lab.Timeline[0].Set
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s in %s (-want +got):\n%s", setting, place, diff)
			}
		}
	}
	for _, key := range impairmentTable().names() {
		if !keys[key] {
			t.Errorf("%s is not tested", key)
		}
	}
}

// TestSampleFilePaths checks that relative paths are from the topology's folder.
func TestSampleFilePaths(t *testing.T) {
	for file, want := range map[string]string{"s.txt": "some/where/s.txt", "../s.txt": "some/s.txt", "/abs/s.txt": "/abs/s.txt"} {
		var asked []string
		read := func(path string) ([]byte, error) {
			asked = append(asked, path)
			return []byte("1ms"), nil
		}
		_, err := ParseWith(Options{Read: read}, "some/where/x.ndklab.yaml", fmt.Appendf(nil, `
topology: {nodes: {a: , b: }, links: [{endpoints: ["a:e", "b:e"], jitter: {file: %s}, reverse: {jitter: {file: %s}}}]}`, file, file))
		if err != nil || !slices.Equal(asked, []string{want}) {
			t.Errorf("%s: read %q, %v, want %s once", file, asked, err, want)
		}
	}
}
