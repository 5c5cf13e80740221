package node

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node/mount"
	"github.com/ndklab/ndklab/topology"
)

// This file mounts the files that a node alone has.

// mountFiles puts files in place. One that is there on the host has its file mounted
// over it. For others the nearest folder that is there becomes an overlay, whose
// changes are in memory.
func mountFiles(files []topology.File) error {
	if len(files) == 0 {
		return nil
	}
	var over []topology.File
	added := make(map[string][]topology.File) // by folder; the paths are within it
	for _, f := range files {
		folder, rest, err := locate(f.Path)
		if err != nil {
			return control.Errorf(control.Unable, "files: %s: %v", f.Path, err)
		}
		if rest == "" {
			over = append(over, f)
			continue
		}
		added[folder] = append(added[folder], topology.File{Path: rest, Mode: f.Mode, Content: f.Content})
	}
	if err := joinFolders(added); err != nil {
		return err
	}
	err := mount.Memory(unix.MS_NODEV, func(memory string) error {
		for i, folder := range slices.Sorted(maps.Keys(added)) {
			if err := addFiles(fmt.Sprintf("%s/%d", memory, i), folder, added[folder]); err != nil {
				return control.Errorf(control.Unable, "files: %s: %v", filepath.Join(folder, added[folder][0].Path), err)
			}
		}
		for i, f := range over {
			if err := coverFile(fmt.Sprintf("%s/file%d", memory, i), f); err != nil {
				return control.Errorf(control.Unable, "files: %s: %v", f.Path, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, f := range files {
		// A folder may hide another mount, and so what was added below that.
		if info, err := os.Stat(f.Path); err != nil || info.Size() != int64(len(f.Content)) {
			return control.Errorf(control.Unable, "files: %s: it cannot be put where it would be seen, expected another folder", f.Path)
		}
	}
	return nil
}

// locate finds the nearest folder above a file that is there, and the file's path
// within it, which is "" if the file itself is there.
func locate(path string) (folder, rest string, err error) {
	for folder = path; ; folder = filepath.Dir(folder) {
		info, err := os.Stat(folder)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", "", err
		case folder == path && info.Mode().IsRegular():
			return "", "", nil
		case folder == path || !info.IsDir():
			return "", "", fmt.Errorf("%s is %s on this machine, expected another path", folder, kindOf(info))
		}
		real, err := filepath.EvalSymlinks(folder)
		switch {
		case err != nil:
			return "", "", err
		case real == "/":
			return "", "", errors.New("this machine has no folder on the path but /, expected one that it has, such as /etc")
		}
		rest, err = filepath.Rel(folder, path)
		return real, rest, err
	}
}

// joinFolders moves files to a folder above theirs where one is an overlay anyhow, since overlays over overlays end soon (FILESYSTEM_MAX_STACK_DEPTH in
// include/linux/fs.h), and the host's file system may be one already.
func joinFolders(added map[string][]topology.File) error {
	var joined []string // that others can be added to
	for _, folder := range slices.Sorted(maps.Keys(added)) {
		i := slices.IndexFunc(joined, func(above string) bool { return strings.HasPrefix(folder, above+"/") && sameMount(folder, above) })
		if i < 0 {
			joined = append(joined, folder)
			continue
		}
		within, err := filepath.Rel(joined[i], folder)
		if err != nil {
			return err
		}
		for _, f := range added[folder] {
			f.Path = filepath.Join(within, f.Path)
			added[joined[i]] = append(added[joined[i]], f)
		}
		delete(added, folder)
	}
	return nil
}

// sameMount reports whether two folders are seen through one mount.
func sameMount(a, b string) bool {
	var x, y unix.Statx_t
	err := errors.Join(unix.Statx(unix.AT_FDCWD, a, 0, unix.STATX_MNT_ID, &x), unix.Statx(unix.AT_FDCWD, b, 0, unix.STATX_MNT_ID, &y))
	return err == nil && x.Mnt_id == y.Mnt_id
}

func kindOf(info fs.FileInfo) string {
	switch {
	case info.IsDir():
		return "a folder"
	case info.Mode().IsRegular():
		return "a file"
	}
	return "no plain file"
}

// addFiles mounts an overlay over a folder that shows files beside those that it has. dir
// holds the overlay's own folders.
func addFiles(dir, folder string, files []topology.File) error {
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	if err := errors.Join(os.MkdirAll(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
		return err
	}
	if err := copyAttributes(upper, folder); err != nil {
		return err
	}
	for _, f := range files {
		if err := makeFolders(upper, folder, filepath.Dir(f.Path)); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(upper, f.Path), f); err != nil {
			return err
		}
	}
	// The overlay shows no mounts below the folder. They are mounted on it again.
	mounts, err := mountsBelow(folder)
	if err != nil {
		return err
	}
	trees := make([]int, len(mounts))
	for i, m := range mounts {
		if trees[i], err = mount.Clone(m); err != nil {
			return err
		}
		defer unix.Close(trees[i])
	}
	lower := strings.NewReplacer(`\`, `\\`, `:`, `\:`, `,`, `\,`).Replace(folder)
	// userxattr: an ordinary user may not set the attributes that are used without.
	err = unix.Mount("ndklab", folder, "overlay", 0, "userxattr,lowerdir="+lower+",upperdir="+upper+",workdir="+work)
	if err != nil {
		return fmt.Errorf("it is not on this machine, and this system allows no overlay over %s (%w), expected a file that is there", folder, err)
	}
	for i, m := range mounts {
		if err := mount.Attach(trees[i], m); err != nil {
			return err
		}
	}
	return nil
}

// makeFolders makes the folders of a path below upper, like those of the same path
// below folder where that has them.
func makeFolders(upper, folder, path string) error {
	if path == "." {
		return nil
	}
	if err := makeFolders(upper, folder, filepath.Dir(path)); err != nil {
		return err
	}
	made := filepath.Join(upper, path)
	err := os.Mkdir(made, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		err = copyAttributes(made, filepath.Join(folder, path))
	}
	if errors.Is(err, fs.ErrNotExist) { // the host has none
		return os.Chmod(made, 0o755)
	}
	return err
}

// copyAttributes gives a folder the permissions and the owner of another. Where an owner is
// none of the user namespace's, it stays the node's user.
func copyAttributes(path, of string) error {
	var stat unix.Stat_t
	if err := unix.Stat(of, &stat); err != nil {
		return fmt.Errorf("%s: %w", of, err)
	}
	if err := unix.Chown(path, int(stat.Uid), int(stat.Gid)); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("owner of %s: %w", path, err)
	}
	return unix.Chmod(path, stat.Mode&0o7777)
}

// coverFile mounts a file over one that is there; path is where it is kept.
func coverFile(path string, f topology.File) error {
	if err := writeFile(path, f); err != nil {
		return err
	}
	return mount.Over(path, f.Path)
}

func writeFile(path string, f topology.File) error {
	if err := os.WriteFile(path, f.Content, 0o600); err != nil {
		return err
	}
	return os.Chmod(path, f.Mode) // whatever the umask
}

// mountsBelow returns the topmost mount points below a folder.
func mountsBelow(folder string) ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var below []string
	for line := range strings.Lines(string(data)) {
		// proc_pid_mountinfo(5): the fifth field, in which space, tab, newline and
		// backslash are in octal.
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		place := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[4])
		if strings.HasPrefix(place, folder+"/") {
			below = append(below, place)
		}
	}
	slices.Sort(below)
	below = slices.Compact(below)
	var top []string
	for _, place := range below {
		if len(top) == 0 || !strings.HasPrefix(place, top[len(top)-1]+"/") {
			top = append(top, place)
		}
	}
	return top, nil
}
