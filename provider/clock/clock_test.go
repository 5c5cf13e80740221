package clock_test

import (
	"slices"
	"testing"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
)

func TestVirtualOrder(t *testing.T) {
	v := clock.NewVirtual()
	var got []string
	note := func(s string) func() { return func() { got = append(got, s) } }
	v.AfterFunc(2, note("2"))
	v.AfterFunc(1, note("1, first"))
	v.AfterFunc(1, note("1, second"))
	v.AfterFunc(-5, note("overdue"))
	v.Go(func() { note("now")(); v.Go(note("from now")) })
	if len(got) > 0 {
		t.Fatal("a function ran from within the call")
	}
	v.Run(2)
	want := []string{"overdue", "now", "from now", "1, first", "1, second", "2"}
	if !slices.Equal(got, want) || v.Now() != 2 {
		t.Fatalf("at %v: %q, want %q", v.Now(), got, want)
	}
	if v.Step() {
		t.Fatal("something is left")
	}
}

func TestVirtualTimer(t *testing.T) {
	v := clock.NewVirtual()
	var ran []time.Duration
	timer := v.AfterFunc(10, func() { ran = append(ran, v.Now()) })
	if !timer.Stop() || timer.Stop() {
		t.Fatal("Stop of a pending timer is true, of a stopped one false")
	}
	v.Run(20)
	if timer.Reset(5) {
		t.Fatal("Reset of a stopped timer is false")
	}
	if !timer.Reset(7) {
		t.Fatal("Reset of a pending timer is true")
	}
	v.Run(7)
	if timer.Stop() {
		t.Fatal("Stop of a timer that has run is false")
	}
	timer.Reset(1)
	v.Run(1)
	if want := []time.Duration{27, 28}; !slices.Equal(ran, want) {
		t.Fatalf("ran at %v, want %v", ran, want)
	}
	// A function may set its own timer again.
	n := 0
	var again clock.Timer
	again = v.AfterFunc(1, func() {
		if n++; n < 3 {
			again.Reset(1)
		}
	})
	v.Run(100)
	if n != 3 {
		t.Fatalf("ran %d times, want 3", n)
	}
}

func TestVirtualRun(t *testing.T) {
	v := clock.NewVirtual()
	ran := 0
	for d := range 10 {
		v.AfterFunc(time.Duration(d+1), func() { ran++ })
	}
	v.Run(3)
	if ran != 3 || v.Now() != 3 {
		t.Fatalf("%d ran by %v", ran, v.Now())
	}
	if !v.RunUntil(func() bool { return ran == 5 }, time.Hour) || v.Now() != 5 {
		t.Fatalf("%d ran by %v", ran, v.Now())
	}
	if !v.RunUntil(func() bool { return true }, 0) || ran != 5 {
		t.Fatal("what is done at once runs nothing")
	}
	if v.RunUntil(func() bool { return ran == 9 }, 3) || ran != 8 || v.Now() != 8 {
		t.Fatalf("%d ran by %v", ran, v.Now())
	}
	if v.RunUntil(func() bool { return false }, 100) || ran != 10 || v.Now() != 108 {
		t.Fatalf("%d ran by %v", ran, v.Now())
	}
	// Time may be moved on from within a function, and never goes back.
	v.AfterFunc(1, func() { v.Run(50) })
	v.Run(10)
	if v.Now() != 159 {
		t.Fatalf("it is %v", v.Now())
	}
	v.AfterFunc(1, func() { v.Run(50) })
	if v.RunUntil(func() bool { return false }, 10) || v.Now() != 210 {
		t.Fatalf("it is %v", v.Now())
	}
}

func TestReal(t *testing.T) {
	c := clock.Real()
	start := c.Now()
	ran := make(chan time.Duration)
	c.AfterFunc(3*time.Millisecond, func() { ran <- c.Now() })
	if took := <-ran - start; took < 3*time.Millisecond {
		t.Errorf("ran after %v", took)
	}
	c.Go(func() { ran <- c.Now() }) // blocks until it is received, so not within Go
	<-ran
	timer := c.AfterFunc(time.Hour, func() { t.Error("ran") })
	if !timer.Reset(2*time.Hour) || !timer.Stop() || timer.Stop() {
		t.Error("a pending timer can be set anew and stopped, once")
	}
}

func TestWithin(t *testing.T) {
	c := make(chan struct{})
	if clock.Within(time.Millisecond, c) {
		t.Error("a channel that is open is closed")
	}
	close(c)
	for range 100 {
		if !clock.Within(0, c) {
			t.Fatal("a channel that is closed is open")
		}
	}
	soon := make(chan struct{})
	time.AfterFunc(10*time.Millisecond, func() { close(soon) })
	if !clock.Within(time.Minute, soon) {
		t.Error("a channel that was closed in time is open")
	}
}
