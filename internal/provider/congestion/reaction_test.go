package congestion

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

const (
	us   = time.Microsecond
	year = 8760 * time.Hour
)

// expect fails the test unless the rate and the target are these at that time, in Mb/s.
func (r *reactionPoint) expect(t *testing.T, now time.Duration, rate, target float64) {
	t.Helper()
	if got := r.Rate(now); math.Abs(got-rate*mbit) > 1 || math.Abs(r.target-target*mbit) > 1 {
		t.Errorf("at %v: rate %.6f, target %.6f Mb/s, want %v, %v", now, got/mbit, r.target/mbit, rate, target)
	}
}

// expectDeadline fails the test unless the rate changes next at that time.
func (r *reactionPoint) expectDeadline(t *testing.T, want time.Duration) {
	t.Helper()
	if at, ok := r.Deadline(); !ok || at != want {
		t.Errorf("deadline %v, %v, want %v", at, ok, want)
	}
}

// expectNoDeadline fails the test if the rate changes by itself.
func (r *reactionPoint) expectNoDeadline(t *testing.T) {
	t.Helper()
	if at, ok := r.Deadline(); ok {
		t.Errorf("deadline %v, want none", at)
	}
}

// simple returns parameters of round numbers: alpha stays 1/2, so that a cut leaves three quarters.
func simple() DCQCN {
	return DCQCN{
		ClampTgtRate:            true,
		RPGTimeReset:            100 * us,
		RPGThreshold:            2,
		RPGAIRate:               8 * mbit,
		RPGHAIRate:              80 * mbit,
		RPGGD:                   11,
		RPGMinRate:              mbit,
		DCETCPRTT:               us,
		RateReduceMonitorPeriod: 10 * us,
		InitialAlphaValue:       0.5,
	}
}

func TestRateIsTheLinesUntilTheFirstCNP(t *testing.T) {
	p := simple()
	r := newReactionPoint(&p, 1600*mbit)
	r.Sent(time.Second, 1000)
	r.expect(t, time.Hour, 1600, 1600)
	r.expectNoDeadline(t)
	p.RPGMaxRate = 400 * mbit
	newReactionPoint(&p, 1600*mbit).expect(t, 0, 400, 400)
	newReactionPoint(&p, 100*mbit).expect(t, 0, 100, 100)
}

// TestParametersThatNobodySet expects such parameters to change nothing.
func TestParametersThatNobodySet(t *testing.T) {
	r := newReactionPoint(&DCQCN{}, 1600*mbit)
	for now := range 3 * us {
		r.Notified(now)
		r.Sent(now, 1000)
	}
	r.expect(t, time.Hour, 1600, 1600)
	r.expectNoDeadline(t)
}

func TestCut(t *testing.T) {
	p := simple()
	r := newReactionPoint(&p, 1600*mbit)
	r.Notified(0)
	r.Notified(us)
	check := 10*us + 1 // see afterAlpha
	r.expectDeadline(t, check)
	r.expect(t, check-1, 1600, 1600)
	r.expect(t, check, 1200, 1600)

	// A check without a CNP cuts nothing, and the next keeps the beat.
	r.expectDeadline(t, check+100*us)
	r.Notified(35 * us)
	r.expectDeadline(t, 40*us+1)
	r.expect(t, 40*us+1, 900, 1200)
	r.expectDeadline(t, 140*us+1)

	// A CNP at the instant of a check comes after it, whether that cut or not.
	r.Notified(40*us + 1)
	r.expect(t, 40*us+1, 900, 1200)
	r.expectDeadline(t, 50*us+1)
	r.expect(t, 50*us+1, 675, 900)
	r.Notified(60*us + 1)
	r.expect(t, 60*us+1, 675, 900)
	r.expectDeadline(t, 70*us+1)
}

func TestEachCNPCutsWithoutAPeriod(t *testing.T) {
	p := simple()
	p.RateReduceMonitorPeriod = 0
	r := newReactionPoint(&p, 1600*mbit)
	r.Notified(5)
	r.expect(t, 5, 1200, 1600)
	r.Notified(6)
	r.expect(t, 6, 900, 1200)
	r.expectDeadline(t, 6+100*us)
}

func TestFirstCNPSetsTheRate(t *testing.T) {
	p := simple()
	p.RateToSetOnFirstCNP = 400 * mbit
	p.RPGByteReset = 1000
	r := newReactionPoint(&p, 1600*mbit)
	r.Notified(0)
	r.expect(t, 0, 400, 400)
	r.Sent(0, 100_000) // increases begin with a cut
	r.expect(t, 0, 400, 400)
	r.expect(t, 10*us+1, 300, 400)
	r.Notified(11 * us) // it was the first that set it
	r.expect(t, 11*us, 300, 400)
}

// TestSlowRestart: with it, what is lost is a CNP, and so may be the first; else it is nothing.
func TestSlowRestart(t *testing.T) {
	p := simple()
	r := newReactionPoint(&p, 1600*mbit)
	if r.Lost(0) {
		t.Error("a sender slows down without slow_restart")
	}
	r.expect(t, 20*us, 1600, 1600)
	p.SlowRestart = true
	for _, first := range []func(*reactionPoint){func(r *reactionPoint) { r.Lost(0) }, func(r *reactionPoint) { r.Notified(0) }} {
		r = newReactionPoint(&p, 1600*mbit)
		first(r)
		r.expectDeadline(t, 10*us+1)
		r.expect(t, 10*us+1, 1200, 1600)
		if !r.Lost(11 * us) {
			t.Error("what is lost changes nothing")
		}
		r.expect(t, 20*us+1, 900, 1200)
	}
	if (unlimited{}).Lost(0) {
		t.Error("a sender without congestion control slows down")
	}
}

func TestClampsOfTheTarget(t *testing.T) {
	for name, c := range map[string]struct {
		clamp, afterTime bool
		increase         string
		target           float64 // after the second cut, at 1200 of 1600 Mb/s
		rate             float64 // before it
	}{
		"none":                                {false, false, "time", 1600, 1400},
		"always":                              {true, false, "", 1200, 1200},
		"after time, no increase":             {false, true, "", 1600, 1200},
		"after time, an increase":             {false, true, "time", 1400, 1400},
		"after time, one of the byte counter": {false, true, "bytes", 1600, 1400},
	} {
		t.Run(name, func(t *testing.T) {
			p := simple()
			p.RateReduceMonitorPeriod = 0
			p.ClampTgtRate, p.ClampTgtRateAfterTimeInc = c.clamp, c.afterTime
			p.RPGByteReset = 1000
			r := newReactionPoint(&p, 1600*mbit)
			r.Notified(0)
			now := us
			switch c.increase {
			case "time":
				now = 100 * us
			case "bytes":
				r.Sent(now, 1000)
			}
			r.expect(t, now, c.rate, 1600)
			r.Notified(now)
			r.expect(t, now, c.rate*3/4, c.target)
		})
	}
}

func TestLimitsOfACut(t *testing.T) {
	for name, c := range map[string]struct {
		gd       int
		factor   float64
		min      float64
		expected float64
	}{
		"alpha/2":        {11, 0, 1, 800},
		"alpha/4":        {12, 0, 1, 1200},
		"alpha":          {10, 0, 1, 1},
		"twice alpha":    {9, 0, 1, 1},
		"at least 80 %":  {11, 0.8, 1, 1280},
		"the least rate": {11, 0.5, 1000, 1000},
		"above the line": {11, 0, 9000, 1600},
	} {
		t.Run(name, func(t *testing.T) {
			p := simple()
			p.RateReduceMonitorPeriod = 0
			p.InitialAlphaValue = 1
			p.RPGGD, p.RPGMinDecFac, p.RPGMinRate = c.gd, c.factor, c.min*mbit
			r := newReactionPoint(&p, 1600*mbit)
			r.Notified(0)
			r.expect(t, 0, c.expected, 1600)
		})
	}
}

func TestIncreasesByTheTimer(t *testing.T) {
	p := simple()
	p.RateReduceMonitorPeriod = 0
	r := newReactionPoint(&p, 1600*mbit)
	r.Notified(0)
	r.Notified(0) // 900, 1200
	r.expect(t, 100*us-1, 900, 1200)
	r.expect(t, 100*us, 1050, 1200)
	r.expect(t, 200*us, 1125, 1200)
	r.expectDeadline(t, 300*us)
	r.expect(t, 300*us, 1166.5, 1208) // additive
	r.expect(t, 400*us, 1227.25, 1288)
	r.expect(t, 500*us, 1297.625, 1368)
	r.expect(t, 700*us, 1450.40625, 1528)
	r.expect(t, 800*us, 1525.203125, 1600)
	// The target is as high as it may be.
	r.expect(t, 900*us, 1562.6015625, 1600)

	// It arrives there, and then there is no deadline more; a CNP still finds alpha and the stages.
	r.expect(t, 100*time.Millisecond, 1600, 1600)
	r.expectNoDeadline(t)
	r.expect(t, year, 1600, 1600)
	r.Notified(year + 7)
	r.expect(t, year+7, 1200, 1600)
	r.expectDeadline(t, year+7+100*us)
}

func TestIncreasesByTheByteCounter(t *testing.T) {
	p := simple()
	p.RateReduceMonitorPeriod = 0
	p.RPGByteReset = 3000
	r := newReactionPoint(&p, 1600*mbit)
	r.Sent(0, 2999) // counts for nothing, as there was no cut
	r.Notified(0)
	r.Notified(0) // 900, 1200
	r.Sent(1, 2999)
	r.expect(t, 1, 900, 1200)
	r.Sent(2, 2)
	r.expect(t, 2, 1050, 1200) // fast recovery
	r.Sent(3, 2999)
	r.expect(t, 3, 1125, 1200)
	r.Sent(4, 3000)
	r.expect(t, 4, 1166.5, 1208) // additive: the byte counter is beyond
	r.Sent(5, 3000)
	r.expect(t, 5, 1191.25, 1216) // not hyper: the timer is not
	r.expect(t, 100*us, 1207.625, 1224)
	r.expect(t, 200*us, 1219.8125, 1232)
	r.expect(t, 300*us, 1229.90625, 1240)
	r.expect(t, 400*us, 1274.953125, 1320) // hyper: both are
	r.Sent(400*us, 3000)
	r.expect(t, 400*us, 1337.4765625, 1400)
	r.Sent(400*us, 1500) // a cut begins anew, also with the bytes
	r.Notified(400 * us)
	r.Sent(400*us, 2999)
	r.expect(t, 400*us, 1003.107421875, 1337.4765625)
	r.Sent(400*us, 3001) // twice at once
	r.expect(t, 400*us, 1253.88427734375, 1337.4765625)
}

// TestAlpha compares alpha with closed forms of a moving average.
func TestAlpha(t *testing.T) {
	const g = 1.0 / 256
	p := simple()
	p.DCETCPG, p.InitialAlphaValue = g, 0.75
	ticks := 100_000
	for name, every := range map[string]int{"no CNP": ticks + 1, "each tick": 1, "each 7th": 7} {
		t.Run(name, func(t *testing.T) {
			r := newReactionPoint(&p, 1600*mbit)
			r.Notified(0)
			sum, n := 0.0, 0
			for tick := 1; tick <= ticks; tick++ {
				if tick%every == 0 {
					r.Notified(time.Duration(tick)*us - 1)
					r.Notified(time.Duration(tick)*us - 1) // the second changes nothing
				}
				if every <= ticks {
					r.updateAlpha(time.Duration(tick) * us)
				}
				if tick > ticks-7*100 {
					sum += r.alpha
					n++
				}
				if tick == 1000 && every == 1 {
					near(t, r.alpha, 1-(1-0.75)*math.Pow(1-g, 1000))
				}
			}
			r.updateAlpha(time.Duration(ticks) * us)
			switch every {
			case 1:
				near(t, r.alpha, 1)
			case 7:
				// Over whole periods the mean of the average is that of what it averages.
				near(t, sum/float64(n), 1.0/7)
				peak := g / (1 - math.Pow(1-g, 7))
				near(t, r.alpha, peak*math.Pow(1-g, float64(ticks%7)))
			default:
				near(t, r.alpha, 0.75*math.Pow(1-g, float64(ticks)))
			}
		})
	}
}

func near(t *testing.T, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9 {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestAlphaIsUpdatedOnItsBeat covers CNPs around the instant of an update.
func TestAlphaIsUpdatedOnItsBeat(t *testing.T) {
	p := simple()
	p.DCETCPG, p.InitialAlphaValue = 0.5, 1
	r := newReactionPoint(&p, 1600*mbit)
	r.Notified(100)
	for _, c := range []struct {
		now      time.Duration
		notified bool
		alpha    float64
	}{
		{100 + us - 1, false, 1},
		{100 + us, true, 0.5}, // the first CNP is no sample; this one comes after the update
		{100 + 2*us, false, 0.75},
		{100 + 4*us, false, 0.1875},
		{100 + 5*us - 1, true, 0.1875},
		{100 + 5*us, false, 0.59375},
	} {
		if c.notified {
			r.Notified(c.now)
		}
		r.updateAlpha(c.now)
		if r.alpha != c.alpha {
			t.Errorf("after %v: %v, want %v", c.now-100, r.alpha, c.alpha)
		}
	}
}

// drawn returns any valid parameters.
func drawn(t *rapid.T) (DCQCN, float64) {
	duration := func(low, high time.Duration, name string) time.Duration {
		return time.Duration(rapid.Int64Range(int64(low), int64(high)).Draw(t, name))
	}
	rate := func(low, high float64, name string) float64 {
		return mbit * rapid.Float64Range(low, high).Draw(t, name)
	}
	p := DCQCN{
		ClampTgtRate:             rapid.Bool().Draw(t, "clamp"),
		ClampTgtRateAfterTimeInc: rapid.Bool().Draw(t, "clamp after time"),
		RPGTimeReset:             duration(us, 400*us, "timer"),
		RPGByteReset:             rapid.SampledFrom([]int64{0, 1, 1500, 100_000}).Draw(t, "bytes"),
		RPGThreshold:             rapid.IntRange(1, 31).Draw(t, "threshold"),
		RPGMaxRate:               rapid.SampledFrom([]float64{0, 500 * mbit}).Draw(t, "max"),
		RPGAIRate:                rapid.SampledFrom([]float64{0, mbit, 40 * mbit}).Draw(t, "additive"),
		RPGHAIRate:               rapid.SampledFrom([]float64{0, mbit, 200 * mbit}).Draw(t, "hyper"),
		RPGGD:                    rapid.IntRange(10, 11).Draw(t, "gd"),
		RPGMinDecFac:             rapid.Float64Range(0, 1).Draw(t, "factor"),
		RPGMinRate:               rate(0.1, 100, "least"),
		RateToSetOnFirstCNP:      rapid.SampledFrom([]float64{0, mbit, 1000 * mbit}).Draw(t, "first"),
		DCETCPG:                  rapid.Float64Range(0, 1).Draw(t, "g"),
		DCETCPRTT:                duration(us, 60*us, "alpha's period"),
		RateReduceMonitorPeriod:  rapid.SampledFrom([]time.Duration{0, us, 50 * us}).Draw(t, "cut period"),
		InitialAlphaValue:        rapid.Float64Range(0, 1).Draw(t, "alpha"),
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p, rate(100, 100_000, "line")
}

// TestInvariants also expects that it makes no difference how often the rate is asked for.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, line := drawn(t)
		lazy, eager := newReactionPoint(&p, line), newReactionPoint(&p, line)
		check := func(r *reactionPoint, now time.Duration) {
			rate := r.Rate(now)
			// The least rate is at most the line's, and so is RPGMaxRate.
			if !(rate >= r.minRate() && rate <= r.target && r.target <= line && (p.RPGMaxRate == 0 || r.target <= p.RPGMaxRate)) {
				t.Fatalf("at %v rate %v, target %v", now, rate, r.target)
			}
			if !(r.alpha >= 0 && r.alpha <= 1) {
				t.Fatalf("at %v alpha %v", now, r.alpha)
			}
			if at, ok := r.Deadline(); ok && at <= now {
				t.Fatalf("at %v deadline %v", now, at)
			}
		}
		now := time.Duration(0)
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			wait := time.Duration(rapid.SampledFrom([]int64{0, 1, 999, 1000, 3000, 50_000, 400_000, 50_000_000}).Draw(t, "wait"))
			if step := wait / 50; step > 0 {
				for at := now; at < now+wait; at += step {
					check(eager, at)
					eager.updateAlpha(at)
				}
			}
			for at, ok := eager.Deadline(); ok && at < now+wait; at, ok = eager.Deadline() {
				check(eager, at)
			}
			now += wait
			call := rapid.IntRange(0, 2).Draw(t, "call")
			for _, r := range []*reactionPoint{lazy, eager} {
				switch call {
				case 0:
					r.Notified(now)
				case 1:
					r.Sent(now, 1500)
				}
				check(r, now)
			}
			// Increases that are made at once may differ by rounding, also by whether a rate has
			// reached its target.
			if d := math.Abs(lazy.rate - eager.rate); d > reached {
				t.Fatalf("at %v rate %v, asked for more often %v", now, lazy.rate, eager.rate)
			}
		}
	})
}

// TestDeadlineIsExact expects the rate to be constant up to the deadline.
func TestDeadlineIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, line := drawn(t)
		r := newReactionPoint(&p, line)
		now := time.Duration(0)
		for range 20 {
			if rapid.Bool().Draw(t, "CNP") {
				r.Notified(now)
			}
			before := r.rate
			at, ok := r.Deadline()
			if !ok {
				if got := r.Rate(now + time.Second); got != before {
					t.Fatalf("without a deadline the rate changed from %v to %v", before, got)
				}
				return
			}
			if got := r.Rate(at - 1); got != before {
				t.Fatalf("the rate changed from %v to %v before %v", before, got, at)
			}
			now = at
			r.Rate(now)
		}
	})
}

// TestLongWait makes up for a day in which the timer was due 8.64 * 10^9 times, with the smallest steps.
func TestLongWait(t *testing.T) {
	p := simple()
	p.RateReduceMonitorPeriod = 0
	p.RPGTimeReset = 10 * us
	p.RPGAIRate, p.RPGHAIRate = 1, 1
	p.DCETCPG = 1.0 / 256
	r := newReactionPoint(&p, 100e9)
	r.Notified(0)
	r.Notified(0)
	// The first two do not raise the target, and the rate lacks a step to it.
	r.expect(t, 24*time.Hour, 75_000+8640-0.000_003, 75_000+8640-0.000_002)
	if r.timeStage != maxStage {
		t.Errorf("stage %d, want %d", r.timeStage, maxStage)
	}
	r.Notified(24 * time.Hour)
	if r.alpha != 0 {
		t.Errorf("alpha %v, want 0", r.alpha)
	}
}

// TestLineOfUnknownRate begins with the rate of a link without one.
func TestLineOfUnknownRate(t *testing.T) {
	p := ConnectX()
	if got := NewDCQCN(&p, 0).Rate(0); got != 10e9 {
		t.Errorf("rate %v, want that of 10 Gb/s", got)
	}
}

func TestReactionPointDoesNotAllocate(t *testing.T) {
	p := Paper()
	c := NewDCQCN(&p, 40e9)
	pacer := NewPacer(c, 1e12, 0, 0)
	var now time.Duration
	if n := testing.AllocsPerRun(1000, func() {
		now += 50 * us
		c.Notified(now)
		now = pacer.Deadline(now + 30*us)
		pacer.Sent(now, 1<<20)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if size := unsafe.Sizeof(reactionPoint{}); size > 96 {
		t.Errorf("%d bytes per queue pair, want 96 at most", size)
	}
}

func BenchmarkReactionPoint(b *testing.B) {
	p := ConnectX()
	b.Run("Rate", func(b *testing.B) {
		c := NewDCQCN(&p, 100e9)
		c.Notified(0)
		var now time.Duration
		for b.Loop() {
			now += 84 // a packet of 1 KiB
			c.Rate(now)
		}
	})
	b.Run("Notified", func(b *testing.B) {
		c := NewDCQCN(&p, 100e9)
		var now time.Duration
		for b.Loop() {
			now += 4 * us
			c.Notified(now)
		}
	})
}
