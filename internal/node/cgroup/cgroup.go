// Package cgroup limits the cpu, memory and processes of a lab's nodes, and reads what they
// use.
//
// Every node with a limit has a control group ndklab/LAB/NODE, in each hierarchy that
// has a controller for one: version 1, where each controller may have a hierarchy of
// its own; version 2, the unified one; or hybrid, where both are mounted. They are
// made below the highest group that this process may write to: the top of the
// hierarchy for root, and for an ordinary user what was delegated to that user, as
// systemd does with /user.slice/user-UID.slice/user@UID.service. The directories are all that a lab leaves
// behind when its processes die; Remove is for whoever cleans up. Nobody else's process is
// ever moved to another group.
//
// The module github.com/containerd/cgroups finds out how the machine is set up. The groups
// themselves are a few files to write, which is done here: that module's packages cgroup1
// and cgroup2 link protobuf, D-Bus and eBPF into the one binary that every node runs, whose
// package initialisation they would make a third longer.
//
// Start reading at Tree, which find.go makes. usage.go reads, overmemory.go has a node
// die whole.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// base is the group of all labs.
const base = "ndklab"

// Limits bound the resources that a node may use; 0 is no limit.
type Limits struct {
	CPU    float64 // cores
	Memory uint64  // bytes, swap included
	PIDs   uint64  // processes and threads at once
}

// wants reports whether a controller is needed for the limits.
func (l Limits) wants(controller string) bool {
	switch controller {
	case cpuController:
		return l.CPU != 0
	case memoryController:
		return l.Memory != 0
	case pidsController:
		return l.PIDs != 0
	}
	return false
}

// A Group is a node's control group.
type Group struct {
	path string               // below each hierarchy's root
	at   map[string]hierarchy // by controller

	mu     sync.Mutex // guards limits
	limits Limits

	overMemory atomic.Bool // KillWhole has killed the node
}

// Create makes a node's group with those of the limits for which there is a
// controller. Without any it returns nil. A group of that name that no process is in
// is replaced.
func (t *Tree) Create(lab, node string, limits Limits) (*Group, error) {
	if err := errors.Join(check(lab), check(node)); err != nil {
		return nil, err
	}
	g := &Group{path: filepath.Join(base, lab, node), at: t.at}
	for _, controller := range limited {
		if _, ok := t.at[controller]; ok {
			g.limits = g.limits.with(limits, controller)
		}
	}
	if g.limits == (Limits{}) {
		return nil, nil
	}
	if err := g.create(); err != nil {
		return nil, errors.Join(fmt.Errorf("cgroup %s: %w", g.path, err), g.remove())
	}
	return g, nil
}

// with returns l with the one of limits that a controller is for.
func (l Limits) with(limits Limits, controller string) Limits {
	switch controller {
	case cpuController:
		l.CPU = limits.CPU
	case memoryController:
		l.Memory = limits.Memory
	case pidsController:
		l.PIDs = limits.PIDs
	}
	return l
}

// check returns an error for a name that would be a path out of the tree.
func check(name string) error {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return fmt.Errorf("%q is no name for a cgroup", name)
	}
	return nil
}

func (g *Group) create() error {
	for _, h := range hierarchies(g.at) {
		if err := h.makeGroup(g.path, h.controllers(g.at)); err != nil {
			return err
		}
	}
	for _, controller := range limited {
		if !g.limits.wants(controller) {
			continue
		}
		h := g.at[controller]
		if err := h.set(g.path, h.settings(controller, g.limits)); err != nil {
			return err
		}
	}
	return nil
}

// makeGroup makes a group and, in version 2, gives it the use of controllers.
func (h hierarchy) makeGroup(path string, controllers []string) error {
	// Another lab's Remove may take base away in between, because it is empty;
	// ENODEV is what the kernel says to a file of it that is open. Where many labs
	// come and go on a busy machine, that happens again and again.
	var err error
	for range 100 {
		err = h.makeOnce(path, controllers)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	return err
}

func (h hierarchy) makeOnce(path string, controllers []string) error {
	dir := h.root
	for _, name := range strings.Split(path, "/") {
		if h.v2 {
			if err := enable(dir, controllers); err != nil {
				return err
			}
		}
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		} else if err == nil || dir != filepath.Join(h.root, path) {
			continue
		}
		// The group of an earlier lab of this name is here, with its counts.
		if err := os.Remove(dir); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// enable lets the children of a version 2 group use controllers.
func enable(dir string, controllers []string) error {
	file := filepath.Join(dir, "cgroup.subtree_control")
	for _, controller := range controllers {
		has, err := listed(file, controller)
		if err == nil && !has {
			err = hasNoProcesses(dir)
		}
		if err == nil && !has {
			err = write(file, "+"+controller)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hasNoProcesses returns an error if a version 2 group has processes of its own, other than
// the top of all, which alone may have both these and children with limits
// (cgroup-v2.rst, No Internal Process Constraint). For cpu and pids the kernel would not
// refuse, and make the group a threaded one instead, whose children are of no use here.
func hasNoProcesses(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.type")); errors.Is(err, fs.ErrNotExist) {
		return nil // the top of all
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || len(procs) == 0 {
		return err
	}
	return fmt.Errorf("%[1]w: group %[2]s has processes of its own, hence no children with limits, as long as these are not moved to one below it "+
		"(mkdir %[2]s/init; for p in $(cat %[2]s/cgroup.procs); do echo $p >%[2]s/init/cgroup.procs; done)", unix.EBUSY, dir)
}

func (h hierarchy) set(path string, settings []setting) error {
	for _, s := range settings {
		err := write(filepath.Join(h.root, path, s.file), s.value)
		if err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("limit %s: %w", s.value, err)
		}
	}
	return nil
}

// write writes to a file that exists, in one system call.
func write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// Path returns the group's path, below the groups that it could be made in.
func (g *Group) Path() string { return g.path }

// Limits returns the limits in force.
func (g *Group) Limits() Limits {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.limits
}

// Set changes the limits that the group has. A limit that is 0, which is none, in the group
// or in limits stays as it is. It is for one goroutine at a time.
func (g *Group) Set(limits Limits) error {
	now := g.Limits()
	for _, controller := range limited {
		if !now.wants(controller) || !limits.wants(controller) || now.with(limits, controller) == now {
			continue
		}
		h := g.at[controller]
		settings := h.settings(controller, limits)
		err := h.set(g.path, settings)
		if err != nil {
			// In version 1 memory may never be more than memory with swap: what grows is
			// the other way round from what shrinks.
			slices.Reverse(settings)
			err = h.set(g.path, settings)
		}
		if err != nil {
			return fmt.Errorf("cgroup %s: %w", g.path, err)
		}
		now = now.with(limits, controller)
		g.mu.Lock()
		g.limits = now
		g.mu.Unlock()
	}
	return nil
}

// Directory opens the group's directory for CLONE_INTO_CGROUP, with which a child
// starts in its group. It returns nil where the group is in a version 1 hierarchy:
// there the child has to be added.
func (g *Group) Directory() (*os.File, error) {
	hs := hierarchies(g.at)
	if len(hs) != 1 || !hs[0].v2 {
		return nil, nil
	}
	return os.OpenFile(filepath.Join(hs[0].root, g.path), unix.O_PATH|unix.O_DIRECTORY, 0)
}

// Add moves a process, with all its threads, into the group. pid is as the
// caller's PID namespace has it.
func (g *Group) Add(pid int) error {
	for _, h := range hierarchies(g.at) {
		if err := write(filepath.Join(h.root, g.path, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("add process %d: %w", pid, err)
		}
	}
	return nil
}

// remove removes the group, which no process is in.
func (g *Group) remove() error {
	var errs []error
	for _, h := range hierarchies(g.at) {
		errs = append(errs, removeTree(filepath.Join(h.root, g.path)))
	}
	return errors.Join(errs...)
}
