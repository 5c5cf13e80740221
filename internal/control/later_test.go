package control

import (
	"errors"
	"testing"
)

// TestLater asks and tells a peer that is started by the first of both, and another that cannot be started.
func TestLater(t *testing.T) {
	sizes, begun := make(chan rectangle, 1), 0
	near, far, err := Pair(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	later := NewLater(func() (*Conn, error) {
		if begun++; begun == 1 {
			peer, err := FromFile(far, shapes(sizes).Serve)
			if err != nil {
				return nil, err
			}
			t.Cleanup(peer.Close)
		}
		return near, nil
	}, near.Done())
	if begun != 0 {
		t.Error("the peer runs before it is asked")
	}
	if area, err := methodArea.Call(t.Context(), later, rectangle{2, 3}); area != 6 || err != nil {
		t.Errorf("an area of %d, %v", area, err)
	}
	if err := noticeSize.Send(later, rectangle{4, 5}); err != nil {
		t.Error(err)
	}
	if got := <-sizes; got != (rectangle{4, 5}) {
		t.Errorf("the peer was told %v", got)
	}
	never := NewLater(func() (*Conn, error) { return nil, ErrClosed }, nil)
	if _, err := methodArea.Call(t.Context(), never, rectangle{2, 3}); !errors.Is(err, ErrClosed) {
		t.Errorf("a peer that cannot be started: %v", err)
	}
	if err := noticeSize.Send(never, rectangle{}); !errors.Is(err, ErrClosed) {
		t.Errorf("a peer that cannot be started: %v", err)
	}
}
