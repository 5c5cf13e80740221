package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"

	"github.com/ndklab/ndklab/internal/control"
	"golang.org/x/sys/unix"
)

// mountProc replaces the host's /proc by one of the lab's processes.
func mountProc() error {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fs)
	if err := errors.Join(unix.FsconfigSetString(fs, "source", "proc"), unix.FsconfigCreate(fs)); err != nil {
		return err
	}
	proc, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(proc)
	// In a user namespace the host's cannot be taken away, only covered: the kernel takes
	// care that such namespaces see no more than their parents (mount_namespaces(7)).
	if err := unix.Unmount("/proc", unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return unix.MoveMount(proc, "", unix.AT_FDCWD, "/proc", unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// enterNamespaces makes the namespaces that the supervisor was started in fit
// for a lab: mounts that stay inside, /proc of the lab's own processes, an empty
// folder over the state directory, and no IPv6 on interfaces made later. It
// returns the host's /proc, opened before it was covered.
func enterNamespaces(name, stateDir string) (hostProc *os.File, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("private mounts: %w", err)
	}
	if hostProc, err = os.Open("/proc"); err != nil {
		return nil, err
	}
	err = mountProc()
	if errors.Is(err, unix.EPERM) {
		// In a container that covers parts of /proc the kernel allows no new one.
		log.Print("the lab sees the host's /proc, because this system allows no other")
	} else if err != nil {
		return nil, fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("ndklab", stateDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return nil, fmt.Errorf("mount %s: %w", stateDir, err)
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return nil, fmt.Errorf("host name: %w", err)
	}
	// A middle that spoke IPv6 would talk to the nodes as if it were their peer.
	err = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // there is none in a kernel without IPv6
		return nil, control.Errorf(control.Unable, "turn off IPv6 between the nodes: %v", err)
	}
	return hostProc, nil
}
