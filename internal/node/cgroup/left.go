package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// This file finds the groups of all labs, for clean-up.

// A Lab is the groups that a lab has, or has left.
type Lab struct {
	Name   string
	Groups []string // their directories, parents first
	Used   bool     // by processes
}

// Labs returns the labs of this user that have groups, by name.
func Labs() []Lab {
	labs := map[string]*Lab{}
	var names []string
	for _, h := range hierarchies(Open().at) {
		for _, dir := range children(filepath.Join(h.root, base)) {
			name := filepath.Base(dir)
			if labs[name] == nil {
				labs[name] = &Lab{Name: name}
				names = append(names, name)
			}
			labs[name].add(dir)
		}
	}
	slices.Sort(names)
	all := make([]Lab, len(names))
	for i, name := range names {
		all[i] = *labs[name]
	}
	return all
}

// add adds a group and those below it.
func (l *Lab) add(dir string) {
	l.Groups = append(l.Groups, dir)
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	l.Used = l.Used || err == nil && len(strings.TrimSpace(string(procs))) > 0
	for _, child := range children(dir) {
		l.add(child)
	}
}

// children returns the groups of this user right below one.
func children(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // it is gone, or somebody else's
	}
	var dirs []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.IsDir() {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == os.Geteuid() {
			dirs = append(dirs, filepath.Join(dir, e.Name()))
		}
	}
	return dirs
}
