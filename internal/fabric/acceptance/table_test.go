package acceptance

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/acceptance/ns3"
	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/race"
)

// A row is one of the table: what it tries, and how it judges.
type row struct {
	number int
	name   string
	long   bool // it is not part of the short form
	try    func(*verdict)
}

// A verdict collects what a row finds.
type verdict struct {
	*testing.T
	row *row
}

// says prints a line of the table, and fails the test unless the row passes.
func (v *verdict) says(what, reference, ours string, passes bool) {
	v.Helper()
	result := "pass"
	if !passes {
		result = "MISS"
	}
	v.Logf("| %d | %s: %s | %s | %s | %s |", v.row.number, v.row.name, what, reference, ours, result)
	if !passes {
		v.Fail()
	}
}

// near passes if a percentage is within so many points of the reference's.
func (v *verdict) near(what string, ours, reference, points float64) {
	v.Helper()
	v.says(what, fmt.Sprintf("%.1f %% +- %g", reference, points), fmt.Sprintf("%.1f %%", ours), math.Abs(ours-reference) <= points)
}

// within passes if a length, in KB, is within a share of the reference's.
func (v *verdict) within(what string, ours uint64, reference, share float64) {
	v.Helper()
	kb := float64(ours) / 1e3
	v.says(what, fmt.Sprintf("%.0f KB +- %.0f %%", reference, 100*share), fmt.Sprintf("%.0f KB", kb), math.Abs(kb-reference) <= share*reference)
}

// between passes if a number is in a range.
func (v *verdict) between(what, unit string, ours, least, most float64) {
	v.Helper()
	v.says(what, fmt.Sprintf("%.4g to %.4g%s", least, most, unit), fmt.Sprintf("%.4g%s", ours, unit), ours >= least && ours <= most)
}

// none passes if nothing was counted.
func (v *verdict) none(what string, ours uint64) {
	v.Helper()
	v.says(what, "0", fmt.Sprint(ours), ours == 0)
}

// Parameters of adapters. paper and vendor are those of the reference's dcqcn_paper and dcqcn at 40 Gb/s (notes of
// package ns3's data), which differ from the presets.
const (
	uncontrolled = "congestion: none"
	paper        = "congestion: dcqcn, cnp: {min_time: 0us}, dcqcn: {preset: paper, clamp_tgt_rate: false, clamp_tgt_rate_after_time_inc: true, " +
		"rpg_byte_reset: 0B, rpg_min_rate: 10mbit, rpg_min_dec_fac: 50%, dce_tcp_rtt: 50us, rate_reduce_monitor_period: 50us}"
	vendor = "congestion: dcqcn, cnp: {min_time: 0us}, dcqcn: {preset: connectx, dce_tcp_g: 1020, rpg_ai_rate: 8mbit, rpg_hai_rate: 80mbit, rpg_min_rate: 1gbit}"

	paperMarks = "port: {ecn: {min: 5KB, max: 200KB, probability: 1%}}"
)

// vendorAt100 is vendor at 100 Gb/s.
var vendorAt100 = strings.NewReplacer("rpg_ai_rate: 8mbit", "rpg_ai_rate: 20mbit", "rpg_hai_rate: 80mbit", "rpg_hai_rate: 200mbit").Replace(vendor)

// clamped is paper as the SIGCOMM'15 paper has it: a cut also sets the target.
var clamped = strings.Replace(paper, "clamp_tgt_rate: false", "clamp_tgt_rate: true", 1)

// buffer is that of a switch with so many MiB, and its marks, if not those of the reference's preset.
func buffer(mib int, marks string) string {
	keys := fmt.Sprintf("buffer: {preset: hpcc, size: %dMiB}, priorities: {lossless: [3]}", mib)
	if marks != "" {
		keys += ", " + marks
	}
	return keys
}

// settings returns a switch's keys with a buffer of 12 MiB, and an adapter's, of a run of the reference.
func settings(label string) (switches, adapter string) {
	switch {
	case strings.Contains(label, "paper"):
		return buffer(12, paperMarks), paper
	case strings.Contains(label, "dcqcn"):
		return buffer(12, ""), vendor
	}
	return buffer(12, ""), uncontrolled
}

// incast has n hosts at a switch send to one more.
func incast(n, gbps, messages int, switches, adapter string) *fabric {
	f := &fabric{switches: 1, buffer: switches, adapter: adapter}
	for h := 1; h <= n+1; h++ {
		f.lines = append(f.lines, line{0, h, gbps})
	}
	for h := 1; h <= n; h++ {
		f.flows = append(f.flows, flow{from: h, to: n + 1, messages: messages})
	}
	return f
}

// The fabrics of the reference, whose flows have 25 MiB.

func victim(label string) *fabric {
	f := &fabric{switches: 2, lines: []line{
		{0, 2, 40}, {0, 3, 40}, {0, 4, 40}, {0, 5, 40}, {0, 6, 40}, {0, 1, 100}, {1, 7, 40}, {1, 8, 40},
	}}
	f.buffer, f.adapter = settings(label)
	for h := 2; h <= 5; h++ {
		f.flows = append(f.flows, flow{from: h, to: 7, messages: 25})
	}
	f.flows = append(f.flows, flow{from: 6, to: 8, messages: 50})
	return f
}

func parkingLot(label string) *fabric {
	f := &fabric{switches: 2, lines: []line{{0, 2, 40}, {0, 3, 40}, {0, 4, 40}, {0, 1, 40}, {1, 5, 40}, {1, 6, 40}}}
	f.buffer, f.adapter = settings(label)
	for h := 2; h <= 5; h++ {
		f.flows = append(f.flows, flow{from: h, to: 6, messages: 25})
	}
	return f
}

func twoBottlenecks(label string) *fabric {
	f := &fabric{switches: 2, lines: []line{{0, 2, 40}, {0, 3, 40}, {0, 1, 40}, {1, 4, 40}, {1, 5, 40}, {1, 6, 40}}}
	f.buffer, f.adapter = settings(label)
	f.flows = []flow{{from: 2, to: 5, messages: 100}, {from: 3, to: 6, messages: 100}, {from: 4, to: 6, messages: 100}}
	return f
}

// ring is of five routers, since a spanning tree would open a ring of switches. Each has a host that sends to the
// second next, by the shortest path.
func ring(mib int, adapter string) *fabric {
	f := &fabric{switches: 5, kind: "router", buffer: buffer(mib, ""), adapter: adapter}
	for i := range 5 {
		f.lines = append(f.lines, line{i, 5 + i, 40}, line{i, (i + 1) % 5, 40})
		f.flows = append(f.flows, flow{from: 5 + i, to: 5 + (i+2)%5, messages: 25})
	}
	return f
}

// deadlocks judges that a ring has come to a halt, for good.
func (v *verdict) deadlocks(what string, r *result) {
	v.Helper()
	ours, done := "none", 0
	if len(r.Deadlocks) > 0 {
		d := r.Deadlocks[0]
		ours = fmt.Sprintf("at %.1f us: %s", d.AtUS, strings.Join(d.Queues, " -> "))
	}
	for i := range r.Workloads {
		if r.share(i, 40) > 0 {
			done++
		}
	}
	v.says(what, "deadlock of the whole ring", ours, strings.HasSuffix(ours, ": s0:e1 -> s1:e2 -> s2:e3 -> s3:e4 -> s4:e0"))
	v.says(what+", flows done", "0 of 5", fmt.Sprintf("%d of 5", done), done == 0)
	v.none(what+", drops", r.drops())
}

// controlled is an incast of the reference.
func controlled(run ns3.Incast, mib int, marks, adapter string) *fabric {
	f := incast(run.N, run.BW, run.Size>>20, buffer(mib, marks), adapter)
	for i := range f.flows {
		f.flows[i].size = run.Size / f.flows[i].messages
	}
	return f
}

// each judges each flow's share of a line of 40 Gb/s.
func (v *verdict) each(r *result, label string, points float64) {
	run := ns3.FabricOf(label)
	for i, w := range r.fabric.flows {
		name := fmt.Sprintf("%d->%d", w.from, w.to)
		v.near(name, r.share(i, 40), 100*run.Goodput[name]/(40*ns3.Ideal), points)
	}
}

// paused judges a fabric that PFC alone controls: shares, peaks of ports, by the reference's names for them, each here towards
// the second node of two, and that nothing is lost.
func (v *verdict) paused(f *fabric, label string, ports map[string][2]int) {
	r := f.run(v.T)
	v.each(&r, label, 2)
	for port, at := range ports {
		v.within("peak of "+f.endpoint(at[0], at[1]), r.queue(at[0], at[1]).Queue.Peak, ns3.FabricOf(label).QueuePeakKB[port], 0.05)
	}
	v.none("drops", r.drops())
}

var table = []row{
	{number: 2, name: "16:1, 10G, PFC alone", try: func(v *verdict) {
		for _, mib := range []int{1, 12} {
			r := incast(16, 10, 16, buffer(mib, ""), uncontrolled).run(v.T)
			share, jain := r.total(10)
			v.between(fmt.Sprintf("%d MiB, of the ideal", mib), " %", share, 99, 100.1)
			v.between(fmt.Sprintf("%d MiB, Jain", mib), "", jain, 0.999, 1)
			v.none(fmt.Sprintf("%d MiB, drops", mib), r.drops())
		}
	}},
	{number: 3, name: "victim, PFC alone", try: func(v *verdict) {
		v.paused(victim("victim-none"), "victim-none", map[string][2]int{"0:6": {0, 1}, "1:1": {1, 7}})
	}},
	{number: 4, name: "victim, DCQCN", try: func(v *verdict) {
		for _, label := range []string{"victim-dcqcn", "victim-dcqcn_paper"} {
			r := victim(label).run(v.T)
			run := ns3.FabricOf(label)
			v.says(label+", 6->8", fmt.Sprintf("at least 90 %% (%.1f)", 100*run.Goodput["6->8"]/(40*ns3.Ideal)), fmt.Sprintf("%.1f %%", r.share(4, 40)), r.share(4, 40) >= 90)
			v.none(label+", PFC frames", r.pauses())
			v.none(label+", drops", r.drops())
		}
	}},
	{number: 5, name: "parking lot, PFC alone", try: func(v *verdict) {
		v.paused(parkingLot("parking-none"), "parking-none", map[string][2]int{"0:4": {0, 1}, "1:2": {1, 6}})
	}},
	{number: 6, name: "parking lot, DCQCN", try: func(v *verdict) {
		for _, label := range []string{"parking-dcqcn", "parking-dcqcn_paper"} {
			r := parkingLot(label).run(v.T)
			for i, w := range r.fabric.flows {
				v.between(fmt.Sprintf("%s, %d->%d", label, w.from, w.to), " %", r.share(i, 40), 22, 28)
			}
		}
	}},
	{number: 7, name: "two bottlenecks, DCQCN", long: true, try: func(v *verdict) {
		r := twoBottlenecks("multi-dcqcn").run(v.T)
		v.each(&r, "multi-dcqcn", 7)
		v.says("the flow through both is the slowest", "yes", "", r.share(1, 40) < min(r.share(0, 40), r.share(2, 40)))
	}},
	{number: 8, name: "ring, PFC alone", try: func(v *verdict) {
		for _, mib := range []int{1, 12} {
			r := ring(mib, uncontrolled).run(v.T)
			v.deadlocks(fmt.Sprintf("%d MiB", mib), &r)
		}
	}},
	{number: 9, name: "ring, DCQCN", try: func(v *verdict) {
		r := ring(1, vendor).run(v.T)
		v.deadlocks("1 MiB", &r)
		r = ring(12, vendor).run(v.T)
		v.each(&r, "ring5-b12-dcqcn", 6)
		v.none("12 MiB, PFC frames", r.pauses())
		v.none("12 MiB, deadlocks", uint64(len(r.Deadlocks)))
	}},
	{number: 10, name: "N:1, 40G, DCQCN of the paper", long: true, try: func(v *verdict) {
		for _, n := range []int{2, 4, 8, 16, 20, 32, 64} {
			run := ns3.IncastOf(fmt.Sprintf("e%d-40-paperclamp", n))
			r := controlled(run, 12, paperMarks, clamped).run(v.T)
			share, jain := r.total(40)
			v.near(fmt.Sprintf("N = %d", n), share, 100*run.Agg/(40*ns3.Ideal), 6)
			v.within(fmt.Sprintf("N = %d, peak", n), r.queue(0, n+1).Queue.Peak, run.QPeak, 0.05)
			v.between(fmt.Sprintf("N = %d, Jain", n), "", jain, 0.99, 1)
			v.none(fmt.Sprintf("N = %d, drops", n), r.drops())
		}
	}},
	// Flows start within 50 us of each other, a period of their timers. In the reference they start at one instant, and
	// 160 collapse all the same; here such flows stay in step and recover.
	{number: 11, name: "DCQCN breaks with many flows", long: true, try: func(v *verdict) {
		for _, c := range []struct {
			n           int
			least, most float64
		}{{64, 0, 200}, {160, 2000, 12_000}} {
			run := ns3.IncastOf(fmt.Sprintf("e%d-40-paperclamp", c.n))
			f := controlled(run, 12, paperMarks, clamped)
			for i := range f.flows {
				f.flows[i].more = fmt.Sprintf(", start: %dns", i*7919%50_000)
			}
			r := f.run(v.T)
			v.between(fmt.Sprintf("N = %d, median queue (there %.0f)", c.n, run.Q50), " KB", float64(r.queue(0, c.n+1).Queue.P50)/1e3, c.least, c.most)
		}
	}},
	{number: 12, name: "standing queue, 40G, DCQCN of the paper", long: true, try: func(v *verdict) {
		for _, c := range []struct {
			n     int
			fluid float64 // KB, of Zhu et al. (CoNEXT'16), by congestion.md d
		}{{2, 23}, {4, 50}, {8, 119}} {
			run := ns3.IncastOf(fmt.Sprintf("d%d-40-paper", c.n))
			r := controlled(run, 12, paperMarks, paper).run(v.T)
			median := float64(r.queue(0, c.n+1).Queue.P50) / 1e3
			v.between(fmt.Sprintf("N = %d, median by the reference", c.n), " KB", median, 0.6*run.Q50, 1.6*run.Q50)
			v.between(fmt.Sprintf("N = %d, median by the fluid model", c.n), " KB", median, 0.6*c.fluid, 1.6*c.fluid)
		}
	}},
	{number: 13, name: "16:1, 100G, DCQCN of ConnectX", long: true, try: func(v *verdict) {
		for _, label := range []string{"c16-100-dcqcn-b32", "e16-100-vendor"} {
			run := ns3.IncastOf(label)
			r := controlled(run, 32, "", vendorAt100).run(v.T)
			share, _ := r.total(100)
			v.near(label, share, 100*run.Agg/(100*ns3.Ideal), 6)
			v.between(label+", median queue", " KB", float64(r.queue(0, 17).Queue.P50)/1e3, 0.6*run.Q50, 1.6*run.Q50)
			v.none(label+", PFC frames", r.pauses())
		}
	}},
	{number: 16, name: "storm of pauses", try: func(v *verdict) {
		const ideal = 25 << 20 * 8 * onWire / payload / 40e9
		for _, watchdog := range []string{"", "watchdog: {detect: 2ms, action: drop}", "watchdog: {detect: 2ms, action: forward}"} {
			r := stormed(watchdog).run(v.T)
			victim := r.Workloads[1].Seconds * 1e3
			if watchdog == "" {
				v.between("without a watchdog, a flow that shares no end", " ms", victim, 20, 30)
				continue
			}
			v.between(watchdog+", a flow that shares no end", " ms", victim, 1e3*ideal, 1e3*ideal+2.5)
			v.says(watchdog+", storms", "1", fmt.Sprint(r.queue(1, 4).Storms), r.queue(1, 4).Storms == 1)
		}
	}},
	{number: 17, name: "four clients join and leave, 400G", long: true, try: func(v *verdict) {
		usual, unfair := joining("congestion: dcqcn").measure(v.T)
		tuned, jain := joining("congestion: dcqcn, cnp: {min_time: 2us}, dcqcn: {rpg_time_reset: 20us, rpg_min_dec_fac: 90%}").measure(v.T)
		for n, j := range jain {
			v.between(fmt.Sprintf("tuned, Jain of phase %d", n+1), "", j, 0.98, 1)
		}
		v.Logf("default, Jain of phases: %.3f", unfair)
		v.says("mean utilisation", "tuned above default", fmt.Sprintf("%.1f %% above %.1f %%", tuned, usual), tuned > usual)
	}},
	{number: 18, name: "16:1 into 512 KiB, 10G, lossy, DCQCN", try: func(v *verdict) {
		for adapter, most := range map[string]float64{"congestion: dcqcn": 25, "congestion: dcqcn, dcqcn: paper": 5} {
			f := incast(16, 10, 4, "port: {queue: 512KiB, ecn: {min: 100KiB, max: 400KiB}}", adapter)
			for i := range f.flows {
				f.flows[i].size = 4 << 20
			}
			r := f.run(v.T)
			share, jain := r.total(10)
			lost := r.Links[16].Directions[0]
			v.between(adapter+", of the ideal", " %", share, 85, 100.1)
			v.between(adapter+", Jain", "", jain, 0.98, 1)
			v.between(adapter+", lost", " %", 100*float64(lost.LostBy.Queue)/float64(lost.Packets), 0, most)
		}
	}},
}

// stormed has a flow to a host whose adapter asks for pauses without end for 20 ms, and one beside it that shares
// neither end.
func stormed(watchdog string) *fabric {
	f := &fabric{switches: 2, adapter: uncontrolled, buffer: buffer(1, watchdog), lines: []line{{0, 2, 40}, {0, 3, 40}, {0, 1, 100}, {1, 4, 40}, {1, 5, 40}}}
	f.flows = []flow{{from: 2, to: 4, messages: 25}, {from: 3, to: 5, messages: 25}}
	f.more = "timeline: [{at: 0s, storm: h4, for: 20ms}]\n"
	return f
}

// The number of clients that send stays for phase, ms, seven times.
const (
	phase  = 40
	phases = 7
)

// joining has four clients come one after another, and leave in that order (Barre et al., ATC'25, Fig. 12; there it is
// seconds from one to the next).
func joining(adapter string) *fabric {
	f := incast(4, 400, 0, buffer(64, ""), adapter)
	f.frame = 4096
	for i := range f.flows {
		f.flows[i].more = fmt.Sprintf(", start: %dms, duration: %dms", i*phase, 4*phase)
	}
	f.more = "timeline:\n"
	for n := range 2 * phases {
		f.more += fmt.Sprintf("  - {at: %dms, snapshot: s%d}\n", (n+1)*phase/2, n)
	}
	return f
}

// measure returns the mean utilisation, in per cent, and Jain's index over the last half of each phase.
func (f *fabric) measure(t *testing.T) (utilisation float64, jain []float64) {
	r := f.run(t)
	sent := func(host, half int) float64 {
		for _, node := range r.Snapshots[fmt.Sprintf("s%d", half)] {
			if node.Name == f.name(host) {
				return float64(node.Counters["RDMAOutOctets"])
			}
		}
		t.Fatalf("no counters of host %d", host)
		return 0
	}
	total := 0.0
	for n := range phases {
		sum, squares, senders := 0.0, 0.0, 0.0
		for i := range f.flows {
			if n < i || n >= i+4 {
				continue
			}
			bytes := sent(1+i, 2*n+1) - sent(1+i, 2*n)
			sum, squares, senders = sum+bytes, squares+bytes*bytes, senders+1
		}
		jain = append(jain, sum*sum/squares/senders)
	}
	for _, w := range r.Workloads {
		total += float64(w.Bytes)
	}
	return ofLine(total*8/(phases*phase/1e3)/1e9, 400), jain
}

// TestTable tries the rows.
func TestTable(t *testing.T) {
	for i := range table {
		row := &table[i]
		t.Run(fmt.Sprintf("%d %s", row.number, row.name), func(t *testing.T) {
			if row.long {
				need.Time(t)
				if race.Enabled() {
					t.Skip("one goroutine has nothing to race with, and this takes minutes")
				}
			}
			row.try(&verdict{t, row})
		})
	}
}
