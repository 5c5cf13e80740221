package node

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// The requests of a pause, which the agent answers for the node's other processes.
const (
	methodPause  = "pause"
	methodResume = "resume"
)

// Pause stops every process of the node with SIGSTOP, the agent last: from then on it
// answers nothing until Resume. A freezer cgroup would not show in the processes'
// states, but ordinary users have none, and what version 1's has frozen cannot be
// killed: it would outlive its lab.
func (a *Agent) Pause(ctx context.Context) error {
	if err := a.conn.Call(ctx, methodPause, nil, nil); err != nil {
		return fmt.Errorf("node %s: %w", a.cfg.Name, err)
	}
	return a.Send(unix.SIGSTOP)
}

// Resume has every process of the node go on with SIGCONT, also those that somebody
// else had stopped.
func (a *Agent) Resume(ctx context.Context) error {
	if err := a.Send(unix.SIGCONT); err != nil {
		return err
	}
	if err := a.conn.Call(ctx, methodResume, nil, nil); err != nil {
		return fmt.Errorf("node %s: %w", a.cfg.Name, err)
	}
	return nil
}

// pause stops or continues every process of the node but this one. The kernel does
// that in one go: what is being forked is stopped, too (kernel/fork.c, copy_process).
func (a *agent) pause(pause bool) error {
	a.mu.Lock() // no command is half started
	defer a.mu.Unlock()
	a.paused = pause
	sig := unix.SIGCONT
	if pause {
		sig = unix.SIGSTOP
	}
	if err := unix.Kill(-1, sig); err != nil && err != unix.ESRCH { // ESRCH: there is no other
		return fmt.Errorf("%s to all processes: %w", unix.SignalName(sig), err)
	}
	return nil
}
