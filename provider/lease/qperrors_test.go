package lease

import (
	"context"
	"testing"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/provider"
)

// Of many errors at once some are told of one by one, and all are counted; those to come
// later are told of, too.
func TestErrorTeller(t *testing.T) {
	const many = 1000
	teller, notices := newTeller(t)
	tell := func(from, n int) {
		for i := range n {
			teller.Tell(provider.QPError{Number: uint32(from + i)})
		}
		teller.Tell(provider.QPError{More: 7})
	}
	tell(1, many)
	next := uint32(1)
	for told := uint64(0); told < many+7; {
		single := 0
		for _, e := range <-notices {
			if e.More > 0 {
				told += e.More
				continue
			}
			if e.Number < next {
				t.Fatalf("queue pair %d again", e.Number)
			}
			next = e.Number + 1
			told++
			single++
		}
		if single > errorsAtOnce {
			t.Errorf("%d at once", single)
		}
	}
	tell(2000, 1)
	if list := <-notices; len(list) == 0 || list[0].Number != 2000 {
		t.Errorf("told of %+v", list)
	}
}

// newTeller makes a teller, and returns what it tells, too.
func newTeller(t *testing.T) (*ErrorTeller, <-chan []provider.QPError) {
	t.Helper()
	notices := make(chan []provider.QPError, 8)
	ours, theirs, err := control.Pair(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	var mux control.Mux
	NoticeQPErrors.Handle(&mux, func(_ context.Context, _ *control.Request, list []provider.QPError) error {
		notices <- list
		return nil
	})
	peer, err := control.FromFile(theirs, mux.Serve)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	return NewErrorTeller(ours), notices
}

// TestFlush: what waits is told of at once when the process ends, which the goroutine might not live to do.
func TestFlush(t *testing.T) {
	teller, notices := newTeller(t)
	teller.telling = true // but gets no processor
	teller.Tell(provider.QPError{Number: 1})
	teller.Flush()
	if list := <-notices; len(list) != 1 || list[0].Number != 1 {
		t.Errorf("told of %+v", list)
	}
	teller.Flush() // nothing
	if !teller.telling {
		t.Error("the goroutine is taken for ended")
	}
}
