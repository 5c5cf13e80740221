package clock

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A ride is a drivenClock in the time of a synctest bubble.
type ride struct {
	*testing.T
	*drivenClock
	wakes int // how often somebody was woken
}

// drive runs a test of one.
func drive(t *testing.T, test func(r *ride)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(100 * 365 * 24 * time.Hour) // a bubble begins before the process did
		driven, _ := Driven(Real())
		r := &ride{T: t, drivenClock: driven.(*drivenClock)}
		// The kernel's timer would run in the time of the machine.
		a := &alarm{opened: true}
		a.late = time.AfterFunc(time.Hour, func() { r.wakes++; a.expire() })
		r.alarms, r.alarm.f = a, func() { r.wakes++; r.wake() }
		r.timer = time.AfterFunc(time.Hour, r.alarm.f)
		r.timer.Stop()
		defer a.late.Stop()
		test(r)
	})
}

// after has a note made d from now of how late it is.
func (r *ride) after(d time.Duration) (late *time.Duration) {
	late = new(time.Duration)
	*late = -1
	due := r.Now() + d
	r.AfterFunc(d, func() { *late = r.Now() - due })
	return late
}

// pass lets time pass, and what is due then run.
func (r *ride) pass(d time.Duration) {
	time.Sleep(d) // in the bubble's time
	synctest.Wait()
}

// take drives the clock for a time, by steps.
func (r *ride) take(d, step time.Duration) {
	for ; d > 0; d -= step {
		r.advance()
		r.pass(step)
	}
}

// TestDrivenAlone: nobody drives the clock, whose functions run at their instants, as those of the real one do.
func TestDrivenAlone(t *testing.T) {
	drive(t, func(r *ride) {
		second, first, negative := r.after(7*time.Millisecond), r.after(2*time.Millisecond), r.after(-time.Second)
		r.pass(0)
		if *negative != time.Second {
			r.Error("what is overdue does not run at once, but", *negative)
		}
		stopped := r.AfterFunc(3*time.Millisecond, func() { r.Error("a timer that was stopped has run") })
		if !stopped.Stop() || stopped.Stop() {
			r.Error("Stop of a pending timer is true, of a stopped one false")
		}
		r.pass(10 * time.Millisecond)
		if *first != 0 || *second != 0 {
			r.Errorf("late by %v and %v", *first, *second)
		}
	})
}

// TestDrivenTimer is one that is set anew: earlier, later, and from its own function.
func TestDrivenTimer(t *testing.T) {
	for _, driven := range []bool{false, true} {
		drive(t, func(r *ride) {
			r.driven = driven
			begun := r.Now()
			var ran []time.Duration
			var timer Timer
			timer = r.AfterFunc(5*time.Millisecond, func() {
				if ran = append(ran, r.Now()-begun); len(ran) == 1 && timer.Reset(time.Millisecond) {
					r.Error("Reset of a timer that runs is true")
				}
			})
			if !timer.Reset(9*time.Millisecond) || !timer.Reset(2*time.Millisecond) {
				r.Error("Reset of a pending timer is false")
			}
			r.pass(20 * time.Millisecond)
			late := time.Duration(0)
			if driven { // until it is woken
				late = slack
			}
			if len(ran) != 2 || ran[0] != 2*time.Millisecond+late || ran[1] != ran[0]+time.Millisecond {
				r.Errorf("driven %t: ran at %v", driven, ran)
			}
		})
	}
}

// TestDrivenIsNotWoken while somebody drives it, who runs its functions at their instants.
func TestDrivenIsNotWoken(t *testing.T) {
	const step = 10 * time.Microsecond
	drive(t, func(r *ride) {
		r.after(slack)
		r.take(2*slack, step)
		var ran, late time.Duration
		inside := false
		due := r.Now() + time.Millisecond
		var timer Timer
		timer = r.AfterFunc(time.Millisecond, func() {
			if ran++; !inside {
				r.Error("a function runs elsewhere")
			}
			late = max(late, r.Now()-due)
			due = r.Now() + time.Millisecond
			timer.Reset(time.Millisecond)
		})
		put := r.AfterFunc(3*time.Millisecond, func() { r.Error("a timer that is put off runs") })
		r.wakes = 0
		for range time.Second / step {
			inside = true
			r.advance()
			inside = false
			put.Reset(3 * time.Millisecond)
			r.pass(step)
		}
		if ran < 900 || late > step || r.wakes > 0 {
			r.Errorf("ran %d times, late by %v, woken %d times", ran, late, r.wakes)
		}
	})
}

// TestDrivenNoMore: who has driven the clock has stopped. One function is later by the slack, and no others.
func TestDrivenNoMore(t *testing.T) {
	drive(t, func(r *ride) {
		r.after(0)
		first, second, third := r.after(5*time.Millisecond), r.after(5*time.Millisecond+slack/2), r.after(8*time.Millisecond)
		r.take(2*time.Millisecond, 50*time.Microsecond)
		earlier := r.after(time.Millisecond)
		r.pass(20 * time.Millisecond)
		if *earlier != slack || *first != 0 || *second != 0 || *third != 0 {
			r.Errorf("late by %v, then by %v, %v and %v", *earlier, *first, *second, *third)
		}
	})
}

// TestDrivenIdle: no timer is left, and so the clock is not woken. One that is set later runs in time.
func TestDrivenIdle(t *testing.T) {
	drive(t, func(r *ride) {
		r.after(0)
		timer := r.AfterFunc(time.Millisecond, func() {})
		r.take(time.Millisecond/2, 50*time.Microsecond)
		timer.Stop()
		r.wakes = 0
		r.take(10*time.Millisecond, 50*time.Microsecond)
		r.pass(time.Second)
		if r.wakes > 0 {
			r.Errorf("woken %d times for nothing", r.wakes)
		}
		late := r.after(time.Millisecond)
		r.pass(2 * time.Millisecond)
		if *late != slack {
			r.Errorf("late by %v", *late)
		}
	})
}

// TestDrivenBlocked: a function does not return for a long time. The others do not wait for it, whoever runs it.
func TestDrivenBlocked(t *testing.T) {
	for _, driven := range []bool{false, true} {
		drive(t, func(r *ride) {
			block := make(chan struct{})
			r.AfterFunc(time.Millisecond, func() { <-block })
			same, later := r.after(time.Millisecond), r.after(3*time.Millisecond)
			if driven {
				r.take(time.Millisecond, 100*time.Microsecond)
				go r.advance()
			}
			r.pass(10 * time.Millisecond)
			if *same < 0 || *same > slack || *later < 0 || *later > slack {
				r.Errorf("driven %t: late by %v and %v", driven, *same, *later)
			}
			close(block)
		})
	}
}

// TestDrivenPutOff: a timer is put off, for which nobody is woken in vain; but if who drove the clock has stopped, the alarm is.
func TestDrivenPutOff(t *testing.T) {
	for driven, want := range map[bool]int{false: 1, true: 3} { // the alarm wakes two: itself and the clock
		drive(t, func(r *ride) {
			r.driven = driven
			timer := r.AfterFunc(time.Millisecond, func() {})
			for range 10 {
				timer.Reset(3 * time.Millisecond)
			}
			r.pass(time.Minute)
			if r.wakes != want {
				r.Errorf("driven %t: woken %d times, want %d", driven, r.wakes, want)
			}
		})
	}
}

// TestDrivenNever: a timer that is as good as never is not due at once since its instant is beyond all others.
func TestDrivenNever(t *testing.T) {
	drive(t, func(r *ride) {
		r.AfterFunc(never, func() { r.Error("ran") })
		r.take(time.Millisecond, 100*time.Microsecond)
		r.pass(time.Minute)
	})
}

// TestDrivenDilated: a dilated clock is driven in its own time.
func TestDrivenDilated(t *testing.T) {
	c, advance := Driven(Dilated(Real(), 1000))
	if Factor(c) != 1000 {
		t.Fatalf("dilated by %d", Factor(c))
	}
	ran := make(chan time.Duration, 1)
	begun := c.Now()
	c.AfterFunc(5*time.Microsecond, func() { ran <- c.Now() })
	for {
		select {
		case at := <-ran:
			if at-begun < 5*time.Microsecond {
				t.Errorf("ran after %v", at-begun)
			}
			return
		default:
			advance()
		}
	}
}

// A drivable clock counts how often it is driven.
type drivable struct {
	Clock
	advances int
}

func (c *drivable) Driven() (Clock, func()) { return c, func() { c.advances++ } }

// TestDrivenDilatedDrives the clock that is dilated.
func TestDrivenDilatedDrives(t *testing.T) {
	c := &drivable{Clock: NewVirtual()}
	_, advance := Driven(Dilated(c, 2))
	if advance(); c.advances != 1 {
		t.Errorf("driven %d times, want 1", c.advances)
	}
}

// TestDrivenVirtual: a clock that knows nothing of it stays what it is.
func TestDrivenVirtual(t *testing.T) {
	v := NewVirtual()
	c, advance := Driven(v)
	if c != Clock(v) {
		t.Error("another clock")
	}
	c.AfterFunc(0, func() { t.Error("advance runs a timer of a virtual clock") })
	advance()
}

// TestDrivenByMany: many set and stop timers, drive the clock, and stop doing so. Each function runs once.
func TestDrivenByMany(t *testing.T) {
	c, advance := Driven(Real())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			ran := make(chan struct{}, 1)
			for i := range 200 {
				timer := c.AfterFunc(time.Duration(i%50)*20*time.Microsecond, func() { ran <- struct{}{} })
				if i%2 == 0 && timer.Stop() {
					continue
				}
				if i%3 > 0 {
					for len(ran) == 0 {
						advance()
					}
				}
				select {
				case <-ran:
				case <-time.After(10 * time.Second):
					t.Error("a function has not run")
					return
				}
			}
		})
	}
	all.Wait()
}

// TestDrivenWakes: the kernel wakes a clock that is driven no more.
func TestDrivenWakes(t *testing.T) {
	c, advance := Driven(Real())
	ran := make(chan bool, 1)
	for range 10 {
		c.AfterFunc(2*time.Millisecond, func() { ran <- true })
		for end := c.Now() + 1800*time.Microsecond; c.Now() < end; {
			advance()
		}
		select {
		case <-ran:
		case <-time.After(10 * time.Second):
			t.Fatal("the function has not run")
		}
	}
}

// TestAlarmSettles: the kernel's timer is put off, and stopped, only when somebody asks for that.
func TestAlarmSettles(t *testing.T) {
	var a alarm
	e := &event{f: func() { t.Error("ran") }}
	left := func() time.Duration {
		var s unix.ItimerSpec
		if err := unix.TimerfdGettime(a.fd, &s); err != nil {
			t.Fatal(err)
		}
		return time.Duration(s.Value.Nano()).Round(time.Minute)
	}
	a.set(e, Real().Now()+time.Hour)
	a.set(e, Real().Now()+2*time.Hour)
	if left() != time.Hour {
		t.Errorf("%v are left, want the hour of before", left())
	}
	if a.settle(); left() != 2*time.Hour {
		t.Errorf("%v are left, want two hours", left())
	}
	if !a.stop(e) || a.stop(e) || left() != 2*time.Hour {
		t.Errorf("%v are left of an alarm that was stopped", left())
	}
	if a.settle(); left() != 0 {
		t.Errorf("%v are left of an alarm for nothing", left())
	}
	a.set(e, Real().Now()+time.Hour)
	if left() != time.Hour {
		t.Errorf("%v are left, want an hour", left())
	}
	a.stop(e)
	a.settle()
}

// TestAlarmIsReplaced where the runtime does not wait for the kernel's timer.
func TestAlarmIsReplaced(t *testing.T) {
	silent, err := os.Open(os.DevNull) // which is never readable for something
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	a := &alarm{opened: true, timer: silent, fd: int(silent.Fd())}
	ran := make(chan bool, 2)
	e := &event{f: func() { ran <- true }}
	a.set(e, Real().Now()+time.Millisecond)
	a.ring()
	for range 2 {
		select {
		case <-ran:
		case <-time.After(10 * time.Second):
			t.Fatal("the function has not run")
		}
		a.set(e, Real().Now()+time.Millisecond)
	}
}

// TestDrivenPanics: a function that panics does so where the clock is driven, which goes on.
func TestDrivenPanics(t *testing.T) {
	drive(t, func(r *ride) {
		r.AfterFunc(0, func() { panic("asked for") })
		late := r.after(time.Millisecond)
		func() {
			defer func() {
				if got := recover(); got != "asked for" {
					t.Errorf("recovered %v", got)
				}
			}()
			r.advance()
		}()
		r.take(2*time.Millisecond, 100*time.Microsecond)
		if *late != 0 {
			t.Errorf("the next function is late by %v", *late)
		}
	})
}

// BenchmarkAdvance is a look at a clock with nothing due, and one that runs a timer which is set anew.
func BenchmarkAdvance(b *testing.B) {
	for name, wait := range map[string]time.Duration{"nothing": time.Hour, "timer": 0} {
		b.Run(name, func(b *testing.B) {
			c, advance := Driven(Real())
			var timer Timer
			var set atomic.Bool
			timer = c.AfterFunc(time.Hour, func() {
				if set.Load() {
					timer.Reset(wait)
				}
			})
			set.Store(true)
			timer.Reset(wait)
			b.ReportAllocs()
			for b.Loop() {
				advance()
			}
			set.Store(false)
			timer.Stop()
		})
	}
}
