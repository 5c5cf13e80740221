package sample

import (
	"fmt"
	"math"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// lossless is the class of data in Incast and Ring.
const lossless = 3

// Incast returns a simulated run that failed: under PFC, a and b write to r, and c to d over the same
// trunk from tor1 to tor2. The queue before r makes tor2 pause the trunk, which keeps c back, the
// victim.
func Incast() *report.Run {
	const messages = 728 // of each flow
	s := series{length: 0.02}
	incast := s.workload("incast", "write", "", "", 64<<10, 0, 900)
	incast.Messages, incast.Bytes, incast.Gbps = 2*messages, 2*messages*64<<10, 38.2
	incast.Pattern, incast.Nodes, incast.Depth, incast.Fairness = "incast", []string{"r", "a", "b"}, 4, 1
	for _, from := range incast.Nodes[1:] {
		incast.Flows = append(incast.Flows, report.Flow{From: from, To: "r", Messages: messages, Bytes: messages * 64 << 10, Seconds: 0.02, Gbps: 19.1, Latency: incast.Latency})
	}
	victim := s.workload("victim", "write", "c", "d", 64<<10, 0, 400)
	victim.Messages, victim.Bytes, victim.Gbps = messages, messages*64<<10, 19.1
	hosts := []string{"a", "b", "c", "d", "r"}
	run := &report.Run{
		Lab: "incast", Seed: 7, Seconds: 0.02, Simulated: true, Workloads: []report.Workload{incast, victim}, Nodes: nodes(hosts...),
		Started: "2026-11-21T03:03:00Z", Host: "Linux 6.18, x86_64", WallSeconds: 1.1, Replay: "ndklab run incast.ndklab.yaml --seed 7 --simulate",
		Checks: []report.Check{
			{Name: "tor1 drops", Passed: true, Expected: "== 0", Got: "0", At: "incast.ndklab.yaml:40:5"},
			{Name: "tor1 pause_time", Expected: "<= 1ms", Got: "9.412ms", At: "incast.ndklab.yaml:40:5", Where: "tor2:eth0 paused tor1:eth3 in class 3, by 311 frames"},
		},
	}
	for i, host := range []string{"a", "b", "c"} {
		run.Links = append(run.Links, link(host+":eth0", fmt.Sprintf("tor1:eth%d", i), false))
		run.Buffers = append(run.Buffers, report.Buffer{Node: host, Peak: 66_720, Ports: []report.BufferPort{{
			Interface: "eth0", Peer: fmt.Sprintf("tor1:eth%d", i),
			Classes: []report.BufferClass{pausedClass(22_800, 280, 7_900+float64(100*i), report.QueueLength{P50: 41_700, P99: 62_550, Peak: 66_720})},
		}}})
	}
	run.Links = append(run.Links, link("tor1:eth3", "tor2:eth0", false), link("r:eth0", "tor2:eth1", false), link("d:eth0", "tor2:eth2", false))
	trunk := pausedClass(68_400, 311, 9_412, report.QueueLength{P50: 2_411_520, P99: 4_508_876, Peak: 4_868_992})
	trunk.Marked = 5_130
	toR := report.BufferClass{Class: lossless, Packets: 45_600, Bytes: 45_600 * 4_170, Marked: 45_100, Queue: report.QueueLength{P50: 1_310_720, P99: 1_468_006, Peak: 1_507_328}}
	toD := report.BufferClass{Class: lossless, Packets: 22_800, Bytes: 22_800 * 4_170, Queue: report.QueueLength{P50: 4_170, P99: 4_170, Peak: 8_340}}
	best := report.BufferClass{Packets: 1_200, Bytes: 1_200 * 90, Dropped: map[string]uint64{"shared": 7, "egress": 2}, Queue: report.QueueLength{P50: 90, P99: 180, Peak: 270}}
	for i := range run.Links {
		run.Links[i].Engine = "simulated"
	}
	inbound := report.BufferClass{Class: lossless, TxPauses: 311, TxPauseUS: 9_412, TxTransitions: 155, IngressPeak: 1_515_668, HeadroomPeak: 8_340}
	run.Buffers = append(run.Buffers,
		report.Buffer{Node: "tor1", Size: 12 << 20, Peak: 4_877_332, Ports: []report.BufferPort{{Interface: "eth3", Peer: "tor2:eth0", Classes: []report.BufferClass{best, trunk}}}},
		report.Buffer{Node: "tor2", Size: 12 << 20, Peak: 1_515_668, Ports: []report.BufferPort{
			{Interface: "eth0", Peer: "tor1:eth3", Classes: []report.BufferClass{inbound}},
			{Interface: "eth1", Peer: "r:eth0", Classes: []report.BufferClass{toR}},
			{Interface: "eth2", Peer: "d:eth0", Classes: []report.BufferClass{toD}},
		}})
	run.Series = overTime()
	return run
}

// overTime returns queues, pauses, rates and losses of Incast, every 100 us for 20 ms: senders come to share what
// there is within the first half.
func overTime() *report.Series {
	const points = 200
	s := &report.Series{PeriodUS: 100, Points: points}
	column := func(of func(at float64) float64) (all []uint64) {
		for i := range points {
			all = append(all, uint64(of(float64(i+1)/points)))
		}
		return all
	}
	share := func(of func(at float64) float64) (all []float64) {
		for i := range points {
			all = append(all, min(1, max(0, math.Round(1e4*of(float64(i+1)/points))/1e4)))
		}
		return all
	}
	calm := func(at float64) float64 { return max(0, 1-2*at) * (1 + 0.2*math.Sin(90*at)) }
	s.Queues = []report.QueueSeries{
		{Endpoint: "tor1:eth3", Class: lossless, Bytes: column(func(at float64) float64 { return 4_868_992 * min(8*at, 1) * calm(at) / 1.2 }), Paused: share(calm)},
		{Endpoint: "tor2:eth1", Class: lossless, Bytes: column(func(at float64) float64 { return 1_250_000 * min(20*at, 1) * (1 + 0.2*math.Sin(60*at)) })},
	}
	for i, host := range []string{"a", "b", "c"} {
		s.Queues = append(s.Queues, report.QueueSeries{Endpoint: host + ":eth0", Class: lossless, Paused: share(func(at float64) float64 { return calm(at+float64(i)/40) * 0.8 })})
		s.Pairs = append(s.Pairs, report.PairSeries{Node: host, Peer: []string{"r", "r", "d"}[i], QP: uint32(0x11 + i),
			BPS:    column(func(at float64) float64 { return 20e9 * (1 + math.Exp(-5*at)*math.Cos(40*at+float64(i))) }),
			Target: column(func(at float64) float64 { return 20e9 * (1 + math.Exp(-5*at)) })})
	}
	early := func(most float64) []uint64 { return column(func(at float64) float64 { return most * calm(at) }) }
	s.Pairs[1].CNPs, s.Pairs[1].Retransmitted = early(4), early(12)
	s.Links = []report.DirectionSeries{{From: "b:eth0", Dropped: early(3), Lost: early(9)}, {From: "tor1:eth3", Lost: early(2)}}
	return s
}

// pausedClass returns a class whose neighbour paused it for so many microseconds in all.
func pausedClass(packets, pauses uint64, us float64, queue report.QueueLength) report.BufferClass {
	return report.BufferClass{Class: lossless, Packets: packets, Bytes: packets * 4_170, RxPauses: pauses, RxPauseUS: us, RxTransitions: pauses / 2, Queue: queue}
}

// Ring returns a simulated run that failed: in a ring of three switches, flows of two hops each came to
// wait for each other, and a watchdog found what remained of one.
func Ring() *report.Run {
	r := &report.Run{Lab: "ring", Seed: 1, Seconds: 0.02, Simulated: true, Nodes: nodes("h0", "h1", "h2"),
		Deadlocks: []report.Deadlock{{AtUS: 1_230, Class: lossless, Queues: []string{"s0:e10", "s1:e12", "s2:e10"}}},
		Problems:  []string{"3 of 3 flows completed nothing for the last 18.8 ms"},
		Started:   "2026-11-21T03:04:00Z", Host: "Linux 6.18, x86_64"}
	ports := [][2]string{{"e10", "s1:e20"}, {"e12", "s2:e20"}, {"e10", "s0:e20"}}
	for i, p := range ports {
		c := pausedClass(1_500, 1, 18_770, report.QueueLength{P50: 1_040_384, P99: 1_040_384, Peak: 1_040_384})
		c.RxTransitions = 0
		if i == 1 {
			c.Storms = 1
		}
		r.Buffers = append(r.Buffers, report.Buffer{Node: fmt.Sprintf("s%d", i), Size: 1 << 20, Peak: 1_040_384,
			Ports: []report.BufferPort{{Interface: p[0], Peer: p[1], Classes: []report.BufferClass{c}}}})
	}
	return r
}
