package report

// A Sweep is the result of running one topology file with several values in some of its places.
type Sweep struct {
	File      string `json:"file"`
	Lab       string `json:"lab"`
	Simulated bool   `json:"simulated"`
	Seed      uint64 `json:"seed"` // of each first repeat
	// Digest is of the file, of the files that it names, and of the variables in it.
	Digest string `json:"digest"`
	Vary   []Axis `json:"vary"`   // the last changes fastest from run to run
	Repeat int    `json:"repeat"` // runs of each point
	// Complete: every run is made. Passed: each of them passed.
	Complete bool       `json:"complete"`
	Passed   bool       `json:"passed"`
	Figures  []Figure   `json:"figures"` // what runs have measured, in the order of the CSV's columns
	Runs     []SweepRun `json:"runs"`
	Points   []Point    `json:"points"`
}

// An Axis is a place of the file, and the values that it is given, as the file would have them.
type Axis struct {
	Path   string   `json:"path"`
	Values []string `json:"values"`
}

// A Figure is something that runs of a sweep have measured.
type Figure struct {
	Name     string `json:"name"`               // "bulk.throughput_bit_per_s"
	Workload string `json:"workload,omitempty"` // "" of the lab
	What     string `json:"what"`               // "throughput"
	Unit     string `json:"unit"`               // "s", "B", "bit/s"; "": a number of things
	// Exact: it is a count, of which any difference is one.
	Exact bool `json:"exact,omitempty"`
	// Plotted: it has plots, as long as not every run has 0.
	Plotted bool `json:"-"`
}

// A SweepRun is one run of a sweep.
type SweepRun struct {
	Number int      `json:"run"` // from 1, in the order of the sweep
	Values []string `json:"values"`
	Repeat int      `json:"repeat"` // from 1
	Seed   uint64   `json:"seed"`
	Result string   `json:"result"` // pass, fail (a check or a workload), error (it could not be made), or "" (it is not made yet)
	Error  string   `json:"error,omitempty"`
	Report string   `json:"report,omitempty"` // the file, below the sweep's folder
	// Command repeats the run alone.
	Command string             `json:"command"`
	Figures map[string]float64 `json:"figures,omitempty"` // by name; those that were not measured are not in it
}

// The results of a run of a sweep.
const (
	RunPassed  = "pass"
	RunFailed  = "fail"
	RunNotMade = "error"
)

// A Point is one value of each axis, and what its runs have measured.
type Point struct {
	Values  []string          `json:"values"`
	Runs    int               `json:"runs"`   // that are made
	Passed  int               `json:"passed"` // of those
	Figures map[string]Spread `json:"figures,omitempty"`
}

// A Spread says how a figure is spread over runs.
type Spread struct {
	Runs   int     `json:"runs"` // that have the figure
	Min    float64 `json:"min"`
	P25    float64 `json:"p25"`
	Median float64 `json:"median"`
	P75    float64 `json:"p75"`
	Max    float64 `json:"max"`
}
