package acceptance

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/simulate"
	"github.com/ndklab/ndklab/topology"
)

// Bytes of a packet here: of its payload, and on the wire.
const (
	payload = 1024
	onWire  = 1106
)

// Hosts' adapters have a packet 500 to 750 ns after it has arrived: in the reference at once, and in ConnectX adapters
// after some hundred nanoseconds.

// A fabric is a topology file in the making: switches s0, s1 ... and hosts, whose numbers are those of the
// reference: they follow the switches'. Links have a delay of 1 us.
type fabric struct {
	switches int
	kind     string // of them; "": switch
	lines    []line
	buffer   string // a switch's keys
	adapter  string // a host's
	frame    int    // bytes of payload in a packet; 0: payload
	flows    []flow
	more     string // of the file
	seed     int
}

// A line joins two nodes by their numbers. The interface of each is named after the other: e2, or of a host eth0.
type line struct {
	a, b int
	gbps int
}

// A flow is so many messages of 1 MiB, or of a size in bytes, from one host to another.
type flow struct {
	from, to, messages int    // 0 messages: as more has it
	size               int    // 0: 1 MiB
	more               string // keys of the workload
}

func (f *fabric) name(node int) string {
	if node < f.switches {
		return fmt.Sprintf("s%d", node)
	}
	return fmt.Sprintf("h%d", node)
}

func (f *fabric) endpoint(node, other int) string {
	if node < f.switches {
		return fmt.Sprintf("s%d:e%d", node, other)
	}
	return fmt.Sprintf("h%d:eth0", node)
}

func (f *fabric) text() string {
	var b strings.Builder
	hosts := map[string]bool{}
	fmt.Fprintf(&b, "name: fabric\nseed: %d\ntopology:\n", 1+f.seed)
	fmt.Fprintf(&b, "  defaults: {adapter: {pfc: [3], dscp: 26, roce_frame_size: %d, turnaround: 500ns, %s}, link: {delay: 1us, mtu: %d}}\n", cmp.Or(f.frame, payload), f.adapter, cmp.Or(f.frame, payload)+476)
	fmt.Fprintf(&b, "  nodes:\n")
	for s := range f.switches {
		fmt.Fprintf(&b, "    s%d: {kind: %s, %s}\n", s, cmp.Or(f.kind, "switch"), f.buffer)
	}
	for _, l := range f.lines {
		for _, end := range []int{l.a, l.b} {
			if name := f.name(end); end >= f.switches && !hosts[name] {
				hosts[name] = true
				fmt.Fprintf(&b, "    %s: {}\n", name)
			}
		}
	}
	fmt.Fprintf(&b, "  links:\n")
	for _, l := range f.lines {
		fmt.Fprintf(&b, "    - {endpoints: [%q, %q], rate: %dgbit}\n", f.endpoint(l.a, l.b), f.endpoint(l.b, l.a), l.gbps)
	}
	fmt.Fprintf(&b, "workloads:\n")
	for i, w := range f.flows {
		more := w.more
		if w.messages > 0 {
			more += fmt.Sprintf(", count: %d", w.messages)
		}
		fmt.Fprintf(&b, "  - {name: f%d, from: h%d, to: h%d, operation: write, size: %dB, depth: 8%s}\n", i, w.from, w.to, cmp.Or(w.size, 1<<20), more)
	}
	return b.String() + f.more
}

// run simulates a fabric.
func (f *fabric) run(t *testing.T) result {
	t.Helper()
	topo, err := topology.Parse("fabric.yaml", []byte(f.text()))
	if err != nil {
		t.Fatalf("%v\n%s", err, f.text())
	}
	r, err := simulate.Run(context.Background(), topo, simulate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return result{f, r}
}

// A result is that of a fabric.
type result struct {
	fabric *fabric
	*report.Run
}

// ofLine returns a rate of payload, in Gb/s, as a share of what a line carries, in per cent.
func ofLine(gbps float64, line int) float64 { return 100 * gbps * onWire / payload / float64(line) }

// share returns a flow's rate as a share of what a line carries, in per cent; 0 if it was not done.
func (r *result) share(flow, line int) float64 {
	w := &r.Workloads[flow]
	if w.Errors > 0 || w.Messages < uint64(r.fabric.flows[flow].messages) {
		return 0
	}
	return ofLine(w.Gbps, line)
}

// total returns the same of all flows together, until the last one was done, and Jain's index of their rates.
func (r *result) total(line int) (share, jain float64) {
	bytes, seconds, sum, squares := 0.0, 0.0, 0.0, 0.0
	for i := range r.Workloads {
		w := &r.Workloads[i]
		bytes, seconds = bytes+float64(w.Bytes), max(seconds, w.Seconds)
		x := r.share(i, line)
		sum, squares = sum+x, squares+x*x
	}
	return ofLine(bytes*8/seconds/1e9, line), sum * sum / squares / float64(len(r.Workloads))
}

// queue returns what befell the data at a switch's port towards a node.
func (r *result) queue(sw, other int) report.BufferClass {
	for _, b := range r.Buffers {
		for _, p := range b.Ports {
			for _, c := range p.Classes {
				if b.Node+":"+p.Interface == r.fabric.endpoint(sw, other) && c.Class == 3 {
					return c
				}
			}
		}
	}
	return report.BufferClass{}
}

// pauses counts PFC frames, drops packets that found no room or were dropped by a watchdog.
func (r *result) pauses() (n uint64) {
	r.each(func(c *report.BufferClass) { n += c.TxPauses })
	return n
}

func (r *result) drops() (n uint64) {
	r.each(func(c *report.BufferClass) {
		for _, k := range c.Dropped {
			n += k
		}
	})
	return n
}

func (r *result) each(f func(*report.BufferClass)) {
	for i := range r.Buffers {
		for j := range r.Buffers[i].Ports {
			for k := range r.Buffers[i].Ports[j].Classes {
				f(&r.Buffers[i].Ports[j].Classes[k])
			}
		}
	}
}
