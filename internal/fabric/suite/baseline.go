package suite

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// A Baseline is the figures of runs in virtual time, by lab and seed. The same file and
// seed have the same figures wherever they are run, so that one that differs is a change
// of what was run: of the transport, of a link's model, or of the file.
//
// Its file is a part of what `ndklab run -o json` prints for a suite.
type Baseline struct {
	file string
	runs map[string]map[string]string // by lab and seed, by figure
}

// figures holds those of a run that a baseline keeps.
type figures struct {
	Lab       string            `json:"lab"`
	Seed      uint64            `json:"seed"`
	Seconds   float64           `json:"seconds"`
	Workloads []workload        `json:"workloads"`
	Packets   linkFigures       `json:"packets"`   // over all links
	Transport map[string]uint64 `json:"transport"` // over all nodes, those that are not 0
}

type workload struct {
	Name        string         `json:"name"`
	Messages    uint64         `json:"messages"`
	Bytes       uint64         `json:"bytes"`
	Errors      uint64         `json:"errors"`
	Seconds     float64        `json:"seconds"`
	Gbps        float64        `json:"gbps"`
	Latency     report.Latency `json:"latency_us"`
	Connections uint64         `json:"connections"`
	Reconnects  uint64         `json:"reconnects"`
	Retried     uint64         `json:"retried"`
	Recovered   float64        `json:"recovered_seconds"`
	Fairness    float64        `json:"fairness"`
}

type linkFigures struct {
	Entered   uint64 `json:"entered"`
	Dropped   uint64 `json:"dropped"`
	Lost      uint64 `json:"lost"`
	Corrupted uint64 `json:"corrupted"`
	Reordered uint64 `json:"reordered"`
}

// figuresOf returns the figures of a run. They are rounded to nine digits: the last ones of a
// quotient may differ between processors.
func figuresOf(r *report.Run) figures {
	f := figures{Lab: r.Lab, Seed: r.Seed, Seconds: nineDigits(r.Seconds), Transport: map[string]uint64{}}
	for i := range r.Workloads {
		w := &r.Workloads[i]
		l := w.Latency
		for _, v := range []*float64{&l.Min, &l.P50, &l.P90, &l.P99, &l.P999, &l.P9999, &l.Max} {
			*v = nineDigits(*v)
		}
		f.Workloads = append(f.Workloads, workload{
			Name: w.Name, Messages: w.Messages, Bytes: w.Bytes, Errors: w.Errors, Seconds: nineDigits(w.Seconds), Gbps: nineDigits(w.Gbps), Latency: l,
			Connections: w.Connections, Reconnects: w.Reconnects, Retried: w.Retried,
			Recovered: nineDigits(w.Recovered), Fairness: nineDigits(w.Fairness),
		})
	}
	for _, k := range r.Links {
		for _, d := range k.Directions {
			f.Packets.Entered += d.Packets
			f.Packets.Dropped += d.Dropped
			f.Packets.Lost += d.Lost
			f.Packets.Corrupted += d.Corrupted
			f.Packets.Reordered += d.Reordered
		}
	}
	for _, n := range r.Nodes {
		for name, value := range n.Transport {
			if value > 0 {
				f.Transport[name] += value
			}
		}
	}
	return f
}

func nineDigits(x float64) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 9, 64), 64)
	if err != nil { // no number, of which JSON has none either
		return 0
	}
	return rounded
}

// WriteBaseline writes the figures of simulated runs. One that failed has none to go by.
func WriteBaseline(w io.Writer, s *report.Suite) error {
	var all struct {
		Labs []figures `json:"labs"`
	}
	for _, r := range s.Labs {
		switch {
		case !r.Simulated:
			return fmt.Errorf("lab %s was not simulated: what a lab measures is never twice the same", r.Lab)
		case !r.Passed:
			return fmt.Errorf("lab %s has failed: its figures are nothing to go by", r.Lab)
		}
		all.Labs = append(all.Labs, figuresOf(r))
	}
	slices.SortFunc(all.Labs, func(a, b figures) int { return strings.Compare(nameOf(a.Lab, a.Seed), nameOf(b.Lab, b.Seed)) })
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// ReadBaseline reads what WriteBaseline has written to a file.
func ReadBaseline(file string, content []byte) (*Baseline, error) {
	runs, err := readRuns(content)
	if err != nil {
		return nil, fmt.Errorf("%s is no baseline: %w; --write-baseline makes one", file, err)
	}
	return &Baseline{file, runs}, nil
}

// readRuns reads the figures of labs, by lab and seed.
func readRuns(content []byte) (map[string]map[string]string, error) {
	var all struct {
		Labs []json.RawMessage `json:"labs"`
	}
	if err := json.Unmarshal(content, &all); err != nil {
		return nil, err
	}
	runs := map[string]map[string]string{}
	for _, text := range all.Labs {
		var of figures
		err := json.Unmarshal(text, &of)
		if err == nil {
			runs[nameOf(of.Lab, of.Seed)], err = flat(text)
		}
		if err != nil {
			return nil, err
		}
	}
	return runs, nil
}

func nameOf(lab string, seed uint64) string { return fmt.Sprintf("%s with seed %d", lab, seed) }

// flat returns the figures of a run by name, such as "ping latency_us.p99", as JSON has them.
func flat(text []byte) (map[string]string, error) {
	var all map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		return nil, err
	}
	found := map[string]string{}
	var walk func(prefix string, value any)
	walk = func(prefix string, value any) {
		switch v := value.(type) {
		case json.Number:
			found[prefix] = v.String()
		case map[string]any:
			for name, inner := range v {
				walk(prefix+"."+name, inner)
			}
		}
	}
	for name, value := range all {
		workloads, ok := value.([]any)
		if !ok {
			walk(name, value)
		}
		for _, w := range workloads {
			if fields, ok := w.(map[string]any); ok {
				for figure, inner := range fields {
					walk(fmt.Sprintf("%v %s", fields["name"], figure), inner)
				}
			}
		}
	}
	return found, nil
}

// Hold adds to a simulated run a check for each figure that is not what it was, or one
// that all are.
func (b *Baseline) Hold(r *report.Run) error {
	text, err := json.Marshal(figuresOf(r))
	if err != nil {
		return err
	}
	is, err := flat(text)
	if err != nil {
		return err
	}
	was := b.runs[nameOf(r.Lab, r.Seed)]
	if was == nil {
		b.fail(r, "figures", "those of lab "+nameOf(r.Lab, r.Seed), "none there", true)
		return nil
	}
	names := slices.Collect(maps.Keys(is))
	for name := range was {
		if _, known := is[name]; !known {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	differ := false
	for _, name := range names {
		if was[name] != is[name] {
			b.fail(r, name, figure(was[name]), figure(is[name]), !differ)
			differ = true
		}
	}
	if !differ {
		r.Checks = append(r.Checks, report.Check{Name: "figures against baseline", Passed: true, Expected: fmt.Sprintf("the %d of %s", len(was), b.file), Got: "the same"})
	}
	return nil
}

// figure returns a figure in words.
func figure(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// fail adds a check that has failed; the first says what to do.
func (b *Baseline) fail(r *report.Run, name, was, is string, first bool) {
	r.Passed = false
	c := report.Check{Name: name + " against baseline", Expected: was, Got: is}
	if first {
		c.Where = b.file + ", which the same command with --write-baseline instead of --baseline makes anew, if all of this is as it should be"
	}
	r.Checks = append(r.Checks, c)
}
