package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/ndklab/ndklab/internal/control"
	"golang.org/x/sys/unix"
)

// A Step is this process as one of the tasks of a Slurm step, all of which were started with the same command line. They
// agree on that there can be a lab. Then task 0 makes it, and each of the others becomes the worker of its host.
//
//	all:    what each is about to do (a task), and a fence
//	task 0: whether there is to be a lab, with the workers' assignment if so (a call), and a fence
//
// The lab's secret goes the path that srun's environment goes: between Slurm's daemons, which authenticate each other.
type Step struct {
	pmi   *pmi
	rank  int
	tasks int
	self  task
	done  bool // the others have been called
}

// A task says what one of a step is about to do.
type task struct {
	Host    string
	Build   string // of its program
	Command string // its arguments
	File    string // a digest of what it has read
	Problem string // why it can do nothing; "" if it can
}

// A call has the words of task 0 to the others.
type call struct {
	Assignment string
	Code       int // of exit, if there is no lab
}

// The keys of values that tasks put. That of a task has its number behind.
const (
	taskKey = "ndklab-task-"
	callKey = "ndklab-call"
)

// InStep reports whether this process is one of several tasks of a Slurm step, and which.
func InStep() (rank, tasks int, is bool) {
	tasks, err := strconv.Atoi(os.Getenv("SLURM_STEP_NUM_TASKS"))
	rank, rankErr := strconv.Atoi(os.Getenv("SLURM_PROCID"))
	return rank, tasks, err == nil && rankErr == nil && tasks > 1
}

// OpenStep begins to talk with the step's daemon.
func OpenStep(ctx context.Context, getenv func(string) string) (*Step, error) {
	s := &Step{self: task{Host: getenv("SLURMD_NODENAME")}}
	var err, tasksErr error
	s.rank, err = strconv.Atoi(getenv("SLURM_PROCID"))
	s.tasks, tasksErr = strconv.Atoi(getenv("SLURM_STEP_NUM_TASKS"))
	if err != nil || tasksErr != nil || s.self.Host == "" || getenv("SLURM_STEP_ID") == "" {
		return nil, control.Errorf(control.Usage, "--hosts step: this is no task of a Slurm step, expected to be run by srun: srun -N 8 --mpi=pmi2 ndklab run FILE --hosts step")
	}
	fd, err := strconv.Atoi(getenv("PMI_FD"))
	if err != nil {
		return nil, control.Errorf(control.Usage, "--hosts step: the tasks of this step cannot find each other (PMI_FD is not set), expected srun --mpi=pmi2; or, once in the allocation, ndklab run FILE --hosts slurm")
	}
	unix.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "PMI")
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return nil, control.Errorf(control.Unable, "--hosts step: PMI_FD is %d, expected the socket that srun --mpi=pmi2 gives each task: %v", fd, err)
	}
	ctx, cancel := stepContext(ctx)
	defer cancel()
	if s.pmi, err = openPMI(ctx, conn, getenv("PMI_JOBID"), s.rank); err != nil {
		conn.Close()
		return nil, stepError(err)
	}
	return s, nil
}

// errAbsent is the end of a context of stepContext.
var errAbsent = stepAbsent{}

type stepAbsent struct{}

func (stepAbsent) Error() string {
	return fmt.Sprintf("not all tasks of the step came within %v, expected each to run the same command", comeTime)
}

// stepContext bounds what depends on other tasks.
func stepContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, comeTime, errAbsent)
}

func stepError(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, errAbsent):
		err = errAbsent // whatever was under way
	}
	return control.Errorf(control.Unable, "--hosts step: %v", err)
}

// Leads reports whether this task makes the lab.
func (s *Step) Leads() bool { return s.rank == 0 }

// Meet tells the others that this task is about to run a command on a file that has this digest, or why it cannot: problem, nil if it
// can. It returns when all tasks have come, to task 0 with an error if the others do not agree. If it fails to any other, nobody is to
// be waited for.
func (s *Step) Meet(ctx context.Context, command []string, digest string, problem error) error {
	s.self.Build, s.self.Command, s.self.File = build(), strings.Join(command, " "), digest
	if problem != nil {
		s.self.Problem = problem.Error()
	}
	met, err := s.meet(ctx)
	if err != nil {
		s.done = true
		return stepError(err)
	}
	if !s.Leads() || problem != nil {
		return nil
	}
	return agree(met)
}

// meet returns all tasks to task 0.
func (s *Step) meet(ctx context.Context) (met []task, err error) {
	ctx, cancel := stepContext(ctx)
	defer cancel()
	told, err := json.Marshal(s.self)
	if err != nil {
		return nil, err
	}
	if err := s.pmi.put(ctx, taskKey+strconv.Itoa(s.rank), string(told)); err != nil {
		return nil, err
	}
	if err := s.pmi.fence(ctx); err != nil || !s.Leads() {
		return nil, err
	}
	met = make([]task, s.tasks)
	for i := range met {
		text, err := s.pmi.get(ctx, taskKey+strconv.Itoa(i))
		if err == nil {
			err = json.Unmarshal([]byte(text), &met[i])
		}
		if err != nil {
			return nil, fmt.Errorf("task %d: %w", i, err)
		}
	}
	return met, nil
}

// agree says what keeps tasks from being one lab.
func agree(met []task) error {
	if len(met) > MaxHosts {
		return control.Errorf(control.Usage, "--hosts step: %d tasks, expected at most %d", len(met), MaxHosts)
	}
	first, at := met[0], map[string]int{}
	for i, t := range met {
		if other, taken := at[t.Host]; taken {
			return control.Errorf(control.Usage, "--hosts step: tasks %d and %d are both on host %s, expected one task on each host: srun --ntasks-per-node=1", other, i, t.Host)
		}
		at[t.Host] = i
	}
	for i, t := range met {
		switch {
		case t.Build != first.Build:
			return buildError(t.Host, t.Build, first.Build)
		case t.Command != first.Command:
			return control.Errorf(control.Usage, "--hosts step: task %d on host %s runs `ndklab %s`, and task 0 `ndklab %s`, expected the same", i, t.Host, t.Command, first.Command)
		case t.Problem != "":
			return control.Errorf(control.Usage, "--hosts step: task %d on host %s: %s", i, t.Host, t.Problem)
		case t.File != first.File:
			return control.Errorf(control.Usage, "--hosts step: task %d on host %s has read another file of that name than task 0 on host %s, expected the same, as of a folder that all hosts share", i, t.Host, first.Host)
		}
	}
	return nil
}

// Announce has the other tasks become workers with an assignment that a Head gives (Head.Announce). It is task 0's.
func (s *Step) Announce(ctx context.Context, assignment string) error {
	return s.say(ctx, call{Assignment: assignment})
}

// Refuse has the other tasks end with an exit code, unless they were called before, or did not come. It is task 0's.
func (s *Step) Refuse(ctx context.Context, code int) error {
	if s.done {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, endTime) // they may have ended by the same signal as this task
	defer cancel()
	return s.say(ctx, call{Code: code})
}

func (s *Step) say(ctx context.Context, c call) error {
	s.done = true
	ctx, cancel := stepContext(ctx)
	defer cancel()
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	for _, do := range []func() error{
		func() error { return s.pmi.put(ctx, callKey, string(text)) },
		func() error { return s.pmi.fence(ctx) },
		func() error { return s.pmi.close(ctx) },
	} {
		if err := do(); err != nil {
			return stepError(err)
		}
	}
	return nil
}

// Follow waits for task 0 and has this process be the worker of its host. It returns only if there is no lab: the exit code for
// this task, or the error that it is not known.
func (s *Step) Follow(ctx context.Context) (code int, err error) {
	said, err := s.await(ctx)
	switch {
	case err != nil:
		return 0, stepError(err)
	case said.Code != 0:
		return said.Code, nil
	}
	return 0, Become(said.Assignment)
}

// await returns what task 0 says, and ends the talk.
func (s *Step) await(ctx context.Context) (said call, err error) {
	ctx, cancel := stepContext(ctx)
	defer cancel()
	if err := s.pmi.fence(ctx); err != nil {
		return call{}, err
	}
	text, err := s.pmi.get(ctx, callKey)
	if err == nil {
		err = json.Unmarshal([]byte(text), &said)
	}
	return said, errors.Join(err, s.pmi.close(ctx))
}
