package impair

import (
	"math"
	"slices"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// jitter is a variation of the delay. Each shift is computed from one draw, by
// the inverse of the distribution.
//
// A delay that would become negative is 0. So where the spread is not small
// against the delay, the delay's mean is above what was set, and its deviation
// below.
type jitter struct {
	kind    distribution
	spread  float64 // ns
	samples []time.Duration
}

// A distribution is a topology.Distribution that is fast to compare.
type distribution uint8

const (
	steady distribution = iota // no jitter
	even
	normal
	pareto
	sampled
)

func newJitter(j topology.Jitter) jitter {
	n := jitter{spread: float64(j.Spread), samples: j.Samples}
	switch {
	case j.Spread == 0 && len(j.Samples) == 0:
		n.kind = steady
	case j.Distribution == topology.Normal:
		n.kind = normal
	case j.Distribution == topology.Pareto:
		n.kind = pareto
	case j.Distribution == topology.Sampled:
		n.kind = sampled
	default:
		n.kind = even
	}
	return n
}

// Pareto's distribution with a shape of 3 and a scale of 1 has this mean and
// this standard deviation. The shape is the smallest whole number that has both.
const paretoMean = 3.0 / 2

var paretoDeviation = math.Sqrt(3.0 / 4)

// shift returns what is added to the delay, for a draw.
func (j *jitter) shift(random uint64) time.Duration {
	var units float64 // of spread
	switch j.kind {
	case sampled:
		return j.samples[below(random, uint64(len(j.samples)))]
	case normal:
		// In (0, 1): at neither end is the inverse finite.
		between := (float64(random>>12) + 0.5) / (1 << 52)
		units = math.Sqrt2 * math.Erfinv(2*between-1)
	case pareto:
		units = (1/math.Cbrt(1-uniform(random)) - paretoMean) / paretoDeviation
	default:
		units = 2*uniform(random) - 1
	}
	return time.Duration(math.Round(units * j.spread))
}

// reach returns half the range from the 1st to the 99th percentile of a jitter. Measurements
// use this range, too, since it does not depend on how rare the rarest delays were.
func reach(j topology.Jitter) time.Duration {
	n := newJitter(j)
	if n.kind == steady {
		return 0
	}
	if n.kind == sampled {
		// A draw takes the samples in their order.
		n.samples = slices.Sorted(slices.Values(n.samples))
	}
	const percent = math.MaxUint64 / 100
	return (n.shift(99*percent) - n.shift(percent)) / 2
}

// moments returns the mean and the standard deviation of samples, ns.
func moments(samples []time.Duration) (mean, deviation float64) {
	for _, s := range samples {
		mean += float64(s) / float64(len(samples))
	}
	for _, s := range samples {
		deviation += (float64(s) - mean) * (float64(s) - mean) / float64(len(samples))
	}
	return mean, math.Sqrt(deviation)
}
