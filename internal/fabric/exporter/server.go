package exporter

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/web"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// gatherTime bounds the time that a lab may take to answer: Prometheus gives a scrape up after 10 s.
const gatherTime = 9 * time.Second

// A server serves the metrics of a lab. It asks the lab when it is asked, and remembers nothing.
type server struct {
	lab    string
	gather func(context.Context) ([]*dto.MetricFamily, error)
	turn   chan struct{} // held by the scrape that asks the lab: others wait
}

func newServer(lab string, gather func(context.Context) ([]*dto.MetricFamily, error)) *server {
	return &server{lab: lab, gather: gather, turn: make(chan struct{}, 1)}
}

// serve serves at an address, which it writes as a URL when it has begun, until ctx ends or the lab, which
// closes over, has ended; ended says that this was it. It waits for no client.
func (s *server) serve(ctx context.Context, address string, out io.Writer, over <-chan struct{}) (ended bool, err error) {
	listener, err := web.Listen(address)
	if err != nil {
		return false, err
	}
	if _, err := fmt.Fprintf(out, "http://%s/metrics\n", listener.Addr()); err != nil {
		listener.Close()
		return false, fmt.Errorf("the output cannot be written: %w", err)
	}
	return web.Serve(ctx, listener, s.handler(), over, 0)
}

// handler answers GET and HEAD of /metrics and of /.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("GET /{$}", s.page)
	return mux
}

// page says to people where the metrics are.
func (s *server) page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	name := html.EscapeString(s.lab)
	fmt.Fprintf(w, "<!doctype html><html lang=\"en\"><title>ndklab: lab %s</title><p>Metrics of lab %s, for Prometheus: <a href=\"/metrics\">/metrics</a></p></html>\n", name, name)
}

// metrics answers a scrape.
func (s *server) metrics(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodHead { // the lab is not asked for what nobody reads
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), gatherTime)
	defer cancel()
	families, err := s.inTurn(ctx)
	if err != nil {
		http.Error(w, fmt.Sprintf("lab %s: %v", s.lab, err), http.StatusServiceUnavailable)
		return
	}
	promhttp.HandlerFor(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, nil }), promhttp.HandlerOpts{
		EnableOpenMetrics: true,
		// On one machine compressing takes longer than what is saved, and it would take most of a scrape.
		DisableCompression: true,
	}).ServeHTTP(w, r)
}

// inTurn gathers metrics once no other scrape does.
func (s *server) inTurn(ctx context.Context) ([]*dto.MetricFamily, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
		return s.gather(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
