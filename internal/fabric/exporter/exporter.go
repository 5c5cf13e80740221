// Package exporter starts the program ndklab-metrics, which exposes the metrics of a lab to Prometheus, and
// is that program's side of what the two say to each other.
//
// It is a program of its own because each process of a lab is the binary ndklab: the libraries that
// metrics need (net/http, protobuf, client_golang) allocate three times as much when they are initialised as all
// of ndklab, which a lab of a thousand nodes would pay a thousand times. The program lies beside ndklab.
// It lives no longer than who started it: it ends with the channel between them.
//
// This package links none of those libraries. Start reading at Run, and at Main for the other side.
package exporter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"

	"github.com/ndklab/ndklab/internal/control"
	"golang.org/x/sys/unix"
)

// Program is the name of the program's file.
const Program = "ndklab-metrics"

// Params say what is to be exposed.
type Params struct {
	Lab     string
	Listen  string // HOST:PORT
	Once    bool   // the metrics are written to standard output, instead
	Version string // of who asks, which must be the program's
}

// methodExpose lasts until the lab has ended, or with Params.Once until all is written.
var methodExpose = control.NewProcedure[Params]("expose")

// channelFD is the descriptor of the program's end of the channel.
const channelFD = 3

// Run runs the program with standard output and error of its own until ctx ends or the lab does. It returns the
// reason of the lab's end, or why the metrics cannot be exposed.
func Run(ctx context.Context, params Params, stdout, stderr io.Writer) error {
	path, err := find()
	if err != nil {
		return err
	}
	conn, theirs, err := control.Pair(nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	cmd := exec.Command(path)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = stdout, stderr, []*os.File{theirs}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return fmt.Errorf("start %s: %w", Program, err)
	}
	err = methodExpose.Call(ctx, conn, params)
	conn.Close()
	ended := cmd.Wait()
	if errors.Is(err, control.ErrClosed) {
		return control.Errorf(control.Failed, "%s died (%v)", Program, ended)
	}
	return err
}

// find returns the path of the program: beside this one, or in PATH.
func find() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), Program)
	if path, err := exec.LookPath(beside); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(Program)
	if err != nil {
		return "", control.Errorf(control.Unable, "the program %s is missing beside %s, and in PATH: `make build` builds both", Program, self)
	}
	return path, nil
}

// Main is the program: it has expose do what Run asks for, and returns its exit code. expose ends when its
// context does.
func Main(version string, expose func(context.Context, Params) error) int {
	// A terminal's Ctrl-C is for who started it, whose end of the channel tells.
	signal.Ignore(unix.SIGINT, unix.SIGTERM)
	var requests control.Mux
	methodExpose.Handle(&requests, func(ctx context.Context, _ *control.Request, params Params) error {
		if params.Version != version {
			return control.Errorf(control.Unable, "%s is of version %s, ndklab of version %s: `make build` builds both", Program, version, params.Version)
		}
		return expose(ctx, params)
	})
	conn, err := control.FromFile(os.NewFile(channelFD, "channel"), requests.Serve)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: it is no command: `ndklab metrics` starts it\n", Program)
		return 2
	}
	conn.Wait()
	return 0
}
