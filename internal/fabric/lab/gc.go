package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/node/cgroup"
)

// A Leftover is something that a lab which is over left behind.
type Leftover struct {
	Lab  string       `json:"lab"`
	Kind LeftoverKind `json:"kind"`
	Path string       `json:"path"`
}

// A LeftoverKind says what a leftover is.
type LeftoverKind string

// The kinds of what the kernel does not remove with a lab's processes.
const (
	LeftState   LeftoverKind = "state"   // the state file
	LeftLog     LeftoverKind = "log"     // the lab's log
	LeftSockets LeftoverKind = "sockets" // the directory of the externals' sockets
	LeftName    LeftoverKind = "name"    // of an external's namespace, for ip netns
	LeftGroup   LeftoverKind = "cgroup"  // a node's control group, or the lab's
)

// Collect removes what labs of this user left whose processes have all died, and
// says what that was; with dryRun it only says it. labs are their names; none is all
// labs. It does what Sweep does, and looks
// further: Sweep finds labs by their state files, Collect also by each of the things
// themselves, so that it finds those of a lab whose state file somebody has removed. It
// touches nothing of a lab that lives, is starting or is being taken down.
func Collect(labs []string, dryRun bool) ([]Leftover, error) {
	dir, err := stateDir()
	if err != nil {
		return []Leftover{}, err
	}
	return collectIn(dir, labs, dryRun)
}

// collectIn is Collect for labs with this state directory.
func collectIn(dir string, labs []string, dryRun bool) ([]Leftover, error) {
	found := []Leftover{}
	groups := cgroup.Labs()
	names, problems := leftNames(dir, groups)
	for _, name := range names {
		if len(labs) > 0 && !slices.Contains(labs, name) {
			continue
		}
		left, err := (place{dir: dir, name: name}).collect(groups, dryRun)
		found = append(found, left...)
		if err != nil {
			problems = errors.Join(problems, fmt.Errorf("lab %s: %w", name, err))
		}
	}
	return found, problems
}

// leftNames are the labs of which there is anything.
func leftNames(dir string, groups []cgroup.Lab) ([]string, error) {
	var names []string
	add := func(name string) {
		if CheckName(name) == nil {
			names = append(names, name)
		}
	}
	files, err := os.ReadDir(dir)
	for _, f := range files {
		switch ext := filepath.Ext(f.Name()); ext {
		case stateSuffix, logSuffix, externalSuffix:
			add(strings.TrimSuffix(f.Name(), ext))
		}
	}
	for _, g := range groups {
		add(g.Name)
	}
	all, namesErr := externalNames()
	for _, x := range all {
		if x.dir == dir {
			add(x.lab)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), errors.Join(err, namesErr)
}

// collect removes what the lab left, if it is over, and says what that was.
func (p place) collect(groups []cgroup.Lab, dryRun bool) (removed []Leftover, err error) {
	locked, err := p.lock(false)
	orphaned := errors.Is(err, fs.ErrNotExist)
	if orphaned && !dryRun {
		locked, err = p.lock(true) // no lab of that name starts now
	}
	switch {
	case errors.Is(err, errLocked):
		return nil, nil
	case err != nil && !(orphaned && dryRun):
		return nil, err
	}
	if locked != nil {
		defer locked.Close()
	}
	left, alive, err := p.leftovers(groups)
	if err != nil || alive {
		if orphaned && !dryRun {
			err = errors.Join(err, os.Remove(p.stateFile()))
		}
		return nil, err
	}
	if orphaned {
		left = slices.DeleteFunc(left, func(l Leftover) bool { return l.Kind == LeftState }) // which is ours
	}
	if dryRun {
		return left, nil
	}
	err = p.clean()
	for _, l := range left {
		if _, statErr := os.Lstat(l.Path); errors.Is(statErr, fs.ErrNotExist) {
			removed = append(removed, l)
		}
	}
	return removed, err
}

// leftovers lists what there is of a lab whose state file nobody has locked. Somebody may
// have removed or replaced the file of a lab which lives: that shows by its socket, in this
// network namespace, and by what its processes are in and its names lead to.
func (p place) leftovers(groups []cgroup.Lab) (left []Leftover, alive bool, err error) {
	if errors.Is(p.unheard(), errLocked) {
		return nil, true, nil
	}
	add := func(kind LeftoverKind, path string) { left = append(left, Leftover{p.name, kind, path}) }
	for _, file := range []struct {
		kind LeftoverKind
		path string
	}{{LeftState, p.stateFile()}, {LeftLog, p.logFile()}, {LeftSockets, p.externalDir()}} {
		if _, err := os.Lstat(file.path); err == nil {
			add(file.kind, file.path)
		}
	}
	names, err := p.externalNames()
	if err != nil {
		return nil, false, err
	}
	for _, path := range names {
		if _, err := os.Stat(path); err == nil {
			return nil, true, nil
		}
		add(LeftName, path)
	}
	for _, g := range groups {
		if g.Name != p.name {
			continue
		}
		if g.Used {
			return nil, true, nil
		}
		for _, dir := range g.Groups {
			add(LeftGroup, dir)
		}
	}
	return left, false, nil
}
