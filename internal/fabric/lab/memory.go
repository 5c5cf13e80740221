package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/capture"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"golang.org/x/sys/unix"
)

// This file keeps what can be told of a lab when something has gone wrong in it. The command
// keeps it, so that it is there also if the lab has died of what went wrong.

// A Memory has what can be told of a lab: its log, its events, the state of its nodes and
// links, and the last packets that were sent into every link.
type Memory struct {
	lab *Lab
	log *os.File // open, since the file goes with the lab

	opened  chan struct{} // closed when recents are there, or are known not to come
	over    chan struct{} // closed by forget
	turning sync.WaitGroup

	mu      sync.Mutex // guards what follows, and recents' methods
	recents []*capture.Recent
	afar    bool  // the packets are kept at the lab's hosts instead
	failed  error // why there are none
	ended   bool  // nothing is to be remembered any more
}

const (
	// memorySize is the memory for the packets of a lab, bytes; leastMemory and mostMemory
	// bound the part that an end of a link has of it.
	memorySize  = 32 << 20
	leastMemory = 64 << 10
	mostMemory  = 4 << 20
	// rememberedLinks is of how many links packets are remembered.
	rememberedLinks = memorySize / leastMemory / 2
	// turnTime is the time after which old packets make room. At the end of a fast link, half
	// of its memory lasts for longer.
	turnTime = 10 * time.Millisecond
	// rememberTime bounds how long a lab may take to answer about itself: it may be what
	// has failed.
	rememberTime = 5 * time.Second
)

// Remember begins to remember what happens in the lab, and returns before it remembers
// packets, which takes some 20 ms. The Memory ends when the Lab is closed, which has one at
// most.
func (l *Lab) Remember(ctx context.Context) (*Memory, error) {
	file, err := os.Open(l.place.logFile())
	if err != nil {
		return nil, fmt.Errorf("log of lab %s: %w", l.place.name, err)
	}
	m := &Memory{lab: l, log: file, opened: make(chan struct{}), over: make(chan struct{})}
	l.mu.Lock()
	l.memory = m
	l.mu.Unlock()
	m.turning.Go(func() {
		if err := m.open(ctx); err != nil {
			m.mu.Lock()
			m.failed = err
			m.mu.Unlock()
		}
		close(m.opened)
		m.turn()
	})
	return m, nil
}

// Begun is closed when packets are remembered, or are known not to be.
func (m *Memory) Begun() <-chan struct{} { return m.opened }

// A middle is the socket with which the packets that an end sends into a link can be
// remembered.
type middle struct {
	Endpoint string // of the link
	Index    int    // of the interface, in the lab's namespace
}

// open begins to remember packets.
func (m *Memory) open(ctx context.Context) error {
	afar, err := methodMiddles.Call(ctx, m.lab.conn, nil)
	m.mu.Lock()
	m.afar = afar
	m.mu.Unlock()
	return m.lab.whyEnded(err)
}

// take takes some of the sockets that open asks for, and opens them, all at once.
func (m *Memory) take(r *control.Request, params middlesParams) error {
	size := memoryFor(params.Of)
	recents := make([]*capture.Recent, len(r.Files))
	failures := make([]error, len(r.Files))
	var opening sync.WaitGroup
	for i, of := range params.Middles {
		socket := r.Files[i]
		r.Files[i] = nil // it is ours
		opening.Go(func() { recents[i], failures[i] = capture.OpenRecent(socket, of.Index, of.Endpoint, size) })
	}
	opening.Wait()
	recents = slices.DeleteFunc(recents, func(recent *capture.Recent) bool { return recent == nil })
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended { // meanwhile
		closeAll(recents)
		return nil
	}
	m.recents = append(m.recents, recents...)
	return errors.Join(failures...)
}

// memoryFor returns the memory of each of so many ends of links, bytes.
func memoryFor(ends int) int { return min(max(memorySize/ends, leastMemory), mostMemory) }

// closeAll closes recents, all at once, without keeping their packets.
func closeAll(recents []*capture.Recent) {
	var closing sync.WaitGroup
	for _, r := range recents {
		closing.Go(func() { _ = r.Close() })
	}
	closing.Wait()
}

// turn lets old packets make room until forget.
func (m *Memory) turn() {
	tick := time.NewTicker(turnTime)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-m.over:
			return
		}
		m.mu.Lock()
		for _, r := range m.recents {
			r.Turn()
		}
		m.mu.Unlock()
	}
}

// event looks at what happens in the lab: interfaces go with their nodes, and come again.
func (m *Memory) event(e *event.Event) {
	if e.Kind != event.NodeUp {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.recents {
		// Where there is no interface, another node is down.
		_ = r.Bind()
	}
}

// forget ends it.
func (m *Memory) forget() {
	<-m.opened
	close(m.over)
	m.turning.Wait()
	m.log.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	closeAll(m.recents)
	m.recents, m.ended = nil, true
}

// Write writes what there is to files, which file makes. It goes on after errors.
func (m *Memory) Write(ctx context.Context, file func(name string, write func(io.Writer) error) error) error {
	ctx, cancel := context.WithTimeout(ctx, rememberTime)
	defer cancel()
	recent := time.After(capture.RetireTime)
	problems := file("lab.log", func(w io.Writer) error {
		_, err := io.Copy(w, io.NewSectionReader(m.log, 0, 1<<62)) // from its beginning
		return err
	})
	if !isClosed(m.lab.over) { // or there is nobody to ask
		problems = errors.Join(problems, m.ask(ctx, file))
	}
	select {
	case <-recent:
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.failed != nil:
		return errors.Join(problems, m.failed)
	case !m.afar:
	case isClosed(m.lab.over):
		return errors.Join(problems, errors.New("links.pcapng: the lab is over, and with it its hosts' memory of packets"))
	default:
		return errors.Join(problems, m.copyFrom(ctx, "links.pcapng", methodRecall, file))
	}
	return errors.Join(problems, file("links.pcapng", func(w io.Writer) error { return capture.WriteRecent(w, m.recents) }))
}

// ask writes what the lab says of itself.
func (m *Memory) ask(ctx context.Context, file func(name string, write func(io.Writer) error) error) (problems error) {
	add := func(name string, value any, err error) {
		if err == nil {
			err = file(name, func(w io.Writer) error { return report.WriteJSON(w, value) })
		}
		if err != nil {
			problems = errors.Join(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	inspection, err := m.lab.Inspect(ctx)
	add("inspect.json", inspection, err)
	connections, err := m.lab.Nodes.Connections(ctx, "")
	add("connections.json", connections, err)
	events, _, err := m.lab.Events(ctx, time.Time{})
	if err == nil {
		err = file("events.jsonl", func(w io.Writer) error {
			for i := range events {
				if err := report.WriteJSONLine(w, &events[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		problems = errors.Join(problems, fmt.Errorf("events: %w", err))
	}
	return errors.Join(problems, m.copyFrom(ctx, "losses.log", methodLosses, file)) // the last packets that were dropped or spoiled
}

// copyFrom writes a file of what the lab writes when it is asked.
func (m *Memory) copyFrom(ctx context.Context, name string, method control.Procedure[control.None], file func(name string, write func(io.Writer) error) error) error {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	text := os.NewFile(uintptr(fd), name)
	defer text.Close()
	if err := m.lab.whyEnded(method.Call(ctx, m.lab.conn, nil, text)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return file(name, func(w io.Writer) error {
		_, err := io.Copy(w, io.NewSectionReader(text, 0, 1<<62))
		return err
	})
}

// middlesParams go with as many sockets.
type middlesParams struct {
	Middles []middle
	Of      int // of how many the lab has in all
}

// middles sends a command the sockets for its Memory, when it asks for them, or has other hosts keep the packets.
func (a *linkAPI) middles(ctx context.Context, r *control.Request, _ control.None) (afar bool, err error) {
	if afar, err := a.machines.remember(ctx); afar || err != nil {
		return afar, err
	}
	return false, a.sendMiddles(ctx, r)
}

func (a *linkAPI) sendMiddles(ctx context.Context, r *control.Request) error {
	links := a.topology().Links
	links = links[:min(len(links), rememberedLinks)]
	params := middlesParams{Of: 2 * len(links)}
	var sockets []*os.File
	defer func() {
		for _, socket := range sockets {
			socket.Close()
		}
	}()
	send := func() error {
		if len(sockets) == 0 {
			return nil
		}
		err := methodTakeMiddles.Call(ctx, r.Conn, params, sockets...)
		for _, socket := range sockets {
			socket.Close() // or it would go on when the command has closed it
		}
		sockets, params.Middles = nil, nil
		return err
	}
	for _, l := range links {
		for end, e := range l.Endpoints {
			socket, err := capture.RecentSocket()
			if err != nil {
				return err
			}
			sockets = append(sockets, socket)
			params.Middles = append(params.Middles, middle{e.String(), link.MiddleIndex(l.Number, end)})
		}
		if len(sockets)+2 > control.MaxFiles {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return send()
}

// losses has the link engines write to a file of a command. Without an engine, nothing was
// lost.
func (a *linkAPI) losses(ctx context.Context, r *control.Request, _ control.None) error {
	engines, seed := a.machines.engines(), a.topology().Seed
	switch {
	case len(engines) == 0:
		return nil
	case a.isAlone("") == nil:
		return engines[0].Losses(ctx, seed, r.Files[0])
	}
	return mergeLosses(ctx, engines, seed, r.Files[0])
}
