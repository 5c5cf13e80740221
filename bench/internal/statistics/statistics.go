// Package statistics sums up the values that a bench has measured in several rounds.
package statistics

import "slices"

// Median returns the middle one of values, or the mean of the middle two; 0 if there are none.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
