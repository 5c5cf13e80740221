package figures

import (
	"regexp"
	"strconv"
	"strings"
)

// This file is the programs that print some lines for people: ucx_perftest, qperf, and
// ibv_rc_pingpong and the like.

// ucxHead is the title of the column behind the iterations, which is of half of a round trip only
// where it says latency, and ucxLine the figures of the whole run.
const (
	ucxHead = "latency (usec)"
	ucxLine = "Final:"
)

// ucx reads the line of the whole run: iterations; median, mean and overall mean in
// microseconds; MB of 2^20 bytes per second; messages per second.
func ucx(output string) (f Figures, known bool) {
	const fields = 8
	latency := strings.Contains(output, ucxHead)
	for line := range strings.Lines(output) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), ucxLine)
		if !ok {
			continue
		}
		n, ok := numbers(strings.Fields(rest))
		if !ok || len(n) != fields {
			continue
		}
		f = Figures{Messages: uint64(n[0]), Gbps: n[5] * 8 * (1 << 20) / 1e9, MessageRate: n[7]}
		if latency {
			f.Latency.P50, f.Latency.Mean = n[1], n[3]
		}
		known = true
	}
	return f, known
}

// qperfLine is a figure of qperf, which prints one test after the other: a name and a value
// with its unit. Patterns are compiled when a program has ended: an agent has no use for them.
const qperfLine = `^\s+(bw|send_bw|recv_bw|msg_rate|latency)\s+=\s+([0-9.]+) (\S+)$`

// qperfUnit returns one of its units, which are decimal (qperf's man page, -us): rates of bytes in 10^9 bits per second, times in microseconds. It
// is 0 for one that is not known.
func qperfUnit(name string) float64 {
	switch name {
	case "bytes/sec":
		return 8e-9
	case "KB/sec":
		return 8e-6
	case "MB/sec":
		return 8e-3
	case "GB/sec":
		return 8
	case "TB/sec":
		return 8e3
	case "/sec", "us":
		return 1
	case "K/sec", "ms":
		return 1e3
	case "M/sec", "sec":
		return 1e6
	case "G/sec":
		return 1e9
	case "ns":
		return 1e-3
	}
	return 0
}

// qperf takes of each figure the last that is told.
func qperf(output string) (f Figures, known bool) {
	figure := regexp.MustCompile(qperfLine)
	for line := range strings.Lines(output) {
		m := figure.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil {
			continue
		}
		value, err := strconv.ParseFloat(m[2], 64)
		factor := qperfUnit(m[3])
		if err != nil || factor == 0 {
			continue
		}
		known = true
		switch value *= factor; m[1] {
		case "bw", "recv_bw": // what arrives counts, and is told last
			f.Gbps = value
		case "msg_rate":
			f.MessageRate = value
		case "latency":
			f.Latency.Mean = value
		}
	}
	return f, known
}

// The last lines of ibv_rc_pingpong and the like.
const (
	pingpongBytes  = `(?m)^(\d+) bytes in [0-9.]+ seconds = ([0-9.]+) Mbit/sec`
	pingpongRounds = `(?m)^(\d+) iters in [0-9.]+ seconds = ([0-9.]+) usec/iter`
)

// pingpong reads the throughput of both directions together and the mean of the rounds, of
// which half is the latency of a message.
func pingpong(output string) (f Figures, known bool) {
	moved := regexp.MustCompile(pingpongBytes).FindStringSubmatch(output)
	rounds := regexp.MustCompile(pingpongRounds).FindStringSubmatch(output)
	if moved == nil || rounds == nil {
		return Figures{}, false
	}
	// A number that does not fit is as good as absent: the patterns have digits alone.
	f.Bytes, _ = strconv.ParseUint(moved[1], 10, 64)
	f.Messages, _ = strconv.ParseUint(rounds[1], 10, 64)
	mbit, _ := strconv.ParseFloat(moved[2], 64)
	round, _ := strconv.ParseFloat(rounds[2], 64)
	f.Gbps, f.Latency.Mean = mbit/1e3, round/2
	return f, true
}
