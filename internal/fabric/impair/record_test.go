package impair

import (
	"bytes"
	stdcmp "cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"github.com/ndklab/ndklab/topology"
	"pgregory.net/rapid"
)

// recording runs n packets through a direction, and is their verdicts and log.
func recording(d *Direction, link string, index, n int) ([]Verdict, []byte) {
	var all []Verdict
	log := AppendHeader(nil, 1)
	s := newTraffic(1)
	for range n {
		p, at := s.next()
		v := d.Packet(p, at)
		r := d.Record(p, at, &v)
		r.Link, r.Direction = link, index
		log = r.Append(log)
		all = append(all, v)
	}
	return all, log
}

// The decisions are part of what a seed promises, and the lines what a version
// of the format does: they may not change between releases.
func TestLogIsStable(t *testing.T) {
	d := direction(42, "client:eth0", 0, everything())
	_, log := recording(d, "client:eth0", 0, 8)
	want := `{"ndklab":"decisions","version":1,"seed":1}
{"link":"client:eth0","direction":0,"place":1,"at_ns":4187,"frame":434,"fate":"passes","delay_ns":1062097}
{"link":"client:eth0","direction":0,"place":2,"at_ns":9097,"frame":2392,"fate":"passes","delay_ns":1006079,"overtakes":1}
{"link":"client:eth0","direction":0,"place":3,"at_ns":11239,"frame":612,"opcode":7,"qp":17,"psn":1,"fate":"passes","fault":2,"delay_ns":1065161,"postponed_ns":1000000}
{"link":"client:eth0","direction":0,"place":4,"at_ns":12319,"frame":3768,"opcode":4,"qp":17,"psn":2,"fate":"passes","fault":4,"delay_ns":1019841,"overtakes":1,"twice":true,"flip":[11006,27952,2380]}
{"link":"client:eth0","direction":0,"place":5,"at_ns":18211,"frame":601,"opcode":100,"qp":17,"psn":3,"fate":"lost","cause":"place","fault":4}
{"link":"client:eth0","direction":0,"place":6,"at_ns":19376,"frame":1614,"opcode":17,"qp":17,"psn":4,"syndrome":31,"fate":"passes","fault":4,"delay_ns":995799,"overtakes":3,"twice":true}
{"link":"client:eth0","direction":0,"place":7,"at_ns":20926,"frame":1809,"opcode":100,"qp":17,"psn":5,"fate":"passes","fault":4,"delay_ns":1006021,"overtakes":2,"twice":true}
{"link":"client:eth0","direction":0,"place":8,"at_ns":27741,"frame":1783,"opcode":7,"qp":17,"psn":6,"fate":"passes","fault":2,"delay_ns":1038543,"postponed_ns":1000000}
`
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(string(log), "\n")); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if got, want := string(AppendMissing(nil, 7)), "{\"missing\":7}\n"; got != want {
		t.Errorf("missing: %s, want %s", got, want)
	}
}

func TestRecordsSurviveTheirLine(t *testing.T) {
	flip := Flip{bits: [MaxFlips]uint32{1, 9000}}
	for _, r := range []Record{
		{Place: 1, Frame: 60},
		{Place: 1 << 60, Direction: 1, At: time.Hour, Frame: 9014, Known: true, RoCE: Identity{Opcode: roce.Acknowledge, Syndrome: 0x61, QP: 1 << 23, PSN: 0xffffff}, Verdict: Verdict{Fate: Lost, Cause: Burst, Fault: 3}},
		{Place: 2, Frame: 60, Known: true, RoCE: Identity{Opcode: roce.UDSendOnly, CM: mad.AttributeREJ, QP: 1}, Verdict: Verdict{Fate: QueueFull}},
		{Place: 3, Frame: 60, Verdict: Verdict{Fate: Down, Cause: Flap}},
		{Place: 4, At: 5, Frame: 60, Verdict: Verdict{Mark: true, Twice: true, Fault: 1, Queued: 10, Postponed: 20, Departs: 100, Flip: flip}},
		{Place: 5, At: 5, Frame: 60, Verdict: Verdict{Overtakes: MaxDepth, Departs: 5}},
	} {
		for _, link := range []string{"client:eth0", "a \"b\" \\ é\n"} {
			r.Link = link
			line := r.Append(nil)
			log, err := ReadLog(bytes.NewReader(append(AppendHeader(nil, 5), line...)))
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			s := log.Sequence(link, r.Direction)
			var want Sequence
			if err := want.add(&r); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&want, s, cmp.AllowUnexported(Sequence{}, recorded{}, Flip{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", line, diff)
			}
		}
	}
}

func TestReadLog(t *testing.T) {
	header := string(AppendHeader(nil, 77))
	line := func(format string, a ...any) string {
		return fmt.Sprintf(`{"link":"x","direction":0,"place":1,"frame":60,"fate":"passes"`+format+"}\n", a...)
	}
	log, err := ReadLog(strings.NewReader(header + line("") + string(AppendMissing(nil, 5)) + strings.Replace(line(""), "direction\":0", "direction\":1", 1) + string(AppendMissing(nil, 6)) + `{"link":`))
	if err != nil || log.Seed != 77 || log.Records != 2 || log.Missing != 11 || !log.CutShort {
		t.Errorf("log %+v, %v", log, err)
	}
	if diff := cmp.Diff([]string{"x"}, log.Links()); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	if log.Sequence("x", 0) == nil || log.Sequence("x", 1) == nil || log.Sequence("y", 0) != nil {
		t.Error("a sequence is missing, or there is one too many")
	}
	if log, err := ReadLog(strings.NewReader(header)); err != nil || log.CutShort || log.Records != 0 {
		t.Errorf("empty log: %+v, %v", log, err)
	}
	for says, bad := range map[string]string{
		"line 1: this is no log":                  "",
		"this is no log":                          "{}\n",
		"is of version 2":                         strings.Replace(header, "1", "2", 1),
		"line 2: this is no record":               header + "nonsense\n",
		"line 2: a line of more than 65536 bytes": header + strings.Repeat("x", maxLine),
		"line 3: place 1 of x":                    header + line("") + line(""),
		"needs a link":                            header + "{}\n",
		"a direction of 0 or 1":                   header + strings.Replace(line(""), "0", "2", 1),
		`unknown fate "lives"`:                    header + strings.Replace(line(""), "passes", "lives", 1),
		`unknown cause "bad luck"`:                header + line(`,"cause":"bad luck"`),
		"-1 ns is out of range":                   header + line(`,"delay_ns":-1`),
		"ns is out of range":                      header + line(`,"queued_ns":%d`, maxInstant+1),
		"9 bits flipped":                          header + line(`,"flip":[1,2,3,4,5,6,7,8,9]`),
		"no packet has bit":                       header + line(`,"flip":[600000]`),
		"257 packets overtaken":                   header + line(`,"overtakes":257`),
	} {
		if log, err := ReadLog(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v, %v, want an error with %q", log, err, says)
		}
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	d, s := direction(1, "link", 0, everything()), newTraffic(1)
	b := make([]byte, 0, 600)
	longest := 0
	if n := testing.AllocsPerRun(10_000, func() {
		p, at := s.next()
		v := d.Packet(p, at)
		r := d.Record(p, at, &v)
		longest = max(longest, len(r.Append(b)))
	}); n > 0 {
		t.Errorf("%v allocations per record", n)
	}
	most := Record{
		Direction: 1, Place: 1<<64 - 1, At: maxInstant, Frame: maxFrame, Known: true, RoCE: Identity{0xd1, 255, 65535, roce.PSNMask, roce.PSNMask},
		Verdict: Verdict{Mark: true, Twice: true, Fault: 65535, Overtakes: 65535, Queued: 1 << 62, Postponed: 1 << 62, Departs: 1<<63 - 1},
	}
	for i := range most.Verdict.Flip.bits {
		most.Verdict.Flip.bits[i] = 8 * maxFrame
	}
	if n := len(most.Append(nil)); n > 512 {
		t.Errorf("a line has %d bytes", n)
	}
}

// Replayed with other settings and another seed, the same packets meet the same
// fate at the same instants.
func TestReplayRepeatsDecisions(t *testing.T) {
	const n = 20_000
	settings := everything()
	want, text := recording(direction(1, "link", 0, settings), "link", 0, n)
	log, err := ReadLog(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	d := direction(2, "link", 0, topology.Impairment{Rate: settings.Rate, Burst: settings.Burst, Loss: topology.Loss{Rate: 0.5}, Cut: true})
	d.Replay(log.Sequence("link", 0))
	got := verdicts(d, n)
	// Where packets leave at the same instant, a replay makes room between them.
	near := cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() <= 50*time.Microsecond })
	if diff := cmp.Diff(want, got, compareVerdicts, near); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	if got, want := d.Replayed(), (Replayed{Packets: n}); got != want {
		t.Errorf("replayed %+v, want %+v", got, want)
	}
	// A packet behind the log's end meets the settings.
	if v := d.Packet(packet(100), time.Hour); v.Cause != Cut {
		t.Errorf("behind the end: %+v", v)
	}
	if got, want := d.Replayed(), (Replayed{Packets: n, Unrecorded: 1}); got != want {
		t.Errorf("replayed %+v, want %+v", got, want)
	}
}

// With the recorded seed and settings, a log with gaps does no harm, nor does
// its end.
func TestReplayDrawsOnWhereNothingIsRecorded(t *testing.T) {
	const n = 20_000
	settings := everything()
	want, text := recording(direction(1, "link", 0, settings), "link", 0, n)
	lines := bytes.SplitAfter(text, []byte("\n"))
	var kept []byte
	for i, line := range lines {
		if i == 0 || i%10 > 2 && i < n/2 {
			kept = append(kept, line...)
		}
	}
	log, err := ReadLog(bytes.NewReader(kept))
	if err != nil {
		t.Fatal(err)
	}
	d := direction(1, "link", 0, settings)
	d.Replay(log.Sequence("link", 0))
	differ := 0
	for i, v := range verdicts(d, n) {
		// Timing decides which packets have room in the queue, and which are replayed.
		if v.Fate != want[i].Fate || v.Cause != want[i].Cause || v.Fault != want[i].Fault || v.Flip != want[i].Flip || v.Twice != want[i].Twice {
			differ++
		}
	}
	if differ > 0 {
		t.Errorf("%d decisions differ", differ)
	}
	if r := d.Replayed(); r.Diverged > 0 || r.Packets+r.Unrecorded != n || r.Packets != log.Records {
		t.Errorf("replayed %+v of %d records", r, log.Records)
	}
}

func TestReplayCountsOtherPackets(t *testing.T) {
	id := Identity{Opcode: roce.SendOnly, QP: 5, PSN: 6}
	seen := Packet{Frame: 100, RoCE: &id}
	d := New(1, "link", 0)
	v := d.Packet(&seen, 0)
	r := d.Record(&seen, 0, &v)
	for name, c := range map[string]struct {
		p        Packet
		diverged uint64
	}{
		"the same":  {Packet{Frame: 100, RoCE: &Identity{Opcode: roce.SendOnly, QP: 5, PSN: 6}}, 0},
		"length":    {Packet{Frame: 101, RoCE: &id}, 1},
		"psn":       {Packet{Frame: 100, RoCE: &Identity{Opcode: roce.SendOnly, QP: 5, PSN: 7}}, 1},
		"not RoCE":  {Packet{Frame: 100}, 1},
		"ECN alone": {Packet{Frame: 100, RoCE: &id, ECT: true}, 0},
	} {
		var s Sequence
		if err := s.add(&r); err != nil {
			t.Fatal(err)
		}
		d := New(1, "link", 0)
		d.Replay(&s)
		d.Packet(&c.p, 0)
		if got := d.Replayed(); got.Packets != 1 || got.Diverged != c.diverged {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Packets that come at other times keep the order that was recorded.
func TestReplayKeepsTheOrderAtOtherTimes(t *testing.T) {
	const n = 5000
	settings := topology.Impairment{Delay: time.Millisecond, Reorder: topology.Reorder{Probability: 0.2, Depth: 3}}
	run := func(d *Direction, stretch time.Duration) (all []Verdict, log []byte) {
		log = AppendHeader(log, 1)
		for i := range n {
			at := time.Duration(i) * stretch
			v := d.Packet(packet(100), at)
			r := d.Record(packet(100), at, &v)
			r.Link = "link"
			log = r.Append(log)
			all = append(all, v)
		}
		return all, log
	}
	want, text := run(direction(1, "link", 0, settings), 1000)
	log, err := ReadLog(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, stretch := range []time.Duration{900, 1100} {
		d := New(9, "link", 0)
		d.Replay(log.Sequence("link", 0))
		differ := 0
		got, _ := run(d, stretch)
		for i, v := range got {
			if v.Overtakes != want[i].Overtakes {
				differ++
			}
		}
		if differ > 0 {
			t.Errorf("at %v: %d packets overtake another number than recorded", stretch, differ)
		}
	}
}

// The order is kept whatever the gaps between packets were, and are now, if
// those are on their way that were: of bursts that came one after the other and
// come together, and the other way round.
func TestReplayKeepsTheOrderOfBursts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		settings := topology.Impairment{Delay: time.Second, Reorder: topology.Reorder{
			Probability: rapid.Float64Range(0.01, 0.5).Draw(t, "probability"), Depth: rapid.IntRange(1, 8).Draw(t, "depth")}}
		if rapid.Bool().Draw(t, "jittered") {
			settings.Jitter.Spread = time.Millisecond
		}
		gaps := rapid.SliceOfN(rapid.SampledFrom([]time.Duration{0, 0, 0, 1, 2, 100, 3000, 100_000}), 200, 200)
		run := func(d *Direction, name string) (s Sequence, order []int) {
			var at time.Duration
			var departs []time.Duration
			for i, gap := range gaps.Draw(t, name) {
				at += gap
				v := d.Packet(packet(100), at)
				r := d.Record(packet(100), at, &v)
				if err := s.add(&r); err != nil {
					t.Fatal(err)
				}
				departs, order = append(departs, v.Departs), append(order, i)
			}
			slices.SortStableFunc(order, func(i, j int) int { return stdcmp.Compare(departs[i], departs[j]) })
			return s, order
		}
		s, want := run(direction(rapid.Uint64().Draw(t, "seed"), "link", 0, settings), "recorded")
		d := New(9, "link", 0)
		d.Replay(&s)
		_, got := run(d, "replayed")
		if !slices.Equal(want, got) {
			t.Fatalf("recorded order %v\nreplayed order %v", want, got)
		}
	})
}

// sequence returns the decisions on n packets that are made alike, gap apart.
func sequence(t *testing.T, d *Direction, gap time.Duration, n int) (*Sequence, []Verdict) {
	t.Helper()
	var s Sequence
	var all []Verdict
	for i := range n {
		p := &Packet{Frame: 1000 - framing, ECT: true}
		v := d.Packet(p, time.Duration(i)*gap)
		r := d.Record(p, time.Duration(i)*gap, &v)
		if err := s.add(&r); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return &s, all
}

// Lost packets take their turn again if they had one, and packets that passed
// pass, also where the queue is full now.
func TestReplayOfAFullQueue(t *testing.T) {
	settings := topology.Impairment{Rate: 8_000_000_000, Queue: topology.Queue{Packets: 4}, Loss: topology.Loss{Rate: 0.5}}
	s, want := sequence(t, direction(1, "link", 0, settings), 200, 1000) // five times the rate
	d := direction(1, "link", 0, settings)
	d.Replay(s)
	if _, got := sequence(t, d, 200, 1000); !cmp.Equal(want, got, compareVerdicts) {
		t.Error("at the same instants the verdicts differ")
	}
	d = direction(1, "link", 0, settings)
	d.Replay(s)
	_, got := sequence(t, d, 0, 1000)
	var last time.Duration
	passed := 0
	for i, v := range got {
		if v.Fate != want[i].Fate {
			t.Errorf("packet %d: %v, recorded %v", i, v.Fate, want[i].Fate)
		}
		if v.Fate == Passes {
			passed++
			if v.Departs < last+1000 {
				t.Errorf("packet %d departs at %v after %v", i, v.Departs, last)
			}
			last = v.Departs
		}
	}
	if passed < 50 {
		t.Errorf("%d packets passed", passed)
	}
}

// A replay may begin when packets have entered already, and marks none that may
// not be marked.
func TestReplayBeginsLate(t *testing.T) {
	settings := topology.Impairment{Rate: 8_000_000, ECN: topology.ECN{Min: 1, Max: 1}}
	s, want := sequence(t, direction(1, "link", 0, settings), 0, 10)
	d := New(1, "link", 0)
	for range 5 {
		d.Packet(packet(100), 0)
	}
	d.Replay(s)
	p := &Packet{Frame: 1000 - framing, ECT: true}
	if v := d.Packet(p, 0); !want[5].Mark || !v.Mark || d.Replayed().Packets != 1 {
		t.Errorf("sixth packet: %+v, recorded %+v", v, want[5])
	}
	p.ECT = false
	if v := d.Packet(p, 0); !want[6].Mark || v.Mark {
		t.Errorf("not ECN-capable: %+v", v)
	}
}

// No log breaks ReadLog, nor the replay of what it holds.
func FuzzReadLog(f *testing.F) {
	_, log := recording(direction(1, "x", 0, everything()), "x", 0, 20)
	f.Add(log)
	f.Add(AppendMissing(AppendHeader(nil, 1), 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		log, err := ReadLog(bytes.NewReader(b))
		if err != nil {
			return
		}
		for place, s := range log.sequences {
			d := direction(1, place.link, place.direction, topology.Impairment{Rate: 1e9})
			d.Replay(s)
			source := newTraffic(1)
			for range 30 {
				p, at := source.next()
				if v := d.Packet(p, at); v.Fate == Passes && v.Departs < at {
					t.Errorf("at %v: %+v", at, v)
				}
			}
		}
	})
}
