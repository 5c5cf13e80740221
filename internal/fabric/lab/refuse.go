package lab

import "github.com/ndklab/ndklab/topology"

// Refuse says what in a topology no lab has so far, each with its place in the file, and what it has instead.
// The error is nil or a topology.ErrorList. Start and Apply begin with it.
func Refuse(t *topology.Topology) error {
	return topology.Refuse(t.NeedsSimulation, "a simulation (--simulate)")
}
