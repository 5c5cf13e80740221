package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/node/shell"
	"github.com/ndklab/ndklab/internal/terminal"
	"github.com/ndklab/ndklab/internal/topology/naming"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

const (
	execName  = "exec"
	shellName = "shell"
)

func execCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   execName + " [-T] [--all] [--rnic program|process] [-t FILE] LAB/NODE -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a node",
		Long: `Runs a command in a node: in its network, with the caller's files, environment,
working folder, standard input, output and error. Variables and files that the topology
gives the node come before the caller's. Names of nodes resolve. Signals are passed on to
the command. The folder of ndklab itself is added to the end of PATH.

Where standard input and output are a terminal, the command gets a terminal of its own in
the node, of the same size. Programs that fill the screen work, and so do shells with
their jobs; Ctrl-C ends what runs in the foreground there. With --no-tty, as in a pipe,
the command has the caller's files as they are.

A program that uses libibverbs or librdmacm, such as ib_write_bw, finds the node's
adapter as the device ndk0, if ndklab's libraries were built (make verbs): "ndklab
doctor" says whether they were. It has the adapter in its own process. With
--rnic=process the adapter is in a process beside it, which is slower. That is for
programs that use it in children of a fork, that are in a debugger, or that have a Go
runtime or a JVM.

With --all the command runs in all nodes of the lab LAB; with a range or a pattern, as in
'LAB/h[1-8]', in those nodes. It runs side by side and without input, and each line that
it writes begins with the node's name. The exit code is that of the first node where it
is not 0.

With -t FILE the lab is the file's, and the node is named NODE; with --all it is not
named.

The exit code is the command's: 128 and the signal's number if a signal killed it, 127
if there is no such command, 126 if it cannot be executed. It is 125 if ndklab
itself failed, and 2 if there is no such lab or node, or the node is down or paused.`,
		Example: `  ndklab exec pair/client -- ip address
  ndklab exec pair/client -- ping -c 3 10.0.0.2
  ndklab exec pair/client -- top
  ndklab exec --all pair -- ip route
  ndklab exec 'fabric/leaf*' -- ip route
  ndklab exec pair/client -- sh -c 'ss -uln'
  ndklab exec pair/client -- ib_write_bw server
  ndklab exec -t examples/pair.ndklab.yaml client -- ip address
  ndklab exec --rnic=process pair/client -- fio verify.fio
  ndklab exec pair/server -- ndklab rping -s -a 10.0.0.2`,
	}
	cmd.Flags().SetInterspersed(false) // what follows the node is the command's
	noTTY := noTTYFlag(cmd)
	all := cmd.Flags().Bool("all", false, "run it in all nodes of a lab")
	rnic := rnicFlag(cmd)
	topologyFlag(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		target, command, inAll := execArguments(cmd, args, *all)
		switch {
		case inAll && (len(command) == 0 || strings.Contains(target, "/")):
			return misuse("exec --all takes LAB and a command, or -t FILE and a command")
		case inAll:
			return nil
		case len(command) == 0:
			return misuse("exec takes LAB/NODE and a command, or -t FILE, NODE and a command")
		}
		return isNode(cmd, target)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		target, command, inAll := execArguments(cmd, args, *all)
		target, err := withFileLab(cmd, target)
		if err != nil {
			return err
		}
		labName, word, _ := strings.Cut(target, "/")
		if inAll || naming.IsSeveral(word) {
			return runInAll(cmd, labName, word, command, rnic.environment())
		}
		return runIn(cmd, target, command, rnic.environment(), *noTTY)
	}
	return cmd
}

// execArguments takes exec's arguments apart. No command is called --all, so it may
// stand behind the lab as well. With -t and --all there is no target.
func execArguments(cmd *cobra.Command, args []string, all bool) (target string, command []string, inAll bool) {
	command = args
	if len(args) > 0 && !(all && cmd.Flags().Changed("topology")) {
		target, command = args[0], args[1:]
	}
	if len(command) > 0 && command[0] == "--all" {
		command, all = command[1:], true
	}
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	return target, command, all
}

// noTTYFlag adds --no-tty.
func noTTYFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().BoolP("no-tty", "T", false, "give the command no terminal of its own")
}

// runIn runs a command in the node that target, LAB/NODE, names, with our standard
// files or a terminal in their place, and returns its exit status as an error.
func runIn(cmd *cobra.Command, target string, command, env []string, noTTY bool) (err error) {
	tidy(cmd)
	labName, nodeName, _ := strings.Cut(target, "/")
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	l, err := lab.Open(cmd.Context(), labName)
	if err != nil {
		return err
	}
	defer l.Close()
	c := node.Command{ID: "exec", Args: command, Env: shell.WithSelf(env), Dir: dir}
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	ctx, cancel := forwardSignals(cmd.Context(), l, nodeName, c.ID)
	defer cancel()
	if !noTTY && terminal.Is(os.Stdin) && terminal.Is(os.Stdout) {
		session, err := terminal.Attach(os.Stdin, os.Stdout)
		if err != nil {
			return control.Errorf(control.Unable, "%v; --no-tty does without", err)
		}
		// Also when we panic.
		defer func() { err = errors.Join(err, session.Detach()) }()
		c.Terminal = true
		for i, f := range files {
			if terminal.Is(f) {
				files[i] = session.Peer()
			}
		}
	}
	ended := make(chan error, 1)
	go func() {
		status, err := l.Nodes.Exec(ctx, nodeName, c, files...)
		if err == nil {
			err = exitStatus(status)
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done(): // and the node's agent does not answer
		fmt.Fprintf(cmd.ErrOrStderr(), "ndklab: node %s takes no signals now: the command there ends when it goes on\n", nodeName)
		return context.Cause(ctx)
	}
}

const (
	// signalTime bounds how long a node takes to have a command take a signal.
	signalTime = 5 * time.Second
	// signalled and a signal's number are the exit status of who is ended by it, as shells say.
	signalled = 128
)

// forwardSignals has what would end us be for the command to act upon, from now
// until cancel is called; the context it returns ends with that, or, with an
// exitStatus, when the node takes no signals, as one that is paused. SIGHUP would not end
// us where nohup has it ignored.
func forwardSignals(ctx context.Context, l *lab.Lab, nodeName, id string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	signal.Reset(unix.SIGINT, unix.SIGTERM)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT)
	if !signal.Ignored(unix.SIGHUP) {
		signal.Notify(signals, unix.SIGHUP)
	}
	go func() {
		for {
			select {
			case s := <-signals:
				bounded, done := context.WithTimeout(ctx, signalTime)
				err := l.Nodes.Signal(bounded, nodeName, id, s.(syscall.Signal))
				if done(); err == nil {
					continue
				}
				select { // a command that has just ended gets no signals any more, and we are about to know
				case <-time.After(signalTime):
					cancel(exitStatus(signalled + int(s.(syscall.Signal))))
				case <-ctx.Done():
				}
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// A rnicPlace says where programs for RDMA have the adapter: in their own process, the default, or in one beside it.
type rnicPlace string

// rnicFlag adds --rnic.
func rnicFlag(cmd *cobra.Command) *rnicPlace {
	place := new(rnicPlace)
	cmd.Flags().Var(place, "rnic", "where a program for RDMA has the adapter: in its own process, or in one beside it")
	return place
}

func (p *rnicPlace) String() string { return string(*p) }
func (p *rnicPlace) Type() string   { return "program|process" }
func (p *rnicPlace) Set(value string) error {
	if value != "program" && value != "process" {
		return errors.New("expected program or process")
	}
	*p = rnicPlace(value)
	return nil
}

// environment is ours, with the variable that libibverbs.so.1 goes by where the flag was given.
func (p *rnicPlace) environment() []string {
	env := os.Environ()
	if *p != "" {
		env = append(env, "NDKLAB_RNIC="+string(*p))
	}
	return env
}
