package main

import (
	"runtime"
	"testing"
)

// Simulations that run at once divide the processors.
func TestShareOfProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	for jobs, want := range map[int]int{1: 8, 2: 4, 3: 2, 8: 1, 20: 1} {
		if got := (share{jobs: jobs}).processors(); got != want {
			t.Errorf("%d processors for each of %d simulations, want %d", got, jobs, want)
		}
	}
}
