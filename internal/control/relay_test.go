package control

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
)

// relayed is a channel to a process that passes everything on to one with the handler
// there.
func relayed(t *testing.T, there Handler) *Conn {
	t.Helper()
	to, _ := pair(t, nil, there)
	c, _ := pair(t, nil, func(ctx context.Context, r *Request) (any, error) { return Relay(ctx, r, to) })
	return c
}

// TestRelay: requests, answers, errors and notices of the far end are as those of a near one.
func TestRelay(t *testing.T) {
	sizes := make(chan rectangle, 2)
	c := relayed(t, shapes(sizes).Serve)
	if area, err := methodArea.Call(t.Context(), c, rectangle{3, 4}); area != 12 || err != nil {
		t.Errorf("area: %d, %v", area, err)
	}
	var e *Error
	if _, err := methodArea.Call(t.Context(), c, rectangle{-1, 4}); !errors.As(err, &e) || *e != (Error{Code: Unable, Message: "a width of -1"}) {
		t.Errorf("area: %v", err)
	}
	if err := methodFail.Call(t.Context(), c, ""); err != nil { // an answer of null
		t.Errorf("fail: %v", err)
	}
	for i := range 2 {
		if err := noticeSize.Send(c, rectangle{i, i}); err != nil {
			t.Error(err)
		}
	}
	for i := range 2 {
		if got := <-sizes; got != (rectangle{i, i}) {
			t.Errorf("size: %v, want %d", got, i)
		}
	}
}

// TestRelayCancel: the far end learns that the caller gave up.
func TestRelayCancel(t *testing.T) {
	serving, given := make(chan struct{}), make(chan error, 1)
	c := relayed(t, func(ctx context.Context, r *Request) (any, error) {
		close(serving)
		<-ctx.Done()
		given <- ctx.Err()
		return nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-serving
		cancel()
	}()
	if err := c.call(ctx, "wait", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller got %v", err)
	}
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Errorf("the far end got %v", err)
	}
}

// TestRelayFiles: files pass on, and the end of one is that of the far end, while the
// request is still under way.
func TestRelayFiles(t *testing.T) {
	release := make(chan struct{})
	c := relayed(t, func(_ context.Context, r *Request) (any, error) {
		_, err := r.Files[0].WriteString("far")
		r.Files[0].Close()
		r.Files[0] = nil
		<-release
		return nil, err
	})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	answer := make(chan error, 1)
	go func() {
		answer <- c.call(t.Context(), "write", nil, nil, w)
	}()
	var text [3]byte
	if _, err := io.ReadFull(r, text[:]); string(text[:]) != "far" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	w.Close()
	if rest, err := io.ReadAll(r); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	close(release)
	if err := <-answer; err != nil {
		t.Error(err)
	}
}
