package text

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/golden"
)

func ref(v float64) *float64 { return &v }

// pair returns the report of the example lab.
func pair() *report.Run {
	counters := func(connect, accept, in, out uint64) map[string]uint64 {
		return map[string]uint64{
			"Connect": connect, "Accept": accept, "ConnectFailure": 0, "ConnectionError": 0, "ActiveConnection": 0, "CQError": 0,
			"RDMAInOctets": in, "RDMAOutOctets": out, "RDMAInFrames": in / 4170, "RDMAOutFrames": out / 4170,
		}
	}
	asked := report.Quality{DelayUS: ref(1000), JitterUS: ref(50), Loss: ref(0.00731), RateGbps: ref(10)}
	return &report.Run{
		Lab: "pair", Seed: 42, Passed: true, Seconds: 4.063,
		Workloads: []report.Workload{
			{Name: "bulk", From: "client", To: "server", Operation: "write", Size: 65536, Depth: 16, Messages: 12345, Bytes: 12345 * 65536,
				Seconds: 3.001, Gbps: 2.157, Latency: report.Latency{Min: 2071.3, P50: 2310.5, P99: 9870, Max: 31234}, Verified: true},
			{Name: "fetch", From: "client", To: "server", Operation: "read", Size: 65536, Depth: 16, Messages: 9876, Bytes: 9876 * 65536,
				Seconds: 3.002, Gbps: 0.8725, Latency: report.Latency{Min: 2093.1, P50: 2402.5, P99: 12400, Max: 40100}, Verified: true},
			{Name: "ping", From: "client", To: "server", Operation: "send", Size: 64, Depth: 1, Messages: 1000, Bytes: 64000,
				Seconds: 2.2, Gbps: 0.000232, Latency: report.Latency{Min: 2003, P50: 2101, P99: 8000, Max: 8100}},
		},
		Nodes: []report.Node{
			{NodeState: report.NodeState{Name: "client", State: "ready"}, Kind: "host", Addresses: []string{"10.0.0.1/30", "fd6e:646b::1/126"}, Counters: counters(3, 0, 700<<20, 900<<20),
				Transport: map[string]uint64{"packets_sent": 226000, "packets_received": 176000, "retransmitted": 1733, "naks_received": 1312, "timeouts": 2}},
			{NodeState: report.NodeState{Name: "server", State: "ready"}, Kind: "host", Addresses: []string{"10.0.0.2/30", "fd6e:646b::2/126"}, Counters: counters(0, 3, 900<<20, 700<<20),
				Transport: map[string]uint64{"packets_sent": 176000, "packets_received": 224000, "naks_sent": 1312, "out_of_sequence": 14000}},
		},
		Links: []report.Link{{
			Endpoints: [2]string{"client:eth0", "server:eth0"}, Engine: "linkem", State: "up",
			Directions: [2]report.Direction{
				{From: "client:eth0", Packets: 226012, Bytes: 912 << 20, Dropped: 1644, Asked: asked,
					Achieved: report.Quality{DelayUS: ref(1010.2), JitterUS: ref(48.7), Loss: ref(0.00727), RateGbps: ref(3.31)}},
				{From: "server:eth0", Packets: 176010, Bytes: 702 << 20, Dropped: 1271, Lost: 3, Asked: asked,
					Achieved: report.Quality{DelayUS: ref(1009.8), JitterUS: ref(49.9), Loss: ref(0.00722), RateGbps: ref(1.94)}},
			},
		}},
		Checks: []report.Check{
			{Name: "bulk errors", Passed: true, Expected: "== 0", Got: "0"},
			{Name: "bulk throughput", Passed: true, Expected: ">= 200 Mb/s", Got: "2.16 Gb/s"},
			{Name: "ping latency_p99", Passed: true, Expected: "<= 50 ms", Got: "8.00 ms"},
		},
		Started: "2026-11-21T03:00:00Z", Host: "Linux 6.18", WallSeconds: 4.4,
	}
}

// kinds is a host, a router and two switches.
func kinds() []report.Node {
	router := report.Node{NodeState: report.NodeState{Name: "r1", State: "ready"}, Kind: "router", PID: 4713, Addresses: []string{"10.0.0.254/24", "10.0.1.254/24"}}
	leaf := report.Node{NodeState: report.NodeState{Name: "leaf", State: "down", Reason: "it was stopped"}, Kind: "switch", Restarts: 1, Ports: []report.Port{
		{Name: "eth0", To: "client:eth0", State: "forwarding", MACs: 1}, {Name: "eth1", To: "r1:eth0", State: "blocking"},
	}}
	spine := report.Node{NodeState: report.NodeState{Name: "spine", State: "ready", Reason: "read ports: no such device"}, Kind: "switch",
		Ports: []report.Port{{Name: "eth0", To: "external:tap0", State: "disabled"}}}
	return []report.Node{pair().Nodes[0], router, leaf, spine}
}

// trouble is a run in which everything is wrong, under long names.
func trouble() *report.Run {
	r := pair()
	r.Passed = false
	r.Seed = 18446744073709551615
	r.Workloads[0].Name = "replication-of-the-journal"
	r.Workloads[0].From, r.Workloads[0].To = "storage-frontend-01", "storage-backend-02"
	r.Workloads[0].Errors, r.Workloads[0].Verified = 17, false
	r.Workloads[0].Error = "STATUS_IO_TIMEOUT (0xC00000B5): the remote side did not answer 7 retransmissions of PSN 123456 in 4.3 s; the connection was flushed\nand more"
	r.Workloads[1].Messages, r.Workloads[1].Bytes, r.Workloads[1].Error, r.Workloads[1].Verified = 0, 0, "refused \x1b[31m", false
	r.Workloads[2].Errors = 1
	r.Nodes[1].State, r.Nodes[1].Reason, r.Nodes[1].Counters, r.Nodes[1].Transport = "down", "its agent was ended by SIGKILL", nil, nil
	r.Links[0].Endpoints = [2]string{"storage-frontend-01:eth0", "storage-backend-02:eth0"}
	r.Links[0].State = "down"
	r.Links = append(r.Links, report.Link{Endpoints: [2]string{"client:eth1", "server:eth1"}, Engine: "plain", State: "up",
		Directions: [2]report.Direction{{Packets: 12, Bytes: 1234, Asked: report.Quality{Loss: ref(0.5)}}, {Achieved: report.Quality{Loss: ref(0)}}}})
	bad := &r.Links[0].Directions[0]
	bad.Lost, bad.LostBy = 1234, report.LostBy{Queue: 1000, Down: 200, Cut: 20, Fault: 10, Overrun: 3, Kernel: 1}
	bad.Duplicated, bad.Reordered, bad.Corrupted, bad.Marked, bad.Faulted = 226, 113, 12, 34, 10
	bad.Asked.Duplicate, bad.Asked.Reorder, bad.Asked.Corrupt, bad.Asked.Burst = ref(0.001), ref(0.0005), ref(0.00005), ref(5)
	bad.Achieved.Duplicate, bad.Achieved.Reorder, bad.Achieved.Corrupt, bad.Achieved.Marked, bad.Achieved.Burst =
		ref(0.000999), ref(0.000499), ref(0.000053), ref(0.00015), ref(4.87)
	bad.QueuePeak, bad.Lateness = new(uint64(4<<20)), &report.Lateness{P50: 2310, P99: 31200}
	bad.Overruns = []report.Overrun{
		{Figure: "median delay", Tolerated: "up to 1ms late", Got: "2.31 ms late", Reason: "the host could not keep up", Remedy: "slower traffic"},
		{Figure: "packets", Tolerated: "up to 0.001% lost", Got: "0.00133 % lost (3)", Reason: "the host could not keep up", Remedy: "less traffic", Allowed: true},
	}
	r.Checks[1].Passed, r.Checks[1].Got = false, "120 Mb/s"
	r.Problems = []string{"node server: its agent was ended by SIGKILL", "link client:eth0: the engine lost 12 packets because it could not keep up with the rate at which they came, which makes figures on this link doubtful"}
	return r
}

// settings are links as "ndklab link" shows them.
func settings() []report.Link {
	links := append(pair().Links, report.Link{Endpoints: [2]string{"a:eth1", "b:eth1"}, Engine: "plain", State: "down"})
	links[0].Directions[0].Settings = []string{"delay=1ms", "jitter=50us", "loss={rate: 0.731%, burst: 5, every: 1000}", "rate=10gbit", "queue=4MiB"}
	links[0].Directions[1].Settings = []string{"delay=1ms"}
	return links
}

// Figures that netem does not measure are not shown as if they were zero.
func TestNetemText(t *testing.T) {
	link := report.Link{Endpoints: [2]string{"a:eth0", "b:eth0"}, Engine: "netem", State: "up",
		Directions: [2]report.Direction{{Packets: 12, Dropped: 3, Asked: report.Quality{DelayUS: ref(1000)}}, {}}}
	var b strings.Builder
	if err := WriteLinks(&b, []report.Link{link}); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); strings.Contains(got, "achieved") || !strings.Contains(got, "what netem achieves is not measured") {
		t.Error(got)
	}
}

// texts are all that is written for people.
func texts() map[string]func(io.Writer) error {
	inspection := pair()
	inspection.Nodes[0].PID, inspection.Nodes[1].PID = 4711, 4712
	inspection.Nodes[0].Limits = &report.Limits{CPU: ref(0.5), Memory: new(uint64(256 << 20))}
	inspection.Nodes[0].Usage = &report.Usage{CPUSeconds: ref(1.234), ThrottledSeconds: ref(0.05), Memory: new(uint64(9 << 20)),
		PIDs: new(uint64(11)), PIDsRefused: new(uint64(0))}
	for i := range inspection.Links[0].Directions {
		inspection.Links[0].Directions[i].Achieved = report.Quality{}
	}
	slow := pair()
	slow.Workloads, slow.Nodes, slow.Links = nil, nil, nil
	slow.Dilation, slow.MachineSeconds = 40, 40*slow.Seconds
	up := report.Lab{Lab: "pair", Seed: 42, State: "ready", Nodes: 2, Links: 1, Up: 12.345}
	return map[string]func(io.Writer) error{
		"pair":    func(b io.Writer) error { return WriteRun(b, pair(), Full) },
		"trouble": func(b io.Writer) error { return WriteRun(b, trouble(), Full) },
		"empty":   func(b io.Writer) error { return WriteRun(b, &report.Run{Lab: "empty"}, Full) },
		"json":    func(b io.Writer) error { return report.WriteJSON(b, pair()) },
		"inspect": func(b io.Writer) error {
			return WriteInspection(b, "pair", "ready", 42, inspection.Nodes, inspection.Links, nil, Full)
		},
		"kinds": func(b io.Writer) error { return WriteInspection(b, "kinds", "ready", 42, kinds(), nil, nil, Full) },
		"externals": func(b io.Writer) error {
			return WriteInspection(b, "pair", "ready", 42, nil, nil, []report.External{
				{Endpoint: "external:tap0", MTU: 1500, Addresses: []string{"10.0.0.2/24", "fd6e:646b:1::2/64"}, Namespace: "pair.tap0",
					NamespacePath: "/proc/7/root/run/ndklab/ns/pair/tap0", Socket: "/run/ndklab/pair.external/tap0.lab", PeerSocket: "/run/ndklab/pair.external/tap0.peer"},
				{Endpoint: "external:port", MTU: 4200, Addresses: []string{"10.0.1.2/24"}, NamespacePath: "/proc/7/root/tmp/ndklab-1/ns/pair/port",
					Socket: "/tmp/ndklab-1/pair.external/port.lab", PeerSocket: "/tmp/ndklab-1/pair.external/port.peer", ToPeer: 12345, FromPeer: 12, NoPeer: 3, Lost: 1},
			}, Full)
		},
		"links":    func(b io.Writer) error { return WriteLinks(b, settings()) },
		"settings": func(b io.Writer) error { return WriteSettings(b, settings()) },
		"labs": func(b io.Writer) error {
			return WriteLabs(b, []report.Lab{up, {Lab: "other", State: "starting"}, {Lab: "slow", State: "ready", Seed: 1, Nodes: 3, Links: 2, Up: 4, Dilation: 40}})
		},
		"adapter":     func(b io.Writer) error { return WriteAdapter(b, adapters()[0]) },
		"adapters":    func(b io.Writer) error { return WriteAdapters(b, adapters()) },
		"adapterjson": func(b io.Writer) error { return report.WriteJSON(b, adapters()[0]) },
		"noadapter":   func(b io.Writer) error { return WriteAdapter(b, adapters()[5]) },
		"counters":    func(b io.Writer) error { return WriteCounters(b, pair().Nodes) },
		"crowd":       func(b io.Writer) error { return WriteCounters(b, crowd()) },
		"changes":     func(b io.Writer) error { return WriteChanges(b, changes()) },
		"changesjson": func(b io.Writer) error { return report.WriteJSONLine(b, changes()) },
		"nochanges": func(b io.Writer) error {
			return WriteChanges(b, &report.Changes{Nodes: report.Since(pair().Nodes, pair().Nodes)})
		},
		"connections":   func(b io.Writer) error { return WriteConnections(b, connections()) },
		"noconnections": func(b io.Writer) error { return WriteConnections(b, &report.Connections{}) },
		"dilated":       func(b io.Writer) error { return WriteRun(b, slow, Full) },
		"dilatedperf": func(b io.Writer) error {
			return WriteMeasurement(b, &report.Measurement{Workload: pair().Workloads[0], Dilation: 40})
		},
		"nolabs": func(b io.Writer) error { return WriteLabs(b, nil) },
	}
}

func TestText(t *testing.T) {
	for name, write := range texts() {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := write(&got); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, name+".golden", got.String())
			for line := range strings.Lines(got.String()) {
				line = strings.TrimSuffix(line, "\n")
				if n := utf8.RuneCountInString(line); n > width && !strings.HasPrefix(line, "{") {
					t.Errorf("%d columns, at most %d wanted:\n%s", n, width, line)
				}
				if strings.HasSuffix(line, " ") {
					t.Errorf("trailing space: %q", line)
				}
			}
		})
	}
}

// The JSON form is an API: what is read back is the same.
func TestJSONRoundTrip(t *testing.T) {
	var b bytes.Buffer
	if err := report.WriteJSON(&b, trouble()); err != nil {
		t.Fatal(err)
	}
	var back report.Run
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	if err := d.Decode(&back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(trouble(), &back); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A failing writer is reported, whatever is written.
func TestWriteError(t *testing.T) {
	f, err := os.Open(os.DevNull) // for reading only
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := WriteRun(f, pair(), Full); err == nil {
		t.Error("no error")
	}
}

// A terminal gets colours, unless the user does not want them.
func TestPaint(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	if !paintFor(terminal) {
		t.Error("a terminal gets no colours")
	}
	if paintFor(&bytes.Buffer{}) {
		t.Error("a buffer gets colours")
	}
	t.Setenv("NO_COLOR", "1")
	if paintFor(terminal) {
		t.Error("colours in spite of NO_COLOR")
	}
	if got := paint(true).red("FAIL"); got != "\x1b[31mFAIL\x1b[0m" {
		t.Errorf("red FAIL is %q", got)
	}
}

// Decisions that are missing from a log are so for one of two reasons.
func TestMissingRecords(t *testing.T) {
	for want, r := range map[string]report.Recorded{
		"7 decisions on packets were recorded\n":                                                           {Records: 7},
		"7 decisions on packets were recorded; 3 are missing, which came too fast to be written\n":         {Records: 7, Missing: 3},
		"7 decisions on packets were recorded; 3 are missing, which could not be written: no space left\n": {Records: 7, Missing: 3, Error: "no space left"},
	} {
		var b strings.Builder
		p := newPage(&b)
		writeRecorded(p, &r)
		if err := p.flush(); err != nil || !strings.HasSuffix(b.String(), want) {
			t.Errorf("got %q, %v, want %q", b.String(), err, want)
		}
	}
}

// A setting stands on one line, unless it is as long as one.
func TestSettingsAreNotBroken(t *testing.T) {
	long := "faults=[" + strings.Repeat("{match: {opcode: ack, nth: 3}, action: drop}, ", 3) + "{match: {}, action: drop}]"
	links := []report.Link{{Endpoints: [2]string{"a:eth0", "b:eth0"}, Engine: "linkem", State: "up", Directions: [2]report.Direction{
		{Settings: []string{"delay=1ms", "jitter={spread: 200us, distribution: normal}", "loss={rate: 1%, burst: 5}", "flap={period: 20ms, down: 5ms}", long}},
	}}}
	var b strings.Builder
	if err := WriteSettings(&b, links); err != nil {
		t.Fatal(err)
	}
	want := `link              engine  state  settings
a:eth0 -> b:eth0  linkem  up     delay=1ms jitter={spread: 200us, distribution: normal} loss={rate: 1%, burst: 5}
                                 flap={period: 20ms, down: 5ms} faults=[{match: {opcode: ack, nth: 3}, action: drop},
                                 {match: {opcode: ack, nth: 3}, action: drop}, {match: {opcode: ack, nth: 3},
                                 action: drop}, {match: {}, action: drop}]
b:eth0 -> a:eth0  linkem  up     -
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Messages of several lines stand in one paragraph.
func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "",
		"one\n":                              "one",
		"it ended, having written:\n  a\n b": "it ended, having written: a; b",
		"first\nsecond":                      "first; second",
	} {
		if got := oneLine(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// Of all links, the report says how late the direction was whose 10th percentile was
// latest, and how much of that it tolerates.
func TestWriteLateness(t *testing.T) {
	late := func(p10 float64, packets uint64) *report.Lateness {
		return &report.Lateness{Min: 1, P10: p10, P50: 20, P99: 300, Packets: 12345, Late: []report.Late{{LimitUS: 200, Packets: packets, Tolerated: 0.9}, {LimitUS: 1000, Packets: 99, Tolerated: 0.5}}}
	}
	links := []report.Link{
		{Endpoints: [2]string{"a:eth0", "b:eth0"}, Directions: [2]report.Direction{{Lateness: late(3, 123)}, {Lateness: late(4, 1234)}}},
		{Endpoints: [2]string{"c:eth0", "d:eth0"}, Directions: [2]report.Direction{{Lateness: late(2, 12)}, {Lateness: &report.Lateness{P10: 5}}}}, // simulated
		{Endpoints: [2]string{"e:eth0", "f:eth0"}},
	}
	var b strings.Builder
	if err := WriteLinks(&b, links); err != nil {
		t.Fatal(err)
	}
	const want = "lateness, most at b:eth0 -> a:eth0: left 4.00 us late at the 10th percentile, 20.0 us at the median, 300 us at the 99th; " +
		"of 12345 packets 10.0 % were more than 200 us late (tolerated 90 %), 0.802 % were more than 1 ms late (tolerated 50 %)"
	if got := strings.Join(strings.Fields(b.String()), " "); strings.Count(got, "lateness") != 1 || !strings.Contains(got, want) {
		t.Errorf("%s\nwant %s", b.String(), want)
	}
}
