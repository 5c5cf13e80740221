package simulate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/scenario"
	"github.com/ndklab/ndklab/topology"
)

// Options choose how a topology is run. The zero Options are right.
type Options struct {
	// Events is told of what happens, with the lab's time; nil: nobody is. It is called on
	// the goroutine that called Run, which goes on when it returns.
	Events func(event.Event)
	// Reached is told now and then what time it is in the lab; nil: nobody is.
	Reached func(at time.Duration)
	// Memory bounds the simulation, bytes; 0: it has as many as it takes. With it, the
	// process collects its garbage early while it runs a large one.
	Memory uint64
	// Programs run in nodes beside the scenario. The run is over when they have returned, too; their errors are
	// Problems of its report.
	Programs []Program
	// Settle waits until all goroutines but the caller's wait for something. With Programs it is needed: Run must be
	// called in a bubble of testing/synctest, whose Wait it is.
	Settle func()
	// Shards bounds how many processors a simulation of many nodes takes; 0: as many as the process has. It takes 8 at most. The
	// report is the same with any number.
	Shards int
}

// again returns options for a run that is begun anew. Only what the run with o has not told is told then.
func (o *Options) again() Options {
	again := *o
	if tell := o.Events; tell != nil {
		told, repeated := 0, 0
		o.Events = func(e event.Event) { told++; tell(e) }
		again.Events = func(e event.Event) {
			if repeated++; repeated > told {
				tell(e)
			}
		}
	}
	if reached := o.Reached; reached != nil {
		last := time.Duration(0)
		o.Reached = func(at time.Duration) { last = at; reached(at) }
		again.Reached = func(at time.Duration) {
			if at > last {
				reached(at)
			}
		}
	}
	return again
}

// stepsAtOnce is the number of events of the clock between two looks at a context.
const stepsAtOnce = 1 << 12

// Run plays the scenario of a topology whose seed is known, in virtual time, and returns
// its report, in which WallSeconds is left to the caller. Two runs of one seed give the
// same report, but for Started and Host. When ctx ends first, so does the run, with the
// report of what was until then and, as its error, the reason that ctx has. Other errors say what no simulation can do (Refuse), that it takes
// more memory than there is (NoMemoryError), or which adapter cannot be as the topology
// wants it.
func Run(ctx context.Context, t *topology.Topology, o Options) (*report.Run, error) {
	started := time.Now()
	s := o.sharding(t)
	needs := Estimate(t, s.count)
	if err := fits(needs, o.Memory); err != nil {
		return nil, err
	}
	if o.Memory > 0 && total(needs) > large {
		defer debug.SetGCPercent(debug.SetGCPercent(collectAt))
	}
	result, err := runAnew(ctx, t, o, s)
	if result != nil {
		result.Started = started.Format(time.RFC3339)
		result.Host = fmt.Sprintf("%s %s, cores: %d", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	}
	return result, err
}

// runAnew is Run with the nodes in shards. If something comes up that those cannot have, it begins anew without.
func runAnew(ctx context.Context, t *topology.Topology, o Options, s sharding) (*report.Run, error) {
	again := o.again()
	result, err := runSharded(ctx, t, o, s)
	if errors.Is(err, errUnforeseen) {
		return runSharded(ctx, t, again, unsharded)
	}
	return result, err
}

// runSharded is Run with the nodes in shards. The error may be errUnforeseen.
func runSharded(ctx context.Context, t *topology.Topology, o Options, s sharding) (*report.Run, error) {
	l, err := newLab(t, o, s)
	if err != nil {
		return nil, err
	}
	defer l.close()
	return l.play(ctx, t, o)
}

// play plays the scenario of a topology, which the lab is of. The error may be errUnforeseen.
func (l *lab) play(ctx context.Context, t *topology.Topology, o Options) (*report.Run, error) {
	l.follow, l.reached = o.Events, o.Reached
	var result *report.Run
	var playErr error
	play := scenario.Begin(l, t, func(r *report.Run, err error) { result, playErr = r, err })
	play.InVirtualTime()
	over := func() bool { return result != nil }
	if len(o.Programs) > 0 {
		l.network.programs.run(ctx, over, play.Interrupt)
		for _, err := range l.network.programs.errors {
			result.Problems, result.Passed = append(result.Problems, err.Error()), false
		}
	} else if err := l.run(ctx, over, play.Interrupt); err != nil {
		return nil, err
	}
	if playErr != nil {
		return result, context.Cause(ctx)
	}
	return result, nil
}

// run runs the lab's clock until over reports true. If ctx ends before, interrupt is called, once.
func (l *lab) run(ctx context.Context, over func() bool, interrupt func()) error {
	for interrupted := false; !over(); {
		if ctx.Err() != nil && !interrupted {
			interrupted = true
			l.beginNoWindows() // begun anew, the run would be interrupted at its beginning
			interrupt()
		}
		if l.reached != nil {
			l.reached(l.clock.Now())
		}
		for events := 0; events < stepsAtOnce && !over(); {
			n, err := l.step()
			switch {
			case err != nil:
				return err
			case n == 0:
				return errors.New("simulate: nothing is left that could happen, and the run is not over")
			}
			events += n
		}
	}
	return nil
}
