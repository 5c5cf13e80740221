package linkem

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A spool passes items from the loop's thread to a goroutine that may be slow, a
// batch at a time. The thread never waits: when a batch is full, further items are missed.
type spool[T any] struct {
	slot   atomic.Pointer[batch[T]] // the one being filled; nil while the thread adds to it
	filled chan struct{}            // notifies the goroutine that slot is no longer empty

	passing sync.Mutex // guards spare, and has batches passed on one after the other
	spare   *batch[T]  // empty
}

// A batch is items in the order they were added.
type batch[T any] struct {
	items  []T
	missed uint64 // how many could not be added after the last
}

// pause is the time for which the goroutine lets items gather after it has taken
// some: a single one is passed on at once, many are in few batches.
const pause = 5 * time.Millisecond

// newSpool returns a spool whose batches hold so many items.
func newSpool[T any](items int) *spool[T] {
	s := &spool[T]{filled: make(chan struct{}, 1), spare: &batch[T]{items: make([]T, 0, items)}}
	s.slot.Store(&batch[T]{items: make([]T, 0, items)})
	return s
}

// open gives the thread the batch being filled, which it has to close. It has
// room for cap(items)-len(items) items.
func (s *spool[T]) open() *batch[T] { return s.slot.Swap(nil) }

// close gives it back with something in it.
func (s *spool[T]) close(b *batch[T]) {
	s.slot.Store(b)
	select {
	case s.filled <- struct{}{}:
	default:
	}
}

// run passes every batch to write until ctx ends, when something may be left, or
// write fails.
func (s *spool[T]) run(ctx context.Context, write func(*batch[T]) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.filled:
		}
		if err := s.pass(write); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// pass passes what there is to write. Any goroutine may call it.
func (s *spool[T]) pass(write func(*batch[T]) error) error {
	s.passing.Lock()
	defer s.passing.Unlock()
	b := s.take()
	err := write(b)
	b.items, b.missed = b.items[:0], 0
	s.spare = b
	return err
}

// take takes the batch being filled and puts the empty one in its place.
func (s *spool[T]) take() *batch[T] {
	for {
		b := s.slot.Load()
		if b != nil && s.slot.CompareAndSwap(b, s.spare) {
			return b
		}
		runtime.Gosched() // for the some 100 ns that the thread takes
	}
}
