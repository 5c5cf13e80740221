package words

import (
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// The words for a workload name its programs and say what they moved.
func TestPrograms(t *testing.T) {
	of := func(client ...string) *report.Workload {
		return &report.Workload{Operation: "exec", Nodes: []string{"s", "c"}, Programs: []report.Program{{Node: "s", Server: true, Command: []string{"server"}}, {Node: "c", Command: client}}}
	}
	several := of("x")
	several.Nodes = []string{"s", "c", "d"}
	fast, often, ended := of("x"), of("x"), of("x")
	fast.Gbps = 2
	often.MessageRate = 1500
	ended.Programs[0].Ended = "after its last client"
	for _, tt := range []struct {
		of                              *report.Workload
		what, between, speed, narration string
	}{
		{of("/usr/bin/ib_write_bw", "-a", "s"), "ib_write_bw", "c -> s", "-", ""},
		{of("sh", "-c", "UCX_TLS=rc X=1 ucx_perftest s"), "ucx_perftest", "c -> s", "-", ""},
		{of("sh", "-c", " "), "exec", "c -> s", "-", ""},
		{several, "x", "2 clients -> s", "-", ""},
		{fast, "x", "c -> s", "2.00 Gb/s", ""},
		{often, "x", "c -> s", "1500 msg/s", ""},
		{ended, "x", "c -> s", "-", "the program of s was ended after its last client"},
		{&report.Workload{Operation: "exec", Nodes: []string{"s", "c"}}, "exec", "2 nodes", "-", ""},
	} {
		if w := tt.of; Operation(w) != tt.what || Between(w) != tt.between || Speed(w) != tt.speed || WorkloadStory(w) != tt.narration {
			t.Errorf("%q, %q, %q, %q; want %+v", Operation(w), Between(w), Speed(w), WorkloadStory(w), tt)
		}
	}
}

// A mix is not told as if all messages had the largest of its sizes.
func TestWhat(t *testing.T) {
	for want, w := range map[string]report.Workload{
		"write 64 KiB":             {Operation: "write", Size: 64 << 10},
		"send mix up to 8 KiB x16": {Operation: "send", Size: 8 << 10, Mixed: true, QPs: 16},
		"read-lat sweep":           {Operation: "read", Measure: "latency", Size: 8 << 10, Steps: make([]report.Step, 2)},
	} {
		if got := Operation(&w); got != want {
			t.Errorf("%+v is %q, want %q", w, got, want)
		}
	}
}

// The bytes that waited in a queue and the lateness of packets are told where they say
// that something went wrong, else in full alone. So is the fact that jitter reorders.
func TestDirectionStory(t *testing.T) {
	n := func(v float64) *float64 { return &v }
	usual := report.Direction{QueuePeak: new(uint64(16 << 10)), Lateness: &report.Lateness{P50: 30.1, P99: 150, Packets: 9}}
	full, late := usual, usual
	full.LostBy.Queue = 3
	late.Overruns = []report.Overrun{{Figure: "packets more than 1 ms late"}}
	const queue, left = "at most 16 KiB in the queue", "left 30.1 us late at the median, 150 us at the 99th percentile"
	for _, tt := range []struct {
		of          report.Direction
		brief, full string
	}{
		{usual, "", queue + ", " + left},
		{full, "3 lost to a full queue before the rate, " + queue, "3 lost to a full queue before the rate, " + queue + ", " + left},
		{late, left, queue + ", " + left},
		{report.Direction{QueuePeak: new(uint64(0)), Lateness: &report.Lateness{}}, "", ""}, // nothing has crossed
		{report.Direction{Reordered: 8, Asked: report.Quality{Reorder: n(0.01)}, Achieved: report.Quality{Reorder: n(0.08)}},
			"8 overtook others (asked 1 %, achieved 8.00 %)", "8 overtook others (asked 1 %, achieved 8.00 %)"},
		{report.Direction{Reordered: 7, Asked: report.Quality{Reorder: n(0.01), JitterUS: n(5)}, Achieved: report.Quality{Reorder: n(0.08)}},
			"7 overtook others by reorder or jitter (asked 1 %, achieved 8.00 %)", "7 overtook others by reorder or jitter (asked 1 %, achieved 8.00 %)"},
	} {
		if got := DirectionStory(&tt.of, false); got != tt.brief {
			t.Errorf("brief: %q, want %q", got, tt.brief)
		}
		if got := DirectionStory(&tt.of, true); got != tt.full {
			t.Errorf("full: %q, want %q", got, tt.full)
		}
	}
}

// A link with ecn on which nothing is marked says why not.
func TestECNMarksNothing(t *testing.T) {
	d := report.Direction{Settings: []string{"rate=1gbit", "ecn={min: 64KiB, max: 192KiB}"}}
	const want = "nothing marked by ecn, which marks RDMA packets only of adapters with congestion: dcqcn or dctcp"
	if got := DirectionStory(&d, false); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if d.Marked = 1; strings.Contains(DirectionStory(&d, false), want) {
		t.Error("that is said of a link that has marked a packet")
	}
}

// A command line is typed back into a shell: each of its words has to come out as it was.
func TestCommandLine(t *testing.T) {
	for word, want := range map[string]string{
		"tests/a.ndklab.yaml": "tests/a.ndklab.yaml",
		"":                    "''",
		"a b":                 "'a b'",
		"it's":                `'it'\''s'`,
		"$HOME":               "'$HOME'",
		"leaf-*":              "'leaf-*'",
		"grün":                "'grün'",
	} {
		if got := CommandLine([]string{"ndklab", word, "x=1"}); got != "ndklab "+want+" x=1" {
			t.Errorf("the line of %q is %s", word, got)
		}
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Size(0), "0 B"}, {Size(64), "64 B"}, {Size(1023), "1023 B"}, {Size(1024), "1 KiB"}, {Size(1025), "1.00 KiB"},
		{Size(65536), "64 KiB"}, {Size(12345678), "11.8 MiB"}, {Size(1 << 30), "1 GiB"}, {Size(1000 << 10), "1000 KiB"}, {Size(1<<64 - 1), "16777216 TiB"},
		{Rate(0), "0 b/s"}, {Rate(8.41), "8.41 Gb/s"}, {Rate(0.812), "812 Mb/s"}, {Rate(0.99999), "1.00 Gb/s"}, {Rate(62.04), "62.0 Gb/s"}, {Rate(1e-9), "1.00 b/s"},
		{Duration(0), "0 us"}, {Duration(0.123), "0.123 us"}, {Duration(1.5), "1.50 us"}, {Duration(999.7), "1.00 ms"}, {Duration(1020), "1.02 ms"}, {Duration(4063000), "4.06 s"}, {Duration(3.6e9), "3600 s"},
		{Percent(0), "0 %"}, {Percent(0.0052), "0.520 %"}, {Percent(0.001), "0.100 %"}, {Percent(1), "100 %"}, {Percent(1e-6), "0.000100 %"},
		{Short("1.00 ms"), "1 ms"}, {Short("0.100 %"), "0.1 %"}, {Short("100 %"), "100 %"}, {Short("0 us"), "0 us"}, {Short("10.0 Gb/s"), "10 Gb/s"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
