// Package monitor starts the program ndklab-monitor, which is how commands look at a lab that goes on: `ndklab metrics`,
// `ndklab top` and `ndklab ui`. It is that program's side of what the two say to each other, too.
//
// It is a program of its own because each process of a lab is the binary ndklab: the libraries that monitors need
// (net/http, those of Prometheus, of terminals) allocate three times as much when they are initialised as all of ndklab,
// which a lab of a thousand nodes would pay a thousand times. The program lies beside ndklab. It lives no
// longer than who started it: it ends with the channel between them.
//
// This package links none of those libraries. Start reading at Run, and at Main for the other side.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"golang.org/x/sys/unix"
)

// Program is the name of the program's file.
const Program = "ndklab-monitor"

// Params say what the program is to do: one of Metrics, Top and UI is there.
type Params struct {
	Version string // of who asks, which must be the program's
	Metrics *Metrics
	Top     *Top
	UI      *UI
}

// Metrics are to be exposed to Prometheus.
type Metrics struct {
	Lab    string
	Listen string // HOST:PORT
	Once   bool   // they are written to standard output, instead
}

// Top is to be shown in the terminal.
type Top struct {
	Lab      string
	Interval time.Duration
	Once     bool // one table of each kind is written to standard output, instead
	JSON     bool // and that as JSON
	Color    bool // colours may be used
}

// UI is a page to be served.
type UI struct {
	Lab     string   // "": none, but reports
	Reports []string // files with reports of runs, which are laid over each other
	Listen  string   // HOST:PORT
	Open    bool     // in the browser of who asks
}

// methodShow lasts until the lab has ended, or all is written that was asked for.
var methodShow = control.NewProcedure[Params]("show")

// channelFD is the descriptor of the program's end of the channel.
const channelFD = 3

// Run runs the program with the standard files given until ctx ends or the lab does. It returns the
// reason of the lab's end, or why the lab cannot be shown.
func Run(ctx context.Context, params Params, stdin io.Reader, stdout, stderr io.Writer) error {
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
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = stdin, stdout, stderr, []*os.File{theirs}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return fmt.Errorf("start %s: %w", Program, err)
	}
	err = methodShow.Call(ctx, conn, params)
	conn.Close()
	ended := cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == unix.SIGPIPE {
		return nil // who read the output has read enough, as `head` does
	}
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

// Main is the program: it has show do what Run asks for, and returns its exit code. show ends when its
// context does, and is waited for.
func Main(version string, show func(context.Context, Params) error) int {
	// A terminal's Ctrl-C is for who started it, whose end of the channel tells, and so is its hangup. If that one was killed, the
	// program is in the background, where SIGTTOU would stop it when it restores the terminal (tcsetattr(3)).
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGTTOU)
	var requests control.Mux
	var showing sync.Mutex // held while show goes on
	methodShow.Handle(&requests, func(ctx context.Context, _ *control.Request, params Params) error {
		if params.Version != version {
			return control.Errorf(control.Unable, "%s is of version %s, ndklab of version %s: `make build` builds both", Program, version, params.Version)
		}
		showing.Lock()
		defer showing.Unlock()
		return show(ctx, params)
	})
	conn, err := control.FromFile(os.NewFile(channelFD, "channel"), requests.Serve)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: it is no command: `ndklab metrics`, top and ui start it\n", Program)
		return 2
	}
	conn.Wait()
	showing.Lock() // for good: what has not begun does not begin any more, and what ends leaves a terminal as it was
	return 0
}
