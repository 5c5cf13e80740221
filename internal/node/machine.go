package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/node/reaper"
	"github.com/ndklab/ndklab/internal/node/rtnl"
)

// A Machine has the resources that the nodes of one supervisor share. Its zero value is ready. Its methods may be called from
// any goroutine.
type Machine struct {
	Reaper *reaper.Reaper // of the supervisor's orphans, which leaves agents to this package; nil: the supervisor has none

	arrivals  arrivals
	answering sync.Once    // before the first observation of an idle node
	answer    *Observation // of such nodes; valid once answering is done

	writing sync.Mutex // held while settings are written; guards what follows
	proc    *os.File   // where they are
	written int        // for how many namespaces they were there
}

// threadNetwork is the network namespace of the calling thread.
const threadNetwork = "/proc/thread-self/ns/net"

// newNetwork makes the network namespace of a node, in which interfaces are made later, and returns it with a socket to
// configure them by. An agent would make it with its other namespaces, but a node is to have it before there is an agent.
func (m *Machine) newNetwork() (network *os.File, socket *rtnl.Socket, err error) {
	away := onThread(func() error { return os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWNET)) }, func() {
		if err = m.disableDiscovery(); err != nil {
			return
		}
		if socket, err = rtnl.Open(); err != nil {
			return
		}
		if network, err = os.Open(threadNetwork); err != nil {
			socket.Close()
		}
	})
	if err := errors.Join(away, err); err != nil {
		return nil, nil, fmt.Errorf("network namespace: %w", err)
	}
	return network, socket, nil
}

// inside calls f on a thread that is in a network namespace.
func inside(network *os.File, f func()) error {
	raw, err := network.SyscallConn()
	if err != nil {
		return err
	}
	return onThread(func() (err error) {
		e := raw.Control(func(fd uintptr) { err = os.NewSyscallError("setns", unix.Setns(int(fd), unix.CLONE_NEWNET)) })
		return errors.Join(e, err)
	}, f)
}

// onThread calls f on a thread that enter takes to another network namespace. The thread is not used for anything else
// there.
func onThread(enter func() error, f func()) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		// Unless it is unlocked the thread ends with the goroutine.
		own, err := os.Open(threadNetwork)
		if err != nil {
			done <- err
			return
		}
		defer own.Close()
		if err = enter(); err == nil {
			f()
			if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
		}
		done <- err
	}()
	return <-done
}

// perProc is the number of namespaces whose settings are written in one /proc. Every namespace has files of the same
// names, and the kernel goes through those of all that were looked for there to find one (fs/proc/proc_sysctl.c,
// proc_sys_compare). In one /proc for all, the 10,000th node would take milliseconds. Making another takes as long as going
// through some tens.
const perProc = 64

// disableDiscovery keeps the kernel from sending what no lab needs on the interfaces that
// the thread's namespace gets: duplicate address detection for the link-local address and router
// solicitations. Both do no harm on the link, so a kernel without IPv6 and a read-only
// /proc/sys, as containers have it, are no errors.
func (m *Machine) disableDiscovery() error {
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.written%perProc == 0 {
		if err := m.openProc(); err != nil {
			return err
		}
	}
	m.written++
	for _, setting := range []string{"accept_dad", "accept_ra"} {
		err := writeAt(m.proc, "sys/net/ipv6/conf/default/"+setting, "0")
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EROFS) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// openProc opens a /proc in which nobody has looked for anything, or the usual one where the kernel allows no other, as in
// containers that hide a part of it. m.writing is held.
func (m *Machine) openProc() error {
	proc, err := newProc()
	if err != nil {
		if proc, err = os.Open("/proc"); err != nil {
			return err
		}
	}
	if m.proc != nil {
		m.proc.Close()
	}
	m.proc = proc
	return nil
}

// newProc makes a /proc that is mounted nowhere.
func newProc() (*os.File, error) {
	made, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(made)
	if err := unix.FsconfigCreate(made); err != nil {
		return nil, err
	}
	proc, err := unix.Fsmount(made, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(proc), "proc"), nil
}

// writeAt writes to a file below a folder that is there.
func writeAt(dir *os.File, file, text string) error {
	fd, err := unix.Openat(int(dir.Fd()), file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: file, Err: err}
	}
	_, err = unix.Write(fd, []byte(text))
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return &fs.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}

// collect calls f, which starts an agent and returns its process id. collected is called once it has been waited for.
func (m *Machine) collect(f func() (pid int, err error)) error {
	if m.Reaper == nil {
		_, err := f()
		return err
	}
	return m.Reaper.Start(f)
}

func (m *Machine) collected(pid int) {
	if m.Reaper != nil {
		m.Reaper.Collected(pid)
	}
}
