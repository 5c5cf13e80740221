package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ndklab/ndklab/fabric/lab"
	"github.com/ndklab/ndklab/node"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

const execVerb = "exec"

func execCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   execVerb + " LAB/NODE -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a node",
		Long: `Runs a command in a node: in its network, with the caller's files, environment,
working folder, standard input, output and error. Variables and files that the
topology gives the node come before the caller's, and names of nodes resolve. Signals are passed on to it. The
folder of ndklab itself is added to the end of PATH.

The exit code is the command's: 128 and the signal's number if one killed it, 127
if there is no such command, 126 if it cannot be executed. It is 125 if ndklab
itself failed, and 2 if there is no such lab or node.`,
		Example: `  ndklab exec pair/client -- ip address
  ndklab exec pair/client -- ping -c 3 10.0.0.2
  ndklab exec pair/client -- sh -c 'ss -uln'
  ndklab exec pair/server -- ndklab rping -s -a 10.0.0.2`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 && args[1] == "--" {
				args = append(args[:1:1], args[2:]...)
			}
			if len(args) < 2 {
				return misuse("exec takes LAB/NODE and a command")
			}
			labName, nodeName, ok := strings.Cut(args[0], "/")
			if !ok || labName == "" || nodeName == "" {
				return misuse("%q is no node, expected LAB/NODE", args[0])
			}
			return nil
		},
	}
	cmd.Flags().SetInterspersed(false) // what follows the node is the command's
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sweep(cmd)
		labName, nodeName, _ := strings.Cut(args[0], "/")
		command := args[1:]
		if command[0] == "--" {
			command = command[1:]
		}
		status, err := runIn(cmd.Context(), labName, nodeName, command)
		if err != nil {
			return err
		}
		return exitStatus(status)
	}
	return cmd
}

// runIn runs a command in a node with our standard files. ctx is for reaching the
// lab; after that, what would interrupt us is for the command to act upon.
func runIn(ctx context.Context, labName, nodeName string, command []string) (status int, err error) {
	l, err := lab.Open(ctx, labName)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	signal.Reset(unix.SIGINT, unix.SIGTERM)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(signals)
	const id = "exec"
	go func() {
		for {
			select {
			case s := <-signals:
				// A command that has just ended gets no signals any more.
				_ = l.Signal(ctx, nodeName, id, s.(syscall.Signal))
			case <-ctx.Done():
				return
			}
		}
	}()
	return l.Exec(ctx, nodeName, node.Command{ID: id, Args: command, Env: withSelf(os.Environ()), Dir: dir}, os.Stdin, os.Stdout, os.Stderr)
}

// withSelf adds the folder of this program to the end of PATH, so that a node finds
// "ndklab" also where it was started by a path, as bin/ndklab is.
func withSelf(env []string) []string {
	self, err := os.Executable()
	if err != nil {
		return env // the command may do without
	}
	dir := filepath.Dir(self)
	for i, v := range env {
		switch {
		case v == "PATH=":
			env[i] = v + dir
			return env
		case strings.HasPrefix(v, "PATH="):
			env[i] = v + string(filepath.ListSeparator) + dir
			return env
		}
	}
	return append(env, "PATH="+dir)
}
