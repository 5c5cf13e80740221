package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A process is one of the trial's: it, or what started it, was started with the trial's
// mark in its environment; or it works in the trial's directory; or it is in the lab's
// PID namespace.
type process struct {
	pid  int
	args string
}

// pids are all processes.
func pids() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		panic(err)
	}
	var all []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// processes are the trial's that are alive, the command under way included.
func (t *trial) processes() []process {
	var found []process
	for _, pid := range pids() {
		p := process{pid: pid}
		cmdline, err := os.ReadFile(p.dir("cmdline"))
		if err != nil || len(cmdline) == 0 { // the kernel's, or it is dead or a moment away from it
			continue
		}
		if t.ours(p) {
			p.args = string(bytes.TrimSpace(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
			found = append(found, p)
		}
	}
	return found
}

func (p process) dir(file string) string { return filepath.Join("/proc", strconv.Itoa(p.pid), file) }

// forked reports whether a process is its parent's copy, about to become what it is
// to be.
func (p process) forked() bool {
	status, err := os.ReadFile(p.dir("status"))
	if err != nil {
		return true // it has ended
	}
	_, parent, _ := strings.Cut(string(status), "\nPPid:")
	parent, _, _ = strings.Cut(parent, "\n")
	own, ownErr := os.ReadFile(p.dir("cmdline"))
	theirs, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(parent), "cmdline"))
	return ownErr != nil || err == nil && bytes.Equal(own, theirs)
}

// ours reports whether a process is the trial's. The PID namespace of one that is, is
// kept open: as long as it is, the kernel gives its number to no other.
func (t *trial) ours(p process) bool {
	ns, err := os.Readlink(p.dir("ns/pid"))
	if err != nil {
		return false // it has ended, or is another user's
	}
	if t.namespaces[ns] != nil {
		return true
	}
	cwd, err := os.Readlink(p.dir("cwd"))
	if err == nil && strings.TrimSuffix(cwd, " (deleted)") == t.dir { // also of one that hides the rest
		return true
	}
	environ, err := os.ReadFile(p.dir("environ"))
	if err != nil || !slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(v []byte) bool { return string(v) == t.mark }) {
		return false
	}
	if ns != t.host {
		if file, err := os.Open(p.dir("ns/pid")); err == nil {
			// By now it may be another's, if the process has ended.
			if again, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd())); err == nil && again == ns {
				t.namespaces[ns] = file
				t.Cleanup(func() { file.Close() })
			} else {
				file.Close()
			}
		}
	}
	return true
}

// signal sends a signal to a process of the trial's if it still is the one that
// was found. A pidfd is of one process for ever.
func (t *trial) signal(p process, sig unix.Signal) bool {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if !t.ours(p) {
		return false
	}
	err = unix.PidfdSendSignal(fd, sig, nil, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		t.Fatalf("%s: %v", p.args, err)
	}
	return err == nil
}

// alive returns what is left of the lab that is not inert: processes, sockets, cgroups
// with processes; not the recorder, which may have files to complete.
func (t *trial) alive() string {
	var left []string
	for _, p := range t.processes() {
		if p.records() {
			continue
		}
		left = append(left, fmt.Sprintf("process %d %s", p.pid, p.args))
	}
	left = append(left, t.sockets()...)
	for _, dir := range t.cgroups() {
		if procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs")); err == nil && len(procs) > 0 {
			left = append(left, "cgroup "+dir+" with processes")
		}
	}
	return strings.Join(left, ", ")
}

// recorder is the process that completes the files of captures, if there is one.
func (t *trial) recorder() string {
	for _, p := range t.processes() {
		if p.records() {
			return p.args
		}
	}
	return ""
}

func (p process) records() bool { return strings.HasPrefix(p.args, "ndklab-recorder ") }

// sockets are those whose name has the lab's, in the host's network namespace.
func (t *trial) sockets() []string {
	all, err := os.ReadFile("/proc/thread-self/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(all)) {
		if strings.Contains(line, t.lab) {
			found = append(found, "socket "+strings.TrimSpace(line))
		}
	}
	return found
}

// cgroups are those whose name has the lab's, in whatever hierarchy, and those below.
func (t *trial) cgroups() []string {
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENODEV) {
			return nil // another's, that is being removed
		}
		if err == nil && d.IsDir() && strings.Contains(path, t.lab) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// names returns the names of inert things that the lab has left.
func (t *trial) names() string {
	left := t.cgroups()
	for _, pattern := range []string{filepath.Join(t.state, t.lab+"*"), filepath.Join("/run/netns", t.lab+"*"), filepath.Join(t.state, "*", t.lab+"*")} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, files...)
	}
	return strings.Join(left, ", ")
}
