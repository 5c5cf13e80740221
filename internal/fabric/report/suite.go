package report

// A Suite is the result of running several topology files.
type Suite struct {
	Passed bool   `json:"passed"` // all of them were run and passed
	Labs   []*Run `json:"labs"`   // of the last run of each file, also of one that was interrupted
	// NotRun are files whose run did not begin, or was interrupted before there was anything to report.
	NotRun      []string `json:"not_run,omitempty"`
	Interrupted bool     `json:"interrupted,omitempty"`
	WallSeconds float64  `json:"wall_seconds"`
}

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
