package figures

import (
	"encoding/json"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// This file is the programs that print JSON: fio with --output-format=json, and iperf3
// with --json.

// decode reads the first object in the output, before which a program may have said
// something else, into one that it fits.
func decode(output string, into any) bool {
	for at := strings.IndexByte(output, '{'); at >= 0; {
		if json.NewDecoder(strings.NewReader(output[at:])).Decode(into) == nil {
			return true
		}
		next := strings.Index(output[at:], "\n{")
		if next < 0 {
			return false
		}
		at += next + 1
	}
	return false
}

// A fioJob holds fio's figures of a job.
type fioJob struct {
	Name              string `json:"jobname"`
	Read, Write, Trim fioDirection
}

// A fioDirection is the requests of one kind.
type fioDirection struct {
	Bytes      uint64  `json:"io_bytes"`
	Throughput float64 `json:"bw_bytes"` // bytes per second
	IOPS       float64 `json:"iops"`
	Requests   uint64  `json:"total_ios"`
	// Completion is from when a request is submitted to its completion.
	Completion struct {
		Min        float64            `json:"min"`
		Max        float64            `json:"max"`
		Mean       float64            `json:"mean"`
		Percentile map[string]float64 `json:"percentile"`
	} `json:"clat_ns"`
}

// allClients is the job in which fio --client adds up the others.
const allClients = "All clients"

func fio(output string) (f Figures, known bool) {
	var all struct {
		Version string   `json:"fio version"`
		Jobs    []fioJob `json:"jobs"`
		Clients []fioJob `json:"client_stats"` // of fio --client
	}
	if !decode(output, &all) || all.Version == "" {
		return Figures{}, false
	}
	for _, job := range append(all.Jobs, all.Clients...) {
		if job.Name == allClients {
			continue
		}
		for _, d := range []*fioDirection{&job.Read, &job.Write, &job.Trim} {
			f.Add(d.figures())
		}
	}
	return f, !f.none()
}

func (d *fioDirection) figures() *Figures {
	const us = 1e-3 // of a nanosecond
	c := &d.Completion
	at := func(percent string) float64 { return c.Percentile[percent] * us }
	return &Figures{
		Messages: d.Requests, Bytes: d.Bytes, Gbps: d.Throughput * 8 / 1e9, MessageRate: d.IOPS,
		Latency: report.Latency{
			Min: c.Min * us, Mean: c.Mean * us, P50: at("50.000000"), P90: at("90.000000"), P99: at("99.000000"),
			P999: at("99.900000"), P9999: at("99.990000"), Max: c.Max * us,
		},
	}
}

func iperf3(output string) (f Figures, known bool) {
	type sum struct {
		Bytes uint64  `json:"bytes"`
		Bits  float64 `json:"bits_per_second"`
	}
	var all struct {
		End struct {
			Received sum `json:"sum_received"` // of TCP
			Sum      sum `json:"sum"`          // of UDP
		} `json:"end"`
	}
	if !decode(output, &all) {
		return Figures{}, false
	}
	s := all.End.Received
	if s == (sum{}) {
		s = all.End.Sum
	}
	return Figures{Bytes: s.Bytes, Gbps: s.Bits / 1e9}, s.Bits > 0
}
