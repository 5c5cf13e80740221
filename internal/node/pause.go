package node

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
)

// methodPause is the request to pause or resume, which the agent answers for the node's
// other processes.
var methodPause = control.NewProcedure[pauseParams]("pause")

// pauseParams ask to pause, or to resume. Requests may overtake each other: one that is
// numbered less than another that has been answered does nothing.
type pauseParams struct {
	Number uint64
	Pause  bool
}

// Pause stops every process of the node with SIGSTOP, the agent last: from then on it
// answers nothing until Resume. A freezer cgroup would not show in the processes'
// states, but ordinary users have none, and what version 1's has frozen cannot be
// killed: it would outlive its lab. If the agent does not answer before ctx ends, the
// node goes on, whenever it reads the request.
func (a *Agent) Pause(ctx context.Context) error {
	if err := a.callPause(ctx, true); err != nil {
		go func() { _ = a.callPause(context.Background(), false) }() // at the latest it ends with the agent
		return err
	}
	if err := a.Send(unix.SIGSTOP); err != nil {
		return err
	}
	// The thread that takes the signal has the others stop, and these answer meanwhile.
	// However long that takes, the node is paused.
	_ = until(ctx, stateChangeTime, a.process().stoppedOrEnded)
	return nil
}

func (a *Agent) callPause(ctx context.Context, pause bool) error {
	return a.named(methodPause.Call(ctx, a.conn, pauseParams{a.pauses.Add(1), pause}))
}

// Resume has every process of the node go on with SIGCONT, also those that somebody
// else had stopped.
func (a *Agent) Resume(ctx context.Context) error {
	if err := a.Send(unix.SIGCONT); err != nil {
		return err
	}
	return a.callPause(ctx, false)
}

// pause stops or continues every process of the node but this one. The kernel does
// that in one go: what is being forked is stopped, too (kernel/fork.c, copy_process).
func (a *agent) pause(_ context.Context, _ *control.Request, params pauseParams) error {
	a.mu.Lock() // no command is half started
	defer a.mu.Unlock()
	if params.Number < a.stops {
		return nil
	}
	a.stops, a.paused = params.Number, params.Pause
	sig := unix.SIGCONT
	if params.Pause {
		sig = unix.SIGSTOP
	}
	if err := unix.Kill(-1, sig); err != nil && err != unix.ESRCH { // ESRCH: there is no other
		return fmt.Errorf("%s to all processes: %w", unix.SignalName(sig), err)
	}
	return nil
}
