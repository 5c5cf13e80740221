package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/node/shell"
	"github.com/spf13/cobra"
)

// This file is exec in several nodes.

// execWidth is in how many nodes at once a command for all of them runs.
const execWidth = 16

// runInAll runs a command in the nodes of a lab that a word names, or in all for "",
// without input, and prints what each
// writes with the node's name in front of the line. The status is that of the first
// node, in the order of the topology, whose command failed. When ctx ends, so do the
// commands.
func runInAll(cmd *cobra.Command, labName, word string, command, env []string) error {
	tidy(cmd)
	ctx := cmd.Context()
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	l, err := lab.Open(ctx, labName)
	if err != nil {
		return err
	}
	defer l.Close()
	if word == "" {
		word = "*"
	}
	nodes, err := named(ctx, l, word, "node", processes)
	if err != nil {
		return err
	}
	width := 0
	for _, name := range nodes {
		width = max(width, len(name))
	}
	stdout, stderr := &lines{w: cmd.OutOrStdout()}, &lines{w: cmd.ErrOrStderr()}
	statuses, problems := make([]int, len(nodes)), make([]error, len(nodes))
	var running sync.WaitGroup
	room := make(chan struct{}, execWidth)
	for i, name := range nodes {
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			prefix := fmt.Sprintf("%-*s  ", width, name)
			c := node.Command{Args: command, Env: shell.WithSelf(slices.Clone(env)), Dir: dir}
			statuses[i], problems[i] = runPrefixed(ctx, l, name, c, stdout.of(prefix), stderr.of(prefix))
		})
	}
	running.Wait()
	if err := errors.Join(problems...); err != nil {
		return err
	}
	for _, status := range statuses {
		if status != 0 {
			return exitStatus(status)
		}
	}
	return nil
}

// runPrefixed runs a command in a node, without input. Its output and error output are
// read by stdout and stderr until nobody has them open any more, as processes that it
// leaves behind may, or ctx ends.
func runPrefixed(ctx context.Context, l *lab.Lab, name string, c node.Command, stdout, stderr func(io.Reader)) (status int, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	var reading sync.WaitGroup
	defer reading.Wait()
	files := []*os.File{null}
	for _, read := range []func(io.Reader){stdout, stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return 0, err
		}
		defer w.Close()
		files = append(files, w)
		stop := context.AfterFunc(ctx, func() { r.Close() })
		reading.Go(func() {
			defer r.Close()
			defer stop()
			read(r)
		})
	}
	return l.Nodes.Exec(ctx, name, c, files...)
}

// lines writes lines of several sources, whole.
type lines struct {
	mu sync.Mutex // held while a line is written
	w  io.Writer
}

// of returns what copies lines with a prefix.
func (l *lines) of(prefix string) func(io.Reader) {
	return func(r io.Reader) {
		in := bufio.NewReader(r)
		for {
			line, err := in.ReadBytes('\n')
			if len(line) > 0 {
				if err != nil {
					line = append(line, '\n')
				}
				l.mu.Lock()
				// Where nobody reads any more, nothing is to be said.
				_, _ = fmt.Fprintf(l.w, "%s%s", prefix, line)
				l.mu.Unlock()
			}
			if err != nil {
				return
			}
		}
	}
}
