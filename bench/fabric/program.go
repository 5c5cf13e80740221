package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// programArg is the first argument of this program where it is one of programs.
const programArg = "program"

// programs holds the programs that run at the ends of links. Each says a line when it
// is ready, ends by itself or with its input, and then may print a result as JSON.
var programs = map[string]func(args []string) error{}

// A place is an end of a link: it runs a command there until that ends, which
// ctx's end brings about.
type place func(ctx context.Context, args []string, stdin, stdout, stderr *os.File) error

// A running is a program at an end of a link.
type running struct {
	name   string
	input  *os.File
	output *bufio.Reader
	file   *os.File // of output
	ended  chan error
	cancel context.CancelFunc
}

// self is this program, whose file may have been replaced since.
const self = "/proc/self/exe"

// start starts one of programs.
func (p place) start(ctx context.Context, name string, args ...any) (*running, error) {
	command := []string{self, programArg, name}
	for _, a := range args {
		command = append(command, fmt.Sprint(a))
	}
	return p.command(ctx, command)
}

// command starts any command.
func (p place) command(ctx context.Context, args []string) (*running, error) {
	theirIn, ourIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ourOut, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirIn.Close(), ourIn.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &running{
		name: args[len(args)-1], input: ourIn, output: bufio.NewReader(ourOut), file: ourOut,
		ended: make(chan error, 1), cancel: cancel,
	}
	if len(args) > 2 && args[1] == programArg {
		r.name = args[2]
	}
	go func() {
		err := p(ctx, args, theirIn, theirOut, os.Stderr)
		theirIn.Close()
		theirOut.Close()
		r.ended <- err
	}()
	return r, nil
}

// ready waits until the program says a line.
func (r *running) ready() error {
	if _, err := r.output.ReadString('\n'); err != nil {
		return errors.Join(fmt.Errorf("%s is not ready: %w", r.name, err), r.wait())
	}
	return nil
}

// result ends the program's input and decodes what it prints then.
func (r *running) result(v any) error {
	r.input.Close()
	err := json.NewDecoder(r.output).Decode(v)
	return r.finish(err)
}

// wait waits until the program ends by itself.
func (r *running) wait() error {
	_, err := io.Copy(io.Discard, r.output)
	return r.finish(err)
}

func (r *running) finish(err error) error {
	err = errors.Join(err, <-r.ended)
	r.cancel()
	r.input.Close()
	r.file.Close()
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	return nil
}

// stop ends the program.
func (r *running) stop() {
	r.input.Close()
	r.cancel()
	<-r.ended
	r.file.Close()
}

// inputEnd returns a channel that is closed when this program's input has ended.
func inputEnd() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, os.Stdin) // whatever happens to it, it has ended
	}()
	return ended
}

// pause waits, or fails with ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
