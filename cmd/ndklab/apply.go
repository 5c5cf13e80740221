package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/topology/diff"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
)

func applyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apply [FILE|-] [-o text|json] [--dry-run] [--name NAME] [--node-filter NODES]",
		Short: "Change a lab that is up to what its file says now",
		Long: `Changes a lab that is up to what its topology file says now. What is the same is left
alone: its processes, their connections and their counters go on. Links keep their
addresses wherever they are in the file now.

The command prints what changes, a line for each node and link, and then does it:

  + node c, + link ...   is added        - node c, - link ...   is removed
  ~ link ... delay 1ms -> 2ms            is changed while it goes on
  ± node c restarts because ...          has its processes ended and begun anew
  ± link ... is made anew because ...    has its interfaces removed and made anew

Routes and neighbours of other nodes follow. What "link set" has changed in a direction
of a link stays, unless the file changes that direction. A lab that runs its workloads is
not changed. The name, the seed, the dilation and links to outside of the lab cannot change:
"up --reconfigure" makes the lab anew.

If the command fails or is interrupted, what was done stays: inspect shows it, and
another apply does the rest. --dry-run says what would change, and changes nothing.

` + fileHelp + `

` + partHelp,
		Example: `  ndklab apply examples/pair.ndklab.yaml --dry-run
  ndklab apply examples/pair.ndklab.yaml
  ndklab apply                            the file in this folder`,
		Args: arguments(0, 1, "one file"),
	}
	output := outputFlag(cmd)
	flags := newFileFlags(cmd)
	flags.addDilation(cmd)
	dry := cmd.Flags().Bool("dry-run", false, "say what would change, and change nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, err := fileArgument(cmd, args, "one file")
		if err != nil {
			return err
		}
		content, err := readText(cmd.Context(), file)
		if err != nil {
			return err
		}
		tidy(cmd)
		return applyFile(cmd, content, flags, *dry, *output)
	}
	return cmd
}

// An application says what apply has done or would do.
type application struct {
	Lab     string `json:"lab"`
	DryRun  bool   `json:"dry_run"`
	Changed bool   `json:"changed"` // there was, or would be, anything to do
	// Completes says why an earlier apply, which this one completes, did not
	// come to its end; "" if there is none.
	Completes string `json:"completes,omitempty"`
	*diff.Difference
}

// applyFile changes the lab of a topology to what that says.
func applyFile(cmd *cobra.Command, file *topologyText, flags *fileFlags, dry bool, output format) error {
	l, err := openLabOf(cmd, file, flags)
	if err != nil {
		return err
	}
	defer l.Close()
	standing, err := l.Standing(cmd.Context())
	if err != nil {
		return err
	}
	t, err := flags.parse(cmd, file, standing.Topology)
	if err != nil {
		return err
	}
	if err := lab.Refuse(t); err != nil {
		return err
	}
	d, err := diff.Compare(standing.Topology, t)
	if refused := (*diff.RefusedError)(nil); errors.As(err, &refused) {
		return control.Errorf(control.Usage, "%v, which a lab that is up cannot: `ndklab up --reconfigure` makes lab %s anew", refused, t.Name)
	}
	if err != nil {
		return err
	}
	a := application{t.Name, dry, !d.None() || standing.Unfinished != "", standing.Unfinished, d}
	if output == textFormat {
		before := a.String()
		if a.Completes != "" {
			before = fmt.Sprintf("the last apply did not come to its end: %s\n%s", a.Completes, before)
		}
		if _, err := io.WriteString(cmd.OutOrStdout(), before); err != nil {
			return written(err)
		}
	}
	begin := time.Now()
	if a.Changed && !dry {
		if err := l.Apply(cmd.Context(), t, standing); err != nil {
			return err
		}
	}
	return output.printText(cmd.OutOrStdout(), a, a.conclusion(time.Since(begin)))
}

// openLabOf connects to the lab that a topology is of.
func openLabOf(cmd *cobra.Command, text *topologyText, flags *fileFlags) (*lab.Lab, error) {
	t, err := text.parse(cmd.Context(), topology.Options{Name: flags.name, Nodes: flags.nodes})
	if err != nil {
		return nil, err
	}
	l, err := lab.Open(cmd.Context(), t.Name)
	if control.CodeOf(err) == control.Usage {
		return nil, fmt.Errorf("%w: `ndklab up` makes it", err)
	}
	return l, err
}

// conclusion returns what has happened, in a line.
func (a *application) conclusion(took time.Duration) string {
	switch {
	case !a.Changed:
		return fmt.Sprintf("lab %s is as the file says: nothing changes\n", a.Lab)
	case a.DryRun:
		return fmt.Sprintf("lab %s would change: %s; nothing was done\n", a.Lab, a.counts())
	}
	return fmt.Sprintf("lab %s is changed after %d ms: %s\n", a.Lab, took.Milliseconds(), a.counts())
}

// counts says how much changes.
func (a *application) counts() string {
	nodes, links := a.Counts()
	var words []string
	for _, of := range []struct {
		what  string
		count map[diff.Action]int
	}{{"nodes", nodes}, {"links", links}} {
		for _, action := range []diff.Action{diff.Add, diff.Remove, diff.Alter, diff.Restart, diff.Replace} {
			if n := of.count[action]; n > 0 {
				words = append(words, fmt.Sprintf("%s %s: %d", of.what, done(action), n))
			}
		}
	}
	if len(a.Plans) > 0 {
		words = append(words, strings.Join(a.Plans, ", "))
	}
	if words == nil {
		return "the rest of the last apply"
	}
	return strings.Join(words, ", ")
}

// done returns an action as it is told of afterwards.
func done(a diff.Action) string {
	switch a {
	case diff.Add:
		return "added"
	case diff.Remove:
		return "removed"
	case diff.Alter:
		return "altered"
	case diff.Restart:
		return "restarted"
	}
	return "made anew"
}
