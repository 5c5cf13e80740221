package main

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/spf13/cobra"
)

func waitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait [LAB[/NODE]] --for CONDITION [--timeout TIME] [-o text|json] [-t FILE]",
		Short: "Wait until a lab or a node is in some state",
		Long: `Waits until a condition holds, and prints what it found. Conditions are

  ready           every node of the lab is ready, or the node is; the lab need not
                  be there yet
  down            nothing is left of the lab, or the node is down
  workload=NAME   the workload of that name is done, in the run that goes on or was
                  the last; if there was none, in the next one
  COUNTER>=N      that counter of the node, or the sum over the lab's nodes, is N or
                  more; likewise with >, ==, <= and <. Counters are those of
                  "ndklab counters", under their names there

A range or a pattern, 'LAB/h[1-4]', stands for several nodes of a lab that is there. The
command waits for one after the other, within one --timeout for all, and prints what it
found of each.

The exit code is 0 if the condition holds; 1 if it does not within --timeout, or if the
workload had errors; 2 if there is no such lab, node, workload or counter.`,
		Example: `  ndklab wait pair --for ready
  ndklab wait pair --for workload=bulk --timeout 5m
  ndklab wait pair/server --for 'Accept>=2'
  ndklab wait pair/server --for down
  ndklab wait pair --for 'retransmitted>0' -o json`,
		Args: arguments(0, 1, "one lab or node"),
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	forWhat := cmd.Flags().String("for", "", "what to wait for: a `CONDITION`")
	timeout := cmd.Flags().Duration("timeout", 30*time.Second, "wait no longer than `TIME`; 0: without end")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		labName, node, err := targetArgument(cmd, args)
		if err != nil {
			return err
		}
		if *forWhat == "" {
			return misuse("wait needs --for: ready, down, workload=NAME, or a counter with its bound, such as Connect>=2")
		}
		condition, err := lab.ParseCondition(*forWhat)
		if err != nil {
			return misuse("--for: %v", err)
		}
		if *timeout < 0 {
			return misuse("--timeout %v, expected a time of 0 or more", *timeout)
		}
		tidy(cmd)
		nodes, err := namedIn(cmd.Context(), labName, node)
		if err != nil {
			return err
		}
		begin := time.Now()
		for _, node := range nodes {
			left := *timeout
			if left > 0 { // at least the next look at it
				left = max(left-time.Since(begin), time.Nanosecond)
			}
			got, err := lab.Await(cmd.Context(), labName, node, condition, left)
			if err != nil {
				return err
			}
			result := &report.Awaited{Lab: labName, Node: node, For: condition.String(), Reached: got.Reached, Failed: got.Failed,
				Got: got.Got, Seconds: time.Since(begin).Seconds()}
			if err := output.printText(cmd.OutOrStdout(), result, awaitedText(result)); err != nil {
				return err
			}
			if err := verdict(got.Reached && !got.Failed); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// awaitedText returns what came of waiting, in a line.
func awaitedText(a *report.Awaited) string {
	target := a.Lab
	if a.Node != "" {
		target += "/" + a.Node
	}
	if !a.Reached {
		return fmt.Sprintf("%s: not %s after %.1f s: %s\n", target, a.For, a.Seconds, a.Got)
	}
	return fmt.Sprintf("%s: %s\n", target, a.Got)
}
