package main

import (
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/suite"
	"github.com/ndklab/ndklab/internal/textfile"
	"github.com/spf13/cobra"
)

// baselineHelp is the part of run's help about figures that are held to earlier ones.
const baselineHelp = `--baseline compares the figures of simulated runs with those in a file. Every one must
be the same; the report names each that differs. --write-baseline writes that file.
With either flag, files without a seed have seed 1.`

// mostBaseline is the most bytes that the file of figures may have.
const mostBaseline = 64 << 20

// baselineFlags are the flags for the figures of simulated runs.
type baselineFlags struct {
	file string // "": none
	read *suite.Baseline
	cmd  *cobra.Command
}

func newBaselineFlags(cmd *cobra.Command) *baselineFlags {
	f := &baselineFlags{cmd: cmd}
	cmd.Flags().StringVar(&f.file, "baseline", "", "compare the figures of simulated runs with those in `FILE`")
	return f
}

// take reads the baseline, if there is one, before anything is run. The seeds of files
// that have none are then always the same.
func (f *baselineFlags) take(simulate bool, seed *seedFlag) error {
	reads, writes := f.cmd.Flags().Changed("baseline"), f.cmd.Flags().Changed("write-baseline")
	switch {
	case !reads && !writes:
		return nil
	case reads && writes:
		return misuse("--baseline and --write-baseline exclude each other: with the former, figures have to be as they were")
	case !simulate:
		return misuse("--baseline and --write-baseline are for --simulate: what a lab measures is never twice the same; `baseline:` in a file has a tolerance")
	}
	seed.fixed = true
	if !reads {
		return nil
	}
	content, err := textfile.Read(f.file, mostBaseline+1)
	if err != nil {
		return control.Errorf(control.Usage, "--baseline: %v; --write-baseline makes one", err)
	}
	if len(content) > mostBaseline {
		return control.Errorf(control.Usage, "--baseline: %s has more than %d bytes", f.file, mostBaseline)
	}
	if f.read, err = suite.ReadBaseline(f.file, content); err != nil {
		return control.Errorf(control.Usage, "--baseline: %v", err)
	}
	return nil
}
