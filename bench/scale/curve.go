package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ndklab/ndklab/bench/internal/process"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/topology"
)

// A kind says what the links of a ring are like.
type kind string

const (
	plain    kind = "plain"    // the kernel joins their middles
	impaired kind = "impaired" // they have a rate and a delay: the link engine carries them
)

// A Row is a ring of one size.
type Row struct {
	Links kind `json:"links"`
	Nodes int  `json:"nodes"`
	// Seconds from the text of the topology to a lab that is ready, and from there to
	// nothing left of it.
	Up   float64 `json:"up_seconds"`
	Down float64 `json:"down_seconds"`
	// CPU is the processor time of all the lab's processes until it was ready, in ms
	// per node.
	CPU float64 `json:"up_cpu_ms_per_node"`
	// Taken is the memory that the machine has less of for each node while the lab is up, KiB: memory of processes and of the kernel.
	// Other processes of the machine are in it.
	Taken float64 `json:"taken_kib_per_node"`
	// NodePSS is the proportional memory of an idle node's processes, KiB: the mean. Idle nodes of large labs have none.
	NodePSS float64 `json:"node_pss_kib"`
	// LabPSS is that of all the others together: supervisor, guardian, engine.
	LabPSS float64 `json:"lab_pss_kib"`
	// IdleCPU is the processor time of idle nodes, in us per node and second.
	IdleCPU float64 `json:"idle_cpu_us_per_node_and_second"`
}

// ring returns the text of a topology: hosts, each linked to the next, and whatever
// workloads are to run there.
func ring(name string, k kind, n int, workloads ...string) string {
	var b strings.Builder
	link := ""
	if k == impaired {
		link = ", rate: 1gbit, delay: 100us"
	}
	fmt.Fprintf(&b, "name: %s\nseed: 1\ntopology:\n  defaults:\n    link: {mtu: 4200%s}\n  nodes:\n", name, link)
	for i := range n {
		fmt.Fprintf(&b, "    h%d:\n", i+1)
	}
	b.WriteString("  links:\n")
	for i := range n {
		fmt.Fprintf(&b, "    - {endpoints: [\"h%d:right\", \"h%d:left\"]}\n", i+1, (i+1)%n+1)
	}
	if len(workloads) > 0 {
		b.WriteString("workloads:\n  - " + strings.Join(workloads, "\n  - ") + "\n")
	}
	return b.String()
}

// start has the lab of a text come up, and says how long that took.
func start(ctx context.Context, text string) (*lab.Lab, time.Duration, error) {
	began := time.Now()
	topo, err := topology.Parse("ring.ndklab.yaml", []byte(text))
	if err != nil {
		return nil, 0, err
	}
	l, err := lab.Start(ctx, topo, lab.Options{})
	return l, time.Since(began), err
}

// curve measures a ring.
func curve(ctx context.Context, k kind, n int, idle time.Duration) (row Row, err error) {
	name := fmt.Sprintf("bench-scale-%s-%d-%d", k, n, os.Getpid())
	before, err := available()
	if err != nil {
		return row, err
	}
	l, up, err := start(ctx, ring(name, k, n))
	if err != nil {
		return row, err
	}
	row = Row{Links: k, Nodes: n, Up: up.Seconds()}
	after, err := available()
	row.Taken = (before - after) / float64(n)
	err = errors.Join(err, row.look(ctx, name, idle))
	select {
	case <-l.Done(): // somebody took it down, or it died
		err = errors.Join(err, fmt.Errorf("the lab ended while it was looked at: %w", l.Err()))
	default:
	}
	began := time.Now()
	err = errors.Join(err, l.Close())
	row.Down = time.Since(began).Seconds()
	return row, err
}

// available returns the memory that new programs could have, KiB (MemAvailable of proc_meminfo(5)).
func available() (kib float64, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "MemAvailable:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0, fmt.Errorf("/proc/meminfo: MemAvailable: %w", err)
	}
	return kib, nil
}

// look measures what the lab takes while it is up.
func (r *Row) look(ctx context.Context, name string, idle time.Duration) error {
	all, err := process.OfLab(name)
	if err != nil {
		return err
	}
	used, err := all.CPU()
	if err != nil {
		return err
	}
	r.CPU = used.Seconds() * 1000 / float64(r.Nodes)
	nodes := all.Of("ndklab-node")
	if len(nodes) != r.Nodes && len(nodes) != 0 {
		return fmt.Errorf("%d agents, expected one of each node, or none as in large labs", len(nodes))
	}
	for _, p := range all {
		kib, err := p.PSS()
		if err != nil {
			return err
		}
		if p.Part == "ndklab-node" {
			r.NodePSS += kib / float64(r.Nodes)
		} else {
			r.LabPSS += kib
		}
	}
	before, err := nodes.CPU()
	if err != nil {
		return err
	}
	began := time.Now()
	select {
	case <-time.After(idle):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := nodes.CPU()
	if err != nil {
		return err
	}
	r.IdleCPU = float64((after - before).Microseconds()) / time.Since(began).Seconds() / float64(r.Nodes)
	return nil
}
