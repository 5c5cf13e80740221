// Package allocations counts what tests allocate, of code that keeps scratch memory in a
// sync.Pool. Under the race detector a pool drops a quarter of what it is given, at random,
// so that allocations say nothing there.
package allocations

import (
	"testing"

	"github.com/ndklab/ndklab/internal/race"
)

// PerRun returns the mean number of allocations of a call of run, rounded down, over the
// given number of calls, of all goroutines. It skips the test under the race detector.
func PerRun(t testing.TB, calls int, run func()) float64 {
	t.Helper()
	if race.Enabled() {
		t.Skip("the race detector has sync.Pool drop memory at random; the tests without it count")
	}
	return testing.AllocsPerRun(calls, run)
}
