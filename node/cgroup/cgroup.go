// Package cgroup gives a lab's nodes their cpu and memory limits.
//
// Every node with a limit has a control group ndklab/LAB/NODE, below the top of
// the hierarchy that has the controller: version 1, where each controller may
// have a hierarchy of its own; version 2, the unified one; or hybrid, where both
// are mounted. The directories are all that a lab leaves behind when its
// processes die; Remove is for whoever cleans up.
//
// How the machine is set up is told by github.com/containerd/cgroups. The groups
// themselves are a few files to write, which is done here: that module's packages
// for it initialise protobuf, D-Bus and eBPF in every process that links them,
// which took 0.4 ms and 270 KiB per node.
//
// Start reading at Create.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"
)

// base is the group of all labs.
const base = "ndklab"

// top is where the hierarchies are mounted: version 2 itself, or a directory per
// version 1 controller, with version 2 beside them in hybrid mode.
const (
	top     = "/sys/fs/cgroup"
	unified = top + "/unified"
)

// The controllers that limits need.
const (
	cpuController    = "cpu"
	memoryController = "memory"
)

// A hierarchy is where a controller is.
type hierarchy struct {
	root string
	v2   bool
}

// find looks for the hierarchy that has a controller.
func find(controller string) (hierarchy, error) {
	v1 := filepath.Join(top, controller)
	switch mode := cgroups.Mode(); {
	case mode == cgroups.Unified && hasController(top, controller):
		return hierarchy{top, true}, nil
	case mode != cgroups.Unified && isMounted(v1):
		return hierarchy{v1, false}, nil
	case mode == cgroups.Hybrid && hasController(unified, controller):
		return hierarchy{unified, true}, nil
	default:
		return hierarchy{}, fmt.Errorf("no %s controller below %s", controller, top)
	}
}

// isMounted reports whether a version 1 hierarchy is mounted at dir.
func isMounted(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP_SUPER_MAGIC
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
	for have := range strings.FieldsSeq(string(b)) {
		if have == word {
			return true, nil
		}
	}
	return false, nil
}

// Available says why this process cannot limit nodes; nil if it can.
func Available() error {
	for _, controller := range []string{cpuController, memoryController} {
		h, err := find(controller)
		if err != nil {
			return err
		}
		// In a user namespace root has no rights here either, which access(2)
		// takes into account.
		if err := unix.Access(h.root, unix.W_OK); err != nil {
			return fmt.Errorf("control groups in %s are for root only: %w", h.root, err)
		}
	}
	return nil
}

// A Group is a node's control group.
type Group struct {
	path   string // below each hierarchy's root
	cpu    *hierarchy
	memory *hierarchy
}

// Create makes a node's group: cpu is in cores and memory in bytes, swap
// included; of either, 0 is no limit. A group of that name that no process is in
// is replaced.
func Create(lab, node string, cpu float64, memory uint64) (*Group, error) {
	if err := errors.Join(check(lab), check(node)); err != nil {
		return nil, err
	}
	g := &Group{path: filepath.Join(base, lab, node)}
	if err := g.create(cpu, memory); err != nil {
		return nil, errors.Join(fmt.Errorf("cgroup %s: %w", g.path, err), g.remove())
	}
	return g, nil
}

// check refuses a name that would lead elsewhere.
func check(name string) error {
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return fmt.Errorf("%q is no name for a cgroup", name)
	}
	return nil
}

func (g *Group) create(cpu float64, memory uint64) error {
	var controllers []string
	if cpu != 0 {
		h, err := find(cpuController)
		if err != nil {
			return err
		}
		g.cpu = &h
		controllers = append(controllers, cpuController)
	}
	if memory != 0 {
		h, err := find(memoryController)
		if err != nil {
			return err
		}
		g.memory = &h
		controllers = append(controllers, memoryController)
	}
	for _, h := range g.hierarchies() {
		if err := h.makeGroup(g.path, controllers); err != nil {
			return err
		}
	}
	if cpu != 0 {
		if err := g.cpu.set(g.path, g.cpu.cpuLimit(cpu)); err != nil {
			return err
		}
	}
	if memory != 0 {
		return g.memory.set(g.path, g.memory.memoryLimit(memory))
	}
	return nil
}

// hierarchies are those that the group is in, each once.
func (g *Group) hierarchies() []hierarchy {
	var hs []hierarchy
	if g.cpu != nil {
		hs = append(hs, *g.cpu)
	}
	if g.memory != nil && (g.cpu == nil || *g.memory != *g.cpu) {
		hs = append(hs, *g.memory)
	}
	return hs
}

// makeGroup makes a group and, in version 2, gives it the use of controllers.
func (h hierarchy) makeGroup(path string, controllers []string) error {
	// Another lab's Remove may take base away in between, because it is empty;
	// ENODEV is what the kernel says to a file of it that is open.
	var err error
	for range 10 {
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
		// A lab of this name was here, and its counts still are.
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
			err = write(file, "+"+controller)
		}
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("%w: %s has processes of its own, hence no children with limits", err, dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A setting is what to write into a file of a group.
type setting struct {
	file, value string
	optional    bool // not every kernel has the file
}

// cpuPeriod is the period in which a node gets its share of the cpu. The kernel's
// default, 100 ms, would stall a transport for longer than its timeouts.
const cpuPeriod = 10 * time.Millisecond

// minQuota is the least that the kernel grants per period (kernel/sched/core.c,
// min_cfs_quota_period); smaller shares get a longer period.
const minQuota = time.Millisecond

func (h hierarchy) cpuLimit(cores float64) []setting {
	period := max(cpuPeriod, time.Duration(float64(minQuota)/cores))
	quota := max(minQuota, time.Duration(cores*float64(period)))
	p, q := strconv.FormatInt(period.Microseconds(), 10), strconv.FormatInt(quota.Microseconds(), 10)
	if h.v2 {
		return []setting{{"cpu.max", q + " " + p, false}}
	}
	return []setting{{"cpu.cfs_period_us", p, false}, {"cpu.cfs_quota_us", q, false}}
}

func (h hierarchy) memoryLimit(bytes uint64) []setting {
	b := strconv.FormatUint(bytes, 10)
	// Swap is to add nothing. The files for it exist where the kernel counts it.
	if h.v2 {
		return []setting{{"memory.max", b, false}, {"memory.swap.max", "0", true}}
	}
	return []setting{{"memory.limit_in_bytes", b, false}, {"memory.memsw.limit_in_bytes", b, true}}
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

// Path is the group's path in its hierarchies.
func (g *Group) Path() string { return g.path }

// Directory opens the group's directory for CLONE_INTO_CGROUP, with which a child
// is born in its group. It is nil where the group is in a version 1 hierarchy:
// there the child has to be added.
func (g *Group) Directory() (*os.File, error) {
	hs := g.hierarchies()
	if len(hs) != 1 || !hs[0].v2 {
		return nil, nil
	}
	return os.OpenFile(filepath.Join(hs[0].root, g.path), unix.O_PATH|unix.O_DIRECTORY, 0)
}

// Add moves a process, with all its threads, into the group. pid is as the
// caller's PID namespace has it.
func (g *Group) Add(pid int) error {
	for _, h := range g.hierarchies() {
		if err := write(filepath.Join(h.root, g.path, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("add process %d: %w", pid, err)
		}
	}
	return nil
}

// OOMKills counts the processes of the group that the kernel has killed because
// the group was over its memory.
func (g *Group) OOMKills() (uint64, error) {
	if g.memory == nil {
		return 0, nil
	}
	file := "memory.oom_control"
	if g.memory.v2 {
		file = "memory.events"
	}
	return count(filepath.Join(g.memory.root, g.path, file), "oom_kill")
}

// count reads a value from a file of lines with a name and a value each.
func count(file, name string) (uint64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: no %s", file, name)
}

// remove removes the group, which no process is in.
func (g *Group) remove() error {
	var errs []error
	for _, h := range g.hierarchies() {
		errs = append(errs, removeTree(filepath.Join(h.root, g.path)))
	}
	return errors.Join(errs...)
}
