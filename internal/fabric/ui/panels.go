package ui

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/actions"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/live"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node/adapter"
)

// This file answers what the page asks about one thing, and does what it asks for.

// logLines is the number of the last lines of a node's log that are shown.
const logLines = 200

// patient has a request be answered however long that takes, until its client goes.
func patient(w http.ResponseWriter) {
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // it fails for a connection that is gone, of which the context tells
	_ = out.SetWriteDeadline(time.Time{})
}

// A nodePanel describes a node.
type nodePanel struct {
	Node        *report.Node         `json:"node"`
	Adapter     *adapter.State       `json:"adapter"` // null: it has none, or is not up
	Connections []adapter.Connection `json:"connections"`
	Log         []string             `json:"log"` // the last lines
}

func (s *server) node(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("node")
	p := nodePanel{Connections: []adapter.Connection{}, Log: []string{}}
	var err error
	if p.Node, err = s.lab.Node(r.Context(), name); err != nil {
		refuse(w, err)
		return
	}
	if p.Node.Counters != nil { // a host that answers; it may be down by now
		if adapters, err := s.lab.Nodes.Adapters(r.Context(), name); err == nil && len(adapters) == 1 {
			p.Adapter = adapters[0].Adapter
		}
		if found, err := s.lab.Nodes.Connections(r.Context(), name); err == nil && found.Connections != nil {
			p.Connections = found.Connections
		}
	}
	err = lab.Logs(r.Context(), s.lab.Info().Lab, lab.LogOptions{Nodes: []string{name}, Tail: logLines}, func(line []byte) error {
		p.Log = append(p.Log, string(line))
		return nil
	})
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, p)
}

func (s *server) link(w http.ResponseWriter, r *http.Request) {
	links, err := s.lab.Links.Inspect(r.Context(), r.PathValue("endpoint"))
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, links[0])
}

// change does a live.Change, or says with ?dry=1 what that would be.
func (s *server) change(w http.ResponseWriter, r *http.Request) {
	var c live.Change
	if err := read(r, &c); err != nil {
		refuse(w, err)
		return
	}
	s.act(w, func() (*actions.Done, error) { return s.actions.Do(r.Context(), &c, r.URL.Query().Get("dry") == "1") })
}

// undo undoes the last change, or says to GET what that would be.
func (s *server) undo(w http.ResponseWriter, r *http.Request) {
	s.act(w, func() (*actions.Done, error) { return s.actions.Undo(r.Context(), r.Method != http.MethodPost) })
}

// act answers with what do has done.
func (s *server) act(w http.ResponseWriter, do func() (*actions.Done, error)) {
	patient(w)
	d, err := do()
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, d)
}

// read reads the body of a request, one value in JSON. Pages of others cannot send JSON without asking first (Fetch, CORS-safelisted request-header).
func read(r *http.Request, v any) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return control.Errorf(control.Usage, "Content-Type %q: expected application/json", r.Header.Get("Content-Type"))
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			return control.Errorf(control.Usage, "the request has more than %d bytes", tooLarge.Limit)
		}
		return control.Errorf(control.Usage, "the request: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return control.Errorf(control.Usage, "the request: expected one value")
	}
	return nil
}
