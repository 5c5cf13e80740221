package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/ndklab/ndklab/internal/fabric/simulate"
	"github.com/ndklab/ndklab/internal/fabric/suite"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
)

// suiteHelp is the part of run's help about suites.
const suiteHelp = `-j runs several labs at once; labs of the same name get
names with numbers. --shard 2/4 runs the second of four parts of about the same length;
the parts depend on the files alone. --retries runs a lab that fails again, with the
same seed, and calls it flaky if it passes then. --count runs each file so many times,
with as many seeds: the one it would have, and those that follow it. The exit code is 4
if ndklab had a fault, else 1 if a lab failed, else that of the first lab that could not
be made, and 130 after Ctrl-C.`

// suiteFlags are the flags that make a suite of what is run.
type suiteFlags struct {
	jobs, retries, passes *positive
	shard                 suite.Shard // all unless it is given
	failFast              *bool
	variables             map[string][]string // of the environment, NAME=value, in each file; plan has them
}

// jobs returns how many runs there are at once. A demo has no flags of suites.
func (f *runFlags) jobs() int {
	if f.suite == nil {
		return 1
	}
	return f.suite.jobs.value
}

func newSuiteFlags(cmd *cobra.Command) *suiteFlags {
	f := &suiteFlags{
		variables: map[string][]string{},
		jobs:      &positive{value: 1, least: 1},
		retries:   &positive{},
		passes:    &positive{value: 1, least: 1},
	}
	cmd.Flags().VarP(f.jobs, "jobs", "j", "how many labs run at once")
	cmd.Flags().Func("shard", "only part `I/N` of the suite", func(text string) (err error) {
		f.shard, err = suite.ParseShard(text)
		return err
	})
	cmd.Flags().Var(f.retries, "retries", "how often a lab that fails is run again")
	f.failFast = cmd.Flags().Bool("fail-fast", false, "begin no other lab when one has failed")
	cmd.Flags().Var(f.passes, "count", "how often each file is run")
	return f
}

// given reports whether any of them is.
func (f *suiteFlags) given(cmd *cobra.Command) bool {
	for _, name := range []string{"jobs", "shard", "retries", "fail-fast", "count"} {
		if cmd.Flags().Changed(name) {
			return true
		}
	}
	return false
}

// A positive is a number from a least one. It is a pflag.Value.
type positive struct{ value, least int }

// Set implements pflag.Value.
func (p *positive) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || int(n) < p.least {
		return fmt.Errorf("expected a whole number from %d on", p.least)
	}
	p.value = int(n)
	return nil
}

// Type implements pflag.Value: what --help calls the value.
func (p *positive) Type() string { return "N" }

// String implements pflag.Value.
func (p *positive) String() string { return strconv.Itoa(p.value) }

// runSuite runs the files that paths name, and prints what became of them.
func runSuite(cmd *cobra.Command, paths []string, f *runFlags) error {
	switch {
	case f.logs.given():
		return misuse("--record and --replay are for one file, and this is a suite")
	case f.files.given() || *f.keep || *f.reconfigure:
		return misuse("--name, --node-filter, --set, --keep and --reconfigure are for one file, and this is a suite")
	}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	if _, err := f.files.labels.read(); err != nil {
		return err
	}
	cases, err := f.plan(cmd, paths)
	if err != nil {
		return err
	}
	show := newDisplay(cmd.ErrOrStderr(), cases)
	begin := time.Now()
	result := suite.Run(cmd.Context(), cases, func(ctx context.Context, c suite.Case) (*report.Run, error) {
		r, err := f.runCase(ctx, c, show)
		return r, explained(cmd, err)
	}, suite.Options{
		Jobs: f.suite.jobs.value, Retries: f.suite.retries.value, FailFast: *f.suite.failFast, Began: show.began, Ended: show.ended,
	})
	show.close()
	for i := range result.Outcomes {
		if o := &result.Outcomes[i]; !o.Passed() {
			o.Run.Replay = f.again(o.File, o.Seed, f.suite.variables[o.File]) // also of a lab that did not come up
		}
	}
	summary := result.Report(time.Since(begin))
	return f.conclude(cmd, suiteCode(&result), summary, summary, func(w io.Writer) error {
		if *f.verbose {
			for _, r := range summary.Labs {
				if err := text.WriteRun(w, r, text.Full); err != nil {
					return err
				}
				if _, err := fmt.Fprintln(w); err != nil {
					return err
				}
			}
		}
		return text.WriteSuite(w, summary)
	})
}

// plan reads the files that paths name and plans their runs. Nothing is run if one of them
// is wrong, and all that are wrong are told of.
func (f *runFlags) plan(cmd *cobra.Command, paths []string) ([]suite.Case, error) {
	for _, path := range paths {
		if path == standardInput {
			return nil, misuse("a suite is of files and folders, found %s", path)
		}
	}
	found, again, err := suite.Find(paths)
	if err != nil {
		return nil, control.Errorf(control.Usage, "%v", err)
	}
	for _, a := range again {
		fmt.Fprintln(cmd.ErrOrStderr(), "ndklab:", a)
	}
	var files []suite.File
	var invalid topology.ErrorList
	for _, path := range found {
		text, err := readText(cmd.Context(), path)
		if err != nil {
			return nil, err
		}
		t, err := text.parse(cmd.Context(), topology.Options{Dilation: int(f.files.dilation)})
		switch {
		case err != nil:
		case *f.simulate:
			err = simulate.Refuse(t)
		default:
			err = lab.Refuse(t)
		}
		var wrong topology.ErrorList
		if errors.As(err, &wrong) {
			invalid = append(invalid, wrong...)
			continue
		}
		if err != nil {
			return nil, err
		}
		files = append(files, suite.FileOf(path, t))
		f.suite.variables[path] = text.variables
	}
	if len(invalid) > 0 {
		return nil, invalid
	}
	var seed *uint64
	if f.seed.given {
		seed = &f.seed.value
	}
	if files = f.suite.shard.Pick(files); len(files) == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "ndklab: no file is in part %v of the suite\n", f.suite.shard)
	}
	cases, err := suite.Plan(files, f.suite.passes.value, f.suite.jobs.value > 1, seed, f.seed.draw)
	if err != nil {
		return nil, err
	}
	for i, file := range files { // whose first passes come first
		if c := &cases[i]; c.Lab != file.Lab {
			fmt.Fprintf(cmd.ErrOrStderr(), "ndklab: %s: another file has a lab %s, too: this one is called %s here\n", c.File, file.Lab, c.Lab)
		}
	}
	return cases, nil
}

// runCase runs a case to its end, in a lab that is made for it or in virtual time.
func (f *runFlags) runCase(ctx context.Context, c suite.Case, show *display) (*report.Run, error) {
	text, err := readText(ctx, c.File)
	if err != nil {
		return nil, err
	}
	t, err := text.parse(ctx, topology.Options{Name: c.Lab, Dilation: int(f.files.dilation)})
	if err != nil {
		return nil, err
	}
	if err := f.files.label(t); err != nil {
		return nil, err
	}
	t.Seed, t.HasSeed = c.Seed, true
	e := f.evidence(text, c.File, t)
	if c.Attempt > 1 {
		e.folder += "." + strconv.Itoa(c.Attempt)
	}
	of := caseFollower{show, c}
	if *f.simulate {
		return e.simulate(ctx, t, of, show.note)
	}
	l, err := lab.Start(ctx, t, lab.Options{Events: of.event, NotStarted: e.takeLog, Hosts: f.files.hosts.String(), Network: f.files.hosts.network.String()})
	if err != nil {
		return nil, e.notStarted(ctx, err, show.note)
	}
	r, err := e.run(ctx, l, show.note)
	if err := errors.Join(err, l.Close()); err != nil {
		return nil, err
	}
	return r, nil
}

// suiteCode is the exit code of a suite.
func suiteCode(result *suite.Result) int {
	if result.Interrupted {
		return exitInterrupted
	}
	code := exitOK
	for i := range result.Outcomes {
		o := &result.Outcomes[i]
		if o.Passed() {
			continue
		}
		this := exitFailed
		if o.Err != nil {
			this = exitCode(context.Background(), o.Err)
		}
		switch {
		case this == exitFault:
			return this
		case this == exitFailed || code == exitOK:
			code = this
		}
	}
	return code
}
