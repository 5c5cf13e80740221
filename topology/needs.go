package topology

import (
	"cmp"
	"slices"

	"gopkg.in/yaml.v3"
)

// This file is about what in a file only a machine does, or only a simulation.

// A Need is something in a file that not everything which runs a topology has: a program that a node runs, a
// link to outside the lab, a shared buffer.
type Need struct {
	Node  string // that has it; "": the lab
	What  string // in words
	Place Place
	Want  string `json:",omitempty"` // what is expected instead; "": what Refuse is told
}

// Refuse returns an error for each of some needs, with what is expected instead, in the order of the file;
// nil if there are none. It is an ErrorList.
func Refuse(needs []Need, expected string) error {
	if len(needs) == 0 {
		return nil
	}
	found := make(ErrorList, len(needs))
	for i, n := range needs {
		found[i] = Error{File: n.Place.File, Line: n.Place.Line, Column: n.Place.Column, Message: n.What + ", expected " + cmp.Or(n.Want, expected)}
	}
	slices.SortStableFunc(found, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.Compact(found) // what a kind gives is given to several nodes
}

// need notes what takes a machine.
func (r *reader) need(node string, at *yaml.Node, what string) {
	r.needs = append(r.needs, Need{Node: node, What: what, Place: r.place(at)})
}

// needSimulation notes what takes a simulation, and what a lab has instead.
func (r *reader) needSimulation(node string, at *yaml.Node, what, want string) {
	r.simulated = append(r.simulated, Need{node, what, r.place(at), want})
}
