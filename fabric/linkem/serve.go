package linkem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/ndklab/ndklab/control"
	"github.com/ndklab/ndklab/fabric/gauge"
)

// Main is the engine process: it serves the supervisor at the other end of
// channel, which it closes, until the supervisor closes its end. The links are
// the interfaces of the network namespace it runs in.
func Main(channel *os.File) error {
	// The loop's thread gives up its turn in the Go scheduler when it sleeps and
	// must never wait for it when it wakes: more turns than goroutines that work.
	runtime.GOMAXPROCS(max(4, runtime.NumCPU()))
	if err := prioritise(); err != nil {
		return fmt.Errorf("link engine: %w", err)
	}
	l, err := newLoop()
	if err != nil {
		return fmt.Errorf("link engine: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- l.run() }()
	conn, err := control.FromFile(channel, l.serve)
	if err != nil {
		return fmt.Errorf("link engine: %w", err)
	}
	defer conn.Close()
	select {
	case <-conn.Done():
		l.do(func() { l.closing = true })
		err = <-ended
	case err = <-ended:
	}
	if l.recorder != nil {
		l.recorder.end()
	}
	l.closePorts()
	if err != nil {
		return fmt.Errorf("link engine: %w", err)
	}
	return nil
}

var errEnded = errors.New("the engine is ending")

// serve answers the supervisor's requests. What is slow it does itself; the
// rest it has the loop do.
func (l *loop) serve(ctx context.Context, r *control.Request) (any, error) {
	switch r.Method {
	case methodAttach:
		var a Link
		if err := r.Decode(&a); err != nil {
			return nil, err
		}
		return nil, l.serveAttach(a)
	case methodStart:
		return l.serveStart(r)
	case methodSet:
		var s setting
		if err := r.Decode(&s); err != nil {
			return nil, err
		}
		return nil, l.try(func() error { return l.set(s) })
	case methodIdle:
		return nil, l.serveIdle(ctx, r)
	case methodRelease:
		return l.serveRelease(ctx, r)
	case methodDetach:
		return l.serveDetach(r)
	case methodMeasure:
		return l.serveMeasure(r)
	case methodBegin:
		return nil, l.eachLink(func(_ string, k *link) error { return k.begin(l.now(), l.recorder != nil || l.log != nil) })
	case methodTap:
		return nil, l.serveTap(ctx, r)
	case methodRecord:
		return nil, l.serveRecord(r)
	case methodRecorded:
		return l.serveRecorded()
	case methodReplay:
		return l.serveReplay(r)
	case methodLosses:
		return nil, l.serveLosses(r)
	case methodRelay:
		return nil, l.relays.serve(r)
	case methodRelays:
		return l.relays.counts()
	}
	return nil, control.Errorf(control.Usage, "unknown request %q", r.Method)
}

// try has the loop run f.
func (l *loop) try(f func() error) error {
	err := errEnded
	l.do(func() { err = f() })
	return err
}

func (l *loop) serveAttach(a Link) error {
	for i, s := range a.Directions {
		if err := s.Check(); err != nil {
			return control.Errorf(control.Usage, "link %s, direction %d: %v", a.Name, i, err)
		}
	}
	var ports [2]*port
	for i, name := range a.Interfaces {
		other := ""
		if a.Joined {
			other = a.Interfaces[1-i]
		}
		p, err := openPort(name, other)
		if err != nil {
			if i == 1 {
				ports[0].close()
			}
			return fmt.Errorf("link %s: %w", a.Name, err)
		}
		ports[i] = p
	}
	err := l.try(func() error {
		if err := l.attach(a, ports); err != nil || !a.Started {
			return err
		}
		_, err := l.start(a.Name) // there are no watches
		if err != nil {
			_, detachErr := l.detach(a.Name)
			err = errors.Join(err, detachErr)
		}
		return err
	})
	if err != nil {
		ports[0].close()
		ports[1].close()
	} else if a.Joined {
		go l.keepUp(a.Name)
	}
	return err
}

// keepUp has the loop make room at the ports of a link that the kernel forwards, until
// it is started or detached.
func (l *loop) keepUp(name string) {
	tick := time.NewTicker(keepUpEvery)
	defer tick.Stop()
	for attached := true; attached; {
		<-tick.C
		if !l.do(func() { attached = l.makeRoom(l.links[name]) }) {
			return
		}
	}
}

func (l *loop) serveStart(r *control.Request) (any, error) {
	var t target
	if err := r.Decode(&t); err != nil {
		return nil, err
	}
	var watches [2]*watch
	err := l.try(func() (err error) {
		watches, err = l.start(t.Link)
		return err
	})
	for _, w := range watches {
		if w != nil {
			w.close()
		}
	}
	return nil, err
}

func (l *loop) serveIdle(ctx context.Context, r *control.Request) error {
	var t target
	if err := r.Decode(&t); err != nil {
		return err
	}
	var idle <-chan struct{}
	err := l.try(func() error {
		k := l.links[t.Link]
		if k == nil {
			return control.Errorf(control.Usage, "the engine has no link %s", t.Link)
		}
		idle = k.wait()
		return nil
	})
	if err != nil {
		return err
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *loop) serveRelease(ctx context.Context, r *control.Request) (any, error) {
	var t target
	if err := r.Decode(&t); err != nil {
		return nil, err
	}
	var idle <-chan struct{}
	var interfaces [2]string
	err := l.try(func() (err error) {
		if idle, err = l.release(t.Link); err == nil {
			k := l.links[t.Link]
			interfaces = [2]string{k.ports[0].name, k.ports[1].name}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-idle:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var watches [2]*watch // of the other interface
	for i := range watches {
		w, err := openWatch(interfaces[1-i])
		if err != nil {
			if i == 1 {
				watches[0].close()
			}
			return nil, fmt.Errorf("link %s: %w", t.Link, err)
		}
		watches[i] = w
	}
	err = l.try(func() error { return l.released(t.Link, watches) })
	if err != nil {
		watches[0].close()
		watches[1].close()
	}
	return nil, err
}

func (l *loop) serveDetach(r *control.Request) (any, error) {
	var t target
	if err := r.Decode(&t); err != nil {
		return nil, err
	}
	var measured [2]gauge.Measured
	var ports [2]*port
	err := l.try(func() error {
		k, err := l.detach(t.Link)
		if err != nil {
			return err
		}
		ports = k.ports
		measured, err = k.measure()
		return err
	})
	if err != nil {
		return nil, err
	}
	ports[0].close()
	ports[1].close()
	return measured, nil
}

func (l *loop) serveMeasure(r *control.Request) (map[string][2]gauge.Measured, error) {
	var what measuring
	if err := r.Decode(&what); err != nil {
		return nil, err
	}
	all := map[string][2]gauge.Measured{}
	measure := (*link).measure
	if what.Since {
		measure = (*link).measureSince
	}
	err := l.eachLink(func(name string, k *link) (err error) {
		if t, known := what.Tolerances[name]; known {
			for _, n := range k.lines {
				n.gauge.Tolerance = t
			}
		}
		all[name], err = measure(k)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// eachLink does something to each link, one at a time so as not to hold packets up.
func (l *loop) eachLink(do func(name string, k *link) error) error {
	var names []string
	if err := l.try(func() error {
		for name := range l.links {
			names = append(names, name)
		}
		return nil
	}); err != nil {
		return err
	}
	for _, name := range names {
		if err := l.try(func() error { return do(name, l.links[name]) }); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return nil
}
