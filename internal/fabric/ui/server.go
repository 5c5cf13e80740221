package ui

import (
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"path"
	"strconv"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/actions"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/trace/watch"
)

// mostBody bounds the body of a request, in bytes.
const mostBody = 64 << 10

// A server serves the page and what it asks for.
type server struct {
	guard *guard
	files fs.FS  // of the page
	hubs  []*hub // of the lab; or of the reports, in their order
	asked func() // called when the page is asked for, before it is sent; may be nil

	// There is a lab, and what follows, unless reports are shown.
	lab                 *lab.Lab
	actions             *actions.Actions
	watch               *watch.Watch
	terminals, captures slots
	alive               context.Context // ends with the server
}

// handler answers those whom the guard admits.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }) // as for a wrong secret
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /assets/{name...}", s.asset)
	mux.HandleFunc("GET /api/stream", s.stream)
	if s.lab != nil {
		mux.HandleFunc("GET /api/node/{node}", s.node)
		mux.HandleFunc("GET /api/link/{endpoint}", s.link)
		mux.HandleFunc("GET /api/capture/{endpoint}", s.capture)
		mux.HandleFunc("GET /api/packets/{endpoint}", s.packets)
		mux.HandleFunc("GET /api/sequence/{node}/{qpn}", s.sequence)
		mux.HandleFunc("GET /api/terminal/{node}", s.terminal)
		mux.HandleFunc("POST /api/change", s.change)
		mux.HandleFunc("GET /api/undo", s.undo)
		mux.HandleFunc("POST /api/undo", s.undo)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		harden(w.Header())
		below, refused := s.guard.admit(r)
		if refused != 0 {
			w.WriteHeader(refused)
			return
		}
		inside := r.Clone(r.Context())
		inside.Body = http.MaxBytesReader(w, r.Body, mostBody)
		inside.URL.Path, inside.URL.RawPath = "/"+below, ""
		mux.ServeHTTP(w, inside)
	})
}

func (s *server) page(w http.ResponseWriter, r *http.Request) {
	if s.asked != nil {
		s.asked()
	}
	s.file(w, r, "index.html")
}

func (s *server) asset(w http.ResponseWriter, r *http.Request) {
	s.file(w, r, "assets/"+r.PathValue("name"))
}

// kinds are the types of the page's files. Those of the machine's tables may be others.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	".png": "image/png", ".woff2": "font/woff2", ".json": "application/json", ".txt": "text/plain; charset=utf-8",
}

// file sends one of the page's files.
func (s *server) file(w http.ResponseWriter, _ *http.Request, name string) {
	kind := kinds[path.Ext(name)]
	content, err := fs.ReadFile(s.files, name)
	if err != nil || kind == "" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(content) // who has gone needs no answer
}

// stream sends the stream of the lab, or of the report that the query names.
func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	run, err := strconv.Atoi(r.URL.Query().Get("run"))
	if r.URL.Query().Get("run") == "" {
		run, err = 0, nil
	}
	if err != nil || run < 0 || run >= len(s.hubs) {
		refuse(w, control.Errorf(control.Usage, "run=%q, expected 0 to %d", r.URL.Query().Get("run"), len(s.hubs)-1))
		return
	}
	s.hubs[run].stream(w, r)
}

// answer sends a value as JSON.
func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // who has gone needs no answer
}

// refuse says why something is not done, as the command line says it.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch control.CodeOf(err) {
	case control.Usage:
		status = http.StatusBadRequest
	case control.Unable, control.Unmet:
		status = http.StatusConflict
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()}) // who has gone needs no answer
}
