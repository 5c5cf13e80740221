package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/internal/fabric/simulate"
	"github.com/ndklab/ndklab/internal/hosts"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// runFlags are the flags of run.
type runFlags struct {
	output      *format
	seed        *seedFlag
	logs        *logFlags
	files       *fileFlags
	reconfigure *bool
	keep        *bool
	reports     *reportFlags
	artifacts   *string
	suite       *suiteFlags
	simulate    *bool
	baseline    *baselineFlags
	memory      *uint64
	verbose     *bool
}

// detail says how much of a report to print.
func (f *runFlags) detail() text.Detail { return detail(*f.verbose) }

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: `run [FILE|-|LAB] [-o text|json] [--seed N] [--junit FILE] [--html FILE] [--artifacts DIR] [-v] [--keep] [--name NAME] [--reconfigure] [--node-filter NODES] [--set PATH=VALUE] [--label NAME=VALUE] [--dilation N] [--hosts HOSTS [--network CIDR]] [--record FILE] [--replay FILE] [--simulate [--memory SIZE] [--baseline FILE | --write-baseline FILE]]
  ndklab run DIR|FILE... [-j N] [--shard I/N] [--retries N] [--fail-fast] [--count N] [--seed N] [--label NAME=VALUE] [--dilation N] [--hosts HOSTS [--network CIDR]] [-o text|json] [--junit FILE] [--html FILE] [--artifacts DIR] [--simulate [--memory SIZE] [--baseline FILE | --write-baseline FILE]]`,
		Short: "Run a topology's workloads and report, or a suite of them",
		Long: `Builds the lab of a topology file, runs its workloads and timeline, compares the
results with its checks, takes the lab down and prints a report. The report ends with
PASS or FAIL. The exit code is 1 if a check or a workload failed.

A report that would not fit a screen has totals, the worst five of each kind, and what
failed. -v prints all rows. --html and -o json have all rows in any case.

With a folder or several files, the command runs a suite: every file, and every
*.ndklab.yaml in the folder and those in it. The report has a line for each lab, what
has failed, and the verdict. With -v the report of each lab comes before that. ` + suiteHelp + `

A run that fails leaves its evidence in ndklab-artifacts/LAB-SEED: ` + evidenceHelp + `
The command that repeats the run is there and at the end of the report. A run that
passes leaves nothing.

With the name of a lab that is up, the command runs the workloads of the file that the
lab was made from, and leaves the lab up. Links and nodes are then as the file has them,
but for what commands have changed by hand. All figures begin anew. An argument is a
file or folder if it ends in .yaml or .yml, has a slash, or is the name of one.

` + simulateHelp + `

` + baselineHelp + `

Ctrl-C or SIGTERM ends the run early and takes the lab down, unless it was up before.
The report then has what was measured until then, in all its forms. It says that the run
was interrupted, and checks nothing. The exit code is 130. A second Ctrl-C ends the
command at once.

` + fileHelp + `
--reconfigure first takes down a lab of that name that is up.

` + partHelp + `

` + dilationHelp + `

` + hostsHelp + `

` + stepHelp + `

` + setHelp + `

` + logHelp,
		Example: `  ndklab run examples/pair.ndklab.yaml
  ndklab run examples/pair.ndklab.yaml --seed 7 -o json > report.json
  ndklab run examples/pair.ndklab.yaml --set link.delay=10ms --set workload[ping].size=1KiB
  ndklab run examples/pair.ndklab.yaml --keep     look around afterwards
  ndklab generate ring --nodes 4 | ndklab run -
  ndklab run examples/pair.ndklab.yaml --record decisions.log
  ndklab run examples/pair.ndklab.yaml --replay decisions.log
  ndklab up examples/pair.ndklab.yaml && ndklab run pair
  ndklab run examples/pair.ndklab.yaml --simulate
  ndklab run examples/suite --simulate --baseline examples/suite/baseline.json
  ndklab run tests -j 2 --junit out.xml --html out.html
  ndklab run tests --shard 1/4 --retries 1        on the first of four machines
  ndklab run tests/flap.ndklab.yaml --count 100 --fail-fast`,
	}
	f := newRunFlags(cmd)
	f.suite = newSuiteFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		step := f.files.hosts.spec.Kind == hosts.Task
		if rank, _, is := hosts.InStep(); step && is && rank > 0 {
			cmd.SetErr(io.Discard) // the first task says all that there is to say
		}
		if !*f.simulate {
			if err := f.files.hosts.join(); err != nil {
				return err
			}
			tidy(cmd)
		}
		if len(args) == 0 && !f.suite.given(cmd) {
			file, err := fileArgument(cmd, args, "one file or lab")
			if err != nil {
				return err
			}
			args = []string{file}
		}
		if err := errors.Join(f.reports.check(), f.checkArtifacts(), f.baseline.take(*f.simulate, f.seed)); err != nil {
			return err
		}
		if !*f.simulate && *f.memory > 0 {
			return misuse("--memory is for --simulate: of a lab, each host has its own `memory:`")
		}
		if *f.simulate && (f.logs.given() || *f.keep || *f.reconfigure) {
			return misuse("--record, --replay, --keep and --reconfigure are for labs, and --simulate makes none")
		}
		if *f.simulate && f.files.dilation != 0 {
			return misuse("--dilation is for labs, which it slows down to what the machine keeps up with, and --simulate makes none")
		}
		if *f.simulate && f.files.hosts.given() {
			return misuse("--hosts is for labs, and --simulate makes none")
		}
		if err := f.files.hosts.check(); err != nil {
			return err
		}
		isSuite := len(args) != 1 || isFolder(args[0]) || f.suite.given(cmd)
		if step && (*f.keep || isSuite || !isFile(args[0])) {
			return forFirst(cmd.Context(), misuse("--hosts step is for a run of one file, which ends with the step, expected neither --keep nor a suite nor a lab that is up"))
		}
		if *f.keep {
			if err := f.files.hosts.isForOneRun("--keep"); err != nil {
				return err
			}
		}
		if isSuite {
			if err := f.files.hosts.isForOneRun("a suite"); err != nil {
				return err
			}
			return runSuite(cmd, args, f)
		}
		return runOne(cmd, args[0], f)
	}
	return cmd
}

// newRunFlags returns the flags of run, but for those of suites, as a command has them from now on.
func newRunFlags(cmd *cobra.Command) *runFlags {
	f := &runFlags{
		output: outputFlag(cmd), seed: newSeedFlag(cmd), logs: newLogFlags(cmd), files: newFileFlags(cmd),
		reconfigure: reconfigureFlag(cmd),
		keep:        cmd.Flags().Bool("keep", false, "leave the lab up afterwards"),
		reports:     newReportFlags(cmd),
		artifacts:   cmd.Flags().String("artifacts", "ndklab-artifacts", "where runs that fail leave their evidence, a `DIR`"),
		simulate:    cmd.Flags().Bool("simulate", false, "run it in virtual time, without a lab"),
		baseline:    newBaselineFlags(cmd),
		memory:      newMemoryFlag(cmd),
		verbose:     verboseFlag(cmd),
	}
	f.files.labels = newLabelFlag(cmd)
	f.files.addDilation(cmd)
	f.files.hosts.add(cmd, "lay the lab over these hosts")
	f.files.addSet(cmd)
	return f
}

// checkArtifacts finds what would keep evidence from being written before anything is run.
func (f *runFlags) checkArtifacts() error {
	if *f.artifacts == "" {
		return misuse("--artifacts needs the name of a folder")
	}
	if info, err := os.Stat(*f.artifacts); err == nil && !info.IsDir() {
		return control.Errorf(control.Usage, "--artifacts: %s is a file, expected a folder", *f.artifacts)
	}
	return nil
}

// isFile reports whether run's argument means a file rather than a lab.
func isFile(arg string) bool {
	if arg == standardInput || strings.Contains(arg, "/") || strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml") {
		return true
	}
	info, err := os.Stat(arg)
	return err == nil && !info.IsDir()
}

func isFolder(arg string) bool {
	info, err := os.Stat(arg)
	return err == nil && info.IsDir()
}

// runOne runs a file, or a lab that is up, and prints its report.
func runOne(cmd *cobra.Command, arg string, f *runFlags) error {
	do := func() (*report.Run, error) { return runFile(cmd, arg, f) }
	if !isFile(arg) {
		switch {
		case *f.simulate:
			return misuse("--simulate takes a file, and %s is none", arg)
		case f.seed.given:
			return misuse("--seed is for a file, and %s is none: a lab that is up has its seed already", arg)
		case f.logs.given():
			return misuse("--record and --replay are for a file, and %s is none: a lab that is up has its links already", arg)
		case f.files.dilation != 0:
			return misuse("--dilation is for a file, and %s is none: a lab that is up has its dilation already", arg)
		case f.files.hosts.given() && !ofEnvironment(cmd, "hosts"): // which is meant for labs that are made
			return misuse("--hosts is for a file, and %s is none: a lab that is up has its hosts already", arg)
		case f.files.given() || *f.reconfigure || cmd.Flags().Changed("label"):
			return misuse("--name, --node-filter, --set, --label and --reconfigure are for a file, and %s is none", arg)
		}
		do = func() (*report.Run, error) { return runLab(cmd, arg, f) }
	}
	return f.printRun(cmd, do)
}

// printRun prints the report of a run, and returns the error that ends the command.
func (f *runFlags) printRun(cmd *cobra.Command, do func() (*report.Run, error)) error {
	begin := time.Now()
	result, err := do()
	if err != nil {
		return err
	}
	result.WallSeconds = time.Since(begin).Seconds()
	code := exitOK
	switch {
	case result.Interrupted:
		code = exitInterrupted
	case !result.Passed:
		code = exitFailed
		if *f.output == jsonFormat && result.Replay != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "evidence: %s\nreplay:   %s\n", result.Artifacts, result.Replay)
		}
	}
	one := &report.Suite{Passed: result.Passed, Interrupted: result.Interrupted, Labs: []*report.Run{result}, WallSeconds: result.WallSeconds}
	return f.conclude(cmd, code, one, result, func(w io.Writer) error { return text.WriteRun(w, result, f.detail()) })
}

// conclude writes a suite to files, prints data, and returns the error that ends the
// command with the exit code. A failure to write does not hide the verdict, nor does the
// verdict hide it.
func (f *runFlags) conclude(cmd *cobra.Command, code int, s *report.Suite, data any, asText func(io.Writer) error) error {
	unwritten := f.reports.write(s)
	if err := f.output.print(cmd.OutOrStdout(), data, asText); !errors.Is(err, unix.EPIPE) {
		unwritten = errors.Join(unwritten, err)
	}
	if code == exitOK {
		return unwritten
	}
	tell(cmd.ErrOrStderr(), unwritten, exitUnable)
	return exitStatus(code)
}

// runFile runs a file to its end, in a lab that is made for it or in virtual time.
func runFile(cmd *cobra.Command, file string, f *runFlags) (*report.Run, error) {
	var t *topology.Topology
	text, err := readText(cmd.Context(), file)
	if err == nil {
		t, err = f.files.parse(cmd, text, nil)
	}
	if f.files.hosts.spec.Kind == hosts.Task {
		return runInStep(cmd.Context(), text, err, func(announce announcer) (*report.Run, error) {
			return f.runTopology(cmd, file, text, t, announce)
		})
	}
	if err != nil {
		return nil, err
	}
	return f.runTopology(cmd, file, text, t, nil)
}

// runTopology runs what was read from a file. Workers that others have started are told of the lab by announce, nil if there are none.
func (f *runFlags) runTopology(cmd *cobra.Command, file string, text *topologyText, t *topology.Topology, announce announcer) (*report.Run, error) {
	if *f.simulate {
		if err := simulate.Refuse(t); err != nil {
			return nil, err
		}
		if len(t.Captures) > 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), "left out: captures: a simulation records no packets")
		}
	}
	if err := f.seed.settle(t, cmd.ErrOrStderr()); err != nil {
		return nil, err
	}
	e, show := f.evidence(text, file, t), newProgress(cmd.ErrOrStderr(), *f.output == jsonFormat)
	defer show.close()
	show.run(t)
	if *f.simulate {
		return e.simulate(cmd.Context(), t, show, show.say)
	}
	l, err := startTopology(cmd, file, t, show, lab.Options{
		NotStarted: e.takeLog, Hosts: f.files.hosts.String(), Network: f.files.hosts.network.String(), Announce: announce,
	}, f.logs, *f.reconfigure)
	if err != nil {
		return nil, e.notStarted(cmd.Context(), err, show.say)
	}
	result, err := e.run(cmd.Context(), l, show.say)
	if err == nil && *f.keep && !result.Interrupted {
		if err = l.Release(cmd.Context()); err == nil {
			defer show.say("lab %s is still up: `ndklab down %s` takes it down", result.Lab, result.Lab)
		}
	}
	if err := errors.Join(err, l.Close()); err != nil {
		return nil, err
	}
	return result, nil
}

// runLab runs the workloads of a lab that is up.
func runLab(cmd *cobra.Command, name string, f *runFlags) (*report.Run, error) {
	l, err := lab.Open(cmd.Context(), name)
	if control.CodeOf(err) == control.Usage {
		return nil, fmt.Errorf("%w, and there is no file %s", err, name)
	}
	if err != nil {
		return nil, err
	}
	show := newProgress(cmd.ErrOrStderr(), *f.output == jsonFormat)
	defer show.close()
	show.dilation(l.Info().Dilation)
	if standing, err := l.Standing(cmd.Context()); err == nil { // else the run says so
		show.run(standing.Topology)
	}
	result, err := watchedRun(cmd.Context(), l, show)
	if err := errors.Join(err, l.Close()); err != nil {
		return nil, err
	}
	return result, nil
}

func watchedRun(ctx context.Context, l *lab.Lab, show *progress) (*report.Run, error) {
	if err := l.Watch(ctx, show.event); err != nil {
		return nil, err
	}
	return reported(l.Run(ctx))
}

// again is the command line that runs a file once more, with the same seed and what else
// decides how it goes, variables (NAME=value) of the environment among it.
func (f *runFlags) again(file string, seed uint64, variables []string) string {
	line := []string{"ndklab", "run", file, "--seed", fmt.Sprint(seed)}
	if f.files.name != "" {
		line = append(line, "--name", f.files.name)
	}
	if len(f.files.nodes) > 0 {
		line = append(line, "--node-filter", strings.Join(f.files.nodes, ","))
	}
	if f.files.dilation != 0 {
		line = append(line, "--dilation", fmt.Sprint(int(f.files.dilation)))
	}
	if f.files.hosts.given() {
		line = append(line, "--hosts", f.files.hosts.String())
		if network := f.files.hosts.network.String(); network != "" {
			line = append(line, "--network", network)
		}
	}
	for _, s := range f.files.set {
		line = append(line, "--set", s.String())
	}
	if *f.simulate {
		line = append(line, "--simulate")
		if f.baseline.file != "" {
			line = append(line, "--baseline", f.baseline.file)
		}
		if *f.memory > 0 {
			line = append(line, "--memory", topology.FormatSize(*f.memory))
		}
	}
	if f.logs.replay != "" {
		line = append(line, "--replay", f.logs.replay)
	}
	return assignments(variables) + words.CommandLine(line)
}

// assignments returns the text by which a shell sets variables for the command that follows.
func assignments(variables []string) string {
	var text strings.Builder
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		text.WriteString(name + "=" + words.CommandLine([]string{value}) + " ")
	}
	return text.String()
}
