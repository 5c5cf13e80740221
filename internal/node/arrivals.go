package node

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// An arrivals notices that packets have arrived at sockets which nobody reads: those of nodes without a process. All
// sockets are in one epoll instance, as Go's poller would take several times the memory for each. The zero value watches
// none.
type arrivals struct {
	mu    sync.Mutex // guards what follows
	epoll *os.File   // nil while there is no node
	fd    int        // of epoll, which File.Fd would take out of Go's poller
	last  int32      // the number of the node that came last
	nodes map[int32]func()
}

// watch calls arrived, on a goroutine of its own, when something has arrived at one of the sockets, and again for each other
// one, until the number is forgotten.
func (r *arrivals) watch(sockets []*os.File, arrived func()) (number int32, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.epoll == nil {
		if err := r.open(); err != nil {
			return 0, err
		}
	}
	r.last++
	r.nodes[r.last] = arrived
	for i, f := range sockets {
		event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: r.last}
		if err := unix.EpollCtl(r.fd, unix.EPOLL_CTL_ADD, int(f.Fd()), &event); err != nil {
			return 0, errors.Join(os.NewSyscallError("epoll_ctl", err), r.remove(r.last, sockets[:i]))
		}
	}
	return r.last, nil
}

// open begins to watch. r.mu is held.
func (r *arrivals) open() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // else os.NewFile would leave it alone
		return errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	r.epoll, r.fd, r.nodes = os.NewFile(uintptr(fd), "epoll of nodes without a process"), fd, map[int32]func(){}
	go r.run(r.epoll)
	return nil
}

// forget takes the sockets of a node out, before they are closed: whoever else has them open keeps them in the instance.
func (r *arrivals) forget(number int32, sockets []*os.File) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.remove(number, sockets)
}

// remove is forget with r.mu held. With the last node the instance is closed, which ends run.
func (r *arrivals) remove(number int32, sockets []*os.File) (err error) {
	for _, f := range sockets {
		err = errors.Join(err, os.NewSyscallError("epoll_ctl", unix.EpollCtl(r.fd, unix.EPOLL_CTL_DEL, int(f.Fd()), nil)))
	}
	delete(r.nodes, number)
	if len(r.nodes) == 0 {
		err = errors.Join(err, r.epoll.Close())
		r.epoll = nil
	}
	if err != nil {
		return fmt.Errorf("sockets of a node without a process: %w", err)
	}
	return nil
}

// run waits for arrivals, until the instance is closed.
func (r *arrivals) run(epoll *os.File) {
	raw, err := epoll.SyscallConn()
	if err != nil {
		return // closed already
	}
	events := make([]unix.EpollEvent, 64)
	// It fails when the file is closed.
	_ = raw.Read(func(fd uintptr) bool {
		for {
			n, err := unix.EpollWait(int(fd), events, 0)
			if err != nil && err != unix.EINTR || n == 0 {
				return false
			}
			for _, e := range events[:max(n, 0)] {
				r.mu.Lock()
				arrived := r.nodes[e.Fd]
				r.mu.Unlock()
				if arrived != nil {
					go arrived()
				}
			}
		}
	})
}
