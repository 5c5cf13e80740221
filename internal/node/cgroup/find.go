package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"
)

// The controllers. cpuacct is version 1's alone, and only counts; in version 2 every
// group counts its cpu time.
const (
	cpuController     = "cpu"
	memoryController  = "memory"
	pidsController    = "pids"
	cpuacctController = "cpuacct"
)

// limited are the controllers that limits need.
var limited = []string{cpuController, memoryController, pidsController}

// A machine holds what decides where groups are made.
type machine struct {
	top     string                  // where hierarchies are mounted: version 2 itself, or a directory per version 1 controller, with version 2 beside them
	mode    cgroups.CGMode          // which of these
	own     string                  // the groups of this process, as in /proc/self/cgroup
	mounted func(dir string) bool   // a version 1 hierarchy at dir
	access  func(path string) error // why this process may not write there
}

// this returns the machine that the process runs on.
func this() machine {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		own = nil // in which case it may have groups at the top at most
	}
	return machine{top: "/sys/fs/cgroup", mode: cgroups.Mode(), own: string(own), mounted: isMounted, access: access}
}

// isMounted reports whether a version 1 hierarchy is mounted at dir.
func isMounted(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP_SUPER_MAGIC
}

// access calls access(2), which takes into account that in a user namespace root has no
// rights outside.
func access(path string) error { return unix.Access(path, unix.W_OK) }

// A Tree holds the groups in which this process may make others.
type Tree struct {
	at    map[string]hierarchy // by controller
	lacks map[string]error     // why there is none for a controller
}

// A hierarchy is the one that a controller is in.
type hierarchy struct {
	root string // the group in which base is made
	v2   bool
}

// Open finds the groups in which this process may make others. It changes nothing.
func Open() *Tree { return this().open() }

func (m machine) open() *Tree {
	t := &Tree{at: map[string]hierarchy{}, lacks: map[string]error{}}
	for _, controller := range append(limited[:len(limited):len(limited)], cpuacctController) {
		h, err := m.find(controller)
		if err != nil {
			t.lacks[controller] = err
			continue
		}
		t.at[controller] = h
	}
	return t
}

// Prepare makes ready for groups with such limits: in version 2 it has the kernel give
// controllers to the children of the group in which groups are made, which it keeps
// doing. The error says which of the limits cannot be had and why, a line for each
// reason; Create leaves these out.
func (t *Tree) Prepare(limits Limits) error {
	var reasons []error
	without := map[string][]string{} // controllers, by reason
	for _, controller := range limited {
		if h := t.at[controller]; h.v2 {
			if err := enable(h.root, []string{controller}); err != nil {
				delete(t.at, controller)
				t.lacks[controller] = err
			}
		}
		if err := t.lacks[controller]; err != nil && limits.wants(controller) {
			if without[err.Error()] == nil {
				reasons = append(reasons, err)
			}
			without[err.Error()] = append(without[err.Error()], controller)
		}
	}
	for i, err := range reasons {
		reasons[i] = fmt.Errorf("%s: %w", strings.Join(without[err.Error()], ", "), err)
	}
	return errors.Join(reasons...)
}

// find looks for the group in which groups with a controller can be made.
func (m machine) find(controller string) (hierarchy, error) {
	mount, v2 := m.mount(controller)
	if mount == "" {
		return hierarchy{}, fmt.Errorf("no %s controller below %s", controller, m.top)
	}
	root, err := m.highest(mount, m.group(controller, v2), v2)
	if err != nil {
		return hierarchy{}, err
	}
	if v2 && !hasController(root, controller) {
		return hierarchy{}, fmt.Errorf("group %s was given no %s controller", root, controller)
	}
	return hierarchy{root, v2}, nil
}

// mount returns where the hierarchy is mounted that has a controller; "" if there is none.
func (m machine) mount(controller string) (dir string, v2 bool) {
	v1, unified := filepath.Join(m.top, controller), filepath.Join(m.top, "unified")
	switch {
	case m.mode == cgroups.Unified && hasController(m.top, controller):
		return m.top, true
	case m.mode != cgroups.Unified && m.mounted(v1):
		// cpu and cpuacct may be two names of one.
		if dir, err := filepath.EvalSymlinks(v1); err == nil {
			return dir, false
		}
	case m.mode == cgroups.Hybrid && hasController(unified, controller):
		return unified, true
	}
	return "", false
}

// group returns the path of this process's group in a controller's hierarchy, as
// /proc/self/cgroup has it: ID:CONTROLLERS:PATH, without controllers for version 2
// (cgroups(7)).
func (m machine) group(controller string, v2 bool) string {
	for line := range strings.Lines(m.own) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (v2 && f[1] == "" || !v2 && slices.Contains(strings.Split(f[1], ","), controller)) {
			return f[2]
		}
	}
	return "/"
}

// highest returns the highest group on the way from the top of a hierarchy to this
// process's own that it may have children in: only from there on, down to its own,
// may it move processes (cgroup-v2.rst, Delegation Containment). In a container
// without a cgroup namespace the own path is the host's, which is not to be seen; then only
// the top is.
func (m machine) highest(mount, own string, v2 bool) (string, error) {
	dir := mount
	first := m.writable(dir, v2)
	if first == nil {
		return dir, nil
	}
	for name := range strings.SplitSeq(strings.Trim(own, "/"), "/") {
		if name == "" || name == ".." { // a group outside the cgroup namespace
			break
		}
		dir = filepath.Join(dir, name)
		err := m.writable(dir, v2)
		if err == nil {
			return dir, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return "", fmt.Errorf("below %s this user may write to no control group that this process is in: %w", m.top, first)
}

// writable returns the reason why this process may not make groups in a group.
func (m machine) writable(dir string, v2 bool) error {
	files := []string{".", "cgroup.procs"}
	if v2 {
		files = append(files, "cgroup.subtree_control")
	}
	for _, name := range files {
		if err := m.access(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// hasController reports whether a version 2 group has a controller for its
// children to use.
func hasController(group, controller string) bool {
	has, err := listed(filepath.Join(group, "cgroup.controllers"), controller)
	return err == nil && has
}

// listed reports whether a file of words has word.
func listed(file, word string) (bool, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	return slices.Contains(strings.Fields(string(b)), word), nil
}

// hierarchies returns those that controllers are in, each once.
func hierarchies(at map[string]hierarchy) []hierarchy {
	var hs []hierarchy
	for _, controller := range append(limited[:len(limited):len(limited)], cpuacctController) {
		if h, ok := at[controller]; ok && !slices.Contains(hs, h) {
			hs = append(hs, h)
		}
	}
	return hs
}

// controllers returns those that are in h.
func (h hierarchy) controllers(at map[string]hierarchy) []string {
	var names []string
	for _, controller := range limited {
		if at[controller] == h {
			names = append(names, controller)
		}
	}
	return names
}
