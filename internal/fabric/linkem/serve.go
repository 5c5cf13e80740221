package linkem

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
)

// Main is the engine process: it serves the supervisor at the other end of
// channel, which it closes, until the supervisor closes its end. The links are
// the interfaces of the network namespace it runs in, and so many times slower than their settings say as dilated is, 1 or
// more.
func Main(channel *os.File, dilated int) error {
	// The loop's thread gives up its turn in the Go scheduler when it sleeps and
	// must never wait for it when it wakes: more turns than goroutines that work.
	runtime.GOMAXPROCS(max(4, runtime.NumCPU()))
	if err := prioritise(); err != nil {
		return fmt.Errorf("link engine: %w", err)
	}
	l, err := newLoop(dilation(dilated))
	if err != nil {
		return fmt.Errorf("link engine: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- l.run() }()
	conn, err := control.FromFile(channel, (&service{loop: l}).requests().Serve)
	if err != nil {
		return fmt.Errorf("link engine: %w", err)
	}
	defer conn.Close()
	select {
	case <-conn.Done():
		_ = l.commands.do(func() error { l.closing = true; return nil }) // it may have ended
		err = <-ended
	case err = <-ended:
	}
	if rec := l.ingress.recorder; rec != nil {
		rec.end()
	}
	l.links.close()
	l.trunks.close()
	if err != nil {
		return fmt.Errorf("link engine: %w", err)
	}
	return nil
}

// A service answers the supervisor. Its methods run on goroutines of the connection. They do
// what is slow, and have the loop's thread do the rest.
type service struct {
	*loop
	relays relays

	looking sync.Mutex // held while the links are observed, so that a change has the number of the answer that tells it; it guards what follows
	looks   uint64     // the number of the last such answer
}

func (s *service) requests() *control.Mux {
	var mux control.Mux
	methodAttach.Handle(&mux, s.attach)
	methodStart.Handle(&mux, s.start)
	methodSet.Handle(&mux, s.set)
	methodIdle.Handle(&mux, s.idle)
	methodRelease.Handle(&mux, s.release)
	methodDetach.Handle(&mux, s.detach)
	methodMeasure.Handle(&mux, s.measure)
	methodObserve.Handle(&mux, s.observe)
	methodBegin.Handle(&mux, s.begin)
	methodTap.Handle(&mux, s.tap)
	methodRecord.Handle(&mux, s.record)
	methodRecorded.Handle(&mux, s.recorded)
	methodReplay.Handle(&mux, s.replay)
	methodLosses.Handle(&mux, s.writeLosses)
	methodFabric.Handle(&mux, s.setFabric)
	methodCarry.Handle(&mux, s.carry)
	methodRoutes.Handle(&mux, s.setRoutes)
	methodStorm.Handle(&mux, s.storm)
	methodDeadlock.Handle(&mux, s.deadlock)
	methodBuffers.Handle(&mux, s.buffers)
	methodTrunk.Handle(&mux, s.trunk)
	methodTrunkEnd.Handle(&mux, s.awaitTrunkEnd)
	methodTrunks.Handle(&mux, s.trunkCounts)
	methodRelay.Handle(&mux, s.relays.serve)
	methodRelays.Handle(&mux, s.relays.counts)
	return &mux
}

func (s *service) attach(_ context.Context, _ *control.Request, a Link) error {
	for i, settings := range a.Directions {
		if err := settings.Check(); err != nil {
			return control.Errorf(control.Usage, "link %s, direction %d: %v", a.Name, i, err)
		}
	}
	var ports [2]*port
	for i, name := range a.Interfaces {
		if name == "" {
			continue
		}
		other := ""
		if a.Joined {
			other = a.Interfaces[1-i]
		}
		p, err := openPort(name, other)
		if err != nil {
			if i == 1 && ports[0] != nil {
				ports[0].close()
			}
			return fmt.Errorf("link %s: %w", a.Name, err)
		}
		ports[i] = p
	}
	err := s.commands.do(func() error {
		if err := s.links.attach(a, ports); err != nil || !a.Started {
			return err
		}
		_, err := s.links.start(a.Name) // there are no watches
		if err != nil {
			_, detachErr := s.links.detach(a.Name)
			err = errors.Join(err, detachErr)
		}
		return err
	})
	if err != nil {
		closePorts(ports)
	} else if a.Joined {
		go s.takeWhileJoined(a.Name)
	}
	return err
}

// takeWhileJoined has what arrives at the ports of a link that the kernel forwards taken
// from time to time, until the link is started or detached.
func (s *service) takeWhileJoined(name string) {
	tick := time.NewTicker(takeInterval)
	defer tick.Stop()
	for attached := true; attached; {
		<-tick.C
		err := s.commands.do(func() error { attached = s.links.takeWaiting(name); return nil })
		if err != nil {
			return
		}
	}
}

func (s *service) set(_ context.Context, _ *control.Request, params setParams) error {
	var watches [2]*watch
	err := s.commands.do(func() (err error) {
		watches, err = s.links.set(params)
		return err
	})
	closeWatches(watches)
	return err
}

// closeWatches closes those that there are.
func closeWatches(watches [2]*watch) {
	for _, w := range watches {
		if w != nil {
			w.close()
		}
	}
}

func (s *service) begin(context.Context, *control.Request, control.None) error {
	if err := s.commands.do(func() error {
		if s.fabric != nil {
			s.fabric.begin()
		}
		return nil
	}); err != nil {
		return err
	}
	return s.eachLink(s.links.begin)
}

func (s *service) start(_ context.Context, _ *control.Request, name string) error {
	var watches [2]*watch
	err := s.commands.do(func() (err error) {
		watches, err = s.links.start(name)
		return err
	})
	closeWatches(watches)
	return err
}

func (s *service) idle(ctx context.Context, _ *control.Request, name string) error {
	var idle <-chan struct{}
	err := s.commands.do(func() error {
		k, err := s.links.find(name)
		if err == nil {
			idle = k.whenIdle()
		}
		return err
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

func (s *service) release(ctx context.Context, _ *control.Request, name string) error {
	var idle <-chan struct{}
	var interfaces [2]string
	err := s.commands.do(func() (err error) {
		if idle, err = s.links.release(name); err == nil {
			k := s.links.byName[name]
			interfaces = [2]string{k.ports[0].name, k.ports[1].name}
		}
		return err
	})
	if err != nil || idle == nil {
		return err
	}
	select {
	case <-idle:
	case <-ctx.Done():
		return ctx.Err()
	}
	var watches [2]*watch // of the other interface
	for i := range watches {
		if watches[i], err = openWatch(interfaces[1-i]); err != nil {
			closeWatches(watches)
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	if err = s.commands.do(func() error { return s.links.released(name, watches) }); err != nil {
		closeWatches(watches)
	}
	return err
}

func (s *service) detach(_ context.Context, _ *control.Request, name string) (measured [2]linkstats.Statistics, err error) {
	var ports [2]*port
	err = s.commands.do(func() error {
		k, err := s.links.detach(name)
		if err != nil {
			return err
		}
		ports = k.ports
		measured, err = k.measure(false)
		return err
	})
	if err != nil {
		return measured, err
	}
	closePorts(ports)
	return measured, nil
}

// closePorts closes those that there are.
func closePorts(ports [2]*port) {
	for _, p := range ports {
		if p != nil {
			p.close()
		}
	}
}

func (s *service) measure(_ context.Context, _ *control.Request, params measureParams) (map[string][2]linkstats.Statistics, error) {
	all := map[string][2]linkstats.Statistics{}
	err := s.eachLink(func(k *link) (err error) {
		if tolerance, known := params.Tolerances[k.name]; known {
			for _, n := range k.lines {
				n.stats.Tolerance = tolerance
			}
		}
		all[k.name], err = k.measure(params.Since)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (s *service) setFabric(_ context.Context, _ *control.Request, d Fabric) error {
	return s.commands.do(func() (err error) {
		if s.fabric != nil {
			return control.Errorf(control.Usage, "the engine has its fabric already")
		}
		if s.fabric, err = newFabric(&d, s.loop); err != nil {
			return err
		}
		s.poller.fabric = s.fabric
		return nil
	})
}

func (s *service) carry(_ context.Context, _ *control.Request, params carryParams) error {
	return s.commands.do(func() error { return s.links.carry(params) })
}

func (s *service) setRoutes(_ context.Context, _ *control.Request, params routesParams) error {
	return s.commands.do(func() error { return s.fabric.setRoutes(params) })
}

func (s *service) storm(_ context.Context, _ *control.Request, params stormParams) error {
	return s.commands.do(func() error { return s.fabric.storm(params) })
}

func (s *service) deadlock(ctx context.Context, _ *control.Request, _ control.None) (d bufferstats.Deadlock, err error) {
	var found <-chan bufferstats.Deadlock
	err = s.commands.do(func() error {
		if s.fabric == nil {
			return control.Errorf(control.Usage, "the engine has no fabric")
		}
		found = s.fabric.deadlocks
		return nil
	})
	if err != nil {
		return d, err
	}
	select {
	case d = <-found:
		return d, nil
	case <-ctx.Done():
		return d, ctx.Err()
	}
}

func (s *service) buffers(context.Context, *control.Request, control.None) (r BufferFigures, err error) {
	err = s.commands.do(func() error {
		if s.fabric != nil {
			r = s.fabric.figures()
		}
		return nil
	})
	return r, err
}

// Bounds on the links that are looked at between packets: for changes, which takes the kernel two short calls, and to observe one, which
// takes some microseconds. Either is less than it takes to give the loop's thread something to do.
const (
	checkedAtOnce  = 32
	observedAtOnce = 8
)

func (s *service) observe(_ context.Context, _ *control.Request, params observeParams) (Observed, error) {
	s.looking.Lock()
	defer s.looking.Unlock()
	s.looks++
	answer := Observed{Number: s.looks, Links: map[string][2]linkstats.Statistics{}}
	links, err := s.allLinks()
	if err != nil {
		return Observed{}, err
	}
	var changed []*link
	err = s.inTurns(links, checkedAtOnce, func(k *link) error {
		last, err := k.changed(answer.Number)
		if last > params.Since {
			changed = append(changed, k)
		}
		return err
	})
	if err != nil {
		return Observed{}, err
	}
	err = s.inTurns(changed, observedAtOnce, func(k *link) error {
		answer.Links[k.name] = k.observe(params.Bounds)
		return nil
	})
	if err != nil {
		return Observed{}, err
	}
	return answer, nil
}

// allLinks returns the links that the engine has or has had.
func (s *service) allLinks() (links []*link, err error) {
	err = s.commands.do(func() error {
		links = slices.Collect(maps.Values(s.links.byName))
		return nil
	})
	return links, err
}

// eachLink calls do for each link, one at a time so as not to hold packets up.
func (s *service) eachLink(do func(*link) error) error {
	links, err := s.allLinks()
	if err != nil {
		return err
	}
	return s.inTurns(links, 1, do)
}

// inTurns calls do for links, several between packets.
func (s *service) inTurns(links []*link, several int, do func(*link) error) error {
	for some := range slices.Chunk(links, several) {
		err := s.commands.do(func() error {
			for _, k := range some {
				if err := do(k); err != nil {
					return fmt.Errorf("link %s: %w", k.name, err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
