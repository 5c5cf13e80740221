package simulate

import (
	"cmp"
	"slices"

	"github.com/ndklab/ndklab/topology"
)

// Refuse says what in a topology no simulation can do, each with its place in the file:
// run a program, or have a link to outside. The error is nil or a topology.ErrorList.
func Refuse(t *topology.Topology) error {
	var found topology.ErrorList
	refuse := func(what string, at topology.Place) {
		found = append(found, topology.Error{
			File: at.File, Line: at.Line, Column: at.Column,
			Message: what + ", expected none in a simulation: it runs no programs and has nothing outside, which a lab (without --simulate) does and has",
		})
	}
	for _, n := range t.Needs {
		refuse(n.What, n.Place)
	}
	for _, w := range t.Workloads {
		if w.Operation == topology.Program {
			refuse("workload "+w.Name+" is a program", w.Place)
		}
	}
	for _, e := range t.Timeline {
		if len(e.Command) > 0 {
			refuse("an event of the timeline is a command", e.Place)
		}
	}
	for _, c := range t.Checks {
		if len(c.Command) > 0 {
			refuse("a check is a command", c.Place)
		}
	}
	slices.SortStableFunc(found, func(a, b topology.Error) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if found = slices.Compact(found); len(found) == 0 { // what a kind gives is given to several nodes
		return nil
	}
	return found
}
