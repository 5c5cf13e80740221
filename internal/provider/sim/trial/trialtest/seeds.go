// Package trialtest plays many trials in a test, one for each seed, on all processors.
//
// A test binary that imports it has the flags -seeds, -first and -seed.
package trialtest

import (
	"flag"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
	"github.com/ndklab/ndklab/internal/race"
)

var (
	seeds = flag.Uint64("seeds", 0, "how many scenarios to play; 0 for the test's own number")
	first = flag.Uint64("first", 1, "the first seed")
	one   = flag.Uint64("seed", 0, "play this seed alone, and with -v write its journal")
)

// maxFailures are enough to look at.
const maxFailures = 3

// A Play plays the scenario of a seed, as soak.Run does.
type Play func(seed uint64, journal io.Writer) (trial.Report, error)

// Seeds plays as many scenarios as the flags say, or usual, and fails the test with the seeds that fail. The test is
// TestSeeds of the package with the given path.
func Seeds(t *testing.T, path string, usual uint64, play Play) {
	if *one != 0 {
		var journal io.Writer
		if testing.Verbose() {
			journal = os.Stdout
		}
		if _, err := play(*one, journal); err != nil {
			t.Fatal(err)
		}
		return
	}
	if race.Enabled() {
		usual /= 5 // each takes ten times as long
	}
	if *seeds > 0 {
		usual = *seeds
	}
	var (
		next, done, events atomic.Uint64
		failures           atomic.Int32
		workers            sync.WaitGroup
		mu                 sync.Mutex // guards coverage
		coverage           = trial.Coverage{}
	)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			mine := trial.Coverage{}
			for failures.Load() < maxFailures {
				n := next.Add(1) - 1
				if n >= usual {
					break
				}
				seed := *first + n
				report, err := play(seed, nil)
				if err != nil {
					failures.Add(1)
					t.Errorf("%v\nlast of the journal:\n%s\nto replay:\n  go test %s -run TestSeeds -v -seed %d", err, tail(play, seed), path, seed)
					continue
				}
				mine.Add(report.Coverage)
				events.Add(report.Events)
				if n := done.Add(1); n%2000 == 0 {
					t.Logf("%d seeds", n)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			coverage.Add(mine)
		})
	}
	workers.Wait()
	var table strings.Builder
	if _, err := coverage.WriteTo(&table); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d seeds, %d events:\n%s", done.Load(), events.Load(), table.String())
}

// tail plays a seed again and returns the last lines of its journal.
func tail(play Play, seed uint64) string {
	last := &lines{}
	_, _ = play(seed, last) // the error is known
	return strings.Join(last.kept, "")
}

// lines keeps the last lines written.
type lines struct{ kept []string }

func (l *lines) Write(p []byte) (int, error) {
	const most = 40
	if len(l.kept) == most {
		l.kept = append(l.kept[:0], l.kept[1:]...)
	}
	l.kept = append(l.kept, string(p))
	return len(p), nil
}

// Repeatable fails the test unless ten seeds give the same run each time they are played.
func Repeatable(t *testing.T, play Play) {
	for seed := uint64(1); seed <= 10; seed++ {
		a, err := play(seed, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := play(seed, io.Discard) // a journal changes nothing
		if err != nil {
			t.Fatal(err)
		}
		if a.Digest != b.Digest || a.Events != b.Events || a.Lasted != b.Lasted {
			t.Fatalf("seed %d: %x after %d events, then %x after %d", seed, a.Digest, a.Events, b.Digest, b.Events)
		}
		if other, _ := play(seed+1000, nil); other.Digest == a.Digest {
			t.Fatal("seeds make no difference")
		}
	}
}
