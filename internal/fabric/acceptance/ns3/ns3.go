// Package ns3 has what another simulator has found of congestion in small fabrics: the runs of the HPCC paper's
// ns-3 simulator that testdata/README.md describes. It is data for tests, and judges nothing itself.
package ns3

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
)

// Payload and Frame are the bytes of a packet of those runs: of its payload, and on the wire.
const (
	Payload = 1000
	Frame   = 1048
)

// Ideal is the share of a line's rate that payload has in those runs.
const Ideal = float64(Payload) / Frame

// An Incast is a run in which N hosts send Size bytes each to one, at BW Gb/s. Queues are in KB, rates in Gb/s,
// durations in ms.
type Incast struct {
	Label           string
	N, BW, Size     int
	PFC, Drops      int // frames; packets
	QPeak, Agg      float64
	Q50             float64
	FCTMax          float64
	Done            int // flows
	Jain            float64
	GMin, GMax, Q99 float64
}

// A Fabric is a run of several flows, which "2->7" names by their hosts, or of queues, "1:2" by switch and
// port, which count from 1.
type Fabric struct {
	Label       string
	Done        int                // flows
	Goodput     map[string]float64 `json:"goodput_gbps"`
	FCT         map[string]float64 `json:"fct_ms"`
	PFC         int                `json:"pfc_events"`
	Drops       int
	QueuePeakKB map[string]float64 `json:"queue_peak_kb"`
}

//go:embed testdata/hpcc.json
var hpcc []byte

var runs = func() (r struct {
	Incast      []Incast `json:"incast"`
	IncastClamp []Incast `json:"incast_clamp"`
	Topologies  []Fabric `json:"topologies"`
}) {
	if err := json.Unmarshal(hpcc, &r); err != nil {
		panic(fmt.Sprintf("ns3: testdata/hpcc.json: %v", err)) // it is part of the program
	}
	return r
}()

// IncastOf returns the run of a label, which must exist.
func IncastOf(label string) Incast {
	all := slices.Concat(runs.Incast, runs.IncastClamp)
	i := slices.IndexFunc(all, func(r Incast) bool { return r.Label == label })
	return all[i]
}

// FabricOf returns the run of a label, which must exist.
func FabricOf(label string) Fabric {
	i := slices.IndexFunc(runs.Topologies, func(r Fabric) bool { return r.Label == label })
	return runs.Topologies[i]
}
