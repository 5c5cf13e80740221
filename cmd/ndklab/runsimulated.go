package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ndklab/ndklab/fabric/lab"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/fabric/scenario"
	"github.com/ndklab/ndklab/fabric/simulate"
	"github.com/ndklab/ndklab/fabric/suite"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
)

// simulateHelp is what run's help says of --simulate.
const simulateHelp = `--simulate plays the topology in virtual time instead, in this process: the same
adapters, link impairments, workloads, timeline and checks, without privileges, in
milliseconds where little happens, and the same seed always gives the same report. It
has no programs: files with commands, or with links to outside, are refused. It records
no packets.`

// runSimulated runs a file in virtual time.
func runSimulated(cmd *cobra.Command, file string, f *runFlags) (*report.Run, error) {
	text, err := readText(cmd.Context(), file)
	if err != nil {
		return nil, err
	}
	t, err := f.files.parse(cmd, text, nil)
	if err != nil {
		return nil, err
	}
	if err := simulate.Refuse(t); err != nil {
		return nil, err
	}
	if len(t.Captures) > 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "left out: captures: a simulation records no packets")
	}
	if err := f.seed.settle(t, cmd.ErrOrStderr()); err != nil {
		return nil, err
	}
	show := &progress{w: cmd.ErrOrStderr()}
	e := &evidence{topology: text, folder: evidenceFolder(*f.artifacts, t.Name, t.Seed), replay: f.again(file, t.Seed)}
	return e.simulate(cmd.Context(), t, show.event, show.say)
}

// simulateCase runs a case of a suite in virtual time.
func (f *runFlags) simulateCase(ctx context.Context, c suite.Case, show display) (*report.Run, error) {
	text, err := readText(ctx, c.File)
	if err != nil {
		return nil, err
	}
	t, err := text.parse(ctx, topology.Options{Name: c.Lab})
	if err != nil {
		return nil, err
	}
	t.Seed, t.HasSeed = c.Seed, true
	e := &evidence{topology: text, folder: evidenceFolder(*f.artifacts, c.Lab, c.Seed), replay: f.again(c.File, c.Seed)}
	if c.Attempt > 1 {
		e.folder += "." + strconv.Itoa(c.Attempt)
	}
	return e.simulate(ctx, t, func(l lab.Event) { show.event(c, l) }, show.say)
}

// simulate runs a topology in virtual time and, if that fails, keeps the evidence: the
// report and what runs it again, which is all that there is to know.
func (e *evidence) simulate(ctx context.Context, t *topology.Topology, event func(lab.Event), say func(format string, args ...any)) (*report.Run, error) {
	result, err := simulate.Run(ctx, t, simulate.Options{Events: func(s scenario.Event) {
		event(lab.Event{At: s.At, Kind: s.Kind, Node: s.Node, Link: s.Link, Workload: s.Workload, Text: s.Text})
	}})
	if err != nil {
		return nil, err
	}
	result.Replay = e.replay
	if result.Passed {
		return result, nil
	}
	result.Artifacts = e.folder
	if kept := e.keep(result, nil); kept != nil {
		say("evidence is not complete: %v", kept)
	}
	return result, nil
}
