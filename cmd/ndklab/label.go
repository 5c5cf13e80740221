package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// This file is the labels that labs are given, and which labs are meant.

// A labelFlag is --label of commands that make labs.
type labelFlag struct{ texts []string }

func newLabelFlag(cmd *cobra.Command) *labelFlag {
	f := new(labelFlag)
	cmd.Flags().StringArrayVar(&f.texts, "label", nil, "a label that the lab gets, `NAME=VALUE`, beside those of its file; may be given several times")
	return f
}

// read is the labels; nil if none was given.
func (f *labelFlag) read() (map[string]string, error) {
	var labels map[string]string
	for _, text := range f.texts {
		name, value, err := topology.ParseLabel(text)
		if err != nil {
			return nil, misuse("--label: %w", err)
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[name] = value
	}
	return labels, nil
}

// A selectorFlag is --label of commands that are about labs that are up.
type selectorFlag struct{ texts []string }

func newSelectorFlag(cmd *cobra.Command) *selectorFlag {
	f := new(selectorFlag)
	cmd.Flags().StringArrayVar(&f.texts, "label", nil, "only labs with this label, `NAME=VALUE`, or NAME for any value; given several times, with all of them")
	return f
}

// given reports whether any label is.
func (f *selectorFlag) given() bool { return len(f.texts) > 0 }

// labs is the labs that are up and selected.
func (f *selectorFlag) labs(ctx context.Context) ([]lab.Info, error) {
	selector, err := topology.ParseSelector(f.texts)
	if err != nil {
		return nil, misuse("--label: %w", err)
	}
	all, err := lab.List(ctx)
	if err != nil {
		return nil, err
	}
	selected := []lab.Info{}
	for _, l := range all {
		if selector.Selects(l.Labels) {
			selected = append(selected, l)
		}
	}
	return selected, nil
}

// agreed says which labs are about to go, and asks whether they are to, if there is
// somebody at a terminal to answer.
func agreed(cmd *cobra.Command, labs []lab.Info) (bool, error) {
	if _, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS); err != nil || len(labs) == 0 {
		return true, nil
	}
	for _, l := range labs {
		fmt.Fprintf(cmd.ErrOrStderr(), "  %s: %s, nodes: %d%s\n", l.Lab, l.State, l.Nodes, parenthesised(topology.FormatLabels(l.Labels)))
	}
	what := "1 lab"
	if len(labs) > 1 {
		what = fmt.Sprintf("%d labs", len(labs))
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Take down %s? [y/N] ", what)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // the end is a no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case line := <-answer:
		return line == "y" || line == "yes", nil
	case <-cmd.Context().Done():
		return false, context.Cause(cmd.Context())
	}
}

func parenthesised(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}
