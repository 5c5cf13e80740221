package main

import (
	"errors"
	"os"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/monitor"
	"github.com/ndklab/ndklab/internal/terminal"
	"github.com/spf13/cobra"
)

// leastInterval is the shortest --interval: a lab with many nodes has other things to do.
const leastInterval = 100 * time.Millisecond

func topCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top [LAB] [--interval TIME] [--once] [-o text|json] [-t FILE]",
		Short: "Watch a lab in the terminal",
		Long: `Shows what a lab that is up does, in tables that are redrawn as it goes on: nodes, links,
the flows of workloads, and connections and queue pairs. What is in trouble comes first:
what is down or cut, loses packets that it was not asked to lose, has errors or sends
again. Rates are of the time since the tables were last drawn.

  1 2 3 4, tab        nodes, links, flows, queue pairs
  up, down, j, k      another row; enter shows all of it, and its last events
  s                   sort by trouble, by rate, by name
  /                   show rows with a text alone
  p                   pause a node, or have it go on
  c                   cut a link, or heal it
  u                   undo the last change
  ?                   all keys
  q, Ctrl-C           quit; the lab goes on

Before a key is pressed, the command that does the same is below the table.

Where standard input or output is no terminal, or TERM is dumb, and with --once, it
prints each table once. -o json prints the lab's map and the rates once. There are no
colours where NO_COLOR is set; ! marks trouble and * what is notable either way.

It ends with the lab, too, and says so. Without LAB it is the lab of the one
*.ndklab.yaml in the current folder.`,
		Example: `  ndklab top pair
  ndklab top pair --interval 5s
  ndklab top pair --once | head -20
  ndklab top pair -o json`,
		Args: labArguments(0, 0, "one lab"),
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	interval := cmd.Flags().Duration("interval", time.Second, "look at the lab once in this `TIME`")
	once := cmd.Flags().Bool("once", false, "print each table once and end")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *interval < leastInterval {
			return misuse("--interval %v: expected %v or more", *interval, leastInterval)
		}
		tidy(cmd)
		labName, err := labArgument(cmd, args, "one lab")
		if err != nil {
			return err
		}
		params := monitor.Top{Lab: labName, Interval: *interval, JSON: *output == jsonFormat, Color: os.Getenv("NO_COLOR") == ""}
		params.Once = *once || params.JSON || os.Getenv("TERM") == "dumb" || !terminal.Is(os.Stdin) || !terminal.Is(os.Stdout)
		show := func() error {
			return monitor.Run(cmd.Context(), monitor.Params{Top: &params, Version: version}, os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr())
		}
		if params.Once {
			return show()
		}
		err = keepingTerminal(show)
		if cmd.Context().Err() != nil {
			return nil
		}
		return err
	}
	return cmd
}

// leaveScreen has a terminal show what was there before a program that took all of its screen: the usual screen, with a cursor, and
// without marks around what is pasted (xterm's control sequences, private modes 1049, 25 and 2004).
const leaveScreen = "\x1b[?1049l\x1b[?25h\x1b[?2004l"

// keepingTerminal calls show, after which the terminal is as it was before, also if the program at it was killed.
func keepingTerminal(show func() error) error {
	restore, err := terminal.Keep(os.Stdout)
	if err != nil {
		return err
	}
	shown := show()
	changed, err := restore()
	if changed && err == nil {
		_, err = os.Stdout.WriteString(leaveScreen)
	}
	return errors.Join(shown, err)
}
