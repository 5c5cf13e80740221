// Package sweep runs one topology file with several values in some of its places: it has the runs
// of a sweep in their order, what each of them measured as rows of a table, how that is spread over
// repeats, and what differs between two runs or sweeps.
//
// It does no I/O: the caller runs topologies, and keeps reports. The nouns are of package report,
// and the plots of package chart.
//
// Start reading at Plan, then at Take and Compare.
package sweep

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// MostRuns bounds the runs of a sweep.
const MostRuns = 100_000

// Plan adds to a sweep, of which the axes, the repeats and the seed are known, its runs: each value
// of the first axis with each of the second and so on, of which the last changes fastest, and each
// of these points as often as repeats say. The first repeat has the sweep's seed, or that of the
// point where the axes have one, and those after it have the seeds that follow.
func Plan(s *report.Sweep, command func(r *report.SweepRun) string) error {
	points := 1
	for i, axis := range s.Vary {
		if j := slices.IndexFunc(s.Vary[:i], func(other report.Axis) bool { return other.Path == axis.Path }); j >= 0 {
			return fmt.Errorf("%s is varied twice, expected one --vary with all of its values", axis.Path)
		}
		if points *= len(axis.Values); points*s.Repeat > MostRuns {
			return fmt.Errorf("there are more than %d runs, expected fewer values or repeats", MostRuns)
		}
	}
	s.Runs = nil
	for point := range points {
		values := make([]string, len(s.Vary))
		for i, rest := len(s.Vary)-1, point; i >= 0; i-- {
			n := len(s.Vary[i].Values)
			values[i], rest = s.Vary[i].Values[rest%n], rest/n
		}
		seed, err := seedOf(s, values)
		if err != nil {
			return err
		}
		for repeat := range s.Repeat {
			r := report.SweepRun{Number: len(s.Runs) + 1, Values: values, Repeat: repeat + 1, Seed: seed + uint64(repeat)}
			r.Command = command(&r)
			s.Runs = append(s.Runs, r)
		}
	}
	return nil
}

// seedPath is the path of the file's seed.
const seedPath = "seed"

// seedOf returns the seed of a point's first repeat.
func seedOf(s *report.Sweep, values []string) (uint64, error) {
	for i, axis := range s.Vary {
		if axis.Path == seedPath {
			seed, err := strconv.ParseUint(values[i], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("seed: found %q, expected a whole number from 0 to %d", values[i], uint64(math.MaxUint64))
			}
			return seed, nil
		}
	}
	return s.Seed, nil
}

// Settings returns what a point sets in the file. The seed is the run's, and not among it.
func Settings(s *report.Sweep, values []string) []topology.Setting {
	var all []topology.Setting
	for i, axis := range s.Vary {
		if axis.Path != seedPath {
			all = append(all, topology.Setting{Path: axis.Path, Value: values[i]})
		}
	}
	return all
}

// Differs returns in words what keeps a sweep that was begun from being gone on with as another: "" if
// nothing does.
func Differs(begun, now *report.Sweep) string {
	differ := func(what string, was, is any) string { return fmt.Sprintf("%s: there %v, here %v", what, was, is) }
	mode := map[bool]string{true: "simulated", false: "in labs"}
	switch {
	case begun.File != now.File:
		return differ("the file", begun.File, now.File)
	case begun.Simulated != now.Simulated:
		return differ("how it runs", mode[begun.Simulated], mode[now.Simulated])
	case begun.Seed != now.Seed:
		return differ("the seed", begun.Seed, now.Seed)
	case !slices.EqualFunc(begun.Vary, now.Vary, func(a, b report.Axis) bool { return a.Path == b.Path && slices.Equal(a.Values, b.Values) }):
		return differ("what is varied", axesText(begun.Vary), axesText(now.Vary))
	case begun.Repeat != now.Repeat:
		return differ("--repeat", begun.Repeat, now.Repeat)
	case begun.Lab != now.Lab:
		return differ("the lab's name", begun.Lab, now.Lab)
	case begun.Digest != now.Digest:
		return "the content of " + now.File + ", or of a file or variable that it names, has changed"
	}
	return ""
}

func axesText(axes []report.Axis) string {
	text := ""
	for i, a := range axes {
		if i > 0 {
			text += " "
		}
		text += a.Path + "="
		for j, v := range a.Values {
			if j > 0 {
				text += ","
			}
			text += v
		}
	}
	return text
}
