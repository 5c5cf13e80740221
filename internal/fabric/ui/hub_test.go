package ui

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/live"
)

// A counted is a subject that counts how often it is looked at.
type counted struct {
	takes time.Duration

	mu    sync.Mutex // guards what follows
	looks int
	err   error
	began []time.Time
}

func (c *counted) look(context.Context) (m *live.Map, s *live.Sample, err error) {
	c.mu.Lock()
	c.began = append(c.began, time.Now())
	c.mu.Unlock()
	time.Sleep(c.takes)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looks++; c.looks == 1 {
		m = &live.Map{Lab: "l"}
	}
	if c.err != nil {
		return m, nil, c.err
	}
	return m, &live.Sample{At: float64(c.looks)}, nil
}

// count returns how often it was looked at.
func (c *counted) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looks
}

// fail has looks fail from now on, or succeed for nil.
func (c *counted) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// told returns what somebody at a place is sent.
func told(h *hub, p *place) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return all(&h.feed, p)
}

// running has a hub run within a bubble of virtual time.
func running(t *testing.T, c *counted, do func(h *hub)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		h := newHub(c)
		ended := make(chan struct{})
		go func() {
			h.run(ctx)
			close(ended)
		}()
		do(h)
		stop()
		<-ended
	})
}

// A lab is looked at once a second while anybody watches, and not at all while nobody does.
func TestNobodyWatches(t *testing.T) {
	c := &counted{}
	pass := func(d time.Duration) {
		time.Sleep(d)
		synctest.Wait()
	}
	running(t, c, func(h *hub) {
		pass(time.Hour)
		if c.count() != 0 {
			t.Errorf("nobody watches, and the lab is asked %d times", c.count())
		}
		leave := h.watch()
		pass(10*time.Second - time.Millisecond)
		if c.count() != 10 {
			t.Errorf("in 10 s the lab is asked %d times", c.count())
		}
		leaveToo := h.watch()
		pass(10 * time.Second)
		if c.count() != 20 {
			t.Errorf("two watch, and the lab is asked %d times", c.count())
		}
		leave()
		pass(10 * time.Second)
		if c.count() != 30 {
			t.Errorf("one of two watches, and the lab is asked %d times", c.count())
		}
		leaveToo()
		pass(time.Hour)
		if c.count() > 30 {
			t.Errorf("nobody watches any more, and the lab is asked %d times", c.count()-30)
		}
		leave = h.watch()
		pass(time.Millisecond)
		if c.count() != 31 {
			t.Errorf("somebody watches again, and the lab is asked %d times", c.count()-30)
		}
		leave()
	})
}

// A lab that takes long to answer is left in peace for as long.
func TestSlowLab(t *testing.T) {
	c := &counted{takes: 3 * time.Second}
	running(t, c, func(h *hub) {
		defer h.watch()()
		time.Sleep(20 * time.Second)
		synctest.Wait()
	})
	for i := 1; i < len(c.began); i++ {
		if between := c.began[i].Sub(c.began[i-1]); between != 6*time.Second {
			t.Errorf("%v between looks", between)
		}
	}
	if len(c.began) < 3 {
		t.Errorf("%d looks", len(c.began))
	}
}

// The hub tells once that a lab cannot be seen, until it can be seen again.
func TestUnseen(t *testing.T) {
	c := &counted{err: errors.New("no answer")}
	running(t, c, func(h *hub) {
		defer h.watch()()
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		var p place
		if got := told(h, &p); !strings.Contains(got, "the lab cannot be seen: no answer") || strings.Count(got, "no answer") != 1 {
			t.Error(got)
		}
		c.fail(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		c.fail(errors.New("none again"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := told(h, &p); strings.Count(got, "sample:") != 1 || strings.Count(got, "none again") != 1 {
			t.Error(got)
		}
	})
}

// streamed connects to the stream of a hub.
func streamed(t *testing.T, h *hub) *bufio.Scanner {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(h.stream))
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		resp.Body.Close()
		s.Close()
	})
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("Content-Type: %s", kind)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return lines
}

// until reads a stream to the line that has a text, and returns how many samples come by then.
func until(t *testing.T, lines *bufio.Scanner, text string) (samples int) {
	t.Helper()
	for lines.Scan() {
		if lines.Text() == "event: sample" {
			samples++
		}
		if strings.Contains(lines.Text(), text) {
			return samples
		}
	}
	t.Fatalf("no %q, but the end: %v", text, lines.Err())
	return 0
}

// A stream has the map, what is remembered, what comes, and the end.
func TestStream(t *testing.T) {
	h := newHub(nil)
	tell := func(m *live.Map, s *live.Sample) {
		t.Helper()
		if err := h.tell(m, s); err != nil {
			t.Error(err)
		}
	}
	tell(&live.Map{Lab: "a\nb"}, &live.Sample{At: 1})
	h.event(event.Event{Kind: event.Marked, Text: "hello"})
	lines := streamed(t, h)
	var got []string
	for range 9 {
		lines.Scan()
		got = append(got, lines.Text())
	}
	if got[0] != "event: map" || !strings.HasPrefix(got[1], `data: {"lab":"a\nb",`) || got[2] != "" || got[3] != "event: sample" || !strings.HasPrefix(got[4], `data: {"at":1,`) || got[6] != "event: event" || !strings.Contains(got[7], `"text":"hello"`) {
		t.Errorf("%q", got)
	}
	tell(nil, &live.Sample{At: 2})
	until(t, lines, `data: {"at":2,`)
	h.end("it was taken down")
	until(t, lines, `data: {"reason":"it was taken down"}`)
	if lines.Scan(); lines.Scan() {
		t.Errorf("after the end: %q", lines.Text())
	}
}

// A client that does not read takes no memory, and keeps nobody else from reading. When it reads again it gets the newest sample.
func TestSlowClient(t *testing.T) {
	const samples, sampleBytes = 3000, 64 << 10
	h := newHub(nil)
	if err := h.tell(&live.Map{Lab: "l"}, nil); err != nil {
		t.Fatal(err)
	}
	slow, fast := streamed(t, h), streamed(t, h)
	until(t, slow, `"lab":"l"`)
	until(t, fast, `"lab":"l"`)
	large := strings.Repeat("x", sampleBytes)
	for i := range samples {
		if err := h.tell(nil, &live.Sample{At: float64(i), State: large}); err != nil || until(t, fast, fmt.Sprintf(`data: {"at":%d,`, i)) != 1 {
			t.Fatal("a sample is missing")
		}
	}
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	if memory.HeapAlloc > 2*mostBytes {
		t.Errorf("%d MiB are in use, %d MiB were streamed", memory.HeapAlloc>>20, samples*sampleBytes>>20)
	}
	if got := until(t, slow, fmt.Sprintf(`data: {"at":%d,`, samples-1)); got >= mostBytes/sampleBytes {
		t.Errorf("the slow client got %d samples", got)
	}
}

// Figures that are no numbers are an error, and nothing is sent of them.
func TestNoNumber(t *testing.T) {
	h := newHub(nil)
	if err := h.tell(&live.Map{}, &live.Sample{At: math.NaN()}); err == nil || h.feed.last != 0 {
		t.Errorf("%v, %+v", err, h.feed)
	}
}

// Of runs that are over there is everything at once, in their order, for each who looks and however many samples there are.
func TestReplayed(t *testing.T) {
	r := &live.Replay{Map: &live.Map{Lab: "l"}, Events: []event.Event{{Kind: event.Marked, Text: "hello"}}}
	for i := range 2 * mostSamples {
		r.Samples = append(r.Samples, &live.Sample{At: float64(i)})
	}
	h, err := replayed(r, 2)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got := told(h, new(place))
		if !strings.HasPrefix(got, `map:{"lab":"l","seed":0,"runs":2,`) || strings.Count(got, "sample:") != len(r.Samples) || !strings.Contains(got, "hello") {
			t.Errorf("%.100s: %d samples", got, strings.Count(got, "sample:"))
		}
	}
	r.Samples[1].At = math.Inf(1)
	if _, err := replayed(r, 1); err == nil {
		t.Error("it has a figure that is no number")
	}
}
