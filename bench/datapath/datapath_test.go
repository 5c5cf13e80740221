package main

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/bench/internal/jsonfile"
)

func golden(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The output of the peers is read as they printed it: iperf 3.12, UCX 1.13.1, libfabric
// 1.17.0, sockperf 3.7.
func TestPeers(t *testing.T) {
	near := func(got, want float64, err error) {
		t.Helper()
		if err != nil || math.Abs(got-want) > want*1e-9 {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
	gbps, err := parseIperf(golden(t, "iperf3.json"))
	near(gbps, 15.469992706800589, err)
	u, err := parseUCX(golden(t, "ucx-tag_bw.csv"))
	near(u.messages, 27731, err)
	u, err = parseUCX(golden(t, "ucx-tag_lat.csv"))
	near(u.median, 3.366, err)
	trip, err := parsePingPong(golden(t, "fi_pingpong.txt"))
	near(trip, 4.63, err)
	s, err := parseSockperf(golden(t, "sockperf.txt"))
	near(s.median, 1.949, err)
	near(s.p999, 17.429, err)
}

// A value that is not there is an error, and never a figure of 0.
func TestPeersSayNothing(t *testing.T) {
	for name, texts := range map[string][]string{
		"iperf3":       {"", "{}", `{"error":"unable to connect"}`, `{"end":{"sum_received":{"bits_per_second":0}}}`},
		"ucx_perftest": {"", "iterations,overall_mr\n", "iterations,overall_mr\n1,2\n", "50.0_percentile_lat,overall_mr\n1,x\n", "50.0_percentile_lat,overall_mr\n1,0\n"},
		"fi_pingpong":  {"", "bytes usec/xfer\n", "bytes usec/xfer\n8\n", "bytes usec/xfer\n8 -\n", "[error] failed to connect\n"},
		"sockperf":     {"", "percentile 50.000 = x", "percentile 50.000 = 1", "percentile 99.900 = 1"},
	} {
		for _, text := range texts {
			var err error
			switch name {
			case "iperf3":
				_, err = parseIperf(text)
			case "ucx_perftest":
				_, err = parseUCX(text)
			case "fi_pingpong":
				_, err = parsePingPong(text)
			case "sockperf":
				_, err = parseSockperf(text)
			}
			if err == nil {
				t.Errorf("%s: %q has a figure", name, text)
			}
		}
	}
}

func TestStatistics(t *testing.T) {
	for _, c := range []struct {
		shares []float64
		want   float64
	}{{[]float64{2, 2, 2}, 1}, {[]float64{1, 0, 0, 0}, 0.25}, {[]float64{0, 0}, 0}, {nil, 0}} {
		if got := jain(c.shares); got != c.want {
			t.Errorf("Jain's index of %v: %v", c.shares, got)
		}
	}
	if diff := cmp.Diff(&Spread{Min: 1, Max: 3, Rounds: []float64{2, 3, 1}}, spreadOf([]float64{2, 3, 1})); diff != "" {
		t.Error(diff)
	}
	if spreadOf(nil) != nil {
		t.Error("no figures have a spread")
	}
}

func pointer[T any](v T) *T { return &v }

func TestFigure(t *testing.T) {
	values := map[string][]float64{"a": {8, 10, 12}, "b": {5}, "c": {20}, "d p99": {4}, "e": {16, 5, 24}}
	lacks := map[string]string{"x": "x is not installed", "y": "y failed"}
	spread := func(name string) *Spread { return spreadOf(values[name]) }
	for _, c := range []struct {
		figure figure
		want   Figure
	}{
		{figure{"over", "Gb/s", higher, "a", []reference{{"b", "B"}}, 2}, Figure{
			Name: "over", Unit: "Gb/s", Better: higher, Ndklab: pointer(10.0), Reference: pointer(5.0), ReferenceName: "B",
			Ratio: pointer(2.0), Goal: pointer(2.0), Met: pointer(true), NdklabSpread: spread("a"), ReferenceSpread: spread("b")}},
		{figure{"under", "us", lower, "a", []reference{{"b", "B"}}, 1.9}, Figure{
			Name: "under", Unit: "us", Better: lower, Ndklab: pointer(10.0), Reference: pointer(5.0), ReferenceName: "B",
			Ratio: pointer(2.0), Goal: pointer(1.9), Met: pointer(false), NdklabSpread: spread("a"), ReferenceSpread: spread("b")}},
		{figure{"best is most", "", higher, "a", []reference{{"b", "B"}, {"c", "C"}}, 0}, Figure{
			Name: "best is most", Better: higher, Ndklab: pointer(10.0), Reference: pointer(20.0), ReferenceName: "C",
			Ratio: pointer(0.5), NdklabSpread: spread("a"), ReferenceSpread: spread("c")}},
		{figure{"best is least, of those there are", "", lower, "a", []reference{{"c", "C"}, {"b", "B"}, {"x", "X"}}, 0}, Figure{
			Name: "best is least, of those there are", Better: lower, Ndklab: pointer(10.0), Reference: pointer(5.0), ReferenceName: "B",
			Ratio: pointer(2.0), NdklabSpread: spread("a"), ReferenceSpread: spread("b")}},
		{figure{"round by round", "", higher, "a", []reference{{"e", "E"}}, 0}, Figure{
			Name: "round by round", Better: higher, Ndklab: pointer(10.0), Reference: pointer(16.0), ReferenceName: "E",
			Ratio: pointer(0.5), NdklabSpread: spread("a"), ReferenceSpread: spread("e")}},
		{figure{"alone", "", lower, "d p99", nil, 4}, Figure{
			Name: "alone", Better: lower, Ndklab: pointer(4.0), Goal: pointer(4.0), Met: pointer(true), NdklabSpread: spread("d p99")}},
		{figure{"no reference", "", higher, "a", []reference{{"x", "X"}}, 1}, Figure{
			Name: "no reference", Better: higher, Ndklab: pointer(10.0), Goal: pointer(1.0), NdklabSpread: spread("a"), Lacks: "x is not installed"}},
		{figure{"nothing", "", higher, "y p99", []reference{{"a", "A"}}, 1}, Figure{
			Name: "nothing", Better: higher, Goal: pointer(1.0), Lacks: "y failed"}},
	} {
		if diff := cmp.Diff(c.want, c.figure.of(values, lacks)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.figure.name, diff)
		}
	}
}

// Figures have names of their own, and are made of what is measured.
func TestFiguresHaveProbes(t *testing.T) {
	seen := map[string]bool{}
	names := map[string]bool{}
	for _, p := range probes() {
		if names[p.name] {
			t.Errorf("two probes %s", p.name)
		}
		names[p.name] = true
	}
	used := map[string]bool{}
	for _, f := range figures() {
		if seen[f.name] {
			t.Errorf("two figures %s", f.name)
		}
		seen[f.name] = true
		if f.better != higher && f.better != lower {
			t.Errorf("%s: better is %q", f.name, f.better)
		}
		for _, need := range f.needs() {
			used[need] = true
			if !names[need] {
				t.Errorf("%s: there is no probe %s", f.name, need)
			}
		}
	}
	for name := range names {
		if !used[name] {
			t.Errorf("no figure needs probe %s", name)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int{"8": 8, "0": 0, "64B": 64, "4KiB": 4096, "1MiB": 1 << 20, "1GiB": 1 << 30} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "B", "KiB", "-1", "4KB", "4Ki", "1.5MiB", "2GiB", "1e3", "4KiBB", "99999999999"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

// An error in a command line is reported in the command line's own words.
func TestCommandLines(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"end", "-local is missing"},
		{"end -local x", "-local"},
		{"end -local 10.0.0.1 -role client", "-peer is for"},
		{"end -local 10.0.0.1 -peer 10.0.0.2", "-peer is for"},
		{"end -local 10.0.0.1 -role mesh -op send -peer 10.0.0.2", "-role mesh is of"},
		{"end -local 10.0.0.1 -op erase", "must be one of write, read, send"},
		{"end -local 10.0.0.1 -size 2Gib", "must be 0 to 1GiB"},
		{"end -local 10.0.0.1 -size 0", "-size 0"},
		{"end -local 10.0.0.1 -depth 0", "-depth 0"},
		{"end -local 10.0.0.1 -qps 0", "-qps 0"},
		{"end -local 10.0.0.1 -qps 1000 -depth 10000", "requests in flight"},
		{"end -local 10.0.0.1 -duration 0s", "-duration 0s"},
		{"end -local 10.0.0.1 -warmup -1s", "-warmup -1s"},
		{"end -local 10.0.0.1 -mode lat", "-mode lat is of"},
		{"end -local 10.0.0.1 -mode post -op read", "-mode post is of"},
		{"end -local 10.0.0.1 more", `"more" is no flag`},
		{"end -colour red", "-colour"},
		{"floor -local 10.0.0.1", "-peer are missing"},
		{"floor -local 10.0.0.1 -peer 10.0.0.2 -batch 3 -window 2", "-window"},
		{"floor -local 10.0.0.1 -peer 10.0.0.2 -batch 0", "-batch"},
		{"floor -local 10.0.0.1 -peer 10.0.0.2 -window 1000", "-window"},
		{"floor -local 10.0.0.1 -peer 10.0.0.2 -duration 0s", "-duration"},
		{"run -rounds 0", "-rounds 0"},
		{"run -rounds many", "many"},
		{"run -only (", "-only"},
		{"run -only nonsense", "write-64KiB/floor"},
		{"run fast", `"fast" is no flag`},
	} {
		words := strings.Fields(c.line)
		var err error
		switch words[0] {
		case "end":
			_, err = parseEnd(words[1:])
		case "floor":
			_, err = parseFloor("floor", words[1:])
		case "run":
			_, err = parseBench(words[1:])
		}
		if !errors.Is(err, errUsage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.line, err, c.want)
		}
	}
}

// Of the probes, those are measured that the chosen figures are made of.
func TestOnly(t *testing.T) {
	b, err := parseBench([]string{"-only", "^lat-poll/ucx$"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range b.probes {
		names = append(names, p.name)
	}
	if diff := cmp.Diff([]string{"lat-poll", "ucx-tag-lat"}, names); diff != "" || len(b.figures) != 1 {
		t.Error(diff)
	}
}

// The file has the keys that its readers look for, also where there is no value.
func TestResultsFile(t *testing.T) {
	r := &Results{Figures: []Figure{{Name: "f", Better: higher}}}
	file := filepath.Join(t.TempDir(), "results.json")
	if err := jsonfile.Write(file, r); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"kernel", "cpu", "cores", "go", "load", "wake_us", "veth_mtu", "tools", "commit", "rounds", "figures"} {
		if _, ok := got[key]; !ok {
			t.Errorf("there is no %s", key)
		}
	}
	f := got["figures"].([]any)[0].(map[string]any)
	for _, key := range []string{"name", "unit", "better", "ndklab", "reference", "ratio", "goal", "met", "ndklab_spread", "reference_spread"} {
		if _, ok := f[key]; !ok {
			t.Errorf("a figure has no %s", key)
		}
	}
}

func TestTable(t *testing.T) {
	r := Results{Rounds: 3, Figures: []Figure{
		{Name: "w/f", Unit: "Gb/s", Better: higher, Ndklab: pointer(30.0), Reference: pointer(40.0), ReferenceName: "floor", Ratio: pointer(0.75),
			Goal: pointer(0.8), Met: pointer(false), NdklabSpread: spreadOf([]float64{29, 31}), ReferenceSpread: spreadOf([]float64{40})},
		{Name: "l", Unit: "us", Better: lower, Ndklab: pointer(2.5), Goal: pointer(3.0), Met: pointer(true)},
		{Name: "i", Better: lower, Ndklab: pointer(0.0)},
		{Name: "x", Better: lower, Goal: pointer(3.0), Lacks: "it is not installed"},
	}}
	var b strings.Builder
	r.table(&b)
	r.sum(&b)
	lines := strings.Split(b.String(), "\n")
	for i, want := range []string{
		"FIGURE UNIT NDKLAB SPREAD REFERENCE SPREAD RATIO GOAL",
		"w/f Gb/s 30 29..31 40 0.75 >= 0.8 MISSED floor",
		"l us 2.5 - - <= 3 met",
		"i 0 - -",
		"x - - - <= 3 absent it is not installed",
		"3 rounds in 0 s: 1 goals met, 1 missed, 1 figures absent",
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Half of a round trip counts, in us, and the collector's pauses are those since.
func TestLatency(t *testing.T) {
	before := used()
	runtime.GC()
	runtime.GC()
	cost := used().since(before)
	if cost.GCs < 2 || cost.LongestGC <= 0 || cost.LongestGC > 1e6 {
		t.Errorf("%+v", cost)
	}
	trips := newTrips()
	for i := range int64(1000) {
		if err := trips.RecordValue((i + 1) * 2000); err != nil {
			t.Fatal(err)
		}
	}
	l := latencyOf(trips, cost)
	for _, c := range []struct{ got, want float64 }{{l.Median, 500}, {l.P99, 990}, {l.P999, 999}, {l.Max, 1000}} {
		if math.Abs(c.got-c.want) > c.want/500 {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
	if l.Samples != 1000 {
		t.Error(l.Samples)
	}
}

// The capacity of a link is what is left of 10 gbit when all headers are paid.
func TestLinkCapacity(t *testing.T) {
	if linkCapacity < 9.80 || linkCapacity > 9.81 {
		t.Error(linkCapacity)
	}
}
