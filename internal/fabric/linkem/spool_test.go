package linkem

import (
	"context"
	"errors"
	"testing"
)

// Items that the thread adds arrive in order, or are missed and counted, however
// fast either side is.
func TestSpool(t *testing.T) {
	const items, room = 20_000, 64
	s := newSpool[int](room)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	got, missed, next := 0, uint64(0), 0
	write := func(b *batch[int]) error {
		for _, v := range b.items {
			if v < next {
				t.Errorf("%d after %d", v, next-1)
			}
			next = v + 1
		}
		got += len(b.items)
		missed += b.missed
		if len(b.items) > room || b.missed > 0 && len(b.items) < room {
			t.Errorf("a batch of %d items misses %d", len(b.items), b.missed)
		}
		return nil
	}
	go func() {
		defer close(done)
		if err := s.run(ctx, write); err != nil {
			t.Error(err)
		}
	}()
	for i := range items {
		b := s.open()
		if len(b.items) == cap(b.items) {
			b.missed++
		} else {
			b.items = append(b.items, i)
		}
		s.close(b)
	}
	cancel()
	<-done
	if err := s.pass(write); err != nil {
		t.Error(err)
	}
	if got+int(missed) != items || got == 0 {
		t.Errorf("%d items arrived, %d are missed, of %d", got, missed, items)
	}
}

func TestSpoolEndsWhenWritingFails(t *testing.T) {
	s := newSpool[int](1)
	s.close(s.open())
	broken := errors.New("broken")
	if err := s.run(context.Background(), func(*batch[int]) error { return broken }); err != broken {
		t.Errorf("got %v", err)
	}
}
