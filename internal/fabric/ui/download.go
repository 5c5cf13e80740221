package ui

import (
	"context"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/web"
	"github.com/ndklab/ndklab/topology"
)

// mostCaptures bounds the captures that go on at once: each takes some 32 MiB (capture.chunkCount).
const mostCaptures = 8

// A download passes a capture on to a client, beginning with the headers.
type download struct {
	w     http.ResponseWriter
	name  string // of the file
	begun bool
}

// Write sends whole blocks at once, so that who reads sees packets as they come.
func (d *download) Write(b []byte) (int, error) {
	if !d.begun {
		d.w.Header().Set("Content-Type", "application/x-pcapng")
		d.w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": d.name}))
		d.begun = true
	}
	out := http.NewResponseController(d.w)
	if err := out.SetWriteDeadline(time.Now().Add(web.WriteTime)); err != nil {
		return 0, err
	}
	n, err := d.w.Write(b)
	if err == nil {
		err = out.Flush()
	}
	return n, err
}

// capture records an interface as pcapng for as long as the client reads, or for the seconds that it asks for.
func (s *server) capture(w http.ResponseWriter, r *http.Request) {
	nodeName, iface, ok := strings.Cut(r.PathValue("endpoint"), ":")
	if !ok {
		refuse(w, control.Errorf(control.Usage, "%q is no interface, expected NODE:IFACE", r.PathValue("endpoint")))
		return
	}
	ctx := r.Context()
	if text := r.URL.Query().Get("seconds"); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || !(seconds > 0 && seconds <= 1e6) {
			refuse(w, control.Errorf(control.Usage, "seconds=%s: expected a number above 0", text))
			return
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second)))
		defer cancel()
	}
	if !s.captures.take() {
		refuse(w, control.Errorf(control.Unable, "%d captures go on already, expected one to end first", mostCaptures))
		return
	}
	defer s.captures.free()
	patient(w)
	name := s.lab.Info().Lab
	l, err := lab.Open(ctx, name) // for itself: it watches other events
	if err != nil {
		refuse(w, err)
		return
	}
	defer l.Close()
	marks := lab.NewMarks()
	err = l.Marks(ctx, marks)
	d := &download{w: w, name: name + "-" + nodeName + "-" + iface + ".pcapng"}
	if err == nil {
		_, err = l.Record(ctx, lab.Recording{
			Capture: topology.Capture{Interfaces: []topology.Endpoint{{Node: nodeName, Interface: iface}}},
			Stream:  d, Marks: marks,
		})
	}
	if err != nil && !d.begun {
		refuse(w, err)
	}
}

// Slots are places of which there are so many.
type slots chan struct{}

// take takes a place, and reports whether there was one.
func (s slots) take() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) free() { <-s }
