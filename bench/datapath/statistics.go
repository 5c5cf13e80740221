package main

import "slices"

// A Spread is the figures of several rounds.
type Spread struct {
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Rounds []float64 `json:"rounds"` // in the order they were measured
}

// spreadOf returns nil for no figures.
func spreadOf(rounds []float64) *Spread {
	if len(rounds) == 0 {
		return nil
	}
	return &Spread{Min: slices.Min(rounds), Max: slices.Max(rounds), Rounds: rounds}
}

// jain returns Jain's index of fairness of shares: 1 if all are equal, 1/n if one has all.
func jain(shares []float64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += s
		squares += s * s
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}
