package report

import "io"

// A Measurement is the result of a workload that was run in a lab for itself.
type Measurement struct {
	Lab      string   `json:"lab"`
	Seed     uint64   `json:"seed"`
	Passed   bool     `json:"passed"`
	Workload Workload `json:"workload"`
	Problems []string `json:"problems,omitempty"` // as in Run
	// Interrupted and SetByHand mean the same as in Run.
	Interrupted bool `json:"interrupted,omitempty"`

	SetByHand []string `json:"set_by_hand,omitempty"`
	// Simulated: it was played in virtual time, on no network.
	Simulated bool `json:"simulated,omitempty"`
}

// WriteMeasurement writes a measurement as tables for people, in the form that workloads
// have in those of a run.
func WriteMeasurement(w io.Writer, m *Measurement) error {
	p := newPageOf(w, runWidth)
	p.workloads([]Workload{m.Workload})
	p.setByHand(m.SetByHand)
	p.problems(m.Problems)
	return p.flush()
}
