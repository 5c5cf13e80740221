package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// A probe is a workload that measures something.
type probe struct {
	name    string
	program string // that is not measured where it is not installed; "": the provider's own
	debian  string // the package that has it
	// text describes the workload as a file does, but for its name.
	text string
	// value is the figure in what it reported; 0: there is none.
	value func(*report.Workload) float64
}

func gbps(w *report.Workload) float64    { return w.Gbps }
func rate(w *report.Workload) float64    { return w.MessageRate / 1e6 }
func median(w *report.Workload) float64  { return w.Latency.P50 }
func p99(w *report.Workload) float64     { return w.Latency.P99 }
func average(w *report.Workload) float64 { return w.Latency.Mean }

// both returns a workload of a program at a server and its client, and of what is before it at both.
func both(before, command string) string {
	command = strings.TrimSpace(before + " " + command)
	return fmt.Sprintf("exec: {server: %q, client: %q}, timeout: 60s", command, command+" server")
}

// perftest measures by a program of perftest.
func perftest(name, before, command string, value func(*report.Workload) float64) probe {
	program, _, _ := strings.Cut(command, " ")
	return probe{name, program, "perftest", both(before, command), value}
}

// ucx measures by ucx_perftest over some of its transports.
func ucx(name, transports, command string, value func(*report.Workload) float64) probe {
	return probe{name, "ucx_perftest", "ucx-utils", both("env UCX_TLS="+transports, "ucx_perftest "+command), value}
}

const (
	seconds  = " -D 2"
	exchange = " -n 10000"
	apart    = "env NDKLAB_RNIC=process"
)

// probes are in the order in which they take turns.
var probes = []probe{
	{"provider write-64KiB", "", "", "from: server, to: client, operation: write, size: 64KiB, depth: 128, duration: 2s", gbps},
	perftest("write-64KiB", "", "ib_write_bw -s 65536"+seconds, gbps),
	perftest("read-64KiB", "", "ib_read_bw -s 65536"+seconds, gbps),
	perftest("send-64KiB", "", "ib_send_bw -s 65536"+seconds, gbps),
	ucx("tcp tag-64KiB", "tcp", "-t tag_bw -s 65536 -n 10000 -w 500", gbps),
	perftest("apart write-64KiB", apart, "ib_write_bw -s 65536"+seconds, gbps),
	perftest("send-64B", "", "ib_send_bw -s 64"+seconds, rate),
	perftest("write-64B", "", "ib_write_bw -s 64"+seconds, rate),
	perftest("send-lat", "", "ib_send_lat -s 8"+exchange, median),
	perftest("write-lat", "", "ib_write_lat -s 8"+exchange, median),
	perftest("write-lat p99", "", "ib_write_lat -s 8"+exchange, p99),
	perftest("apart send-lat", apart, "ib_send_lat -s 8"+exchange, median),
	ucx("verbs tag-lat", "rc_verbs,ud_verbs,self", "-t tag_lat -s 8 -n 20000 -w 1000", average),
	ucx("tcp tag-lat", "tcp,self", "-t tag_lat -s 8 -n 20000 -w 1000", average),
}

// lacks says why a probe can not run and what to do; "" if it can.
func (p *probe) lacks() string {
	if p.program == "" {
		return ""
	}
	if _, err := exec.LookPath(p.program); err != nil {
		return fmt.Sprintf("%s is not installed: apt-get install %s", p.program, p.debian)
	}
	return ""
}

// file returns the topology that the probes run in: a plain link with room for packets of 4 KiB.
func file(pid int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: bench-verbs-%d\nseed: 1\ntopology:\n  nodes: {server: , client: }\n  links: [{endpoints: [\"server:eth0\", \"client:eth0\"], mtu: 4200}]\nworkloads:\n", pid)
	for i, p := range probes {
		fmt.Fprintf(&b, "  - {name: p%d, %s}\n", i, p.text)
	}
	return b.String()
}

// take takes the figure of a probe that has run.
func (r *results) take(p probe, w report.Workload) error {
	if w.Errors > 0 || w.Error != "" {
		lines := strings.Split(strings.TrimSpace(w.Output), "\n")
		return fmt.Errorf("%s (%s)", w.Error, lines[len(lines)-1])
	}
	v := p.value(&w)
	if !(v > 0) {
		return errors.New("no figure in what it printed")
	}
	r.Values[p.name] = append(r.Values[p.name], v)
	return nil
}
