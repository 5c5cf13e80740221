package main

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
)

// An error that nobody reads our output any more is no failure; any other is, though it is joined with that.
func TestPipe(t *testing.T) {
	pipe := &fs.PathError{Op: "write", Path: "|1", Err: unix.EPIPE}
	missing := control.Errorf(control.Usage, "no such node")
	for _, c := range []struct {
		err  error
		want int
	}{
		{pipe, exitOK}, {fmt.Errorf("print: %w", pipe), exitOK}, {errors.Join(pipe, pipe), exitOK},
		{errors.Join(missing, pipe), exitUsage}, {errors.Join(pipe, fmt.Errorf("stop: %w", missing)), exitUsage},
		{fmt.Errorf("%w: %w", control.ErrClosed, pipe), exitFault},
	} {
		if got := exitCode(t.Context(), c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}
