package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// A carrier makes impairments happen to the packets of links. A link that has no
// carrier is plain: the kernel hands packets from one middle to the other, and
// join and part begin and end that.
//
// A carrier's methods that are given a link are called with the right to change
// it (labLink.lock), and change its field joined alone, by join and part. A link
// may be off meanwhile: then it is not joined, nor joined by them.
type carrier interface {
	// name is how topologies and reports call it.
	name() string
	// attach takes a link over, to do to its packets what l.asked says, which the
	// engine can do (topology.Engine). The kernel may have joined it.
	attach(ctx context.Context, l *labLink) error
	// set changes what is done in one direction.
	set(ctx context.Context, l *labLink, direction int, to topology.Impairment) error
	// idle waits until no packet is on its way on a link that is not impaired. The
	// right to change the link is not needed.
	idle(ctx context.Context, l *labLink) error
	// detach ends what attach began: packets on their way arrive, and the kernel has
	// joined the link again, unless it is off. If that takes too long, the error is
	// context.DeadlineExceeded and the carrier has the link as before.
	detach(ctx context.Context, l *labLink) error
	// abandon ends what attach began at once, on a link of which an end is about to
	// vanish or has. Packets on their way are lost.
	abandon(ctx context.Context, l *labLink) error
	// needsJoin says whether the kernel is to hand packets on also while the carrier
	// has the link.
	needsJoin() bool
	// measure says what happened on every link that the carrier has or has had, by
	// its name, or since it last began anew. It does not count what the link's fields
	// carried and base do.
	measure(ctx context.Context, since bool) (map[string][2]report.Direction, error)
}

// carriers are all there are.
func (s *Supervisor) carriers() []carrier { return []carrier{linkemCarrier{s}, netemCarrier{}} }

// carrierFor is the carrier for a link whenever that is impaired.
func (s *Supervisor) carrierFor(l *labLink) carrier {
	if l.spec.Engine == topology.Netem {
		return netemCarrier{}
	}
	return linkemCarrier{s}
}

// impair has the link's carrier take it over.
func (s *Supervisor) impair(ctx context.Context, l *labLink) error {
	c := s.carrierFor(l)
	if err := c.attach(ctx, l); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.carrier = c
	return nil
}

// relieve has the link's carrier give it back.
func (s *Supervisor) relieve(ctx context.Context, l *labLink) error {
	if err := l.carrier.detach(ctx, l); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.carrier = nil
	return nil
}

// relieveLater has the carrier of a link that is not impaired any more give it back
// when no packet is on its way. That may take as long as the longest delay or queue
// that it had, and the link can be changed meanwhile: if it is impaired again by
// then, it stays with its carrier. The caller has the right to change the link.
func (s *Supervisor) relieveLater(l *labLink) {
	c, ended := l.carrier, make(chan struct{})
	l.mu.Lock()
	l.relieving = ended
	l.mu.Unlock()
	go func() {
		defer close(ended)
		ctx := context.Background() // the engine's end ends it
		err := context.DeadlineExceeded
		for errors.Is(err, context.DeadlineExceeded) {
			if c.idle(ctx, l) != nil {
				return // the engine has ended, of which others tell
			}
			err = s.relieveIdle(ctx, l)
		}
		if err != nil && s.checkEnds(l) == nil {
			s.Publish(Event{Kind: Warning, Link: l.name(), Text: fmt.Sprintf("link %s stays with %s: %v", l.name(), c.name(), err)})
		}
	}()
}

// relieveIdle has the link's carrier give it back, unless something else is asked of
// the link by now.
func (s *Supervisor) relieveIdle(ctx context.Context, l *labLink) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	if l.carrier == nil || l.impaired() || s.checkEnds(l) != nil {
		return nil
	}
	return s.relieve(ctx, l)
}

// plainTime is how long a command that makes a link plain waits for the link to be so.
const plainTime = 2 * time.Second

// awaitPlain waits for the end of relieveLater, if that is at work and ends soon.
func (l *labLink) awaitPlain(ctx context.Context) {
	l.mu.Lock()
	relieving, over := l.relieving, l.carrier == nil || l.impaired()
	l.mu.Unlock()
	if over {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, plainTime)
	defer cancel()
	select {
	case <-relieving:
	case <-ctx.Done():
	}
}

// join begins a term of the kernel with a link.
func (s *Supervisor) join(l *labLink) error {
	counters, err := s.network.CountersOf(l.spec.Number)
	if err != nil {
		return err
	}
	if err := s.network.Join(l.spec.Number); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base, l.seen = counters, counters
	l.joined = true
	return nil
}

// part ends the kernel's term with a link, if there is one.
func (s *Supervisor) part(l *labLink) error {
	if !l.joined {
		return nil
	}
	if err := s.network.Part(l.spec.Number); err != nil {
		return err
	}
	counters, err := s.network.CountersOf(l.spec.Number)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for d, now := range counters {
		now = now.Latest(l.seen[d]) // which may have vanished
		l.carried[d] = l.carried[d].Add(now.Sub(l.base[d]))
	}
	l.joined = false
	return nil
}
