package web

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A client that does not say what it wants is not waited for for ever.
func TestPatience(t *testing.T) {
	h := Server(http.NotFoundHandler())
	if h.ReadHeaderTimeout <= 0 || h.ReadTimeout <= 0 || h.WriteTimeout <= 0 || h.IdleTimeout <= 0 || h.MaxHeaderBytes <= 0 {
		t.Errorf("%+v", h)
	}
	h.ReadHeaderTimeout = time.Millisecond
	listener, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = h.Serve(listener) }() // until it is closed
	defer h.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /met")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
}

// At the end whoever is being answered is told so, if he listens; who does not is cut off.
func TestFarewell(t *testing.T) {
	for _, c := range []struct {
		farewell time.Duration
		body     string
	}{{time.Minute, "hello, goodbye"}, {time.Nanosecond, "hello, "}} {
		listener, err := Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "hello, ") // the client finds out
			_ = http.NewResponseController(w).Flush()
			<-over
			if c.farewell == time.Nanosecond {
				<-r.Context().Done()
				return
			}
			_, _ = io.WriteString(w, "goodbye")
		})
		result := make(chan error, 1)
		go func() {
			ended, err := Serve(context.Background(), listener, handler, over, c.farewell)
			if !ended {
				t.Error("it has not ended")
			}
			result <- err
		}()
		resp, err := http.Get("http://" + listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		close(over)
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != c.body || (err == nil) != (c.body == "hello, goodbye") {
			t.Errorf("%q, %v", body, err)
		}
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
}
