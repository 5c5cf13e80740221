package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// KillWhole kills all processes of the node when it exceeds its memory limit. In version 1
// the kernel would kill the largest of them alone; in version 2 the kernel does the same as
// KillWhole (memory.oom.group). stop ends that, and returns when no process is being killed
// any more. It may be called again.
func (g *Group) KillWhole() (stop func(), err error) {
	h, ok := g.at[memoryController]
	if !ok || h.v2 || g.limits.Memory == 0 {
		return func() {}, nil
	}
	events, err := g.outOfMemory(h)
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: notice of the end of memory: %w", g.path, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var n [8]byte // an eventfd's counter
		for {
			if _, err := events.Read(n[:]); err != nil {
				return // closed
			}
			if g.hitLimit() {
				g.overMemory.Store(true)
				g.kill(h)
			}
		}
	}()
	return func() {
		_ = events.Close() // which ends Read; the second time it is closed already
		<-ended
	}, nil
}

// outOfMemory returns an eventfd that counts when the kernel is about to kill a process of
// the group (Documentation/admin-guide/cgroup-v1/memory.rst, 10).
func (g *Group) outOfMemory(h hierarchy) (*os.File, error) {
	dir := filepath.Join(h.root, g.path)
	control, err := os.Open(filepath.Join(dir, "memory.oom_control"))
	if err != nil {
		return nil, err
	}
	defer control.Close()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	events := os.NewFile(uintptr(fd), "eventfd")
	// The kernel keeps the eventfd alive until the group is removed.
	if err := write(filepath.Join(dir, "cgroup.event_control"), fmt.Sprintf("%d %d", fd, control.Fd())); err != nil {
		return nil, errors.Join(err, events.Close())
	}
	return events, nil
}

// largestCharge is the most that the kernel asks of a group at once and kills for when
// there is not so much left: 8 pages, PAGE_ALLOC_COSTLY_ORDER (mm/memcontrol.c,
// mem_cgroup_oom).
const largestCharge = 8 * 64 << 10 // bytes, with the largest pages that Linux has

// hitLimit reports whether the group was ever at its own limit. Notices also tell of
// the end of memory in groups above it, and of the group's removal. (memory.failcnt
// would tell, too, but counts nothing in Linux 6.18.)
func (g *Group) hitLimit() bool {
	peak := g.value(memoryController, "memory.max_usage_in_bytes", "")
	return peak != nil && *peak+largestCharge >= g.Limits().Memory
}

// kill kills the processes of the group until there are none, as they may fork
// meanwhile.
func (g *Group) kill(h hierarchy) {
	for deadline := time.Now().Add(removeTimeout); time.Now().Before(deadline); time.Sleep(removeInterval) {
		b, err := os.ReadFile(filepath.Join(h.root, g.path, "cgroup.procs"))
		if err != nil || len(b) == 0 {
			return
		}
		for field := range strings.FieldsSeq(string(b)) {
			// A process that this PID namespace does not have is a 0 here.
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
			}
		}
	}
}
