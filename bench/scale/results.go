package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/bench/internal/machine"
)

// results are all figures, as the JSON file has them.
type results struct {
	machine.Facts
	User     int       `json:"uid"`
	Started  string    `json:"started"` // RFC 3339
	Rings    []Row     `json:"rings"`
	Mininet  []Peer    `json:"mininet,omitempty"`
	Lacks    string    `json:"mininet_lacks,omitempty"` // why there is none
	Exchange *Exchange `json:"exchange,omitempty"`
	Missed   []string  `json:"missed"` // limits
}

// The limits, on a machine of two processors that has nothing else to do.
var (
	upLimits   = map[int]float64{500: 1.5, 1000: 3, 2000: 5, 9900: 40} // seconds, by nodes
	downLimits = map[int]float64{500: 0.8}
)

const (
	pssLimit  = 3 << 10 // KiB per node
	idleLimit = 100     // us of processor time per node and second: a hundredth of a percent
)

func newResults() *results {
	return &results{
		Facts: machine.Look(), User: os.Geteuid(),
		Started: time.Now().Format(time.RFC3339), Missed: []string{},
	}
}

func (r *results) head() {
	fmt.Printf("%s, cores: %d, uid %d, load: %s\n\n", r.Kernel, r.Cores, r.User, r.Load)
	fmt.Printf("%-9s %6s %8s %8s %12s %11s %11s %11s %14s\n", "LINKS", "NODES", "UP", "DOWN", "CPU TO UP", "TAKEN", "PSS", "REST'S PSS", "IDLE CPU")
	fmt.Printf("%-9s %6s %8s %8s %12s %11s %11s %11s %14s\n", "", "", "s", "s", "ms/node", "KiB/node", "KiB/node", "KiB", "us/node and s")
}

func (r *results) add(row Row) {
	r.Rings = append(r.Rings, row)
	fmt.Printf("%-9s %6d %8.3f %8.3f %12.2f %11.0f %11.0f %11.0f %14.1f\n", row.Links, row.Nodes, row.Up, row.Down, row.CPU, row.Taken, row.NodePSS, row.LabPSS, row.IdleCPU)
	what := fmt.Sprintf("%s ring of %d", row.Links, row.Nodes)
	if limit, ok := upLimits[row.Nodes]; ok {
		r.hold(what+", up", "s", row.Up, limit)
	}
	if limit, ok := downLimits[row.Nodes]; ok {
		r.hold(what+", down", "s", row.Down, limit)
	}
	r.hold(what+", memory", "KiB per node", row.NodePSS, pssLimit)
	r.hold(what+", idle", "us per node and second", row.IdleCPU, idleLimit)
}

// hold holds a figure against its limit.
func (r *results) hold(what, unit string, got, limit float64) {
	if got > limit {
		r.Missed = append(r.Missed, fmt.Sprintf("%s: %.3g %s, limit %.3g", what, got, unit, limit))
	}
}

// compare measures Mininet at the sizes up to the largest that it is asked for.
func (r *results) compare(ctx context.Context, sizes []int, most int) error {
	if r.Lacks = lacksMininet(); r.Lacks != "" {
		fmt.Printf("\nMininet: not measured: %s\n", r.Lacks)
		return nil
	}
	fmt.Printf("\n%-9s %6s %8s %8s\n", "MININET", "NODES", "UP", "DOWN")
	for _, n := range slices.DeleteFunc(slices.Clone(sizes), func(n int) bool { return n > most }) {
		p, err := mininet(ctx, n)
		if err != nil {
			return err
		}
		r.Mininet = append(r.Mininet, p)
		fmt.Printf("%-9s %6d %8.3f %8.3f\n", "", p.Nodes, p.Up, p.Down)
	}
	return nil
}

func (r *results) exchange(e Exchange) {
	r.Exchange = &e
	fmt.Printf("\n%d nodes each sent %d verified messages to the next: %d messages, errors: %d, in %.1f s; up in %.1f s, then %.0f KiB/node\n",
		e.Nodes, messages, e.Messages, e.Errors, e.Seconds, e.Up, e.NodePSS)
	if want := uint64(e.Nodes) * messages; e.Messages != want || e.Errors > 0 {
		r.Missed = append(r.Missed, fmt.Sprintf("exchange of %d nodes: %d of %d messages verified, errors: %d: %s", e.Nodes, e.Messages, want, e.Errors, e.Error))
	}
}

// missed returns an error that says which limits were.
func (r *results) missed() error {
	if len(r.Missed) == 0 {
		return nil
	}
	return fmt.Errorf("missed:\n  %s", strings.Join(r.Missed, "\n  "))
}
