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

// These are for packets of 1 KiB on links of 10 us: a round trip takes 70 us with what hosts take, in which a line
// carries 80 packets.
const (
	wirePacket = 1106
	pathHolds  = 80
	idealShort = 10e9 * 1024 / wirePacket
	// A host handles together what arrives in turnaround and wavering: so many bytes leave at once, beside what a window has
	// (SIGCOMM'10, 3.5).
	atOnce = 15_000
)

// longIncast is such an incast of n hosts by an operation. READs are the one host's, from all others.
func longIncast(n int, adapter, port, operation string) string {
	text := incast(n, adapter+", roce_frame_size: 1024", port, "operation: "+operation+", size: 1MiB, depth: 8, count: 32")
	text = strings.Replace(text, "delay: 1us", "delay: 10us", 1)
	if operation == "read" {
		for i := range n {
			text = strings.Replace(text, fmt.Sprintf("from: h%d, to: r,", i+1), fmt.Sprintf("from: r, to: h%d,", i+1), 1)
		}
	}
	return text
}

// sumOf returns a counter of all nodes together.
func sumOf(r *report.Run, counter string) (sum uint64) {
	for _, n := range r.Nodes {
		sum += n.Transport[counter]
	}
	return sum
}

// TestDCTCP is of two flows into a port with one threshold K. By its paper (SIGCOMM'10, 3.3) the queue has K and a packet of
// each flow at most, and the line is always busy if K is a seventh of what the path holds. READs are bounded by who asks, and
// what marks them is not for the responder.
func TestDCTCP(t *testing.T) {
	const flows = 2
	for _, operation := range []string{"write", "read"} {
		for _, k := range []int{pathHolds * wirePacket / 7, 64 << 10} {
			adapter := "congestion: dctcp, dctcp: {rtt: 35us}" // the two share the path at first
			r := run(t, parsed(t, longIncast(flows, adapter, fmt.Sprintf("ecn: {min: %dB, max: %[1]dB}", k), operation)))
			rate, jain, lost := judgeIncast(r)
			d := r.Links[0].Directions[1]
			most := max(k, pathHolds/2*wirePacket) + flows*wirePacket + atOnce
			t.Logf("%s, K = %d: %.1f %% of the ideal, Jain %.4f, %d bytes waited at most, %d of %d packets marked", operation, k, 100*rate/idealShort, jain, *d.QueuePeak, d.Marked, d.Packets)
			if rate < 0.95*idealShort || jain < 0.98 || lost > 0 {
				t.Errorf("%s, K = %d: %.1f %% of the ideal, want 95 at least; Jain %.4f, want 0.98; %v lost, want none", operation, k, 100*rate/idealShort, jain, lost)
			}
			if *d.QueuePeak > uint64(most) {
				t.Errorf("%s, K = %d: %d bytes waited, want %d at most", operation, k, *d.QueuePeak, most)
			}
			cnps := d.Marked
			if operation == "read" {
				cnps = 0
			}
			if marked := sumOf(r, "np_ecn_marked_roce_packets"); d.Marked == 0 || marked != d.Marked {
				t.Errorf("%s, K = %d: %d packets were marked, %d arrived", operation, k, d.Marked, marked)
			}
			if sent, handled := sumOf(r, "np_cnp_sent"), sumOf(r, "rp_cnp_handled"); sent != cnps || handled != cnps {
				t.Errorf("%s, K = %d: %d CNPs were sent and %d handled, want %d", operation, k, sent, handled, cnps)
			}
		}
	}
}

// TestDCTCPOfLongPackets has 3.6 packets fill the path, of which each of two flows has one at least.
func TestDCTCPOfLongPackets(t *testing.T) {
	r := run(t, parsed(t, incast(2, "congestion: dctcp", "ecn: {min: 64KiB, max: 64KiB}", "operation: write, size: 1MiB, depth: 8, count: 64")))
	rate, jain, lost := judgeIncast(r)
	if rate < 0.95*ideal || jain < 0.98 || lost > 0 {
		t.Errorf("%.1f %% of the ideal, want 95 at least; Jain %.4f, want 0.98; %v lost, want none", 100*rate/ideal, jain, lost)
	}
}

// TestBDP: with BDP-FC (IRN, SIGCOMM'18) the queue of N flows into one port has no more than N times what the path holds.
// Nothing is marked, and a queue of that size loses nothing.
func TestBDP(t *testing.T) {
	for _, flows := range []int{1, 2, 8} {
		for _, operation := range []string{"write", "read"} {
			most := flows * pathHolds * wirePacket
			port := fmt.Sprintf("queue: %dB, ecn: {min: 10KiB, max: 20KiB}", most)
			text := strings.Replace(longIncast(flows, "congestion: bdp, bdp: {rtt: 70us}", port, operation), "queue: 512KiB, ", "", 1)
			r := run(t, parsed(t, text))
			rate, jain, lost := judgeIncast(r)
			d := r.Links[0].Directions[1]
			t.Logf("%d flows, %s: %.1f %% of the ideal, Jain %.4f, %d bytes waited, of %d", flows, operation, 100*rate/idealShort, jain, *d.QueuePeak, most)
			if rate < 0.95*idealShort || jain < 0.98 || lost > 0 || d.Marked > 0 {
				t.Errorf("%d flows, %s: %.1f %% of the ideal, want 95 at least; Jain %.4f, want 0.98; %v lost and %d marked, want none", flows, operation, 100*rate/idealShort, jain, lost, d.Marked)
			}
			if flows > 1 && *d.QueuePeak < uint64(most/2) {
				t.Errorf("%d flows, %s: %d bytes waited at most, so that %d is no bound", flows, operation, *d.QueuePeak, most)
			}
		}
	}
}

// TestBDPRepairs is IRN's point: BDP-FC with selective repeat needs no network without loss. The queue is as long as what the
// path holds, for four flows of which each has that in flight.
func TestBDPRepairs(t *testing.T) {
	port := fmt.Sprintf("queue: %dB", pathHolds*wirePacket)
	text := strings.Replace(longIncast(4, "congestion: bdp, bdp: {rtt: 70us}", port, "write"), "queue: 512KiB, ", "", 1)
	r := run(t, parsed(t, text))
	rate, jain, lost := judgeIncast(r)
	t.Logf("%.1f %% of the ideal, Jain %.4f, %.1f %% lost", 100*rate/idealShort, jain, 100*lost)
	if rate < 0.9*idealShort || lost == 0 || sumOf(r, "retransmitted") == 0 {
		t.Errorf("%.1f %% of the ideal, want 90 at least; %v lost, want some", 100*rate/idealShort, lost)
	}
}

// TestMeasuredProduct: without rtt, a window begins with the product that is measured.
func TestMeasuredProduct(t *testing.T) {
	for adapter, least := range map[string]float64{"congestion: dctcp": 0.95, "congestion: bdp": 0.85} {
		r := run(t, parsed(t, longIncast(1, adapter, "rate: 10gbit", "write")))
		rate, _, _ := judgeIncast(r)
		d := r.Links[0].Directions[1]
		t.Logf("%s: %.1f %% of the ideal, %d bytes waited", adapter, 100*rate/idealShort, *d.QueuePeak)
		if rate < least*idealShort || *d.QueuePeak > atOnce {
			t.Errorf("%s: %.1f %% of the ideal, want %v at least; %d bytes waited, want %d at most", adapter, 100*rate/idealShort, 100*least, *d.QueuePeak, atOnce)
		}
	}
}
