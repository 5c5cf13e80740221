package main

import (
	"fmt"

	"github.com/ndklab/ndklab/examples"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/spf13/cobra"
)

// demoLab is the name of the lab of `ndklab demo`, which may be up beside that of the file that it is made of.
const demoLab = "demo"

func demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo [--simulate] [-v] [--keep] [--seed N] [--html FILE] [-o text|json]",
		Short: "Run a first lab: two nodes and a bad link",
		Long: `Runs a lab of two nodes whose link has a delay, jitter, a rate and loss, with three workloads
that verify each byte. It takes some 5 s, and needs no file. "ndklab init" writes the file
that it is made of. The report ends with PASS or FAIL, and the exit code is that of "ndklab run",
which explains the flags.`,
		Example: "  ndklab demo\n  ndklab demo --simulate         in virtual time, also where no lab can run\n  ndklab demo --keep             look around afterwards: `ndklab inspect demo`",
		Args:    arguments(0, 0, "no arguments"),
	}
	hidden := new(cobra.Command) // with flags that nobody needs for a first look
	f := newRunFlags(hidden)
	for _, name := range []string{"output", "seed", "keep", "html", "simulate", "verbose"} {
		cmd.Flags().AddFlag(hidden.Flags().Lookup(name))
	}
	f.files.name = demoLab
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.reports.check(); err != nil {
			return err
		}
		if *f.simulate && *f.keep {
			return misuse("--keep is for a lab, and --simulate makes none")
		}
		if !*f.simulate {
			tidy(cmd)
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "two nodes and a bad link: `ndklab init` writes the file, `ndklab run` runs it")
		text := &topologyText{name: "pair.ndklab.yaml", data: []byte(examples.Pair), gone: true}
		return f.printRun(cmd, func() (*report.Run, error) {
			t, err := f.files.parse(cmd, text, nil)
			if err != nil {
				return nil, err
			}
			return f.runTopology(cmd, text.name, text, t, nil)
		})
	}
	return cmd
}
