package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
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

// behind is a route to a process with the handler there, which its neighbour knows as
// "far", through one that relays, and the channel of that neighbour's. here has the notices.
func behind(t *testing.T, here, there Handler) (*Route, *Conn) {
	t.Helper()
	var neighbour *Conn
	far, theirs := pair(t, func(ctx context.Context, r *Request) (any, error) {
		return relay(ctx, r, neighbour, "far")
	}, there)
	var mux Mux
	mux.Forward(func(to string) (Handler, error) {
		switch to {
		case "far":
			return func(ctx context.Context, r *Request) (any, error) { return Relay(ctx, r, far) }, nil
		case "gone":
			return nil, fmt.Errorf("%s: %w", to, ErrClosed)
		}
		return nil, Errorf(Usage, "no %q", to)
	})
	var worker, head *Conn
	hears := new(Mux)
	hears.Forward(func(from string) (Handler, error) {
		if from != "far" {
			return nil, Errorf(Usage, "no %q", from)
		}
		return here, nil
	})
	ready := make(chan struct{})
	relaying := func(to **Conn) Handler {
		return func(ctx context.Context, r *Request) (any, error) {
			<-ready
			return Relay(ctx, r, *to)
		}
	}
	var part *Conn
	part, neighbour = pair(t, relaying(&worker), mux.Serve)
	head, worker = streamPair(t, hears.Serve, relaying(&part))
	close(ready)
	return Behind(head, "far"), theirs
}

// TestBehind: one that is behind the peer, two channels on, is asked, told and heard as the
// peer is.
func TestBehind(t *testing.T) {
	heard := make(chan rectangle, 1)
	sizes := make(chan rectangle, 1)
	route, theirs := behind(t, shapes(heard).Serve, shapes(sizes).Serve)
	ctx := t.Context()
	if area, err := methodArea.Call(ctx, route, rectangle{3, 4}); area != 12 || err != nil {
		t.Errorf("area: %d, %v", area, err)
	}
	var e *Error
	if _, err := methodArea.Call(ctx, route, rectangle{-1, 4}); !errors.As(err, &e) || *e != (Error{Code: Unable, Message: "a width of -1"}) {
		t.Errorf("area: %v", err)
	}
	r, w := pipe(t)
	if written, err := methodWrite.Call(ctx, route, "some", w); !slices.Equal(written, []int{4}) || err != nil {
		t.Errorf("write: %v, %v", written, err)
	}
	w.Close()
	if b, err := io.ReadAll(r); string(b) != "some" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if err := noticeSize.Send(route, rectangle{5, 6}); err != nil {
		t.Error(err)
	}
	if got := <-sizes; got != (rectangle{5, 6}) {
		t.Errorf("size: %v", got)
	}
	if err := noticeSize.Send(theirs, rectangle{1, 2}); err != nil {
		t.Error(err)
	}
	if got := <-heard; got != (rectangle{1, 2}) {
		t.Errorf("heard %v", got)
	}
	err := methodFail.Call(ctx, Behind(route.conn, "nowhere"), "")
	if !errors.As(err, &e) || *e != (Error{Code: Usage, Message: `no "nowhere"`}) {
		t.Errorf("nowhere: %v", err)
	}
	if err := methodFail.Call(ctx, Behind(route.conn, "gone"), ""); !errors.Is(err, ErrClosed) {
		t.Errorf("gone: %v", err)
	}
	theirs.Close()
	if err := methodFail.Call(ctx, route, ""); !errors.Is(err, ErrClosed) {
		t.Errorf("far: %v", err)
	}
	select {
	case <-route.Done():
		t.Error("the peer is gone")
	default:
	}
	route.conn.Close()
	<-route.Done()
}

// TestNobodyBehind: a process that has nobody behind it says so, and does not answer for them.
func TestNobodyBehind(t *testing.T) {
	c, _ := pair(t, nil, shapes(nil).Serve)
	var e *Error
	if err := methodFail.Call(t.Context(), Behind(c, "far"), ""); !errors.As(err, &e) || e.Code != Usage {
		t.Errorf("got %v", err)
	}
	// The end of a channel that a handler uses for itself is not that of this one.
	gone, end := pair(t, nil, nil)
	end.Close()
	<-gone.Done()
	c, _ = pair(t, nil, func(ctx context.Context, _ *Request) (any, error) { return nil, gone.call(ctx, "x", nil, nil) })
	if err := methodFail.Call(t.Context(), c, ""); errors.Is(err, ErrClosed) || err == nil {
		t.Errorf("got %v", err)
	}
}
