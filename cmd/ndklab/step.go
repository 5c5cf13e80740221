package main

import (
	"context"
	"errors"
	"os"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/hosts"
)

// An announcer tells workers that others have started how they reach the head of their lab.
type announcer = func(ctx context.Context, assignment string) error

// runInStep runs a text as one of the tasks of a Slurm step, which were all started with this command line. unread is why it was not read, nil
// if it was. Task 0 makes the lab, by run; any other becomes a worker, and does not return then.
func runInStep(ctx context.Context, text *topologyText, unread error, run func(announcer) (*report.Run, error)) (*report.Run, error) {
	step, err := hosts.OpenStep(ctx, os.Getenv)
	if err != nil {
		return nil, forFirst(ctx, err)
	}
	digest := ""
	if text != nil {
		digest = text.digest()
	}
	err = step.Meet(ctx, os.Args[1:], digest, unread)
	if !step.Leads() {
		if err != nil {
			return nil, err
		}
		code, err := step.Follow(ctx)
		if err != nil {
			return nil, err
		}
		return nil, exitStatus(code)
	}
	if err = errors.Join(err, unread); err == nil {
		result, runErr := run(step.Announce)
		if runErr == nil {
			return result, nil
		}
		err = runErr
	}
	return nil, errors.Join(err, step.Refuse(context.WithoutCancel(ctx), exitCode(ctx, err)))
}

// forFirst returns an error for the first task of a Slurm step to tell, and the exit code alone for the others, which would
// say the same.
func forFirst(ctx context.Context, err error) error {
	if rank, _, is := hosts.InStep(); is && rank > 0 {
		return exitStatus(exitCode(ctx, err))
	}
	return err
}
