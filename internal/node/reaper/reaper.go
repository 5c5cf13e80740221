// Package reaper reaps the orphans of a PID namespace. They become the children of its
// process 1: the supervisor of a lab, and the agent of each node. It leaves the exit status
// of children that process 1 has started itself to those that wait for them.
//
// Start reading at Reaper.
package reaper

import (
	"os"
	"os/signal"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Reaper reaps the orphans of this process, which has one Reaper at most. Its methods may be called
// from any goroutine.
type Reaper struct {
	kick chan struct{} // a child that was in the way has been collected

	starting sync.RWMutex // held for reading while a child is being started

	mu  sync.Mutex   // guards own
	own map[int]bool // children that somebody waits for
}

// New returns a Reaper. It reaps nothing before Run.
func New() *Reaper {
	return &Reaper{kick: make(chan struct{}, 1), own: map[int]bool{}}
}

// Start calls f, which starts a child that its caller waits for, and returns the
// child's process id. The caller calls Collected when it has waited.
func (r *Reaper) Start(f func() (pid int, err error)) error {
	r.starting.RLock()
	defer r.starting.RUnlock()
	pid, err := f()
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.own[pid] = true
	r.mu.Unlock()
	return nil
}

// Collected reports to the Reaper that a child has been waited for.
func (r *Reaper) Collected(pid int) {
	r.mu.Lock()
	delete(r.own, pid)
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// Run reaps orphans, for as long as the process lives.
func (r *Reaper) Run() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	for {
		select {
		case <-ended:
		case <-r.kick:
		}
		for r.reapOne() {
		}
	}
}

// childInfo is siginfo_t as waitid fills it in on 64-bit machines.
type childInfo struct {
	_   [4]int32 // signal number, error, code, padding
	pid int32
	_   [108]byte
}

// reapOne reaps an orphan that has ended. It returns false if there is none, or
// if the kernel shows it another child first; it is called again when that one
// has been collected.
func (r *Reaper) reapOne() bool {
	r.starting.Lock() // a child that is being started may be dead before it is in own
	defer r.starting.Unlock()
	var info childInfo
	err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err != nil || info.pid == 0 {
		return err == unix.EINTR
	}
	pid := int(info.pid)
	r.mu.Lock()
	own := r.own[pid]
	r.mu.Unlock()
	if own {
		return false
	}
	_, err = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return err == nil || err == unix.EINTR
}
