package main

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/hazard"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/simulate"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
)

// simulateHelp is the part of run's help about --simulate.
const simulateHelp = `--simulate runs the topology in virtual time instead, in this process and without
privileges: the same adapters, link impairments, workloads, timeline and checks. Time in
which little happens takes milliseconds. The same seed always gives the same report. A
simulation has no programs: files with commands, or with links to outside, are refused.
It records no packets, and has no lab for --keep, --reconfigure, --record or --replay. A
topology that would not fit in memory is refused beforehand, with exit code 3; --memory
allows it up to so much all the same.`

// newMemoryFlag adds --memory: how much a simulation may take, in bytes; 0: what is left.
func newMemoryFlag(cmd *cobra.Command) *uint64 {
	bytes := new(uint64)
	cmd.Flags().Func("memory", "with --simulate: up to this `SIZE` of memory may be taken, such as 8GiB, instead of what is left", func(text string) (err error) {
		*bytes, err = topology.ParseMemory(text)
		return err
	})
	return bytes
}

// A follower is told of what happens in a simulation, and how far it is.
type follower interface {
	event(event.Event)
	reach(at time.Duration)
}

// A share bounds the memory and the processors of a simulation.
type share struct {
	memory uint64 // bytes; 0: what is left
	jobs   int    // that run at once, and divide the processors
}

// processors returns how many the simulation may take.
func (s share) processors() int { return max(1, runtime.GOMAXPROCS(0)/s.jobs) }

// runSimulation runs a topology in virtual time. Nobody follows it if follow is nil.
func runSimulation(ctx context.Context, t *topology.Topology, of share, follow follower) (*report.Run, error) {
	o := simulate.Options{Memory: cmp.Or(of.memory, simulate.Available()), Shards: of.processors()}
	if follow != nil {
		o.Events, o.Reached = follow.event, follow.reach
	}
	run, err := simulate.Run(ctx, t, o)
	if refused := (*simulate.NoMemoryError)(nil); errors.As(err, &refused) {
		return nil, control.Errorf(control.Unable, "%v; --memory SIZE lets it have more", err)
	}
	return run, err
}

// simulate runs a topology in virtual time and, if that fails, keeps the evidence: the
// report and what runs it again, which is all that there is to know.
func (e *evidence) simulate(ctx context.Context, t *topology.Topology, follow follower, say func(format string, args ...any)) (*report.Run, error) {
	for _, w := range hazard.Find(t) {
		follow.event(event.Event{Kind: event.Warning, Text: w})
	}
	result, err := reported(runSimulation(ctx, t, e.share, follow))
	if err != nil {
		return nil, err
	}
	if e.baseline != nil {
		if err := e.baseline.Hold(result); err != nil {
			return nil, err
		}
	}
	result.Replay = e.replay
	if result.Passed || result.Interrupted {
		return result, nil
	}
	e.keep(result, say, nil)
	return result, nil
}
