package verbs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/node/mount"
)

const nosuid = unix.MS_NOSUID

// The folders of a node's /dev.
const (
	devices    = "/dev"
	infiniband = "infiniband" // the adapter's names, and the engine, where libibverbs looks for it
	stash      = ".ndklab"    // what the mounts themselves need
	machines   = stash + "/host"
)

// mountDevices makes /dev show the adapter's names beside the machine's own devices. Programs
// check whether these are there and can be opened. Only libibverbs writes to them. /dev/null
// stands for them, as only the machine's root may make devices.
func mountDevices(libraries string) error {
	entries, err := os.ReadDir(devices)
	if err != nil {
		return err
	}
	return mount.MemoryOver(devices, nosuid, func(folder string) error {
		if err := os.MkdirAll(filepath.Join(folder, machines), 0o755); err != nil {
			return err
		}
		if err := mount.Over(devices, filepath.Join(folder, machines)); err != nil {
			return err
		}
		for _, entry := range entries {
			if name := entry.Name(); name != infiniband && name != stash {
				if err := show(folder, entry); err != nil && !errors.Is(err, fs.ErrNotExist) { // it has gone
					return err
				}
			}
		}
		return nameAdapter(filepath.Join(folder, infiniband), libraries)
	})
}

// show makes a folder show one of the machine's devices.
func show(folder string, entry fs.DirEntry) error {
	from, to := filepath.Join(devices, entry.Name()), filepath.Join(folder, entry.Name())
	switch {
	case entry.Type() == fs.ModeSymlink:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case entry.Name() == "ptmx":
		// It finds the pts that it makes terminals in by the folder that it is in, which a
		// mounted file has none of (path_pts in fs/devpts/inode.c).
		return os.Symlink(filepath.Join(machines, entry.Name()), to)
	case entry.IsDir():
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
	default:
		if err := touch(to); err != nil {
			return err
		}
	}
	return mount.Over(from, to)
}

// nameAdapter makes the folder with the adapter's names.
func nameAdapter(folder, libraries string) error {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"uverbs0", "rdma_cm"} {
		path := filepath.Join(folder, name)
		if err := touch(path); err != nil {
			return err
		}
		if err := mount.Over(os.DevNull, path); err != nil {
			return err
		}
	}
	for _, name := range []string{Engine, Process} {
		if err := os.Symlink(filepath.Join(libraries, name), filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return nil
}

// touch makes an empty file, for something to be mounted over. A hundred are made, and
// opening them would take as long again.
func touch(path string) error {
	return os.NewSyscallError("mknod "+path, unix.Mknod(path, unix.S_IFREG|0o644, 0))
}
