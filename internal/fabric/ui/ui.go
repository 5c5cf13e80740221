// Package ui serves a page that shows what a lab does, and does to the lab what commands do. Package live has what is
// seen, package page the page itself.
//
// Start reading at Show; guard.go says who is answered, feed.go and hub.go how what is seen comes to many who watch.
package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/actions"
	"github.com/ndklab/ndklab/internal/fabric/capture"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/live"
	"github.com/ndklab/ndklab/internal/fabric/monitor"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/trace/watch"
	"github.com/ndklab/ndklab/internal/fabric/ui/page"
	"github.com/ndklab/ndklab/internal/fabric/web"
)

// farewell is the time that pages have to hear of the end.
const farewell = time.Second

// Show serves the page of a lab until that or ctx ends, or of reports until ctx ends.
func Show(ctx context.Context, params monitor.UI) error {
	if params.Reports != nil {
		return showRuns(ctx, params)
	}
	return showLab(ctx, params)
}

// showRuns shows runs that are over.
func showRuns(ctx context.Context, params monitor.UI) error {
	s := &server{files: page.Files()}
	for _, file := range params.Reports {
		run, err := report.ReadRunFile(file)
		if err != nil {
			return err
		}
		h, err := replayed(live.ReplayOf(run), len(params.Reports))
		if err != nil {
			return control.Errorf(control.Usage, "%s: %v", file, err)
		}
		defer context.AfterFunc(ctx, func() { h.end(uiEnded) })()
		s.hubs = append(s.hubs, h)
	}
	_, err := s.serve(ctx, params, nil, os.Stdout, os.Stderr)
	return err
}

// uiEnded is the reason of the end of a page whose lab goes on.
const uiEnded = "`ndklab ui` has ended"

// replayed returns a hub that has all of a replay at once, one of several.
func replayed(r *live.Replay, runs int) (*hub, error) {
	h := newHub(nil)
	h.feed.whole = true
	r.Map.Runs = runs
	err := h.tell(r.Map, nil)
	for i := range r.Events {
		h.event(r.Events[i])
	}
	for _, sample := range r.Samples {
		err = errors.Join(err, h.tell(nil, sample))
	}
	return h, err
}

// showLab shows a lab that goes on.
func showLab(ctx context.Context, params monitor.UI) error {
	l, err := lab.Open(ctx, params.Lab)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := capture.StandBack(); err != nil { // the lab comes first
		return err
	}
	looking, stop := context.WithCancel(ctx)
	defer stop()
	watched := newLabSubject(l)
	h := newHub(watched)
	if err := h.follow(looking, watched); err != nil {
		return err
	}
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { h.run(looking) })
	over := make(chan struct{})
	work.Go(func() {
		select {
		case <-l.Done():
			h.end(l.End().Error())
			close(over)
		case <-looking.Done():
			h.end(uiEnded)
		}
	})
	packets := watch.New(l, time.Now().Add(-time.Duration(l.Info().Up*float64(time.Second))))
	defer packets.Close()
	s := &server{
		files: page.Files(), hubs: []*hub{h},
		lab: l, actions: actions.New(looking, l), watch: packets, terminals: make(slots, mostTerminals), captures: make(slots, mostCaptures), alive: looking,
	}
	ended, err := s.serve(ctx, params, over, os.Stdout, os.Stderr)
	stop()
	if err != nil || !ended {
		return err
	}
	return l.End()
}

// serve serves at the address, of which it says the URL, until ctx ends or what is shown, which closes over.
func (s *server) serve(ctx context.Context, params monitor.UI, over <-chan struct{}, stdout, stderr io.Writer) (ended bool, err error) {
	listener, err := web.Listen(params.Listen)
	if err != nil {
		return false, err
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String()) // an address of TCP has a port
	s.guard = newGuard(newSecret(), params.Listen, port)
	if !s.guard.local() {
		fmt.Fprintf(stderr, "warning: --listen %s: other machines reach it, and whoever has the URL rules the lab and runs commands in its nodes as this user; nothing is encrypted on the way\n", params.Listen)
	}
	if _, err := fmt.Fprintln(stdout, s.guard.url()); err != nil {
		listener.Close()
		return false, fmt.Errorf("the output cannot be written: %w", err)
	}
	lead := ""
	if params.Open && hasDesktop(os.Getenv) {
		folder, led, err := browse(s.guard.url(), stderr)
		if err != nil {
			fmt.Fprintf(stderr, "no browser was opened (%v): the URL is above\n", err)
		} else {
			lead, s.asked = folder, led
			defer led()
		}
	}
	if err := confineServer(lead); err != nil {
		listener.Close()
		return false, err
	}
	return web.Serve(ctx, listener, s.handler(), over, farewell)
}

// follow passes the events of a lab on: those of the time that is remembered, and those to come.
func (h *hub) follow(ctx context.Context, s *labSubject) error {
	kept, next, err := s.lab.Events(ctx, time.Now().Add(-mostSamples*interval))
	if err != nil {
		return err
	}
	for i := range kept {
		h.event(kept[i])
	}
	return s.lab.WatchFrom(ctx, next, func(e event.Event) {
		if e.Kind == event.LabChanged {
			s.outdate()
		}
		h.event(e)
	})
}
