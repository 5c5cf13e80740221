package node

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const cgroups = "/sys/fs/cgroup"

// remountSys mounts a sysfs that shows this node's interfaces, instead of those
// of the namespace where /sys was mounted. It is done for the first command (furnish.go) and
// not for nodes that run none. Commands run also where it cannot be done, as in
// containers that hide part of /sys.
func (a *agent) remountSys() {
	if err := mountSys(); err != nil {
		fmt.Fprintf(os.Stderr, "/sys/class/net does not show this node's interfaces: %v\n", err)
	}
}

func mountSys() error {
	// The new /sys hides the cgroups, by which programs learn what cpu and memory
	// they have.
	tree, err := unix.OpenTree(unix.AT_FDCWD, cgroups,
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("copy of %s: %w", cgroups, err)
	}
	defer unix.Close(tree)
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, cgroups, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("move %s: %w", cgroups, err)
	}
	return nil
}
