package differential

import (
	"fmt"
	"math"

	"github.com/ndklab/ndklab/internal/fabric/report"
)

// Bounds on the distance between a lab and its simulation (docs/topology.md, Simulation).
const (
	within = 1.25 // times as much goodput or latency as the simulation's, or as little
	// lossyWithin takes its place where packets were lost: of a few hundred packets, chance
	// decides whether one of the last is lost, which takes a timeout.
	lossyWithin = 2
	beside      = 1000 // microseconds of latency, on top
)

// A difference is a figure of a lab that its simulation did not foretell.
type difference struct {
	what   string
	better bool // which no busy machine explains
}

// differences returns the figures of a lab's report that its simulation did not foretell.
// rate is that of the lab's slowest link, in Mb/s.
func differences(rate int, simulated, lab *report.Run) (list []difference) {
	if simulated.Passed != lab.Passed {
		list = append(list, difference{fmt.Sprintf("passed: %v in the simulation, %v in the lab", simulated.Passed, lab.Passed), lab.Passed})
	}
	for i := range simulated.Workloads {
		s, l := &simulated.Workloads[i], &lab.Workloads[i]
		if s.Errors != l.Errors || s.Messages != l.Messages {
			list = append(list, difference{fmt.Sprintf("%s: messages %d, errors %d in the simulation (%s); messages %d, errors %d in the lab (%s)",
				s.Name, s.Messages, s.Errors, s.Error, l.Messages, l.Errors, l.Error), l.Errors < s.Errors})
			continue
		}
		if s.Errors > 0 {
			continue // how far it came before is no figure
		}
		times := within
		if lost(simulated) || lost(lab) {
			times = lossyWithin
		}
		compare := func(what string, simulated, lab, least, most float64, better bool) {
			if lab < least || lab > most {
				list = append(list, difference{fmt.Sprintf("%s: %s %.4g in the simulation, %.4g in the lab, which may be %.4g to %.4g",
					s.Name, what, simulated, lab, least, most), better})
			}
		}
		sg, lg := s.Gbps*1e3, l.Gbps*1e3
		compare("Mb/s", sg, lg, 0, sg*times, true)
		if sg >= 0.8*float64(rate) { // the link limits it, not the time that an end takes to answer
			compare("Mb/s", sg, lg, sg/times, math.Inf(1), false)
		}
		sl, ll := &s.Latency, &l.Latency
		compare("us at the median", sl.P50, ll.P50, sl.P50/times-beside, math.Inf(1), true)
		compare("us at the median", sl.P50, ll.P50, 0, sl.P50*times+beside, false)
	}
	return list
}

// lost reports whether a link has dropped packets.
func lost(r *report.Run) bool {
	for _, l := range r.Links {
		for _, d := range l.Directions {
			if d.Dropped > 0 || d.Lost > 0 {
				return true
			}
		}
	}
	return false
}
