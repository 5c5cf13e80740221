package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ndklab/ndklab/provider"
)

// A Latency is half the time of round trips, us.
type Latency struct {
	Median  float64 `json:"median_us"`
	P99     float64 `json:"p99_us"`
	P999    float64 `json:"p99.9_us"`
	Max     float64 `json:"max_us"`
	Samples int64   `json:"samples"`
	Cost
}

// longestTrip is the longest round trip that a histogram tells from others, ns.
const longestTrip = int64(10 * time.Second)

// newTrips returns a histogram of round trips in ns, to three digits.
func newTrips() *hdrhistogram.Histogram { return hdrhistogram.New(1, longestTrip, 3) }

// latencyOf sums up a histogram of round trips.
func latencyOf(trips *hdrhistogram.Histogram, cost Cost) *Latency {
	half := func(ns int64) float64 { return float64(ns) / 2 / 1e3 }
	return &Latency{
		Median: half(trips.ValueAtQuantile(50)), P99: half(trips.ValueAtQuantile(99)),
		P999: half(trips.ValueAtQuantile(99.9)), Max: half(trips.Max()), Samples: trips.TotalCount(), Cost: cost,
	}
}

// A player is one end of a ping-pong. SENDs complete silently: only receives do, and
// what has failed. After begin, what is not atomic belongs to whoever takes the
// completions, until ended has been received from.
type player struct {
	*group
	flow    *flow
	results [4]provider.ResultEx
	sent    time.Time // of a client, when the newest SEND was posted
	trips   *hdrhistogram.Histogram

	state atomic.Int32
	ended chan error // nil: the client's state is over
}

// States of a player.
const (
	warming int32 = iota
	measuring
	over
)

// pingPong runs an end of a ping-pong.
func (d *device) pingPong(ctx context.Context) (err error) {
	p := &player{ended: make(chan error, 1)}
	if p.group, err = d.newGroup(1, 2, 2, p.notified); err != nil {
		return err
	}
	p.prepare = func(f *flow) error {
		p.flow = f
		return p.post(f.qp.Receive(f, f.sgl))
	}
	if d.Role == "server" {
		return p.serve(ctx)
	}
	return p.play(ctx)
}

func (p *player) serve(ctx context.Context) error {
	l, err := p.listen(ctx)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if err := p.accept(ctx, l, 1); err != nil {
		return err
	}
	stop, err := p.profile()
	if err != nil {
		return err
	}
	before := used()
	p.begin()
	select {
	case err = <-p.ended:
	case <-p.gone:
		p.state.Store(over)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	cost := used().since(before)
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(cost)
}

func (p *player) play(ctx context.Context) error {
	p.trips = newTrips()
	if err := p.dial(ctx); err != nil {
		return err
	}
	p.sent = time.Now()
	if err := p.send(); err != nil {
		return err
	}
	p.begin()
	if err := p.wait(ctx, p.WarmUp, p.ended); err != nil {
		return err
	}
	stop, err := p.profile()
	if err != nil {
		return err
	}
	before := used()
	p.state.Store(measuring)
	err = p.wait(ctx, p.Length, p.ended)
	p.state.Store(over)
	cost := used().since(before)
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	// The ball comes back once more.
	select {
	case err = <-p.ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	if err := p.disconnect(ctx); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(latencyOf(p.trips, cost))
}

func (p *player) post(status provider.Status) error {
	if status != provider.StatusSuccess {
		return fmt.Errorf("post: %w", status)
	}
	return nil
}

func (p *player) send() error {
	return p.post(p.flow.qp.Send(p.flow, p.flow.sgl, provider.OpSilentSuccess))
}

// begin has completions taken from now on.
func (p *player) begin() {
	if !p.Poll {
		p.cq.Arm(provider.NotifyAny)
		return
	}
	go func() {
		runtime.LockOSThread()
		for p.state.Load() != over || p.trips != nil {
			if p.take() < 0 {
				return
			}
		}
	}()
}

// notified implements the completion queue's callback.
func (p *player) notified(_ any, status provider.Status) {
	if status != provider.StatusSuccess {
		p.ended <- fmt.Errorf("completion queue: %w", status)
		return
	}
	for {
		switch n := p.take(); {
		case n < 0:
			return
		case n == 0:
			p.cq.Arm(provider.NotifyAny)
			return
		}
	}
}

// take takes what has completed, and says how many that was; -1 when the game has
// ended.
func (p *player) take() int {
	n := p.cq.ResultsEx(p.results[:])
	for i := range p.results[:n] {
		if err := p.hit(&p.results[i]); err != nil {
			if err == errOver {
				err = nil
			}
			p.ended <- err
			return -1
		}
	}
	return n
}

// errOver ends a game that its client has had enough of.
var errOver = errors.New("the game is over")

// hit answers the ball that has arrived.
func (p *player) hit(r *provider.ResultEx) error {
	if r.Status != provider.StatusSuccess {
		if p.state.Load() == over {
			return errOver
		}
		return fmt.Errorf("request failed: %w", r.Status)
	}
	if p.trips != nil {
		now := time.Now()
		state := p.state.Load()
		// The last ball counts if it is the only one: it was away all the time.
		if state == measuring || state == over && p.trips.TotalCount() == 0 {
			if err := p.trips.RecordValue(min(int64(now.Sub(p.sent)), longestTrip)); err != nil {
				return err
			}
		}
		if state == over {
			return errOver
		}
		p.sent = now
	}
	// The next ball needs a place to arrive at first.
	if err := p.post(p.flow.qp.Receive(p.flow, p.flow.sgl)); err != nil {
		return err
	}
	return p.send()
}
