package html

import (
	"encoding/json"
	"math"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// The types from here on hold the data that report.js reads, as JSON in the page.
type plotData struct {
	Workloads []plotWorkload `json:"workloads"`
	Events    []plotEvent    `json:"events"`
	Series    *plotSeries    `json:"series,omitempty"`
}

// A plotWorkload has columns, as uPlot wants them.
type plotWorkload struct {
	Name   string     `json:"name"`
	At     []float64  `json:"at,omitempty"`   // seconds: the middle of each piece of time
	Gbps   []float64  `json:"gbps,omitempty"` // none without payload
	Rate   []float64  `json:"rate,omitempty"` // completed per second, where there is no payload
	P50    []*float64 `json:"p50,omitempty"`  // microseconds; null if nothing completed
	P99    []*float64 `json:"p99,omitempty"`
	Micros []float64  `json:"us,omitempty"`    // of the distribution
	Nines  []float64  `json:"nines,omitempty"` // how much of it is below: 1 is 90 %, 2 is 99 % and so on
	Steps  *plotSteps `json:"steps,omitempty"`
}

type plotSteps struct {
	Size []float64 `json:"size"`
	Gbps []float64 `json:"gbps"`
	P50  []float64 `json:"p50"`
	P99  []float64 `json:"p99"`
}

type plotEvent struct {
	At   float64 `json:"at"`
	Text string  `json:"text"`
}

// data returns the data of the sheet's plots. encoding/json escapes what could end the element.
func (s *sheet) data() *element {
	d := plotData{Workloads: []plotWorkload{}, Events: []plotEvent{}, Series: plottedSeries(s.Run.Series)}
	for i := range s.Workloads {
		d.Workloads = append(d.Workloads, plotted(&s.Workloads[i]))
	}
	for i := range s.Events {
		e := &s.Events[i]
		d.Events = append(d.Events, plotEvent{rounded(e.At.Seconds()), bounded(e.Kind+": "+e.Text, longName)})
	}
	b, err := json.Marshal(d)
	if err != nil { // of numbers alone that JSON cannot have, and rounded leaves none
		b = []byte("{}")
	}
	return el("script", attr("type", "application/json"), id(s.id+"-data"), verbatim(b))
}

func plotted(w *report.Workload) plotWorkload {
	p := plotWorkload{Name: bounded(w.Name, longName)}
	for i := range w.Series {
		sample := &w.Series[i]
		p.At = append(p.At, rounded(sample.At+sample.Seconds/2))
		seconds := max(sample.Seconds, 1e-9)
		if w.Moves() {
			p.Gbps = append(p.Gbps, rounded(float64(sample.Bytes)*8/seconds/1e9))
		} else {
			p.Rate = append(p.Rate, rounded(float64(sample.Messages)/seconds))
		}
		p.P50, p.P99 = append(p.P50, completed(sample.P50)), append(p.P99, completed(sample.P99))
	}
	for _, q := range w.CDF {
		// Of a finite number of messages, all are as good as all but half of one.
		above := max(1-q.Fraction, 0.5/float64(max(w.Messages, 1)))
		p.Micros, p.Nines = append(p.Micros, rounded(q.Micros)), append(p.Nines, rounded(max(0, -math.Log10(above))))
	}
	if len(w.Steps) > 0 {
		p.Steps = &plotSteps{}
		for i := range w.Steps {
			s := &w.Steps[i]
			p.Steps.Size, p.Steps.Gbps = append(p.Steps.Size, float64(s.Size)), append(p.Steps.Gbps, rounded(s.Gbps))
			p.Steps.P50, p.Steps.P99 = append(p.Steps.P50, rounded(s.Latency.P50)), append(p.Steps.P99, rounded(s.Latency.P99))
		}
	}
	return p
}

func completed(us float64) *float64 {
	if us <= 0 {
		return nil
	}
	us = rounded(us)
	return &us
}

// rounded returns a number of five digits, which is more than a plot shows and less to store.
func rounded(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	scale := math.Pow(10, 4-math.Floor(math.Log10(math.Abs(x))))
	if math.IsInf(scale, 0) || scale == 0 {
		return 0
	}
	return math.Round(x*scale) / scale
}
