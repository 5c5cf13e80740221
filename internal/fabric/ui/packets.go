package ui

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/trace"
	"github.com/ndklab/ndklab/internal/node/adapter"
)

// This file answers what the page asks about packets, which are captured for as long as it asks.

const (
	someRows = 200 // unless the page says how many it wants
	mostRows = 5000
)

// packets returns the last packets of a link.
func (s *server) packets(w http.ResponseWriter, r *http.Request) {
	n := someRows
	if text := r.URL.Query().Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > mostRows {
			refuse(w, control.Errorf(control.Usage, "n=%s: expected a number from 1 to %d", text, mostRows))
			return
		}
	}
	rows, err := s.watch.Rows(r.Context(), r.PathValue("endpoint"), n)
	if err != nil {
		refuse(w, err)
		return
	}
	if rows == nil {
		rows = []trace.Row{}
	}
	answer(w, struct {
		Rows []trace.Row `json:"rows"`
	}{rows})
}

// sequence returns the PSNs of a queue pair over time.
func (s *server) sequence(w http.ResponseWriter, r *http.Request) {
	qpn, err := strconv.ParseUint(r.PathValue("qpn"), 10, 24)
	if err != nil {
		refuse(w, control.Errorf(control.Usage, "QPN %q: expected a number of 24 bits", r.PathValue("qpn")))
		return
	}
	qp, err := s.queuePair(r.Context(), r.PathValue("node"), uint32(qpn))
	if err != nil {
		refuse(w, err)
		return
	}
	sequence, err := s.watch.Sequence(r.Context(), qp)
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, sequence)
}

// queuePair finds out which interface the packets of a queue pair take. One that is not there, or not any more, may have packets on the node's first link.
func (s *server) queuePair(ctx context.Context, node string, qpn uint32) (trace.QueuePair, error) {
	found, err := s.lab.Nodes.Connections(ctx, node)
	if err != nil {
		return trace.QueuePair{}, err
	}
	i := slices.IndexFunc(found.Connections, func(c adapter.Connection) bool { return c.QPN == qpn && c.Interface != "" })
	if i >= 0 {
		c := &found.Connections[i]
		return trace.QueuePair{Endpoint: node + ":" + c.Interface, QPN: qpn, RemoteQPN: c.RemoteQPN}, nil
	}
	names, err := s.lab.Names(ctx)
	if err != nil {
		return trace.QueuePair{}, err
	}
	for _, endpoint := range names.Interfaces {
		if strings.HasPrefix(endpoint, node+":") {
			return trace.QueuePair{Endpoint: endpoint, QPN: qpn}, nil
		}
	}
	return trace.QueuePair{}, control.Errorf(control.Usage, "node %s has no link", node)
}
