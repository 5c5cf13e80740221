package simulate

import (
	"slices"

	"github.com/ndklab/ndklab/topology"
)

// Refuse says what in a topology no simulation can do, each with its place in the file:
// run a program, or have a link to outside. The error is nil or a topology.ErrorList.
func Refuse(t *topology.Topology) error {
	needs := slices.Clone(t.Needs)
	need := func(what string, at topology.Place) { needs = append(needs, topology.Need{What: what, Place: at}) }
	for _, w := range t.Workloads {
		if w.Operation == topology.Program {
			need("workload "+w.Name+" is a program", w.Place)
		}
	}
	for _, e := range t.Timeline {
		if len(e.Command) > 0 {
			need("an event of the timeline is a command", e.Place)
		}
	}
	for _, c := range t.Checks {
		if len(c.Command) > 0 {
			need("a check is a command", c.Place)
		}
	}
	return topology.Refuse(needs, "none in a simulation: it runs no programs and has nothing outside, which a lab (without --simulate) does and has")
}
