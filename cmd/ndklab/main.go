// Go's runtime reads how many processors a cgroup grants when a program starts, and
// again and again later. A lab has a process per node, each of which would: they take
// the machine's number of processors instead.

//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command ndklab runs RDMA labs on one machine: see ndklab --help.
//
// Here is one file for each command: flags in, text or JSON out. The packages below
// fabric do the work of the commands. This file has what all commands share: the
// exit code, and how errors are told.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/doctor"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// Of what this program is built, set by the linker: a tag or a commit's short name, the commit,
// and its date in RFC 3339. The date is not that of the build: the same commit gives the same bytes.
var (
	version = "unknown"
	commit  = "unknown"
	date    = "unknown"
)

// Exit codes. They are an API.
const (
	exitOK          = 0
	exitFailed      = 1 // a check, a workload or a command of a node failed
	exitUsage       = 2 // the command line or the topology is wrong, or names what does not exist
	exitUnable      = 3 // this machine cannot do it
	exitFault       = 4 // our own fault
	exitExecFault   = 125
	exitInterrupted = 130
)

// An exitStatus ends the program with that status when there is nothing more
// to say.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// errCommandLine marks errors in the command line itself.
var errCommandLine = errors.New("command line")

func main() {
	// The processes of a lab are this binary under other names.
	lab.Child()
	doctor.Child()
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs a command line and returns its exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	ctx, stop := interruptible()
	defer stop()
	root := rootCommand(stdout, stderr)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	code := exitCode(ctx, err)
	if (cmd.Name() == execName || cmd.Name() == shellName) && (code == exitUnable || code == exitFault) && !errors.As(err, new(exitStatus)) {
		code = exitExecFault
	}
	tell(stderr, err, code)
	if code == exitUsage {
		for _, name := range fromEnvironment(cmd) {
			fmt.Fprintf(stderr, "ndklab: the environment has %s=%s\n", name, os.Getenv(name))
		}
	}
	if errors.Is(err, errCommandLine) {
		fmt.Fprintf(stderr, "ndklab: see `%s --help`\n", cmd.CommandPath())
	}
	return code
}

// together is within which time signals are one: timeout(1) sends its signal to the
// process and to the process group.
const together = 100 * time.Millisecond

// interruptible returns a context that ends with the first SIGINT or SIGTERM, or when the
// function is called. The second one ends the process at once; what it leaves is taken down
// by the lab's own processes. Signals stay caught to the end of the process: one more that
// comes together with the first must not kill a command that is done with its work.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	// Without this, writing to a pipe that nobody reads any more would kill us
	// in the middle of a run. Writes fail instead.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
		cancel()
		time.Sleep(together)
		for len(signals) > 0 {
			<-signals
		}
		<-signals
		os.Exit(exitInterrupted)
	}()
	return ctx, cancel
}

// isPipe reports whether an error says that nobody reads our output any more, and nothing else: another one that is joined with
// that counts.
func isPipe(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !isPipe(e) })
	}
	if wrapped := errors.Unwrap(err); wrapped != nil {
		return isPipe(wrapped)
	}
	return errors.Is(err, unix.EPIPE)
}

// exitCode returns what an error means to the caller of the program.
func exitCode(ctx context.Context, err error) int {
	var (
		status  exitStatus
		invalid topology.ErrorList
	)
	switch {
	case err == nil, isPipe(err): // whoever reads us has had enough
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &invalid), errors.Is(err, errCommandLine):
		return exitUsage
	}
	switch control.CodeOf(err) {
	case control.Usage:
		return exitUsage
	case control.Unmet:
		return exitFailed
	case control.Unable:
		return exitUnable
	}
	return exitFault
}

// tell writes an error for people, one line for each problem. Errors in a
// topology begin with their place in the file, where editors look for it.
func tell(w io.Writer, err error, code int) {
	var (
		status  exitStatus
		invalid topology.ErrorList
	)
	switch {
	case err == nil, errors.As(err, &status), isPipe(err):
	case code == exitInterrupted:
		fmt.Fprintln(w, "ndklab: interrupted")
	case errors.As(err, &invalid):
		fmt.Fprintln(w, invalid)
	case errors.Is(err, control.ErrClosed):
		fmt.Fprintln(w, "ndklab: the lab's supervisor was killed, and the lab with it")
	default:
		for line := range strings.SplitSeq(strings.TrimSpace(err.Error()), "\n") {
			fmt.Fprintln(w, "ndklab:", line)
		}
	}
}
