package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Remove waits at most removeTimeout for processes to leave a lab's groups, and
// looks every removeInterval.
const (
	removeTimeout  = 2 * time.Second
	removeInterval = 5 * time.Millisecond
)

// Remove removes the groups of a lab's nodes, if there are any. It kills nothing:
// it is called when the lab's processes are dead, and waits a little for those
// that are still on their way.
func Remove(lab string) error {
	return Open().remove(lab)
}

func (t *Tree) remove(lab string) error {
	if err := check(lab); err != nil {
		return err
	}
	var errs []error
	for _, h := range hierarchies(t.at) {
		if err := removeWithRetries(filepath.Join(h.root, base, lab)); err != nil {
			errs = append(errs, fmt.Errorf("cgroups of lab %s: %w", lab, err))
		}
		// Other labs may be below it.
		err := os.Remove(filepath.Join(h.root, base))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EBUSY) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func removeWithRetries(dir string) error {
	for deadline := time.Now().Add(removeTimeout); ; {
		last := time.Now().After(deadline) // so that who slept too long looks once more
		err := removeTree(dir)
		if !errors.Is(err, unix.EBUSY) || last {
			return err
		}
		time.Sleep(removeInterval)
	}
}

// removeTree removes a group and those below it, as far as no process is in
// them. A group that is gone already is no error.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.IsDir() { // the others are the group's files, which go with it
			errs = append(errs, removeTree(filepath.Join(dir, e.Name())))
		}
	}
	if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
		errs = append(errs, &fs.PathError{Op: "rmdir", Path: dir, Err: err})
	}
	return errors.Join(errs...)
}
