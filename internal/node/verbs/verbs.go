// Package verbs mounts in a node what RDMA programs look for on any machine: ndklab's
// libibverbs.so.1 in the place of the system's, a copy of the system's librdmacm.so.1 that
// works with it (package rdmacm), the device in /sys/class (package sysclass), and its names
// in /dev/infiniband. All are mounts of the node's namespace, and end with it. The machine's
// own files stay as they are. The rights of the namespace suffice.
//
// It does not contain the libraries: these are C (verbs/lib), and the engine that they load
// (verbs/engine). A program with a libibverbs of its own, by an absolute path or RPATH, or
// one that is linked statically, does not find them.
//
// Start reading at Mount.
package verbs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ndklab/ndklab/internal/node/mount"
	"github.com/ndklab/ndklab/internal/node/verbs/sysclass"
)

// The libraries, by the names that programs and verbs/lib look for.
const (
	Ibverbs = "libibverbs.so.1"
	RDMACM  = "librdmacm.so.1"
	Engine  = "libndklab-rnic.so"
	Process = "ndklab-rnic" // a program, which has the engine in a process of its own
)

// DeviceName is the device's in every node.
const DeviceName = "ndk0"

// Mounts name the files that Mount has put in place.
type Mounts struct {
	libraries string // the folder of ndklab's

	mu   sync.Mutex      // guards what follows
	seen map[string]bool // the libraries that are covered or cannot be, by their paths without symbolic links
}

// Mount puts all of it in place in the mount namespace of this process, which is to be a
// node's. libraries is the folder of ndklab's Ibverbs and Engine, and searchPath has folders
// of others like LD_LIBRARY_PATH. The error tells what cannot be done; the rest is done all
// the same.
func Mount(libraries, searchPath string, d *sysclass.Device) (*Mounts, error) {
	m := &Mounts{libraries: libraries, seen: make(map[string]bool)}
	return m, errors.Join(
		prefixed("/dev/infiniband", mountDevices(libraries)),
		prefixed("/sys/class/infiniband", mountClasses(d)),
		m.coverInstalled(searchPath),
	)
}

func prefixed(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// CoverIn has the libraries in the folders of a path like LD_LIBRARY_PATH covered, too.
func (m *Mounts) CoverIn(path string) error {
	if path == "" {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(m.cover(Ibverbs, inFolders(path, Ibverbs)), m.cover(RDMACM, inFolders(path, RDMACM)))
}

// Update writes the state and the counters of the device's port again.
func Update(d *sysclass.Device) error { return write(classes, sysclass.Changing(d)) }

const classes = "/sys/class"

// mountClasses has /sys/class show the device beside the machine's own, whose RDMA devices
// it hides.
func mountClasses(d *sysclass.Device) error {
	own := map[string]bool{}
	for _, name := range sysclass.Own {
		own[name] = true
	}
	there, err := os.Open(classes)
	if err != nil {
		return err
	}
	defer there.Close()
	entries, err := there.ReadDir(-1)
	if err != nil {
		return err
	}
	misc, err := os.ReadDir(filepath.Join(classes, sysclass.Misc))
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	links := make(map[string]string)
	for _, entry := range misc {
		if to, err := os.Readlink(filepath.Join(classes, sysclass.Misc, entry.Name())); err == nil {
			links[entry.Name()] = to
		}
	}
	return mount.MemoryOver(classes, nosuid, func(folder string) error {
		for _, entry := range entries {
			place := filepath.Join(folder, entry.Name())
			if own[entry.Name()] || entry.Name() == sysclass.Misc || !entry.IsDir() {
				continue
			}
			if err := os.Mkdir(place, 0o755); err != nil {
				return err
			}
			// The path itself is covered while the memory is filled.
			if err := mount.Over(fmt.Sprintf("/proc/self/fd/%d/%s", there.Fd(), entry.Name()), place); err != nil {
				return err
			}
		}
		if err := write(folder, sysclass.Tree(d)); err != nil {
			return err
		}
		// A bound folder could not have another entry.
		for name, to := range links {
			err := os.Symlink(to, filepath.Join(folder, sysclass.Misc, name))
			if err != nil && !os.IsExist(err) { // the machine's own rdma_cm
				return err
			}
		}
		return nil
	})
}

// write writes files below a folder, as sysfs has them: nobody is to change them.
func write(folder string, files []sysclass.File) error {
	made := ""
	for _, f := range files {
		path := filepath.Join(folder, f.Path)
		dir := path
		if !f.Folder {
			dir = filepath.Dir(path)
		}
		if dir != made {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			made = dir
		}
		if f.Folder {
			continue
		}
		if err := os.WriteFile(path, []byte(f.Content), 0o444); err != nil {
			return err
		}
	}
	return nil
}

// inFolders lists a file's paths in the folders of a path like PATH.
func inFolders(path, name string) []string {
	var found []string
	for _, folder := range filepath.SplitList(strings.ReplaceAll(path, ";", ":")) { // ld.so(8): colons or semicolons
		if filepath.IsAbs(folder) {
			found = append(found, filepath.Join(folder, name))
		}
	}
	return found
}
