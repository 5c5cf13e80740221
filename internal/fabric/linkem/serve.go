package linkem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/gauge"
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
	conn, err := control.FromFile(channel, l.requests().Serve)
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

// requests answers the supervisor. What is slow it does itself; the rest it has the loop
// do.
func (l *loop) requests() *control.Mux {
	var mux control.Mux
	methodAttach.Handle(&mux, l.serveAttach)
	methodStart.Handle(&mux, l.serveStart)
	methodSet.Handle(&mux, l.serveSet)
	methodIdle.Handle(&mux, l.serveIdle)
	methodRelease.Handle(&mux, l.serveRelease)
	methodDetach.Handle(&mux, l.serveDetach)
	methodMeasure.Handle(&mux, l.serveMeasure)
	methodBegin.Handle(&mux, l.serveBegin)
	methodTap.Handle(&mux, l.serveTap)
	methodRecord.Handle(&mux, l.serveRecord)
	methodRecorded.Handle(&mux, l.serveRecorded)
	methodReplay.Handle(&mux, l.serveReplay)
	methodLosses.Handle(&mux, l.serveLosses)
	methodRelay.Handle(&mux, l.relays.serve)
	methodRelays.Handle(&mux, l.relays.counts)
	return &mux
}

// try has the loop run f.
func (l *loop) try(f func() error) error {
	err := errEnded
	l.do(func() { err = f() })
	return err
}

func (l *loop) serveAttach(_ context.Context, _ *control.Request, a Link) error {
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

func (l *loop) serveSet(_ context.Context, _ *control.Request, s setting) error {
	return l.try(func() error { return l.set(s) })
}

func (l *loop) serveBegin(context.Context, *control.Request, control.None) error {
	return l.eachLink(func(_ string, k *link) error { return k.begin(l.now(), l.recorder != nil || l.log != nil) })
}

func (l *loop) serveStart(_ context.Context, _ *control.Request, name string) error {
	var watches [2]*watch
	err := l.try(func() (err error) {
		watches, err = l.start(name)
		return err
	})
	for _, w := range watches {
		if w != nil {
			w.close()
		}
	}
	return err
}

func (l *loop) serveIdle(ctx context.Context, _ *control.Request, name string) error {
	var idle <-chan struct{}
	err := l.try(func() error {
		k := l.links[name]
		if k == nil {
			return control.Errorf(control.Usage, "the engine has no link %s", name)
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

func (l *loop) serveRelease(ctx context.Context, _ *control.Request, name string) error {
	var idle <-chan struct{}
	var interfaces [2]string
	err := l.try(func() (err error) {
		if idle, err = l.release(name); err == nil {
			k := l.links[name]
			interfaces = [2]string{k.ports[0].name, k.ports[1].name}
		}
		return err
	})
	if err != nil {
		return err
	}
	select {
	case <-idle:
	case <-ctx.Done():
		return ctx.Err()
	}
	var watches [2]*watch // of the other interface
	for i := range watches {
		w, err := openWatch(interfaces[1-i])
		if err != nil {
			if i == 1 {
				watches[0].close()
			}
			return fmt.Errorf("link %s: %w", name, err)
		}
		watches[i] = w
	}
	err = l.try(func() error { return l.released(name, watches) })
	if err != nil {
		watches[0].close()
		watches[1].close()
	}
	return err
}

func (l *loop) serveDetach(_ context.Context, _ *control.Request, name string) (measured [2]gauge.Measured, err error) {
	var ports [2]*port
	err = l.try(func() error {
		k, err := l.detach(name)
		if err != nil {
			return err
		}
		ports = k.ports
		measured, err = k.measure()
		return err
	})
	if err != nil {
		return measured, err
	}
	ports[0].close()
	ports[1].close()
	return measured, nil
}

func (l *loop) serveMeasure(_ context.Context, _ *control.Request, what measuring) (map[string][2]gauge.Measured, error) {
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
