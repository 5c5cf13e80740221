package node

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// An Exit says how a process ended.
type Exit struct {
	Status int            // exit status if Signal is 0; -1 if another wait took it
	Signal syscall.Signal // what killed it
}

// String returns words such as "was killed by SIGKILL" or "exited with status 1".
func (e Exit) String() string {
	switch {
	case e.Signal != 0:
		return "was killed by " + unix.SignalName(e.Signal)
	case e.Status < 0:
		return "exited with a status that is not known"
	default:
		return fmt.Sprintf("exited with status %d", e.Status)
	}
}

// Shell returns the exit as shells report it: the status, or 128 and the signal's
// number.
func (e Exit) Shell() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Status
}

// A process is a child. It is waited for through its pidfd in Go's poller, so
// that a supervisor of thousands of nodes does not need as many threads.
type process struct {
	pid  int
	fd   *os.File      // pidfd; closed when the process is reaped
	done chan struct{} // closed when it is
	exit Exit          // valid once done is closed

	mu     sync.Mutex
	reaped bool // the pid may by now be another process's
}

// startProcess starts argv with the program at path. attr.Sys must not be nil.
// The caller has to call wait, or awaitEnd and reap.
func startProcess(path string, argv []string, attr *syscall.ProcAttr) (*process, error) {
	pidfd := -1
	attr.Sys.PidFD = &pidfd
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, err
	}
	p := &process{pid: pid, done: make(chan struct{})}
	if err = unix.SetNonblock(pidfd, true); err != nil {
		err = fmt.Errorf("pidfd: %w", err) // there is none before Linux 5.2
		err = errors.Join(err, p.signal(unix.SIGKILL, false))
		p.reap()
		return nil, err
	}
	p.fd = os.NewFile(uintptr(pidfd), "pidfd")
	return p, nil
}

// wait waits for the end of the process and reaps it.
func (p *process) wait() {
	p.awaitEnd()
	p.reap()
}

// awaitEnd returns when the process has ended, and leaves it a zombie.
func (p *process) awaitEnd() {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return // not with an open file; Wait4 will wait
	}
	// The error of Read is that of a closed file, or of one that cannot be
	// polled: then too, Wait4 will wait.
	_ = raw.Read(func(fd uintptr) bool {
		for {
			err := unix.Waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED|unix.WNOWAIT, nil)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
}

// stoppedOrEnded reports whether no thread of the process runs any more.
func (p *process) stoppedOrEnded() bool {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return true // see awaitEnd
	}
	var info unix.Siginfo
	var waitErr error
	err = raw.Control(func(fd uintptr) {
		waitErr = unix.Waitid(unix.P_PIDFD, int(fd), &info, unix.WSTOPPED|unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	})
	return err != nil || waitErr == unix.ECHILD || info.Signo != 0 // once it is reaped, the file is closed
}

// network opens the process's network namespace.
func (p *process) network() (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return nil, unix.ESRCH
	}
	return os.Open(fmt.Sprintf("/proc/%d/ns/net", p.pid))
}

// reap takes the exit status of a process that has ended.
func (p *process) reap() {
	p.mu.Lock()
	p.reaped = true
	var ws unix.WaitStatus
	_, err := unix.Wait4(p.pid, &ws, 0, nil)
	p.mu.Unlock()
	switch {
	case err != nil: // ECHILD: somebody waits for any child
		p.exit = Exit{Status: -1}
	case ws.Signaled():
		p.exit = Exit{Signal: ws.Signal()}
	default:
		p.exit = Exit{Status: ws.ExitStatus()}
	}
	p.fd.Close()
	close(p.done)
}

// signal sends sig to the process or, if group is set, to the process group that
// it leads. It fails with ESRCH if the process has ended.
func (p *process) signal(sig syscall.Signal, group bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return unix.ESRCH
	}
	if group {
		return unix.Kill(-p.pid, sig)
	}
	return unix.Kill(p.pid, sig)
}
