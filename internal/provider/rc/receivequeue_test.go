package rc

import (
	"errors"
	"testing"
)

func TestReceiveQueue(t *testing.T) {
	q := NewReceiveQueue(3, 2)
	next, oldest := 0, 0
	post := func(want error) {
		t.Helper()
		r := Receive{Context: next, SGL: []SGE{{Length: uint32(next)}}}
		if err := q.Post(&r); !errors.Is(err, want) {
			t.Fatalf("post %d: %v, want %v", next, err, want)
		}
		if want == nil {
			next++
		}
	}
	var r Receive
	take := func() {
		t.Helper()
		if !q.Take(&r) || r.Context != oldest || len(r.SGL) != 1 || r.SGL[0].Length != uint32(oldest) {
			t.Fatalf("took %+v, want %d", r, oldest)
		}
		oldest++
	}
	if q.Take(&r) {
		t.Error("took something from an empty queue")
	}
	if err := q.Post(&Receive{SGL: make([]SGE, 3)}); !errors.Is(err, ErrSGL) {
		t.Errorf("three pieces: %v", err)
	}
	for range 5 { // go around
		post(nil)
		post(nil)
		take()
		take()
	}
	post(nil)
	post(nil)
	post(nil)
	post(ErrFull)
	take()
	post(nil)
	if err := q.CopyTo(NewReceiveQueue(2, 2)); !errors.Is(err, ErrFull) {
		t.Errorf("copied to a queue that is too small: %v", err)
	}
	larger := NewReceiveQueue(4, 2)
	if err := q.CopyTo(larger); err != nil {
		t.Errorf("copied to a larger queue: %v", err)
	}
	q = larger
	post(nil)
	post(ErrFull)
	if q.Len() != 4 {
		t.Errorf("%d queued", q.Len())
	}
	for range 4 {
		take()
	}

	// A receive that was taken is the taker's: posting more does not change it.
	post(nil)
	take()
	mine := r.SGL[0].Length
	for range 4 {
		post(nil)
	}
	if r.SGL[0].Length != mine {
		t.Error("a taken receive changed")
	}
	full := Receive{Context: t, SGL: []SGE{{}, {}}}
	if n := testing.AllocsPerRun(100, func() { q.Take(&r); _ = q.Post(&full) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
