package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/ndklab/ndklab/control"
	"github.com/ndklab/ndklab/fabric/lab"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [FILE|-|LAB] [-o text|json] [--seed N] [--keep] [--name NAME] [--reconfigure] [--node-filter NODES] [--record FILE] [--replay FILE]",
		Short: "Run a topology's workloads and report",
		Long: `Builds the lab of a topology file, runs its workloads and timeline, holds the
results against its checks, takes the lab down and prints a report, which ends
with PASS or FAIL. The exit code is 1 if a check or a workload failed.

With the name of a lab that is up, runs the workloads of the file it was made
from there, and leaves it up. An argument that ends in .yaml or .yml, has a slash
or is the name of a file is a file.

Ctrl-C takes the lab down.

` + fileHelp + ` --reconfigure takes down a lab of that name that is up first.

` + partHelp + `

` + logHelp,
		Example: `  ndklab run examples/pair.ndklab.yaml
  ndklab run examples/pair.ndklab.yaml --seed 7 -o json > report.json
  ndklab run examples/pair.ndklab.yaml --keep     look around afterwards
  ndklab generate ring --nodes 4 | ndklab run -
  ndklab run examples/pair.ndklab.yaml --record decisions.log
  ndklab run examples/pair.ndklab.yaml --replay decisions.log
  ndklab up examples/pair.ndklab.yaml && ndklab run pair`,
		Args: arguments(0, 1, "one file or lab"),
	}
	output := outputFlag(cmd)
	seed := newSeedFlag(cmd)
	logs := newLogFlags(cmd)
	flags := newFileFlags(cmd)
	reconfigure := reconfigureFlag(cmd)
	keep := cmd.Flags().Bool("keep", false, "leave the lab up afterwards")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sweep(cmd)
		arg, err := fileArgument(cmd, args, "one file or lab")
		if err != nil {
			return err
		}
		do := func() (*report.Run, error) {
			l, show, err := start(cmd, arg, flags, seed, logs, *reconfigure)
			if err != nil {
				return nil, err
			}
			return runNew(cmd.Context(), l, show, *keep)
		}
		if !isFile(arg) {
			switch {
			case seed.given:
				return misuse("--seed is for a file, and %s is none: a lab that is up has its seed already", arg)
			case logs.given():
				return misuse("--record and --replay are for a file, and %s is none: a lab that is up has its links already", arg)
			case flags.given() || *reconfigure:
				return misuse("--name, --node-filter and --reconfigure are for a file, and %s is none", arg)
			}
			do = func() (*report.Run, error) { return runLab(cmd, arg) }
		}
		begin := time.Now()
		result, err := do()
		if err != nil {
			return err
		}
		result.WallSeconds = time.Since(begin).Seconds()
		err = output.print(cmd.OutOrStdout(), result, func(w io.Writer) error { return report.WriteText(w, result) })
		if err != nil && !errors.Is(err, unix.EPIPE) {
			return err
		}
		if !result.Passed {
			return exitStatus(exitFailed)
		}
		return nil
	}
	return cmd
}

// isFile reports whether run's argument means a file rather than a lab.
func isFile(arg string) bool {
	if arg == standardInput || strings.Contains(arg, "/") || strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml") {
		return true
	}
	info, err := os.Stat(arg)
	return err == nil && !info.IsDir()
}

// runNew runs a lab that was made for it to its end.
func runNew(ctx context.Context, l *lab.Lab, show *progress, keep bool) (*report.Run, error) {
	result, err := l.Run(ctx)
	if err == nil && keep {
		if err = l.Release(ctx); err == nil {
			defer show.say("lab %s is still up: `ndklab down %s` takes it down", result.Lab, result.Lab)
		}
	}
	if err := errors.Join(err, l.Close()); err != nil {
		return nil, err
	}
	return result, nil
}

// runLab runs the workloads of a lab that is up.
func runLab(cmd *cobra.Command, name string) (*report.Run, error) {
	l, err := lab.Open(cmd.Context(), name)
	if problem := (*control.Error)(nil); errors.As(err, &problem) && problem.Code == control.Usage {
		return nil, fmt.Errorf("%w, and there is no file %s", err, name)
	}
	if err != nil {
		return nil, err
	}
	show := &progress{w: cmd.ErrOrStderr()}
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
	return l.Run(ctx)
}
