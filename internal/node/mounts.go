package node

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/node/mount"
)

const cgroups = "/sys/fs/cgroup"

// prepareCommands gives commands a /sys and a /proc of this node, and begins to reap
// what they will leave behind. It is done for the first command (furnish.go)
// and not for nodes that run none. Commands run also where mounts cannot be made, as in containers
// that hide part of /sys or /proc.
func (a *agent) prepareCommands() {
	if err := mountSys(); err != nil {
		fmt.Fprintf(os.Stderr, "/sys/class/net does not show this node's interfaces: %v\n", err)
	}
	if err := a.mountProc(); err != nil {
		fmt.Fprintf(os.Stderr, "/proc does not show this node's processes: %v\n", err)
	}
	go a.reaper.Run()
}

// mountProc mounts a /proc of this node's processes, and keeps the one before.
func (a *agent) mountProc() error {
	if _, err := a.outsideProc(); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// outsideProc is the /proc of the supervisor's PID namespace.
func (a *agent) outsideProc() (*os.File, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.outside == nil {
		var err error
		if a.outside, err = os.OpenFile("/proc", unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
			return nil, err
		}
	}
	return a.outside, nil
}

// mountSys mounts a sysfs that shows this node's interfaces, instead of those of the
// namespace where /sys was mounted.
func mountSys() error {
	// The new /sys hides the cgroups, by which programs learn what cpu and memory
	// they have.
	tree, err := mount.Clone(cgroups)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	return mount.Attach(tree, cgroups)
}
