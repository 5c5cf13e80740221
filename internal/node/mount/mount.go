// Package mount makes mounts in the mount namespace of a node: copies of what is mounted
// elsewhere, and memory for files. It uses the system calls, since mount(8) writes a table
// of the host's that a user may not write. Its callers decide what to mount where.
package mount

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Clone returns a detached mount of what is at a path and below it. The caller closes it.
func Clone(path string) (tree int, err error) {
	tree, err = unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return 0, fmt.Errorf("copy of the mount at %s: %w", path, err)
	}
	return tree, nil
}

// Attach mounts a tree over what is at a path.
func Attach(tree int, path string) error {
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_SYMLINKS); err != nil {
		return fmt.Errorf("mount over %s: %w", path, err)
	}
	return nil
}

// Over mounts what is at a path and below it over what is at another. It takes less
// time than Clone and Attach.
func Over(path, target string) error {
	if err := unix.Mount(path, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s over %s: %w", path, target, err)
	}
	return nil
}

// scratch is the folder over which memory is mounted while it is filled. Any folder would do
// in which nobody looks for something meanwhile.
const scratch = "/sys"

// Memory calls fill with a folder of memory. Afterwards the folder is gone, but for what is
// mounted elsewhere by then.
func Memory(flags uintptr, fill func(folder string) error) error {
	if err := unix.Mount("ndklab", scratch, "tmpfs", flags, "mode=0755"); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	err := fill(scratch)
	if unmountErr := unix.Unmount(scratch, unix.MNT_DETACH); unmountErr != nil {
		err = errors.Join(err, fmt.Errorf("unmount %s: %w", scratch, unmountErr))
	}
	return err
}

// MemoryOver calls fill with a folder of memory, and mounts that with all that is mounted
// in it over a folder.
func MemoryOver(target string, flags uintptr, fill func(folder string) error) error {
	place, err := unix.Open(target, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // which scratch may cover
	if err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	defer unix.Close(place)
	return Memory(flags, func(folder string) error {
		if err := fill(folder); err != nil {
			return err
		}
		return Over(folder, fmt.Sprintf("/proc/self/fd/%d", place))
	})
}
