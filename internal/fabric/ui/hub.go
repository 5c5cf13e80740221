package ui

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/live"
)

// interval is the time from one sample to the next.
const interval = time.Second

// A subject is a lab that is watched, or a stand-in for one.
type subject interface {
	// look returns what the lab has done since it was looked at before, and a map if there is a new one. Of what there is not, it is nil,
	// also beside an error.
	look(ctx context.Context) (*live.Map, *live.Sample, error)
}

// A hub has a lab looked at for as long as anybody watches, and tells all who do. Each who watches reads the feed at his own pace:
// nothing is kept for one of them, so that one who does not read takes no memory.
type hub struct {
	subject subject // nil: a run that is over, whose feed is complete

	mu       sync.Mutex // guards what follows
	feed     feed
	watchers int
	watched  chan struct{} // closed when there is somebody who watches
	news     chan struct{} // closed when the feed has more
}

func newHub(s subject) *hub {
	return &hub{subject: s, watched: make(chan struct{}), news: make(chan struct{})}
}

// run has the lab looked at until ctx ends. After it has taken long, it is left in peace for as long.
func (h *hub) run(ctx context.Context) {
	failed := false
	for h.awaitWatcher(ctx) {
		began := time.Now()
		m, s, err := h.subject.look(ctx)
		if ctx.Err() != nil {
			return
		}
		if err = errors.Join(err, h.tell(m, s)); err != nil && !failed {
			h.warn(err)
		}
		failed = err != nil
		took := time.Since(began)
		pause := time.NewTimer(max(interval-took, took))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// awaitWatcher waits until somebody watches. It reports whether ctx goes on.
func (h *hub) awaitWatcher(ctx context.Context) bool {
	h.mu.Lock()
	watched := h.watched
	h.mu.Unlock()
	select {
	case <-watched:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// watch says that somebody watches, until he calls leave.
func (h *hub) watch() (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers++; h.watchers == 1 {
		close(h.watched)
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.watchers--; h.watchers == 0 {
			h.watched = make(chan struct{})
		}
	}
}

// next returns what somebody at a place is to be sent. If there is nothing, news is closed when there is.
func (h *hub) next(p *place) (m message, news <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.feed.next(p)
	if ok {
		return m, nil
	}
	return m, h.news
}

// change has do change the feed, and tells all who watch.
func (h *hub) change(do func(f *feed)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do(&h.feed)
	close(h.news)
	h.news = make(chan struct{})
}

// tell tells of a map and a sample; of what is nil there is nothing new. It fails for figures that are no numbers.
func (h *hub) tell(m *live.Map, s *live.Sample) error {
	mapping, err := json.Marshal(m)
	if err != nil {
		return err
	}
	sample, err := json.Marshal(s)
	if err != nil {
		return err
	}
	h.change(func(f *feed) {
		if m != nil {
			f.setMap(mapping)
		}
		if s != nil {
			f.addSample(sample)
		}
	})
	return nil
}

// event tells of something that happened in the lab.
func (h *hub) event(e event.Event) { h.change(func(f *feed) { f.addEvent(encode(e)) }) }

// warn tells that the lab was not seen.
func (h *hub) warn(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	h.event(event.Event{Time: time.Now(), Kind: event.Warning, Text: "the lab cannot be seen: " + err.Error()})
}

// end tells that there is no more to come.
func (h *hub) end(reason string) {
	h.change(func(f *feed) { f.end(encode(map[string]string{"reason": reason})) })
}

// encode returns what a value of texts and whole numbers is in JSON, which can express all of them.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
