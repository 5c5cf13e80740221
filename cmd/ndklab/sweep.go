package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/internal/fabric/simulate"
	"github.com/ndklab/ndklab/internal/fabric/suite"
	"github.com/ndklab/ndklab/internal/fabric/sweep"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
)

// sweepFlags are the flags of sweep.
type sweepFlags struct {
	output    *format
	seed      *seedFlag
	vary      []report.Axis
	repeat    *positive
	jobs      *positive
	out       *string
	simulate  *bool
	memory    *uint64
	keepGoing *bool
	quiet     *bool
	name      fileFlags // --name alone
}

func sweepCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sweep [FILE] --vary PATH=VALUE,VALUE... [--repeat N] [--simulate [-j N] [--memory SIZE]] [--out DIR] [--seed N] [--name NAME] [--keep-going] [--quiet] [-o text|json]",
		Short: "Run a topology with several values, and plot what comes of it",
		Long: `Runs a topology file with each value of each --vary, in all combinations, in labs or with
--simulate in virtual time. It writes the results as a table (CSV), as JSON, and as a page
with plots, each of which is also a picture (SVG). docs/sweep.md is a guide.

--vary has the path of a place in the file, and its values: link.delay=1ms,10ms. Paths are
those of "ndklab run --set". Values that have commas need brackets or quotes. The last
--vary changes fastest. The first one whose values are numbers is along x in plots, the
next one gives the lines.

--repeat runs each combination several times. The first run has the seed of --seed, of the
file, or 1, and those after it have the seeds that follow. The JSON has for each run the
command that repeats it alone.

The results are in the folder --out, without which it is FILE's name with .sweep, in the
current folder. After Ctrl-C, or however it ended, the same command goes on where it was:
each run's report is there when all of it is. Other arguments for the same folder are
refused.

A run in which a check fails is a result, and has its row. One that cannot be made stops
the sweep, unless --keep-going. The exit code is 1 if a check or a workload has failed,
that of the error if a run could not be made, and 130 after Ctrl-C.

` + fileHelp,
		Example: `  ndklab sweep examples/sweep.ndklab.yaml --vary link.delay=1ms,10ms,50ms --vary workload.size=4KiB,64KiB,1MiB --repeat 3 --simulate
  ndklab sweep pair.ndklab.yaml --vary 'link[client-server].loss=0%,0.1%,1%' --repeat 5
  ndklab sweep fabric.ndklab.yaml --vary defaults.adapter.congestion=none,dcqcn,dctcp --simulate -j 2
  ndklab compare before.sweep after.sweep`,
		Args: arguments(0, 1, "one file"),
	}
	f := &sweepFlags{
		output: outputFlag(cmd), seed: newSeedFlag(cmd), memory: newMemoryFlag(cmd),
		repeat:    &positive{value: 1, least: 1},
		jobs:      &positive{value: 1, least: 1},
		out:       cmd.Flags().String("out", "", "where the results are, a `DIR`"),
		simulate:  cmd.Flags().Bool("simulate", false, "run in virtual time, without labs"),
		keepGoing: cmd.Flags().Bool("keep-going", false, "go on after a run that cannot be made"),
		quiet:     quietFlag(cmd),
	}
	f.name.addName(cmd)
	cmd.Flags().Var(&varyFlag{&f.vary}, "vary", "values for places of the file, as in link.delay=1ms,10ms; may be given again")
	cmd.Flags().Var(f.repeat, "repeat", "how often each combination runs")
	cmd.Flags().VarP(f.jobs, "jobs", "j", "how many simulations run at once")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*f.simulate {
			tidy(cmd)
		}
		file, err := fileArgument(cmd, args, "one file")
		switch {
		case err != nil:
			return err
		case file == standardInput:
			return misuse("sweep takes a file, found %s: it is read again for each run", file)
		case len(f.vary) == 0:
			return misuse("nothing is varied, expected --vary PATH=VALUE,VALUE... such as --vary link.delay=1ms,10ms")
		case !*f.simulate && (f.jobs.value > 1 || *f.memory > 0):
			return misuse("--jobs and --memory are for --simulate: labs run one at a time, or they would measure each other")
		case cmd.Flags().Changed("out") && *f.out == "":
			return misuse("--out needs the name of a folder")
		}
		return runSweep(cmd, file, f)
	}
	return cmd
}

// quietFlag adds --quiet.
func quietFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().BoolP("quiet", "q", false, "do not say how far it is")
}

// A varyFlag is --vary. It is a pflag.Value.
type varyFlag struct{ axes *[]report.Axis }

// Set implements pflag.Value.
func (f *varyFlag) Set(text string) error {
	axis, err := sweep.ParseAxis(text)
	if err == nil {
		*f.axes = append(*f.axes, axis)
	}
	return err
}

// Type implements pflag.Value: what --help calls the value.
func (f *varyFlag) Type() string { return "PATH=VALUES" }

// String implements pflag.Value: the default, which is none.
func (f *varyFlag) String() string { return "" }

// runSweep runs what is left of a sweep, and writes its results.
func runSweep(cmd *cobra.Command, file string, f *sweepFlags) error {
	s, err := f.plan(cmd, file)
	if err != nil {
		return err
	}
	folder, err := openSweepFolder(f.folder(file), s)
	if err != nil {
		return err
	}
	defer folder.close()
	before, err := folder.begin()
	if err != nil {
		return err
	}
	r := &sweeper{cmd: cmd, flags: f, sweep: s, folder: folder, file: file}
	failed := r.run(before)
	sweep.Finish(s)
	plots, err := folder.finish()
	if err != nil {
		return errors.Join(failed, err)
	}
	err = f.output.print(cmd.OutOrStdout(), s, func(w io.Writer) error { return writeSweep(w, s, folder.path, plots) })
	switch {
	case cmd.Context().Err() != nil:
		return errors.Join(err, exitStatus(exitInterrupted))
	case failed != nil || err != nil:
		return errors.Join(failed, err)
	}
	return verdict(s.Passed)
}

// folder returns where the results of a file's sweep are.
func (f *sweepFlags) folder(file string) string {
	if *f.out != "" {
		return *f.out
	}
	name := filepath.Base(file)
	for _, suffix := range []string{".yaml", ".yml", ".ndklab"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name + ".sweep"
}

// plan reads the file and plans the runs of its sweep. Nothing is run if one of the points is wrong.
func (f *sweepFlags) plan(cmd *cobra.Command, file string) (*report.Sweep, error) {
	text, err := readText(cmd.Context(), file)
	if err != nil {
		return nil, err
	}
	t, err := f.name.parse(cmd, text, nil)
	if err != nil {
		return nil, err
	}
	s := &report.Sweep{File: file, Lab: t.Name, Simulated: *f.simulate, Seed: 1, Vary: f.vary, Repeat: f.repeat.value}
	switch {
	case f.seed.given:
		s.Seed = f.seed.value
	case t.HasSeed:
		s.Seed = t.Seed
	}
	if err := sweep.Plan(s, func(r *report.SweepRun) string { return f.again(file, text, s, r) }); err != nil {
		return nil, misuse("%w", err)
	}
	for i := 0; i < len(s.Runs); i += s.Repeat {
		if _, err := f.topology(cmd.Context(), text, s, &s.Runs[i]); err != nil {
			return nil, err
		}
	}
	s.Digest = text.digest()
	return s, nil
}

// topology returns the topology of a run. The error says which values are wrong.
func (f *sweepFlags) topology(ctx context.Context, text *topologyText, s *report.Sweep, r *report.SweepRun) (*topology.Topology, error) {
	t, err := text.parse(ctx, topology.Options{Name: f.name.name, Set: sweep.Settings(s, r.Values)})
	if err == nil {
		t.Seed, t.HasSeed = r.Seed, true
		if *f.simulate {
			err = simulate.Refuse(t)
		} else {
			err = lab.Refuse(t)
		}
	}
	var invalid topology.ErrorList
	if errors.As(err, &invalid) {
		for i := range invalid {
			invalid[i].Message += " (with " + pointText(s, r.Values) + ")"
		}
		return nil, invalid
	}
	return t, err
}

// again is the command that repeats a run alone.
func (f *sweepFlags) again(file string, text *topologyText, s *report.Sweep, r *report.SweepRun) string {
	line := []string{"ndklab", "run", file}
	for _, set := range sweep.Settings(s, r.Values) {
		line = append(line, "--set", set.String())
	}
	line = append(line, "--seed", fmt.Sprint(r.Seed))
	if f.name.name != "" {
		line = append(line, "--name", f.name.name)
	}
	if *f.simulate {
		line = append(line, "--simulate")
	}
	if *f.memory > 0 {
		line = append(line, "--memory", topology.FormatSize(*f.memory))
	}
	return assignments(text.variables) + words.CommandLine(line)
}

// pointText returns the values of a point, as --set takes them.
func pointText(s *report.Sweep, values []string) string {
	var texts []string
	for i, value := range values {
		texts = append(texts, s.Vary[i].Path+"="+value)
	}
	return strings.Join(texts, " ")
}

// A sweeper makes the runs of a sweep.
type sweeper struct {
	cmd    *cobra.Command
	flags  *sweepFlags
	sweep  *report.Sweep
	folder *sweepFolder
	file   string
	show   *sweepProgress

	mu     sync.Mutex // guards failed, and sweep while runs are made
	failed error      // why the first run that could not be made was not
}

// run makes the runs of which there is no report yet, and returns why one could not be made.
func (r *sweeper) run(before int) error {
	r.show = newSweepProgress(r.cmd.ErrOrStderr(), *r.flags.quiet || *r.flags.output == jsonFormat, len(r.sweep.Runs), before)
	defer r.show.close()
	if before > 0 && before < len(r.sweep.Runs) && !*r.flags.quiet {
		r.show.say("%s: goes on behind %d of %s", r.folder.path, before, words.Plural(len(r.sweep.Runs), "run"))
	}
	var cases []suite.Case
	for i := range r.sweep.Runs {
		if of := &r.sweep.Runs[i]; of.Result == "" {
			cases = append(cases, suite.Case{File: r.file, Lab: strconv.Itoa(of.Number), Seed: of.Seed})
		}
	}
	ctx, stop := context.WithCancel(r.cmd.Context())
	defer stop()
	suite.Run(ctx, cases, func(ctx context.Context, c suite.Case) (*report.Run, error) {
		number, err := strconv.Atoi(c.Lab)
		if err != nil {
			return nil, err
		}
		made, err := r.make(ctx, number-1)
		if err != nil && ctx.Err() == nil {
			r.note(number-1, err)
			if !*r.flags.keepGoing {
				stop()
			}
		}
		return made, err
	}, suite.Options{Jobs: r.flags.jobs.value})
	return r.failed
}

// note notes that a run could not be made.
func (r *sweeper) note(index int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := &r.sweep.Runs[index]
	of.Result, of.Error = report.RunNotMade, strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	err = fmt.Errorf("run %d (%s): %w", of.Number, pointText(r.sweep, of.Values), explained(r.cmd, err))
	if r.failed == nil {
		r.failed = err
	} else {
		r.show.say("%v", err)
	}
	r.show.ended(index, "")
}

// make makes a run, and keeps its report.
func (r *sweeper) make(ctx context.Context, index int) (*report.Run, error) {
	of := &r.sweep.Runs[index] // whose values nobody changes
	text, err := readText(ctx, r.file)
	if err != nil {
		return nil, err
	}
	t, err := r.flags.topology(ctx, text, r.sweep, of)
	if err != nil {
		return nil, err
	}
	if text.digest() != r.sweep.Digest {
		return nil, control.Errorf(control.Usage, "%s has changed while the sweep ran: expected it as it was, or another --out", r.file)
	}
	follow := r.show.began(index, t, pointText(r.sweep, of.Values)+", seed "+strconv.FormatUint(of.Seed, 10))
	made, err := r.runOne(ctx, t, follow)
	if err != nil {
		return nil, err
	}
	if made.Interrupted {
		return nil, context.Cause(ctx)
	}
	made.Replay = of.Command
	if err := r.folder.keep(of, made); err != nil {
		return nil, err
	}
	r.mu.Lock()
	sweep.Take(r.sweep, index, made)
	r.mu.Unlock()
	trouble := ""
	if !made.Passed {
		trouble = fmt.Sprintf("FAIL  run %d (%s): %s", of.Number, pointText(r.sweep, of.Values), words.Failure(made))
	}
	r.show.ended(index, trouble)
	return made, nil
}

// runOne runs a topology, in a lab that is made for it or in virtual time.
func (r *sweeper) runOne(ctx context.Context, t *topology.Topology, follow follower) (*report.Run, error) {
	if *r.flags.simulate {
		return reported(runSimulation(ctx, t, share{*r.flags.memory, r.flags.jobs.value}, follow))
	}
	l, err := lab.Start(ctx, t, lab.Options{Events: follow.event})
	if err != nil {
		return nil, err
	}
	made, err := reported(l.Run(ctx))
	return made, errors.Join(err, l.Close())
}

// writeSweep writes what came of a sweep for people.
func writeSweep(w io.Writer, s *report.Sweep, folder string, plots int) error {
	count := map[string]int{}
	for i := range s.Runs {
		count[s.Runs[i].Result]++
	}
	verdict := "PASS"
	switch {
	case !s.Complete:
		verdict = "not complete: the same command goes on"
	case !s.Passed:
		verdict = "FAIL"
	}
	_, err := fmt.Fprintf(w, `sweep of %s: points: %d, runs: %d, passed: %d, failed: %d, not made: %d
  %s/sweep.html  the page, with %s as SVG beside it
  %s/sweep.csv   a row for each run
  %s/sweep.json  all of it, with the command that repeats each run
%s
`, s.File, len(s.Points), len(s.Runs), count[report.RunPassed], count[report.RunFailed], count[report.RunNotMade]+count[""],
		folder, words.Plural(plots, "plot"), folder, folder, verdict)
	return err
}
