package ui

import (
	"fmt"
	"net/http"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/web"
)

// quiet is the longest time that a stream says nothing: then a comment shows whether the other end is still there.
const quiet = 15 * time.Second

// stream sends what there is to be seen as server-sent events, until the client goes or there is no more. A client that takes nothing for the time of a write
// is cut off: its browser connects again once it reads.
func (h *hub) stream(w http.ResponseWriter, r *http.Request) {
	leave := h.watch()
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	if err := out.SetReadDeadline(time.Time{}); err != nil { // nothing more is to be read
		return
	}
	send := func(format string, a ...any) bool {
		if err := out.SetWriteDeadline(time.Now().Add(web.WriteTime)); err != nil {
			return false
		}
		if _, err := fmt.Fprintf(w, format, a...); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	still := time.NewTicker(quiet)
	defer still.Stop()
	var p place
	for {
		m, news := h.next(&p)
		if news == nil {
			if !send("event: %s\ndata: %s\n\n", m.kind, m.data) || m.kind == "ended" {
				return
			}
			continue
		}
		select {
		case <-news:
		case <-still.C:
			if !send(":\n\n") {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
