package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// A probe measures something once in each round, and gives one or more values by
// name.
type probe struct {
	name string
	tool string // that it needs; "" if it is ours
	// rounds is in how many of the rounds it is measured, at most; 0: in all.
	rounds  int
	measure func(context.Context, *rig) (map[string]float64, error)
}

// A rig has the two places, joined by a link, between which probes measure.
type rig struct {
	places [2]*place
}

// probePatience bounds a probe in one round.
const probePatience = 30 * time.Second

// probeLength is the time for which a probe measures, after warm-up.
const probeLength = time.Second

// Queue pairs whose numbers are compared with one.
var crowds = []int{10, 100, 1000}

// Depths of the queue in which a request is posted.
var postDepths = []int{1, 16, 256, 4096, 16384}

const (
	// streamDepth is the number of large messages in flight on a queue pair.
	streamDepth = "16"
	// idleConnections is the number of connections that are idle at a time. idleDepth and
	// idleDepthToo are the depths of their queues, whose difference tells what the queues
	// take.
	idleConnections         = 10_000
	idleDepth, idleDepthToo = 1, 17
)

// probes returns all probes, in the order in which they are measured.
func probes() []probe {
	all := []probe{
		floorProbe("floor-plain", "-size", "64KiB"),
		floorProbe("floor-crc", "-size", "64KiB", "-crc"),
		floorProbe("floor-copy", "-size", "64KiB", "-copy", "-busy"),
		floorProbe("floor-crc-copy", "-size", "64KiB", "-crc", "-copy", "-busy"),
		floorProbe("floor-blocking", "-size", "64KiB", "-crc", "-copy"),
		streamProbe("write-64KiB", "-op", "write", "-size", "64KiB", "-depth", streamDepth),
		streamProbe("read-64KiB", "-op", "read", "-size", "64KiB", "-depth", streamDepth),
		streamProbe("send-64KiB", "-op", "send", "-size", "64KiB", "-depth", streamDepth),
		ucxProbe("ucx-tag-bw", "tag_bw", 64<<10, 40_000),
		ucxProbe("ucx-put-bw", "ucp_put_bw", 64<<10, 30_000),
		iperfProbe(),
		floorProbe("floor-crc-copy-1MiB", "-size", "1MiB", "-crc", "-copy", "-busy"),
		streamProbe("write-1MiB", "-op", "write", "-size", "1MiB", "-depth", streamDepth),
		streamProbe("read-1MiB", "-op", "read", "-size", "1MiB", "-depth", streamDepth),
		streamProbe("send-1MiB", "-op", "send", "-size", "1MiB", "-depth", streamDepth),
		latencyProbe("lat-poll", "-poll"),
		udpProbe("udp-poll", 0, "-busy"),
		sockperfProbe("sockperf-poll", 0, "--nonblocked"),
		ucxProbe("ucx-tag-lat", "tag_lat", 8, 300_000),
		pingPongProbe(),
		latencyProbe("lat-event"),
		udpProbe("udp-block", apart),
		sockperfProbe("sockperf-block", apart),
		streamProbe("rate-64B", "-op", "send", "-size", "64", "-depth", "128"),
		streamProbe("rate-64B-poll", "-op", "send", "-size", "64", "-depth", "128", "-poll"),
		ucxProbe("ucx-rate-64B", "tag_bw", 64, 400_000),
	}
	for _, n := range crowds {
		all = append(all, streamProbe(fmt.Sprintf("write-64KiB-qps-%d", n), "-op", "write", "-size", "64KiB", "-depth", streamDepth, "-qps", fmt.Sprint(n)))
	}
	return append(all,
		probe{name: "post", measure: measurePosting},
		probe{name: "idle", rounds: 1, measure: measureIdle},
		probe{name: "linkem", measure: measureLink},
		probe{name: "all-to-all", measure: measureStar})
}

// pair measures two processes and reads what the client says into v.
func (r *rig) pair(ctx context.Context, server, client command, v any) error {
	fromClient, _, err := between(ctx, r.places, server, client)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(fromClient), v); err != nil {
		return fmt.Errorf("what it says: %w", err)
	}
	return nil
}

// timed returns flags with the time to measure.
func timed(flags []string) []string { return append(flags, "-duration", probeLength.String()) }

func streamProbe(name string, flags ...string) probe {
	return probe{name: name, measure: func(ctx context.Context, r *rig) (map[string]float64, error) {
		server, client := endCommands(r.places, timed(flags)...)
		var t Throughput
		err := r.pair(ctx, server, client, &t)
		return map[string]float64{name: t.Gbps, name + " messages": t.Messages / 1e6}, err
	}}
}

func latencyProbe(name string, flags ...string) probe {
	return probe{name: name, measure: func(ctx context.Context, r *rig) (map[string]float64, error) {
		server, client := endCommands(r.places, timed(append([]string{"-mode", "lat", "-op", "send", "-size", "8"}, flags...))...)
		fromClient, fromServer, err := between(ctx, r.places, server, client)
		if err != nil {
			return nil, err
		}
		var l Latency
		var c Cost
		if err := errors.Join(json.Unmarshal([]byte(fromClient), &l), json.Unmarshal([]byte(fromServer), &c)); err != nil {
			return nil, err
		}
		values := l.values(name)
		values[name+" gc"] = max(l.LongestGC, c.LongestGC)
		return values, nil
	}}
}

// values returns the figures of the latency, by name.
func (l *Latency) values(name string) map[string]float64 {
	return map[string]float64{name: l.Median, name + " p99": l.P99, name + " p99.9": l.P999, name + " max": l.Max}
}

func floorProbe(name string, flags ...string) probe {
	return probe{name: name, measure: func(ctx context.Context, r *rig) (map[string]float64, error) {
		server, client := rawCommands(r.places, "floor", timed(flags)...)
		var t Throughput
		err := r.pair(ctx, server, client, &t)
		return map[string]float64{name: t.Gbps}, err
	}}
}

// apart is the processor of the server of a ping-pong whose ends are to be on two
// processors; the client's is the first. Where a blocking server shares its client's
// processor, which the kernel decides now and then, no processor has to be woken, as
// between two hosts it must be.
const apart = 2

// onProcessors places the ends.
func onProcessors(server, client *command, cpu int) {
	if cpu > 0 {
		server.cpu, client.cpu = cpu, 1
	}
}

func udpProbe(name string, cpu int, flags ...string) probe {
	return probe{name: name, measure: func(ctx context.Context, r *rig) (map[string]float64, error) {
		server, client := rawCommands(r.places, "udp", timed(flags)...)
		onProcessors(&server, &client, cpu)
		var l Latency
		err := r.pair(ctx, server, client, &l)
		return l.values(name), err
	}}
}

func sockperfProbe(name string, cpu int, flags ...string) probe {
	return probe{name: name, tool: "sockperf", measure: func(ctx context.Context, r *rig) (map[string]float64, error) {
		to := r.places[1].address.String()
		server := command{args: append([]string{"sockperf", "server", "-i", to}, flags...), port: "udp:11111"}
		client := command{args: append([]string{"sockperf", "ping-pong", "-i", to, "-m", fmt.Sprint(pingPongLen), "-t", "1"}, flags...)}
		onProcessors(&server, &client, cpu)
		text, _, err := between(ctx, r.places, server, client)
		if err != nil {
			return nil, err
		}
		s, err := parseSockperf(text)
		return map[string]float64{name: s.median, name + " p99.9": s.p999}, err
	}}
}

// ucxProbe runs a test of ucx_perftest over TCP. Its values are Gb/s, and with other
// names the messages per second and the latency.
func ucxProbe(name, test string, size, count int) probe {
	return probe{name: name, tool: "ucx_perftest", measure: func(ctx context.Context, r *rig) (map[string]float64, error) {
		env := []string{"UCX_TLS=tcp", "UCX_NET_DEVICES=" + iface}
		server := command{args: []string{"ucx_perftest", "-p", "13337"}, env: env, port: "tcp:13337"}
		client := command{env: env, args: []string{"ucx_perftest", r.places[1].address.String(), "-p", "13337",
			"-t", test, "-s", fmt.Sprint(size), "-n", fmt.Sprint(count), "-w", fmt.Sprint(count / 8), "-f", "-v"}}
		text, _, err := between(ctx, r.places, server, client)
		if err != nil {
			return nil, err
		}
		u, err := parseUCX(text)
		gbps := u.messages * float64(size) * 8 / 1e9
		return map[string]float64{name: gbps, name + " messages": u.messages / 1e6, name + " latency": u.median}, err
	}}
}

func iperfProbe() probe {
	const name = "iperf3"
	return probe{name: name, tool: name, measure: func(ctx context.Context, r *rig) (map[string]float64, error) {
		to := r.places[1].address.String()
		server := command{args: []string{name, "--server", "--one-off", "--bind", to}, port: "tcp:5201"}
		client := command{args: []string{name, "--client", to, "--json", "--omit", "1", "--time", "1"}}
		text, _, err := between(ctx, r.places, server, client)
		if err != nil {
			return nil, err
		}
		gbps, err := parseIperf(text)
		return map[string]float64{name: gbps}, err
	}}
}

func pingPongProbe() probe {
	const name = "fi_pingpong"
	return probe{name: name, tool: name, measure: func(ctx context.Context, r *rig) (map[string]float64, error) {
		flags := []string{"-p", "tcp", "-e", "msg", "-I", "100000", "-S", "8"}
		server := command{args: append([]string{name}, flags...), port: "tcp:47592"}
		client := command{args: append(append([]string{name}, flags...), r.places[1].address.String())}
		text, _, err := between(ctx, r.places, server, client)
		if err != nil {
			return nil, err
		}
		v, err := parsePingPong(text)
		return map[string]float64{name: v}, err
	}}
}

// measurePosting gives the time to post at the depth where it is least, and where it
// is most, ns.
func measurePosting(ctx context.Context, r *rig) (map[string]float64, error) {
	values := map[string]float64{}
	for _, depth := range postDepths {
		server, client := endCommands(r.places, "-mode", "post", "-op", "write", "-size", "8", "-depth", fmt.Sprint(depth), "-duration", "500ms")
		var p Posting
		if err := r.pair(ctx, server, client, &p); err != nil {
			return nil, err
		}
		values[fmt.Sprintf("post-%d", depth)] = p.Median
		least, there := values["post least"]
		values["post most"] = max(values["post most"], p.Median)
		if !there || p.Median < least {
			values["post least"] = p.Median
		}
	}
	return values, nil
}

// measureIdle gives what idle connections take, of the end where it is more.
func measureIdle(ctx context.Context, r *rig) (map[string]float64, error) {
	idle := func(depth int) (i Idle, err error) {
		server, client := endCommands(r.places, "-mode", "idle", "-qps", fmt.Sprint(idleConnections), "-depth", fmt.Sprint(depth), "-warmup", "1s", "-duration", "3s")
		fromClient, fromServer, err := between(ctx, r.places, server, client)
		if err != nil {
			return i, err
		}
		var ends [2]Idle
		for n, text := range []string{fromClient, fromServer} {
			if err := json.Unmarshal([]byte(text), &ends[n]); err != nil {
				return i, err
			}
		}
		return Idle{Resident: max(ends[0].Resident, ends[1].Resident), Heap: max(ends[0].Heap, ends[1].Heap), CPU: max(ends[0].CPU, ends[1].CPU)}, nil
	}
	some, err := idle(idleDepth)
	if err != nil {
		return nil, err
	}
	more, err := idle(idleDepthToo)
	if err != nil {
		return nil, err
	}
	perSlot := (more.Resident - some.Resident) / (idleDepthToo - idleDepth)
	return map[string]float64{
		"idle bytes": some.Resident - perSlot*idleDepth, "idle queue slot": perSlot, "idle heap": some.Heap,
		"idle processors": max(some.CPU, more.CPU),
	}, nil
}
