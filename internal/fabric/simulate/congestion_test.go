package simulate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// An incast is a topology in which n hosts write messages to one, behind a switch's port with a queue of 512 KiB.
func incast(n int, adapter, port, work string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: incast\nseed: 1\ntopology:\n  defaults: {adapter: {%s}, link: {rate: 10gbit, delay: 1us}}\n", adapter)
	fmt.Fprintf(&b, "  nodes: {s: {kind: switch, port: {queue: 512KiB, %s}}, r: , \"h[1-%d]\": }\n", port, n)
	fmt.Fprintf(&b, "  links: [{endpoints: [\"r:eth0\", \"s:r\"]}, {endpoints: [\"h[1-%d]:eth0\", \"s:p[1-%d]\"]}]\nworkloads:\n", n, n)
	for i := range n {
		fmt.Fprintf(&b, "  - {name: w%d, from: h%d, to: r, %s}\n", i+1, i+1, work)
	}
	return b.String()
}

// judgeIncast returns what all workloads together got, in bits per second from the first begin to the last end, Jain's
// index of fairness, and the share of the packets to r that found the queue before it full.
func judgeIncast(r *report.Run) (rate, jain, lost float64) {
	bytes, end, sum, squares := 0.0, 0.0, 0.0, 0.0
	for _, w := range r.Workloads {
		bytes += float64(w.Bytes)
		end = max(end, w.Ended)
		sum += w.Gbps
		squares += w.Gbps * w.Gbps
	}
	d := r.Links[0].Directions[1]
	return bytes * 8 / end, sum * sum / float64(len(r.Workloads)) / squares, float64(d.LostBy.Queue) / float64(d.Packets)
}

const (
	mark  = "ecn: {min: 100KiB, max: 400KiB}"
	ideal = 9.80e9 // of packets of 4 KiB in frames of 4,178 bytes on the wire, at 10 Gb/s
)

// TestLossyIncast is row 18 of congestion.md d: DCQCN rescues a 16:1 incast into a small queue, which loses a quarter
// and gets no more than 8 Gb/s otherwise.
func TestLossyIncast(t *testing.T) {
	work := "operation: write, size: 1MiB, depth: 8, count: 64"
	for adapter, most := range map[string]float64{
		"congestion: dcqcn": 0.25, "congestion: dcqcn, dcqcn: paper": 0.05,
	} {
		r := run(t, parsed(t, incast(16, adapter, mark, work)))
		rate, jain, lost := judgeIncast(r)
		t.Logf("%s: %.1f %% of the ideal, Jain %.4f, %.1f %% lost", adapter, 100*rate/ideal, jain, 100*lost)
		if rate < 0.85*ideal || jain < 0.98 || lost > most {
			t.Errorf("%s: %.1f %% of the ideal, want 85 at least; Jain %.4f, want 0.98; %.1f %% lost, want %.0f at most", adapter, 100*rate/ideal, jain, 100*lost, 100*most)
		}
		np, rp := r.Nodes[0].Transport, uint64(0)
		for _, n := range r.Nodes {
			rp += n.Transport["rp_cnp_handled"]
			if n.Name == "r" {
				np = n.Transport
			}
		}
		if np["np_cnp_sent"] == 0 || np["np_cnp_sent"] != rp || np["np_ecn_marked_roce_packets"] < np["np_cnp_sent"] {
			t.Errorf("%s: %d marked packets, %d CNPs sent, %d handled", adapter, np["np_ecn_marked_roce_packets"], np["np_cnp_sent"], rp)
		}
		if marked := r.Links[0].Directions[1].Marked; np["np_ecn_marked_roce_packets"] != marked {
			t.Errorf("%s: the port has marked %d packets, %d arrived", adapter, marked, np["np_ecn_marked_roce_packets"])
		}
	}
}

// TestSlowRestart: where nothing is marked, senders of DCQCN hear of congestion by what is lost alone, if slow_restart
// says so, and then get more through. Else there is not even its counter.
func TestSlowRestart(t *testing.T) {
	work := "operation: write, size: 1MiB, depth: 8, count: 16"
	var results []float64
	for _, adapter := range []string{"congestion: dcqcn", "congestion: dcqcn, dcqcn: {slow_restart: true}"} {
		r := run(t, parsed(t, incast(8, adapter, "rate: 10gbit", work)))
		rate, _, lost := judgeIncast(r)
		restarts, there := uint64(0), false
		for _, n := range r.Nodes {
			if got, ok := n.Transport["roce_slow_restart_cnps"]; ok {
				restarts, there = restarts+got, true
			}
			if handled := n.Transport["rp_cnp_handled"]; handled != 0 {
				t.Errorf("%s: %s has heard %d CNPs", adapter, n.Name, handled)
			}
		}
		t.Logf("%s: %.1f %% of the ideal, %.1f %% lost, %d slow restarts", adapter, 100*rate/ideal, 100*lost, restarts)
		if on := strings.Contains(adapter, "slow"); there != on || (restarts > 0) != on {
			t.Errorf("%s: %d slow restarts, counted: %v", adapter, restarts, there)
		}
		results = append(results, rate)
	}
	if without, with := results[0], results[1]; with < 1.5*without {
		t.Errorf("%.1f %% of the ideal with slow_restart, %.1f %% without", 100*with/ideal, 100*without/ideal)
	}
}

// TestUnmarked: without thresholds nothing is marked, and DCQCN sends at the rate of the line as none does.
func TestUnmarked(t *testing.T) {
	work := "operation: write, size: 1MiB, depth: 8, count: 32"
	for _, adapter := range []string{"congestion: dcqcn", "congestion: none"} {
		r := run(t, parsed(t, incast(1, adapter, "rate: 10gbit", work)))
		rate, _, lost := judgeIncast(r)
		if rate < 0.99*ideal || lost > 0 {
			t.Errorf("%s: %.2f %% of the ideal, want 99; %v lost", adapter, 100*rate/ideal, lost)
		}
	}
}

// TestQueuePairsTakeTurns: packets with data wait in their queue pairs, which take turns on the line, and not in a queue
// before it: it never has more than a packet with data and a few that acknowledge.
func TestQueuePairsTakeTurns(t *testing.T) {
	for _, adapter := range []string{"congestion: dcqcn", "congestion: none"} {
		text := fmt.Sprintf(`
name: turns
seed: 1
topology:
  defaults: {adapter: {%s}, link: {rate: 10gbit, delay: 1us}}
  nodes: {s: {kind: switch}, h: , "r[1-4]": }
  links: [{endpoints: ["h:eth0", "s:h"]}, {endpoints: ["r[1-4]:eth0", "s:p[1-4]"]}]
workloads:
  - {name: w1, from: h, to: r1, operation: write, size: 1MiB, depth: 8, count: 32}
  - {name: w2, from: h, to: r2, operation: write, size: 64KiB, depth: 32, count: 512}
  - {name: w3, from: h, to: r3, operation: send, size: 4KiB, depth: 64, count: 8192}
  - {name: w4, from: r4, to: h, operation: read, size: 1MiB, depth: 8, count: 32}
`, adapter)
		r := run(t, parsed(t, text))
		d := r.Links[0].Directions[0]
		if d.QueuePeak == nil || *d.QueuePeak > 2*4200 {
			t.Errorf("%s: %v bytes waited for the line at once", adapter, *d.QueuePeak)
		}
		least, most := r.Workloads[0].Gbps, 0.0
		for _, w := range r.Workloads {
			least, most = min(least, w.Gbps), max(most, w.Gbps)
			if w.Errors > 0 {
				t.Errorf("%s: %s: %d errors", adapter, w.Name, w.Errors)
			}
		}
		if least < 0.95*most {
			t.Errorf("%s: the four got between %.2f and %.2f Gb/s of one line", adapter, least, most)
		}
	}
}
