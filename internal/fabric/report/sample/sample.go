// Package sample has runs as labs report them, for the tests of the forms of a report. They
// are made up, but their figures fit each other: nothing runs.
//
// Start reading at Flap.
package sample

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

// Flap returns a run that failed: writes, an incast and a ping in a star of four hosts, one of whose
// links goes down for a while and is slow afterwards.
func Flap() *report.Run {
	r := &report.Run{
		Lab: "flap", Seed: 42, Seconds: 12.04, Started: "2026-11-21T03:00:00Z", Host: "Linux 6.18, x86_64, 2 processors", WallSeconds: 12.9,
		Replay:    "ndklab run examples/suite/flap.ndklab.yaml --seed 42 --replay ndklab-artifacts/flap-42/decisions.log",
		Artifacts: "ndklab-artifacts/flap-42",
		Recorded:  &report.Recorded{Records: 812345},
	}
	s := series{seed: 7, length: 12, outage: [2]float64{4, 6.2}}
	bulk := s.workload("bulk", "write", "a", "d", 64<<10, 2.4, 900)
	bulk.Depth, bulk.QPs, bulk.Connections, bulk.Reconnects, bulk.Retried, bulk.Recovered, bulk.Verified = 16, 4, 8, 4, 64, 2.214, true
	ping := s.workload("ping", "send", "b", "d", 64, 0.0024, 210)
	ping.Measure, ping.Depth = "latency", 1
	s.outage = [2]float64{}
	incast := s.workload("incast", "read", "", "", 256<<10, 1.1, 2600)
	incast.Pattern, incast.Nodes, incast.Depth, incast.Fairness = "incast", []string{"d", "a", "b", "c"}, 4, 0.871
	for i, from := range incast.Nodes[1:] {
		f := report.Flow{From: from, To: "d", Messages: incast.Messages / 3, Bytes: incast.Bytes / 3, Seconds: incast.Seconds,
			Gbps: incast.Gbps / 3 * []float64{1.3, 1.1, 0.6}[i], Latency: incast.Latency}
		incast.Flows = append(incast.Flows, f)
	}
	incast.Errors, incast.Error = 3, "c to d: STATUS_IO_TIMEOUT (0xC00000B5): 7 retransmissions of PSN 5023 were not answered"
	incast.Flows[2].Errors, incast.Flows[2].Error = 3, "STATUS_IO_TIMEOUT (0xC00000B5): 7 retransmissions of PSN 5023 were not answered"
	r.Workloads = []report.Workload{bulk, ping, incast}
	r.Nodes = nodes("a", "b", "c", "d")
	r.Nodes = append(r.Nodes, report.Node{NodeState: report.NodeState{Name: "sw", State: core.NodeIsReady}, Kind: "switch"})
	for i, host := range []string{"a", "b", "c", "d"} {
		r.Links = append(r.Links, link(host+":eth0", fmt.Sprintf("sw:eth%d", i), host == "c"))
	}
	r.Checks = []report.Check{
		{Name: "bulk errors", Passed: true, Expected: "== 0", Got: "0", At: "examples/suite/flap.ndklab.yaml:31:5"},
		{Name: "bulk throughput", Passed: true, Expected: ">= 200 Mb/s", Got: "1.67 Gb/s", At: "examples/suite/flap.ndklab.yaml:31:5"},
		{Name: "bulk recovered", Expected: "<= 2 s", Got: "2.21 s", At: "examples/suite/flap.ndklab.yaml:32:5",
			Where: "events link-changed at 4.000 s and qp-error at 5.903 s; ndklab-artifacts/flap-42/a-eth0.pcapng; counter timeouts of node a"},
		{Name: "incast errors", Expected: "== 0", Got: "3", At: "examples/suite/flap.ndklab.yaml:33:5", Where: "log of node c; counter timeouts of node c (2)"},
		{Name: "ping latency_p99", Passed: true, Expected: "<= 50 ms", Got: "1.31 ms", At: "examples/suite/flap.ndklab.yaml:34:5"},
		{Name: "link c:eth0 loss", Passed: true, Expected: "<= 1 %", Got: "0.498 %", At: "examples/suite/flap.ndklab.yaml:35:5"},
	}
	r.Events = []event.Event{
		{At: 0, Kind: "workload-started", Text: "workload bulk: write of 64KiB from a to d", Node: "a"},
		{At: 0, Kind: "workload-started", Text: "workload incast: read of 256KiB, incast of 4", Node: "a"},
		{At: 2 * time.Second, Kind: "link-changed", Text: "link c:eth0 - sw:eth2: loss 0.5%", Link: "c:eth0"},
		{At: 4 * time.Second, Kind: "link-down", Text: "link a:eth0 - sw:eth0 is down", Link: "a:eth0"},
		{At: 5903 * time.Millisecond, Kind: "qp-error", Text: "node a: QP 0x24450 is in error: retries exceeded", Node: "a"},
		{At: 6 * time.Second, Kind: "link-up", Text: "link a:eth0 - sw:eth0 is up", Link: "a:eth0"},
		{At: 9 * time.Second, Kind: "link-changed", Text: "link d:eth0 - sw:eth3: rate 1gbit", Link: "d:eth0"},
		{At: 9 * time.Second, Kind: "snapshot", Text: "counters are kept as half"},
		{At: 12 * time.Second, Kind: "workload-done", Text: "workload bulk done: messages: 38291, errors: 0, 1.67 Gb/s", Node: "a"},
	}
	r.Snapshots = map[string][]report.Node{"half": nodes("a", "b", "c", "d")}
	return r
}

// Sweep returns a run that passed, of perftest's kind: one workload over many sizes.
func Sweep() *report.Run {
	s := series{seed: 3, length: 4}
	w := s.workload("write-bw", "write", "client", "server", 1<<20, 9, 120)
	w.Series = nil
	for size := uint64(2); size <= 1<<20; size *= 2 {
		gbps := 20 * float64(size) / (float64(size) + 60000)
		us := 4 + float64(size)/3000
		w.Steps = append(w.Steps, report.Step{Size: size, Messages: uint64(gbps * 1e9 / 8 / float64(size)), Seconds: 1, Gbps: gbps,
			Latency: report.Latency{Min: us / 2, P50: us, P90: us * 1.4, P99: us * 2, P999: us * 4, P9999: us * 9, Max: us * 30}})
	}
	return &report.Run{Lab: "perf", Seed: 1, Passed: true, Seconds: 20.1, Workloads: []report.Workload{w}, Nodes: nodes("client", "server"),
		Links: []report.Link{link("client:eth0", "server:eth0", false)}, Checks: []report.Check{}, Started: "2026-11-21T03:01:00Z", Host: "Linux 6.18, x86_64"}
}

// Storm returns a run in virtual time that failed: a connection storm and a program, with many events.
func Storm() *report.Run {
	status := 3
	storm := report.Workload{Name: "storm", Operation: "connect", From: "client", To: "server", Depth: 64, QPs: 2000,
		Messages: 2000, Seconds: 1.61, Connections: 2000, Latency: report.Latency{Min: 410, P50: 3100, P90: 8100, P99: 19000, P999: 31000, P9999: 41000, Max: 44000}}
	storm.Series = []report.Sample{{At: 0, Seconds: 1.61, Messages: 2000, P50: 3100, P99: 19000}} // as in a run that is over soon
	program := report.Workload{Name: "fio", Operation: "exec", Nodes: []string{"client", "server"}, Seconds: 2.5, ExitStatus: &status, Errors: 1,
		Error: "node client: exit status 3", Output: "fio-3.36 starting\njob0: connecting to 10.0.0.2\njob0: error=Connection reset by peer\n"}
	r := &report.Run{Lab: "storm", Seed: 18446744073709551615, Seconds: 3.1, Simulated: true, Workloads: []report.Workload{storm, program},
		Nodes: nodes("client", "server"), Links: []report.Link{link("client:eth0", "server:eth0", false)},
		Checks:   []report.Check{{Name: "fio exit", Expected: "exit status 0", Got: "exit status 3", Where: "the program's output"}},
		Problems: []string{"node server is down: its agent was ended by SIGKILL"},
		Started:  "2026-11-21T03:02:00Z", Host: "Linux 6.18, x86_64", Replay: "ndklab run storm.ndklab.yaml --seed 18446744073709551615 --simulate"}
	for i := range 100 {
		r.Events = append(r.Events, event.Event{At: time.Duration(i) * 30 * time.Millisecond, Kind: "link-changed", Text: fmt.Sprintf("chaos: link client:eth0 is cut for the %dth time", i+1), Link: "client:eth0"})
	}
	r.Nodes[1].State, r.Nodes[1].Reason = "down", "its agent was ended by SIGKILL"
	return r
}

// A series makes workloads whose figures go up and down over time.
type series struct {
	seed   uint64
	length float64    // seconds
	outage [2]float64 // from, until: nothing is completed
}

func (s series) workload(name, operation, from, to string, size uint64, gbps, us float64) report.Workload {
	w := report.Workload{Name: name, From: from, To: to, Operation: operation, Pattern: "pair", Size: size, Depth: 1, Seconds: s.length}
	random := rand.New(rand.NewPCG(s.seed, uint64(len(name))))
	const piece = 0.1 // seconds
	for i := range int(s.length / piece) {
		at := float64(i) * piece
		sample := report.Sample{At: at, Seconds: piece}
		if at < s.outage[0] || at >= s.outage[1] {
			rate := gbps * (1 + 0.12*math.Sin(at) + 0.05*random.NormFloat64())
			slow := 1.0
			if at >= 9 {
				rate, slow = rate*0.4, 2.2
			}
			sample.Messages = uint64(rate * 1e9 / 8 * piece / float64(size))
			sample.Bytes = sample.Messages * size
			sample.P50 = us * slow * (1 + 0.05*random.NormFloat64())
			sample.P99 = sample.P50 * (3 + random.Float64())
		}
		w.Series = append(w.Series, sample)
		w.Messages, w.Bytes = w.Messages+sample.Messages, w.Bytes+sample.Bytes
	}
	w.Gbps = float64(w.Bytes) * 8 / w.Seconds / 1e9
	w.Latency = report.Latency{Min: us * 0.6, P50: us, P90: us * 2.1, P99: us * 3.6, P999: us * 7, P9999: us * 20, Max: us * 45}
	for i := range 100 {
		nines := float64(i) * 0.045 // to 99.99 and a bit
		w.CDF = append(w.CDF, report.Quantile{Micros: us * (0.6 + 0.9*nines*nines*math.Pow(1.1, nines)), Fraction: 1 - math.Pow(10, -nines)})
	}
	w.CDF = append(w.CDF, report.Quantile{Micros: w.Latency.Max, Fraction: 1})
	return w
}

func nodes(names ...string) []report.Node {
	var nodes []report.Node
	for i, name := range names {
		n := uint64(i + 1)
		nodes = append(nodes, report.Node{
			NodeState: report.NodeState{Name: name, State: core.NodeIsReady}, Kind: "host", Addresses: []string{fmt.Sprintf("10.0.0.%d/24", n), fmt.Sprintf("fd6e:646b::%d/64", n)},
			Counters: map[string]uint64{"Connect": 3 * n, "Accept": 2 * n, "ConnectFailure": n / 3, "ConnectionError": n / 2, "ActiveConnection": 0, "CQError": 0,
				"RDMAInOctets": n * 700 << 20, "RDMAOutOctets": n * 900 << 20, "RDMAInFrames": n * 176019, "RDMAOutFrames": n * 226311},
			Transport: map[string]uint64{"packets_sent": n * 226000, "packets_received": n * 176000, "retransmitted": n * 173, "naks_received": n * 131,
				"timeouts": n / 2, "out_of_sequence": n * 1400, "icrc_errors": 0, "malformed": 0},
		})
	}
	return nodes
}

// link returns a link with a delay, a rate and, in one direction, loss.
func link(a, b string, lossy bool) report.Link {
	number := func(v float64) *float64 { return &v }
	asked := report.Quality{DelayUS: number(200), JitterUS: number(20), RateGbps: number(10)}
	got := report.Quality{DelayUS: number(209.3), JitterUS: number(19.1), RateGbps: number(3.31), Loss: number(0)}
	l := report.Link{Endpoints: [2]string{a, b}, Engine: "linkem", State: "up"}
	for i, from := range l.Endpoints {
		d := report.Direction{From: from, Packets: 226012, Bytes: 912 << 20, Asked: asked, Achieved: got, Settings: []string{"delay=200us", "jitter=20us", "rate=10gbit"},
			Lateness: &report.Lateness{P50: 11, P99: 61}}
		if lossy && i == 0 {
			d.Asked.Loss, d.Achieved.Loss, d.Dropped = number(0.005), number(0.00498), 1126
			d.LostBy.Down, d.Lost = 313, 313
			d.Settings = append(d.Settings, "loss=0.5%")
			d.Overruns = []report.Overrun{{Figure: "median delay", Tolerated: "up to 1ms late", Got: "2.31 ms late", Reason: "the host could not keep up", Remedy: "slower traffic", Allowed: true}}
		}
		for bar := range 24 {
			d.Delays = append(d.Delays, report.Delays{FromUS: 190 + 4*float64(bar), Packets: uint64(40000 * math.Exp(-math.Pow(float64(bar)-5, 2)/12))})
		}
		l.Directions[i] = d
	}
	return l
}

// Hostile returns a run whose every name and text is markup, a script or a control character.
func Hostile(text string) *report.Run {
	r := Flap()
	r.Lab, r.Replay, r.Artifacts, r.Host, r.Started = text, text, text, text, text
	r.Problems, r.SetByHand = []string{text}, []string{text}
	r.Recorded.Error = text
	for i := range r.Workloads {
		w := &r.Workloads[i]
		w.Name, w.From, w.To, w.Pattern, w.Operation, w.Error, w.Output = text, text, text, text, text, text, text
		for j := range w.Flows {
			w.Flows[j].From, w.Flows[j].To, w.Flows[j].Error = text, text, text
		}
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		n.Name, n.State, n.Reason, n.Addresses = text, text, text, []string{text}
		n.Transport = map[string]uint64{text: 1}
	}
	for i := range r.Links {
		l := &r.Links[i]
		l.Engine, l.State, l.Endpoints = text, text, [2]string{text + ":eth0", text + ":eth1"}
		for end := range l.Directions {
			l.Directions[end].From, l.Directions[end].Settings = text, []string{text}
			l.Directions[end].Overruns = []report.Overrun{{Figure: text, Tolerated: text, Got: text, Reason: text, Remedy: text}}
		}
	}
	for i := range r.Checks {
		r.Checks[i] = report.Check{Name: text, Expected: text, Got: text, Where: text, At: text}
	}
	for i := range r.Events {
		e := &r.Events[i]
		e.Kind, e.Text, e.Node, e.Link = text, text, text, text
	}
	r.Snapshots = map[string][]report.Node{text: r.Nodes}
	incast := Incast()
	r.Buffers, r.Deadlocks, r.Series = incast.Buffers, []report.Deadlock{{Queues: []string{text}}}, incast.Series
	for i := range r.Series.Queues {
		r.Series.Queues[i].Endpoint = text
	}
	for i := range r.Series.Links {
		r.Series.Links[i].From = text
	}
	for i := range r.Series.Pairs {
		r.Series.Pairs[i].Node, r.Series.Pairs[i].Peer = text, text
	}
	for i := range r.Buffers {
		b := &r.Buffers[i]
		b.Node = text
		for j := range b.Ports {
			b.Ports[j].Interface, b.Ports[j].Peer = text, text
			for k := range b.Ports[j].Classes {
				b.Ports[j].Classes[k].Dropped = map[string]uint64{text: 1}
			}
		}
	}
	return r
}
