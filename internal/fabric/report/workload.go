package report

import (
	"cmp"
	"slices"

	"github.com/ndklab/ndklab/topology"
)

// A Workload is the result of one workload, over all of its flows.
type Workload struct {
	Name      string   `json:"name"`
	From      string   `json:"from"` // "" but of a pair
	To        string   `json:"to"`
	Pattern   string   `json:"pattern,omitempty"`
	Nodes     []string `json:"nodes,omitempty"` // of a pattern but pair
	Operation string   `json:"operation"`
	Measure   string   `json:"measure,omitempty"` // latency, or bandwidth
	Size      uint64   `json:"size"`              // bytes per message, the most of a sweep or mix
	Mixed     bool     `json:"mixed,omitempty"`   // messages have one of several sizes each
	Depth     int      `json:"depth"`
	QPs       int      `json:"qps,omitempty"` // of each flow

	Messages uint64  `json:"messages"` // completed with success
	Bytes    uint64  `json:"bytes"`    // payload of those
	Errors   uint64  `json:"errors"`
	Error    string  `json:"error,omitempty"`         // the first one, in words
	Seconds  float64 `json:"seconds"`                 // first post to last completion
	Began    float64 `json:"began_seconds,omitempty"` // when it was started first, since the run began
	Ended    float64 `json:"ended_seconds,omitempty"` // when it was done last
	Gbps     float64 `json:"gbps"`                    // payload, 10^9 bits per second
	Latency  Latency `json:"latency_us"`
	Verified bool    `json:"verified"` // asked for, and every payload was right

	Connections uint64  `json:"connections,omitempty"` // made
	Reconnects  uint64  `json:"reconnects,omitempty"`  // of those, in place of failed ones
	Retried     uint64  `json:"retried,omitempty"`     // messages posted again after those
	Recovered   float64 `json:"recovered_seconds"`     // longest time without any completion while there was something to do
	Fairness    float64 `json:"fairness,omitempty"`    // Jain's index of the flows' throughputs
	ExitStatus  *int    `json:"exit_status,omitempty"` // of exec; of several nodes: the first that is not 0
	Output      string  `json:"output,omitempty"`      // of exec: the last of what it printed
	// MessageRate is of exec, per second, as its programs have measured it.
	MessageRate float64   `json:"message_rate,omitempty"`
	Programs    []Program `json:"programs,omitempty"` // of exec, in the order of the file

	Flows []Flow `json:"flows,omitempty"` // where there are several
	Steps []Step `json:"steps,omitempty"` // of a sweep over sizes
	// Series is throughput and latency over time, in steps of equal length.
	Series []Sample `json:"series,omitempty"`
	// CDF is the distribution of latency: the fraction of messages that took at most so
	// long, at some hundred points at most.
	CDF []Quantile `json:"cdf,omitempty"`
}

// Latency is from post to completion, in microseconds; of a workload that measures
// latency, half of a round trip.
type Latency struct {
	Min   float64 `json:"min"`
	Mean  float64 `json:"mean,omitempty"` // of programs that print it
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	P9999 float64 `json:"p9999"`
	Max   float64 `json:"max"`
}

// A Program describes how one of a workload's programs ended, and what it printed.
type Program struct {
	Node       string   `json:"node"`
	Server     bool     `json:"server,omitempty"` // the others are its clients
	Command    []string `json:"command"`
	ExitStatus *int     `json:"exit_status,omitempty"` // absent: it has not begun, or its node went down
	Error      string   `json:"error,omitempty"`       // why it has failed, in words
	// Ended says why the run has ended it, which is no failure; "": it ended by itself.
	Ended  string `json:"ended,omitempty"`
	Output string `json:"output,omitempty"` // the last of its standard output
	Errors string `json:"stderr,omitempty"` // and of its standard error
}

// A Flow is the result of one flow of a workload.
type Flow struct {
	From     string  `json:"from"`
	To       string  `json:"to"`
	Messages uint64  `json:"messages"`
	Bytes    uint64  `json:"bytes"`
	Errors   uint64  `json:"errors"`
	Error    string  `json:"error,omitempty"`
	Seconds  float64 `json:"seconds"`
	Gbps     float64 `json:"gbps"`
	Latency  Latency `json:"latency_us"`
}

// A Step is the result of one size of a sweep.
type Step struct {
	Size     uint64  `json:"size"` // bytes per message
	Messages uint64  `json:"messages"`
	Errors   uint64  `json:"errors"`
	Seconds  float64 `json:"seconds"`
	Gbps     float64 `json:"gbps"`
	Latency  Latency `json:"latency_us"`
}

// A Sample holds what a workload did in one piece of time.
type Sample struct {
	At       float64 `json:"at_seconds"` // since the run began, where the piece begins
	Seconds  float64 `json:"seconds"`    // of its length
	Messages uint64  `json:"messages"`
	Bytes    uint64  `json:"bytes"`
	Errors   uint64  `json:"errors"`
	P50      float64 `json:"p50_us"` // 0 if nothing completed
	P99      float64 `json:"p99_us"`
}

// A Quantile is a point of a distribution.
type Quantile struct {
	Micros   float64 `json:"us"`
	Fraction float64 `json:"fraction"` // 0 to 1
}

// Moves reports whether it is about payload, so that its throughput says something.
func (w *Workload) Moves() bool {
	return w.Bytes > 0 && w.Operation != string(topology.Connect)
}

// Failed reports whether it has had an error.
func (w *Workload) Failed() bool {
	return w.Errors > 0 || w.Error != "" || w.ExitStatus != nil && *w.ExitStatus != 0
}

// Slowest returns a workload's flows; of more than so many, the slowest ones, failed ones first.
func (w *Workload) Slowest(most int) []Flow {
	if len(w.Flows) <= most {
		return w.Flows
	}
	flows := slices.Clone(w.Flows)
	slices.SortStableFunc(flows, func(a, b Flow) int {
		if bad := cmp.Compare(min(b.Errors, 1), min(a.Errors, 1)); bad != 0 {
			return bad
		}
		return cmp.Compare(a.Gbps, b.Gbps)
	})
	return flows[:most]
}
