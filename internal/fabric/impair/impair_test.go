package impair

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/topology"
)

const million = 1_000_000

// direction is one with settings from the beginning.
func direction(seed uint64, link string, index int, settings topology.Impairment) *Direction {
	d := New(seed, link, index)
	d.Set(settings, 0)
	return d
}

// packet is a plain one of a frame's length.
func packet(frame int) *Packet { return &Packet{Frame: frame, Payload: 42} }

// within fails unless hits in n are as many as a probability lets expect, by the
// 99.9 % interval.
func within(t *testing.T, what string, hits, n int, p float64) {
	t.Helper()
	if off := math.Abs(float64(hits) - p*float64(n)); off > 3.29*math.Sqrt(float64(n)*p*(1-p)) {
		t.Errorf("%s: %d of %d, want %v", what, hits, n, p)
	}
}

// everything is an impairment with all that there is.
func everything() topology.Impairment {
	return topology.Impairment{
		Delay:     time.Millisecond,
		Jitter:    topology.Jitter{Spread: 100 * time.Microsecond, Distribution: topology.Normal},
		Loss:      topology.Loss{Rate: 0.01, Burst: 3, Every: 1000, Packets: []uint64{5, 77, 10_000}},
		Duplicate: 0.1,
		Reorder:   topology.Reorder{Probability: 0.1, Depth: 5},
		Corrupt:   topology.Corrupt{Probability: 0.1, Anywhere: true, Bits: 3},
		Rate:      10_000_000_000,
		Burst:     100_000,
		Queue:     topology.Queue{Bytes: 1 << 20, Packets: 300},
		ECN:       topology.ECN{Min: 10_000, Max: 200_000},
		Flap:      topology.Flap{Period: 10 * time.Millisecond, Down: time.Millisecond},
		Faults: []topology.Fault{
			{Match: topology.Match{Opcodes: []uint8{uint8(roce.Acknowledge)}, Syndromes: []string{"nak"}, Every: 3}, Action: topology.Drop},
			{Match: topology.Match{PSN: &topology.PSNs{First: 0xffff00, Last: 0xff}, Probability: 0.5}, Action: topology.Postpone, Delay: time.Millisecond},
			{Match: topology.Match{Packets: []uint64{7, 9}}, Action: topology.Corrode},
			{Match: topology.Match{Count: 10}, Action: topology.Double},
		},
	}
}

// traffic is a source of random packets with random gaps.
type traffic struct {
	*rand.Rand
	at time.Duration
	id Identity
	p  Packet
}

func newTraffic(seed uint64) *traffic {
	return &traffic{Rand: rand.New(rand.NewPCG(seed, 0))}
}

// next is a packet and its arrival.
func (s *traffic) next() (*Packet, time.Duration) {
	s.at += time.Duration(s.Int64N(7000))
	s.p = Packet{Frame: 60 + s.IntN(4200), Payload: 42, ECT: s.IntN(2) == 0}
	if s.IntN(4) > 0 {
		opcodes := [...]roce.Opcode{roce.WriteMiddle, roce.Acknowledge, roce.SendOnly, roce.UDSendOnly}
		s.id = Identity{Opcode: opcodes[s.IntN(len(opcodes))], QP: 17, PSN: (s.id.PSN + 1) & roce.PSNMask}
		if s.id.Opcode == roce.Acknowledge {
			syndromes := [...]roce.Syndrome{roce.SyndromeACK, roce.SyndromePSNSequence}
			s.id.Syndrome = syndromes[s.IntN(2)]
		}
		s.p.RoCE = &s.id
	}
	return &s.p, s.at
}

func TestUnimpairedPacketsPassAtOnce(t *testing.T) {
	d := New(1, "link", 0)
	for i := range 100 {
		at := time.Duration(i) * time.Microsecond
		if v := d.Packet(packet(1500), at); v != (Verdict{Departs: at}) {
			t.Fatalf("packet %d at %v: %+v", i, at, v)
		}
	}
}

func TestWireBytes(t *testing.T) {
	for _, c := range []struct{ frame, want int }{{14, 84}, {60, 84}, {61, 85}, {1514, 1538}, {4214, 4238}} {
		if got := WireBytes(c.frame); got != c.want {
			t.Errorf("WireBytes(%d) = %d, want %d", c.frame, got, c.want)
		}
	}
}

// verdicts are those on a sequence of packets.
func verdicts(d *Direction, n int) []Verdict {
	all, s := make([]Verdict, n), newTraffic(1)
	for i := range all {
		all[i] = d.Packet(s.next())
	}
	return all
}

// compareVerdicts looks into a Flip, too.
var compareVerdicts = cmp.AllowUnexported(Flip{})

func TestSameSequenceMeetsSameFate(t *testing.T) {
	const n = 20_000
	base := verdicts(direction(1, "link", 0, everything()), n)
	if diff := cmp.Diff(base, verdicts(direction(1, "link", 0, everything()), n), compareVerdicts); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
	for name, other := range map[string]*Direction{
		"seed":      direction(2, "link", 0, everything()),
		"link":      direction(1, "link2", 0, everything()),
		"direction": direction(1, "link", 1, everything()),
	} {
		same := 0
		for i, v := range verdicts(other, n) {
			if v.Fate != Down && v.Flip.Any() && v.Flip == base[i].Flip {
				same++
			}
		}
		if same > 0 {
			t.Errorf("with another %s, %d of %d packets were corrupted alike", name, same, n)
		}
	}
}

// A setting's decisions are what they are whatever the other settings, and
// however packets are timed.
func TestDecisionsDoNotDependOnOtherSettings(t *testing.T) {
	const n = 20_000
	full := everything()
	full.Flap, full.Faults = topology.Flap{}, nil
	full.Loss.Every, full.Loss.Packets = 0, nil
	full.Jitter.Spread = 10 * time.Nanosecond // keeps apart who overtakes by jitter
	queueing := full
	queueing.Queue.Packets = 1 // most find it full
	of := func(i topology.Impairment, stretch time.Duration) []Verdict {
		d, s, all := direction(1, "link", 0, i), newTraffic(1), make([]Verdict, n)
		for i := range all {
			p, at := s.next()
			all[i] = d.Packet(p, at*stretch)
		}
		return all
	}
	base := of(full, 1)
	for _, c := range []struct {
		name    string
		only    topology.Impairment
		decided func(v Verdict) any
		passing bool // the decision is seen on passing packets alone
	}{
		{"loss", topology.Impairment{Loss: full.Loss}, func(v Verdict) any { return v.Cause }, false},
		{"duplicate", topology.Impairment{Duplicate: full.Duplicate}, func(v Verdict) any { return v.Twice }, true},
		{"corrupt", topology.Impairment{Corrupt: full.Corrupt}, func(v Verdict) any { return v.Flip }, true},
	} {
		for name, other := range map[string][]Verdict{
			"alone": of(c.only, 1), "slowly": of(full, 1000), "with a full queue": of(queueing, 1),
		} {
			differ, hits := 0, 0
			for i, v := range other {
				if c.passing && (v.Fate != Passes || base[i].Fate != Passes) {
					continue
				}
				if c.decided(v) != c.decided(Verdict{}) {
					hits++
				}
				if c.decided(v) != c.decided(base[i]) {
					differ++
				}
			}
			if differ > 0 || hits == 0 {
				t.Errorf("%s %s: %d decisions differ, %d packets were hit", c.name, name, differ, hits)
			}
		}
	}
	// The packets that hurry are seen where there is always one to overtake.
	slow := of(topology.Impairment{Delay: time.Second, Reorder: full.Reorder}, 1)
	other := of(topology.Impairment{Delay: time.Second, Reorder: full.Reorder, Duplicate: 0.5, Corrupt: full.Corrupt}, 1)
	if diff := cmp.Diff(departures(slow), departures(other)); diff != "" {
		t.Errorf("other settings changed who overtakes:\n%s", diff)
	}
}

func departures(all []Verdict) (at []time.Duration) {
	for _, v := range all {
		at = append(at, v.Departs)
	}
	return at
}

func TestSetLeavesPacketsOnTheirWay(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Delay: 10 * time.Millisecond})
	first := d.Packet(packet(1000), 0)
	d.Set(topology.Impairment{Delay: time.Millisecond}, 0)
	if first.Departs != 10*time.Millisecond {
		t.Errorf("first departs at %v", first.Departs)
	}
	if v := d.Packet(packet(1000), time.Millisecond); v.Departs != 10*time.Millisecond {
		t.Errorf("second departs at %v, want right behind the first", v.Departs)
	}
	if v := d.Packet(packet(1000), 20*time.Millisecond); v.Departs != 21*time.Millisecond {
		t.Errorf("third departs at %v, want 21ms", v.Departs)
	}
}

// Settings that a change leaves alone go on; those that it names begin anew.
func TestSetResetsWhatChanges(t *testing.T) {
	settings := topology.Impairment{
		Loss:   topology.Loss{Packets: []uint64{3}},
		Flap:   topology.Flap{Period: 100, Down: 50},
		Faults: []topology.Fault{{Match: topology.Match{Packets: []uint64{4}}, Action: topology.Drop}},
	}
	d := New(1, "link", 0)
	d.Set(settings, 1000)
	var at time.Duration
	next := func() Cause {
		return d.Packet(&Packet{Frame: 100, RoCE: &Identity{}}, at).Cause
	}
	at = 1000
	if a, b := next(), next(); a != None || b != None {
		t.Errorf("first two packets: %v, %v", a, b)
	}
	settings.Delay = time.Millisecond
	d.Set(settings, 1040) // neither loss nor flap nor faults
	at = 1049
	if a, b := next(), next(); a != Place || b != Fault {
		t.Errorf("third and fourth packet after another change: %v, %v", a, b)
	}
	at = 1050
	if a := next(); a != Flap {
		t.Errorf("in the second half of the period: %v", a)
	}
	settings.Loss.Packets = []uint64{2}
	settings.Flap.Down = 49
	settings.Faults = []topology.Fault{{Match: topology.Match{Packets: []uint64{3}}, Action: topology.Drop}}
	d.Set(settings, 1050)
	for i, want := range []Cause{None, Place, Fault} {
		if got := next(); got != want {
			t.Errorf("packet %d after all changed: %v, want %v", i+1, got, want)
		}
	}
	at = 1100
	if a := next(); a != None {
		t.Errorf("50 ns after the flap began anew: %v", a)
	}
}

// The least delay that is promised holds for every draw that the settings allow.
func TestLeastDelay(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name     string
		settings topology.Impairment
		want     time.Duration
	}{
		{"none", topology.Impairment{}, 0},
		{"steady", topology.Impairment{Delay: ms, Rate: 1e9, Loss: topology.Loss{Rate: 0.5}}, ms},
		{"even jitter", topology.Impairment{Delay: ms, Jitter: topology.Jitter{Spread: 400 * time.Microsecond}}, 600 * time.Microsecond},
		{"jitter beyond the delay", topology.Impairment{Delay: ms, Jitter: topology.Jitter{Spread: 2 * ms}}, 0},
		{"jitter without a bound", topology.Impairment{Delay: ms, Jitter: topology.Jitter{Spread: 1, Distribution: topology.Normal}}, 0},
		{"packets that overtake", topology.Impairment{Delay: ms, Reorder: topology.Reorder{Probability: 0.1}}, 0},
	} {
		if got := direction(1, "link", 0, c.settings).LeastDelay(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	replaying := direction(1, "link", 0, topology.Impairment{Delay: ms})
	replaying.Replay(new(Sequence))
	if got := replaying.LeastDelay(); got != 0 {
		t.Errorf("replaying: %v, want 0: who knows what was recorded", got)
	}
}

func TestCut(t *testing.T) {
	d := direction(1, "link", 0, topology.Impairment{Loss: topology.Loss{Rate: 1}})
	if v := d.Packet(packet(1000), 0); v.Fate != Lost || v.Cause != Chance {
		t.Errorf("before: %+v", v)
	}
	if a := d.Asked(); a.Packets != 1 || a.Loss != 1 {
		t.Errorf("asked: %+v", a)
	}
	d.Set(topology.Impairment{Cut: true}, 0)
	if v := d.Packet(packet(1000), 0); v.Fate != Down || v.Cause != Cut {
		t.Errorf("cut: %+v", v)
	}
	if d.Packet(packet(1000), 0); d.Asked().Packets != 1 {
		t.Errorf("asked: %+v", d.Asked())
	}
}

func TestFlapCutsTheEndOfEachPeriod(t *testing.T) {
	d := New(1, "link", 0)
	d.Set(topology.Impairment{Flap: topology.Flap{Period: 10, Down: 3}}, 105)
	for at := time.Duration(100); at < 200; at++ {
		want := at >= 105 && (at-105)%10 >= 7
		if v := d.Packet(packet(100), at); (v.Fate == Down) != want || want && v.Cause != Flap {
			t.Errorf("at %d: %+v", at, v)
		}
	}
}

func TestDuplicatesAreAsManyAsAsked(t *testing.T) {
	for _, p := range []float64{0, 0.001, 0.1, 1} {
		d := direction(5, "link", 0, topology.Impairment{Duplicate: p})
		twice := 0
		for range million {
			if d.Packet(packet(1000), 0).Twice {
				twice++
			}
		}
		within(t, "duplicates", twice, million, p)
	}
}

func TestPacketDoesNotAllocate(t *testing.T) {
	for name, settings := range map[string]topology.Impairment{"nothing": {}, "everything": everything()} {
		d, s := direction(1, "link", 0, settings), newTraffic(1)
		fates := map[Fate]bool{}
		step := func() {
			for range 100 {
				fates[d.Packet(s.next()).Fate] = true
			}
		}
		for range 100 {
			step() // the queue grows to its size
		}
		if n := testing.AllocsPerRun(100, step); n > 0 {
			t.Errorf("%s: %v allocations per 100 packets", name, n)
		}
		if name == "everything" && len(fates) < 3 {
			t.Errorf("only %v were met", fates)
		}
	}
}

func BenchmarkPacket(b *testing.B) {
	plain := topology.Impairment{Delay: time.Millisecond, Jitter: topology.Jitter{Spread: time.Microsecond}, Loss: topology.Loss{Rate: 0.01}, Rate: 1e10}
	for _, c := range []struct {
		name     string
		settings topology.Impairment
	}{{"nothing", topology.Impairment{}}, {"plain", plain}, {"everything", everything()}} {
		b.Run(c.name, func(b *testing.B) {
			d, gap := direction(1, "link", 0, c.settings), rand.New(rand.NewPCG(1, 2))
			p := packet(4214)
			p.RoCE = &Identity{}
			var at time.Duration
			b.ReportAllocs()
			for b.Loop() {
				at += time.Duration(gap.Int64N(7000))
				d.Packet(p, at)
			}
		})
	}
}

func TestNamesOfFatesAndCauses(t *testing.T) {
	for f := Passes; f <= Down; f++ {
		if got, ok := fateOf(f.String()); !ok || got != f {
			t.Errorf("fate %d is called %q", f, f)
		}
	}
	for c := None; c <= Flap; c++ {
		if got, ok := causeOf(c.String()); !ok || got != c {
			t.Errorf("cause %d is called %q", c, c)
		}
	}
	if len(fates) != int(Down)+1 || len(causes) != int(Flap)+1 || slices.Contains(fates, "") {
		t.Error("a name too many, or none")
	}
}
