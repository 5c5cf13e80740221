package estimate

import (
	"testing"
	"time"
)

// Work that goes on evenly says at each time how far it is, and how long it takes from there on.
func TestEven(t *testing.T) {
	now := time.Unix(0, 0)
	w := Begin(now, 10, 0)
	if left, ok := w.Left(now.Add(time.Hour)); ok {
		t.Errorf("%v left of work of which nothing is done", left)
	}
	for done := 1; done <= 10; done++ {
		now = now.Add(30 * time.Second)
		w.Done(1)
		if left, ok := w.Left(now); !ok || left != time.Duration(10-done)*30*time.Second || w.Far() != float64(done)/10 {
			t.Errorf("%d done: %v left, %v, %v done", done, left, ok, w.Far())
		}
	}
}

// Parts that were done before count for how far the work is, and not for how fast it goes.
func TestGoneOn(t *testing.T) {
	now := time.Unix(0, 0)
	w := Begin(now, 100, 90)
	w.Done(5)
	if left, ok := w.Left(now.Add(10 * time.Second)); !ok || left != 10*time.Second || w.Far() != .95 {
		t.Errorf("%v left, %v done", left, w.Far())
	}
}

// Parts that are under way count for as much of them as is done, and twice as many at once take half of the time.
func TestUnderWay(t *testing.T) {
	now := time.Unix(0, 0)
	w := Begin(now, 8, 0)
	w.Running(.5 + .5)
	if left, ok := w.Left(now.Add(5 * time.Second)); !ok || left != 35*time.Second {
		t.Errorf("%v left", left)
	}
	w.Running(0)
	w.Done(2)
	if left, ok := w.Left(now.Add(10 * time.Second)); !ok || left != 30*time.Second {
		t.Errorf("%v left", left)
	}
	w.Done(7) // more than was known of
	if left, _ := w.Left(now.Add(20 * time.Second)); left != 0 || w.Far() != 1 {
		t.Errorf("%v left, %v done", left, w.Far())
	}
}

// Too little to go by gives no estimate, and no cost no share.
func TestTooEarly(t *testing.T) {
	now := time.Unix(0, 0)
	w := Begin(now, 10, 0)
	w.Done(1)
	if _, ok := w.Left(now.Add(Soon - 1)); ok {
		t.Error("an estimate at once")
	}
	none := Begin(now, 0, 0)
	none.Done(1)
	if _, ok := none.Left(now.Add(time.Hour)); ok || none.Far() != 0 {
		t.Error("an estimate of work without a cost")
	}
}

func TestText(t *testing.T) {
	now := time.Unix(0, 0)
	w := Begin(now, 9, 0)
	if got := w.Text(now); got != "0 %" {
		t.Error(got)
	}
	w.Done(4)
	if got := w.Text(now.Add(4 * time.Minute)); got != "44 %, about 5 min left" {
		t.Error(got)
	}
	for d, want := range map[time.Duration]string{
		0: "about 0 s", 100 * time.Millisecond: "about 1 s", 9500 * time.Millisecond: "about 10 s", 41 * time.Second: "about 45 s", 150 * time.Second: "about 3 min",
		2 * time.Hour: "about 2 h", 130 * time.Minute: "about 2 h 10 min", 24*time.Hour - time.Second: "about 24 h", 100 * time.Hour: "about 4 days",
	} {
		if got := About(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
