package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/ndklab/ndklab/internal/fabric/sweep"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
)

func compareCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compare A B [--threshold PERCENT] [--anyway] [-v] [-o text|json]",
		Short: "Say in what two runs or two sweeps differ beyond noise",
		Long: `Lays two runs side by side, each the JSON that "ndklab run -o json" prints, or two sweeps,
each a folder of "ndklab sweep", and says which figures differ.

A figure differs if its median does by --threshold or more. Of sweeps with four repeats
or more on both sides, the two-sided Mann-Whitney U test must have p < 0.05, too: less is
taken for noise. With fewer repeats, and of single runs, noise cannot be told from a
difference, which the output says.

Runs of different topologies, and sweeps of different values, are refused with what
differs. --anyway compares what both have. Their seeds and the number of repeats may
differ.

The exit code is 0 if nothing differs, 1 if something does, and 2 if they cannot be
compared.`,
		Example: `  ndklab compare before.json after.json
  ndklab compare before.json after.json --threshold 1% -v
  ndklab compare none.sweep dcqcn.sweep --anyway -o json`,
		Args: arguments(2, 2, "two reports or two folders of sweeps"),
	}
	output := outputFlag(cmd)
	verbose := verboseFlag(cmd)
	threshold := &shareFlag{value: 0.05}
	cmd.Flags().Var(threshold, "threshold", "the least change of a median that is a difference, a `PERCENT`")
	anyway := cmd.Flags().Bool("anyway", false, "compare also what is not of the same topology or sweep")
	// The shell completes files and folders.
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := compare(args[0], args[1], threshold.value, *anyway)
		if err != nil {
			return err
		}
		if err := output.print(cmd.OutOrStdout(), c, func(w io.Writer) error { return text.WriteComparison(w, c, detail(*verbose)) }); err != nil {
			return err
		}
		return verdict(c.Same)
	}
	return cmd
}

// A shareFlag is a percentage. It is a pflag.Value.
type shareFlag struct{ value float64 }

// Set implements pflag.Value.
func (f *shareFlag) Set(text string) error {
	value, err := topology.ParsePercent(text)
	if err == nil && value < 0 {
		err = errors.New("expected 0% or more")
	}
	f.value = value
	return err
}

// Type implements pflag.Value: what --help calls the value.
func (f *shareFlag) Type() string { return "PERCENT" }

// String implements pflag.Value.
func (f *shareFlag) String() string { return topology.FormatPercent(f.value) }

// compare compares two reports or two folders.
func compare(a, b string, threshold float64, anyway bool) (*report.Comparison, error) {
	var c *report.Comparison
	unlike := ""
	switch folders := [2]bool{isFolder(a), isFolder(b)}; {
	case folders[0] != folders[1]:
		return nil, misuse("%s and %s are a folder and a file, expected two reports of runs or two folders of sweeps", a, b)
	case folders[0]:
		x, err := readSweep(a)
		if err != nil {
			return nil, err
		}
		y, err := readSweep(b)
		if err != nil {
			return nil, err
		}
		unlike = sweep.Unlike(x, y)
		if c = sweep.Compare(x, y, threshold); sweep.Common(x, y) == 0 {
			return nil, control.Errorf(control.Usage, "%s and %s have no point in common: %s", a, b, unlike)
		}
	default:
		x, err := report.ReadRunFile(a)
		if err != nil {
			return nil, err
		}
		y, err := report.ReadRunFile(b)
		if err != nil {
			return nil, err
		}
		unlike = sweep.UnlikeRuns(x, y)
		c = sweep.CompareRuns(x, y, threshold)
	}
	if unlike != "" && !anyway {
		return nil, control.Errorf(control.Usage, "%s and %s are not of the same thing: %s; --anyway compares what both have", a, b, unlike)
	}
	c.A, c.B, c.Unlike = a, b, unlike
	return c, nil
}

// readSweep reads the results of a sweep.
func readSweep(folder string) (*report.Sweep, error) {
	file := filepath.Join(folder, sweepJSON)
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, control.Errorf(control.Usage, "folder %s has no %s, expected one that `ndklab sweep` has made", folder, sweepJSON)
	}
	if err != nil {
		return nil, control.Errorf(control.Usage, "%v", err)
	}
	s := new(report.Sweep)
	if err = json.Unmarshal(content, s); err == nil && len(s.Runs) == 0 {
		err = fmt.Errorf("it has no runs")
	}
	if err != nil {
		return nil, control.Errorf(control.Usage, "%s: %v; expected one that `ndklab sweep` has made", file, err)
	}
	return s, nil
}
