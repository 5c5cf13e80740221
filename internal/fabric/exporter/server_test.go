package exporter

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/metrics"
	"github.com/ndklab/ndklab/internal/fabric/report"
	dto "github.com/prometheus/client_model/go"
)

// families are those of a lab without nodes.
func families(context.Context) ([]*dto.MetricFamily, error) {
	return metrics.Families(&report.Observation{Lab: "l", State: "ready"}, time.Second), nil
}

// The server answers GET and HEAD of two paths, in the format that the client wants.
func TestHandler(t *testing.T) {
	asked := 0
	s := newServer(`<script>"`, func(ctx context.Context) ([]*dto.MetricFamily, error) {
		asked++
		return families(ctx)
	})
	const sample = "ndklab_lab_ready{lab=\"l\"} 1"
	for _, c := range []struct {
		method, path, accept string
		status, asked        int
		kind                 string   // of the content
		body                 []string // is in it
		not                  string   // is not
	}{
		{"GET", "/metrics", "", 200, 1, "text/plain; version=0.0.4", []string{sample + "\n"}, "# EOF"},
		{"GET", "/metrics", "application/openmetrics-text; version=1.0.0", 200, 1, "application/openmetrics-text; version=1.0.0", []string{sample + ".0\n", "\n# EOF\n"}, "_created"},
		{"HEAD", "/metrics", "", 200, 0, "text/plain", nil, "ndklab"},
		{"GET", "/", "", 200, 0, "text/html", []string{"lab &lt;script&gt;&#34;", `href="/metrics"`}, "<script"},
		{"HEAD", "/", "", 200, 0, "text/html", nil, ""},
		{"POST", "/metrics", "", 405, 0, "text/plain", nil, "ndklab"},
		{"DELETE", "/", "", 405, 0, "text/plain", nil, "ndklab"},
		{"GET", "/metrics/", "", 404, 0, "text/plain", nil, "ndklab"},
		{"GET", "/debug/pprof/", "", 404, 0, "text/plain", nil, "ndklab"},
	} {
		asked = 0
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Header.Set("Accept", c.accept)
		r.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, r)
		body, kind := w.Body.String(), w.Header().Get("Content-Type")
		if w.Code != c.status || asked != c.asked || !strings.HasPrefix(kind, c.kind) || w.Header().Get("Content-Encoding") != "" || c.not != "" && strings.Contains(body, c.not) {
			t.Errorf("%s %s: status %d, %s, the lab was asked %d times\n%s", c.method, c.path, w.Code, kind, asked, body)
		}
		for _, want := range c.body {
			if !strings.Contains(body, want) {
				t.Errorf("%s %s: there is no %q in\n%s", c.method, c.path, want, body)
			}
		}
	}
}

// A lab that does not answer is a scrape that fails, and says why.
func TestNoAnswer(t *testing.T) {
	s := newServer("l", func(ctx context.Context) ([]*dto.MetricFamily, error) {
		if limit, ok := ctx.Deadline(); !ok || time.Until(limit) > gatherTime {
			t.Error("the lab may take for ever")
		}
		return nil, errors.New("it has no time")
	})
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusServiceUnavailable || w.Body.String() != "lab l: it has no time\n" {
		t.Errorf("status %d, %q", w.Code, w.Body)
	}
}

// Scrapes take turns, and one whose client has gone gives its turn up.
func TestTurns(t *testing.T) {
	within, goOn := make(chan bool), make(chan bool)
	s := newServer("l", func(ctx context.Context) ([]*dto.MetricFamily, error) {
		within <- true
		<-goOn
		return families(ctx)
	})
	first, second := make(chan int), make(chan int)
	scrape := func(ctx context.Context, status chan int) {
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil).WithContext(ctx))
		status <- w.Code
	}
	go scrape(t.Context(), first)
	<-within
	gone, leave := context.WithCancel(t.Context())
	go scrape(gone, second)
	leave()
	if status := <-second; status != http.StatusServiceUnavailable {
		t.Errorf("status %d", status)
	}
	go scrape(t.Context(), second)
	goOn <- true
	if status := <-first; status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	<-within
	goOn <- true
	if status := <-second; status != http.StatusOK {
		t.Errorf("status %d", status)
	}
}

// A running is a server that serves.
type running struct {
	url    string
	stop   context.CancelFunc
	over   chan struct{}
	result chan error // nil: the lab has ended
}

// errStopped stands for the end of the context.
var errStopped = errors.New("stopped")

func serve(t *testing.T, s *server) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{stop: stop, over: make(chan struct{}), result: make(chan error, 1)}
	said, out := io.Pipe()
	go func() {
		ended, err := s.serve(ctx, "127.0.0.1:0", out, r.over)
		if err == nil && !ended {
			err = errStopped
		}
		r.result <- err
	}()
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	r.url = strings.TrimSuffix(line, "\n")
	return r
}

// It says where it serves, and ends with its context or with the lab, also while a scrape is under way.
func TestServe(t *testing.T) {
	r := serve(t, newServer("l", families))
	resp, err := http.Get(r.url)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "ndklab_lab_info") {
		t.Errorf("%v, status %d\n%s", err, resp.StatusCode, body)
	}
	address := strings.TrimSuffix(strings.TrimPrefix(r.url, "http://"), "/metrics")
	if _, err := newServer("l", families).serve(t.Context(), address, io.Discard, nil); control.CodeOf(err) != control.Unable ||
		!strings.Contains(err.Error(), "--listen "+address+": ") || !strings.Contains(err.Error(), "address already in use; expected an address of this machine and a port that is free") {
		t.Errorf("the address is taken: %v", err)
	}
	close(r.over)
	if err := <-r.result; err != nil {
		t.Error(err)
	}

	within := make(chan bool)
	r = serve(t, newServer("l", func(ctx context.Context) ([]*dto.MetricFamily, error) {
		within <- true
		<-ctx.Done() // the end of the connection
		return nil, ctx.Err()
	}))
	failed := make(chan error)
	go func() {
		_, err := http.Get(r.url)
		failed <- err
	}()
	<-within
	r.stop()
	if err := <-r.result; err != errStopped {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("there is an answer")
	}
}
