package soak_test

import (
	"flag"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ndklab/ndklab/provider/sim/soak"
)

var (
	seeds = flag.Uint64("seeds", 400, "how many scenarios to play")
	first = flag.Uint64("first", 1, "the first seed")
	one   = flag.Uint64("seed", 0, "play this seed alone, and with -v write its journal")
)

// maxFailures are enough to look at.
const maxFailures = 3

func TestSeeds(t *testing.T) {
	if *one != 0 {
		var journal io.Writer
		if testing.Verbose() {
			journal = os.Stdout
		}
		if _, err := soak.Run(*one, journal); err != nil {
			t.Fatal(err)
		}
		return
	}
	if *seeds == 0 {
		t.Fatal("-seeds 0, expected 1 at least")
	}
	var (
		next, done, events atomic.Uint64
		failures           atomic.Int32
		workers            sync.WaitGroup
		mu                 sync.Mutex // guards coverage
		coverage           = soak.Coverage{}
	)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			mine := soak.Coverage{}
			for failures.Load() < maxFailures {
				n := next.Add(1) - 1
				if n >= *seeds {
					break
				}
				seed := *first + n
				report, err := soak.Run(seed, nil)
				if err != nil {
					failures.Add(1)
					t.Errorf("%v\nlast of the journal:\n%s\nto replay:\n  go test ./provider/sim/soak -run TestSeeds -v -seed %d", err, tail(seed), seed)
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
func tail(seed uint64) string {
	last := &lines{}
	_, _ = soak.Run(seed, last) // the error is known
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

func TestRepeatable(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		a, err := soak.Run(seed, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := soak.Run(seed, io.Discard) // a journal changes nothing
		if err != nil {
			t.Fatal(err)
		}
		if a.Digest != b.Digest || a.Events != b.Events || a.Lasted != b.Lasted {
			t.Fatalf("seed %d: %x after %d events, then %x after %d", seed, a.Digest, a.Events, b.Digest, b.Events)
		}
		if other, _ := soak.Run(seed+1000, nil); other.Digest == a.Digest {
			t.Fatal("seeds make no difference")
		}
	}
}
