package clock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
)

// untilRun waits for a function that is to run, and returns when it did.
func untilRun(t *testing.T, ran <-chan time.Duration) time.Duration {
	t.Helper()
	select {
	case at := <-ran:
		return at
	case <-time.After(10 * time.Second):
		t.Fatal("the function has not run")
		return 0
	}
}

// TestPreciseIsOnTime: no function runs early, and short waits end long before Go's timers would end them, also while a longer
// wait is pending. The least late of many counts: each may be late because somebody else has the processors.
func TestPreciseIsOnTime(t *testing.T) {
	c := clock.Precise(clock.Real())
	for _, wait := range []time.Duration{-1, 0, 1, 20 * time.Microsecond, 300 * time.Microsecond, 5 * time.Millisecond} {
		least := time.Duration(1<<63 - 1)
		ran := make(chan time.Duration)
		for range 50 {
			longer := c.AfterFunc(max(2*wait, 900*time.Microsecond), func() {})
			begun := c.Now()
			c.AfterFunc(wait, func() { ran <- c.Now() })
			late := untilRun(t, ran) - begun - wait
			if late < 0 {
				t.Fatalf("a wait of %v was over %v early", wait, -late)
			}
			least = min(least, late)
			longer.Stop()
		}
		if wait < time.Millisecond && least > 400*time.Microsecond {
			t.Errorf("each wait of %v was %v late or later", wait, least)
		}
	}
}

// TestPreciseTimer: a timer that is set for a short wait and for a long one by turns runs once each time, and not when it
// is stopped.
func TestPreciseTimer(t *testing.T) {
	c := clock.Precise(clock.Real())
	ran := make(chan time.Duration, 100)
	timer := c.AfterFunc(time.Hour, func() { ran <- c.Now() })
	if !timer.Reset(100 * time.Microsecond) {
		t.Error("Reset of a pending timer is false")
	}
	untilRun(t, ran)
	if timer.Stop() || timer.Reset(2*time.Millisecond) {
		t.Error("Stop or Reset of a timer that has run is true")
	}
	untilRun(t, ran)
	runs := 0
	for _, wait := range []time.Duration{900 * time.Microsecond, 5 * time.Millisecond} {
		timer.Reset(wait)
		if !timer.Stop() { // a busy machine: it has run
			runs++
		}
		timer.Reset(wait)
		if !timer.Reset(time.Hour) {
			runs++
		}
		for range runs {
			untilRun(t, ran)
		}
		runs = 0
	}
	timer.Reset(8 * time.Millisecond) // later than all that was stopped
	untilRun(t, ran)
	if len(ran) > 0 {
		t.Error("a timer that was stopped has run")
	}
}

// TestPreciseVirtual: a clock that knows nothing of it stays what it is.
func TestPreciseVirtual(t *testing.T) {
	if v := clock.NewVirtual(); clock.Precise(v) != clock.Clock(v) {
		t.Error("another clock")
	}
}

// TestPreciseOfMany: many timers may be set and stopped at once.
func TestPreciseOfMany(t *testing.T) {
	c := clock.Precise(clock.Real())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			ran := make(chan time.Duration, 1)
			for i := range 200 {
				timer := c.AfterFunc(time.Duration(i%50)*time.Microsecond, func() { ran <- c.Now() })
				if i%2 == 0 || !timer.Stop() {
					untilRun(t, ran)
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkReset is the setting of a timer anew that is not to run, as that of a retransmission is: before others that
// are pending or behind them, and for so long that it is Go's.
func BenchmarkReset(b *testing.B) {
	for name, wait := range map[string]time.Duration{"short": 500 * time.Microsecond, "long": 5 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			c := clock.Precise(clock.Real())
			timer := c.AfterFunc(time.Hour, func() {})
			b.ReportAllocs()
			for b.Loop() {
				timer.Reset(wait)
			}
			timer.Stop()
		})
	}
}

// BenchmarkWake is a wait of 100 us by each clock: "late" is how much longer it takes.
func BenchmarkWake(b *testing.B) {
	const wait = 100 * time.Microsecond
	for name, c := range map[string]clock.Clock{"real": clock.Real(), "precise": clock.Precise(clock.Real())} {
		b.Run(name, func(b *testing.B) {
			ran := make(chan struct{})
			timer := c.AfterFunc(time.Hour, func() { ran <- struct{}{} })
			b.ReportAllocs()
			for b.Loop() {
				timer.Reset(wait)
				<-ran
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)-float64(wait), "late-ns/op")
		})
	}
}
