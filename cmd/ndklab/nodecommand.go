package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// This file has the commands that do something to nodes of a lab that is up.

func stopCommand() *cobra.Command {
	return nodeCommand(lab.StopNode, "Switch nodes of a lab off", `Switches nodes off. Everything that runs in them ends at once, also what exec left in
the background, and their interfaces vanish. The far ends of their links lose the
carrier, and peers see what they would see of a machine whose power fails. The lab
goes on. "ndklab start" switches the nodes on again.

Of a switch all ports go down; it forwards again when it is started.

Several nodes are stopped one after the other. A node that is down already is left as it
is, with exit code 0.`)
}

func startCommand() *cobra.Command {
	return nodeCommand(lab.StartNode, "Switch nodes of a lab on again", `Switches nodes on that were stopped, or whose agent has ended, and returns when they are
ready. They have the same names, addresses, routes and limits as before. Counters begin
at zero, and nothing runs in the nodes. Their links are as they were last set, by
"ndklab link" and the timeline, too.

A node that is up already is left as it is, with exit code 0. A node that is paused is an
error: "ndklab resume" is for that.`)
}

func restartCommand() *cobra.Command {
	return nodeCommand(lab.RestartNode, "Switch nodes of a lab off and on again", `Stops nodes, unless they are down, and starts them: see "ndklab stop" and "ndklab start".`)
}

func pauseCommand() *cobra.Command {
	return nodeCommand(lab.PauseNode, "Have nodes hang: stop all their processes", `Stops every process of nodes with SIGSTOP. Their interfaces stay, and nobody answers:
peers see a machine that hangs. Other commands fail at once for a node that is paused.
A switch that is paused forwards nothing, and its ports are down.
"ndklab resume" has it go on, "ndklab stop" ends it.`)
}

func resumeCommand() *cobra.Command {
	return nodeCommand(lab.ResumeNode, "Have paused nodes go on", `Has every process of paused nodes go on, those that somebody else has stopped included.`)
}

func killCommand() *cobra.Command {
	signal := "KILL"
	cmd := nodeCommand(lab.KillNode, "Have nodes crash", `Kills the agents of nodes, as a crash would. Everything that runs in the nodes ends, and
their interfaces vanish. The key "restart" of a node in the topology says what comes
next: never (the default) leaves the node down, always starts it again.

--signal sends another signal than SIGKILL, and does not wait for its effect: the agent
may go on. SIGSTOP, for instance, leaves a node whose agent does not answer until
SIGCONT. A switch takes SIGKILL alone, and is down until it is started.`)
	cmd.Use = strings.Replace(cmd.Use, " [-o", " [--signal SIGNAL] [-o", 1)
	cmd.Example += "\n  ndklab kill pair/server --signal STOP"
	cmd.Flags().StringVarP(&signal, "signal", "s", signal, "the `SIGNAL` to send, by name or number")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := signalOf(signal); err != nil {
			return misuse("--signal %q, expected the name or the number of a signal, such as KILL, SIGTERM or 9", signal)
		}
		return nil
	}
	return cmd
}

// signalOf is the signal of a name, with or without SIG, or of a number.
func signalOf(text string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(text); err == nil {
		if unix.SignalName(syscall.Signal(n)) != "" {
			return syscall.Signal(n), nil
		}
	} else if sig := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")); sig != 0 {
		return sig, nil
	}
	return 0, errors.New("no signal")
}

// nodeCommand makes a command that does action to nodes.
func nodeCommand(action lab.Action, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   string(action) + " LAB/NODE... [-o text|json] [-t FILE]",
		Short: short,
		Long:  long + "\n\nA range or a pattern stands for several nodes: 'LAB/h[1-8]', 'LAB/leaf*'; for\nswitches only if it fits no host and no router. With -t FILE the\nlab is the file's, and nodes are named NODE.",
		Example: fmt.Sprintf(`  ndklab %[1]s pair/server
  ndklab %[1]s 'fabric/h[1-8]'
  ndklab %[1]s pair/client pair/server -o json
  ndklab %[1]s -t examples/pair.ndklab.yaml server`, action),
		Args: arguments(1, -1, "one node or more"),
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		changed := struct {
			Nodes []*lab.NodeChange `json:"nodes"`
		}{[]*lab.NodeChange{}}
		failed := withNodes(cmd, args, func(l *lab.Lab, node string) error {
			change, err := act(cmd, l, node, action)
			if err == nil {
				changed.Nodes = append(changed.Nodes, change)
			}
			return err
		})
		if len(changed.Nodes) == 0 && failed != nil {
			return failed
		}
		var text strings.Builder
		for _, c := range changed.Nodes {
			fmt.Fprintf(&text, "%s/%s %s\n", c.Lab, c.Name, became(c, action))
		}
		return errors.Join(failed, output.printText(cmd.OutOrStdout(), changed, text.String()))
	}
	return cmd
}

// act does the action of a command to a node.
func act(cmd *cobra.Command, l *lab.Lab, node string, action lab.Action) (*lab.NodeChange, error) {
	if action != lab.KillNode {
		return l.Nodes.Change(cmd.Context(), node, action)
	}
	sig, err := signalOf(cmd.Flag("signal").Value.String())
	if err != nil {
		return nil, err
	}
	return l.Nodes.Kill(cmd.Context(), node, sig)
}

// became says what has become of a node.
func became(c *lab.NodeChange, action lab.Action) string {
	if action == lab.KillNode && c.State == c.Was {
		return "was sent the signal, and is " + c.InWords()
	}
	already := ""
	if c.Was == c.State && (action == lab.StopNode || action == lab.StartNode) {
		already = " already"
	}
	return "is " + c.State + already + strings.TrimPrefix(c.InWords(), c.State)
}

// withNodes calls do for every node that the arguments name, LAB/NODE or, with -t, NODE, where
// NODE may be a range or a pattern. It goes on after a node that do fails of, but not when it
// is interrupted.
func withNodes(cmd *cobra.Command, args []string, do func(l *lab.Lab, node string) error) error {
	type place struct{ lab, node string }
	var nodes []place
	tidy(cmd)
	labName, err := fileLab(cmd)
	if err != nil {
		return err
	}
	for _, arg := range args {
		n, expected := place{labName, arg}, "NODE"
		if labName == "" {
			n.lab, n.node, _ = strings.Cut(arg, "/")
			expected = "LAB/NODE"
		}
		if n.lab == "" || n.node == "" || strings.Contains(n.node, "/") {
			return misuse("%q is no node, expected %s", arg, expected)
		}
		nodes = append(nodes, n)
	}
	labs := map[string]*lab.Lab{}
	defer func() {
		for _, l := range labs {
			l.Close()
		}
	}()
	var problems error
	for _, n := range nodes {
		err := func() error {
			l := labs[n.lab]
			if l == nil {
				var err error
				if l, err = lab.Open(cmd.Context(), n.lab); err != nil {
					return err
				}
				labs[n.lab] = l
			}
			nodes, err := named(cmd.Context(), l, n.node, "node", changeable(n.node))
			if err != nil {
				return err
			}
			return eachOf(nodes, func(node string) error { return do(l, node) })
		}()
		if errors.Is(err, context.Canceled) {
			return err
		}
		problems = errors.Join(problems, err)
	}
	return problems
}
