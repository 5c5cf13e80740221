package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/cgroups/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/nobody"
	"golang.org/x/sys/unix"
)

// fake is a machine of plain files: of each group in groups, below its top, it has the
// controllers. Those are this user's that are in mine.
func fake(t *testing.T, mode cgroups.CGMode, own string, groups map[string]string, mine ...string) machine {
	t.Helper()
	top := t.TempDir()
	for dir, controllers := range groups {
		dir = filepath.Join(top, dir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"cgroup.controllers": controllers, "cgroup.subtree_control": "", "cgroup.procs": ""} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return machine{
		top: top, mode: mode, own: own,
		// Version 1 has no file of controllers.
		mounted: func(dir string) bool { return groups[filepath.Base(dir)] == "v1" },
		access: func(path string) error {
			if _, err := os.Stat(path); err != nil {
				return err
			}
			for _, dir := range mine {
				dir = filepath.Join(top, dir)
				if path == dir || strings.HasPrefix(path, dir+"/") {
					return nil
				}
			}
			return unix.EACCES
		},
	}
}

// TestFind looks for the groups of labs on machines of all kinds.
func TestFind(t *testing.T) {
	const all = "cpu io memory pids"
	// The groups that systemd makes: the user's manager and all below it belong to the
	// user, the sessions do not.
	systemd := map[string]string{
		".": all, "user.slice": all, "user.slice/user-1000.slice": all,
		"user.slice/user-1000.slice/session-3.scope":                       all,
		"user.slice/user-1000.slice/user@1000.service":                     "memory pids",
		"user.slice/user-1000.slice/user@1000.service/app.slice":           "memory pids",
		"user.slice/user-1000.slice/user@1000.service/app.slice/run.scope": "",
	}
	const manager = "user.slice/user-1000.slice/user@1000.service"
	v1 := map[string]string{
		"cpu": "v1", "memory": "v1", "pids": "v1", "cpuacct": "v1", "memory/mine": "", "unified": "",
	}
	at := func(root string) map[string]string {
		return map[string]string{"cpu": root, "memory": root, "pids": root}
	}
	for name, test := range map[string]struct {
		mode   cgroups.CGMode
		own    string
		groups map[string]string
		mine   []string
		want   map[string]string // by controller; " v2" behind
	}{
		"root":              {cgroups.Unified, "0::/user.slice/user-1000.slice/session-3.scope\n", systemd, []string{"."}, at(". v2")},
		"user of a session": {cgroups.Unified, "0::/user.slice/user-1000.slice/session-3.scope\n", systemd, []string{manager}, map[string]string{}},
		"user of a manager, which has no cpu controller": {cgroups.Unified, "0::/" + manager + "/app.slice/run.scope\n", systemd, []string{manager},
			map[string]string{"memory": manager + " v2", "pids": manager + " v2"}},
		"a scope that has its own processes alone": {cgroups.Unified, "0::/" + manager + "/app.slice/run.scope\n", systemd,
			[]string{manager + "/app.slice/run.scope"}, map[string]string{}},
		"container without a namespace":                            {cgroups.Unified, "0::/docker/4711\n", map[string]string{".": all}, []string{"."}, at(". v2")},
		"container whose top is not writable, without a namespace": {cgroups.Unified, "0::/docker/4711\n", map[string]string{".": all}, nil, map[string]string{}},
		"a group outside the namespace":                            {cgroups.Unified, "0::/../other\n", map[string]string{".": all, "../other": all}, []string{"../other"}, map[string]string{}},
		"version 1":                                                {cgroups.Legacy, "5:pids:/\n4:memory:/mine\n3:cpu:/\n2:cpuacct:/\n", v1, []string{"."}, map[string]string{"cpu": "cpu", "memory": "memory", "pids": "pids", "cpuacct": "cpuacct"}},
		"version 1, memory is delegated":                           {cgroups.Legacy, "5:pids:/\n4:blkio,memory:/mine\n3:cpu:/\n", v1, []string{"memory/mine"}, map[string]string{"memory": "memory/mine"}},
		"hybrid, version 2 without any":                            {cgroups.Hybrid, "4:memory:/\n0::/\n", v1, []string{"."}, map[string]string{"cpu": "cpu", "memory": "memory", "pids": "pids", "cpuacct": "cpuacct"}},
		"hybrid, memory is in version 2":                           {cgroups.Hybrid, "3:cpu:/\n0::/\n", map[string]string{"cpu": "v1", "unified": "memory"}, []string{"."}, map[string]string{"cpu": "cpu", "memory": "unified v2"}},
		"hybrid, delegated in version 2":                           {cgroups.Hybrid, "3:cpu:/\n0::/mine\n", map[string]string{"cpu": "v1", "unified": "memory", "unified/mine": "memory"}, []string{"unified/mine"}, map[string]string{"memory": "unified/mine v2"}},
		"nothing is mounted":                                       {cgroups.Unavailable, "", map[string]string{".": ""}, []string{"."}, map[string]string{}},
		"the own groups are not known":                             {cgroups.Unified, "", systemd, []string{"."}, at(". v2")},
		"a controller that top has not":                            {cgroups.Unified, "0::/\n", map[string]string{".": "cpu memory"}, []string{"."}, map[string]string{"cpu": ". v2", "memory": ". v2"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := fake(t, test.mode, test.own, test.groups, test.mine...)
			tree := m.open()
			got := map[string]string{}
			for controller, h := range tree.at {
				rel, err := filepath.Rel(m.top, h.root)
				if err != nil {
					t.Fatal(err)
				}
				if got[controller] = rel; h.v2 {
					got[controller] += " v2"
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			for _, controller := range limited {
				if _, ok := got[controller]; !ok && tree.lacks[controller] == nil {
					t.Errorf("no reason why %s is not there", controller)
				}
			}
		})
	}
}

// TestOneOfTwoNames has cpu and cpuacct in one hierarchy, as most machines with
// version 1 do.
func TestOneOfTwoNames(t *testing.T) {
	m := fake(t, cgroups.Legacy, "3:cpu,cpuacct:/\n", map[string]string{"cpu,cpuacct": ""}, ".")
	m.mounted = func(dir string) bool { return strings.HasPrefix(filepath.Base(dir), "cpu") }
	for _, name := range []string{"cpu", "cpuacct"} {
		if err := os.Symlink("cpu,cpuacct", filepath.Join(m.top, name)); err != nil {
			t.Fatal(err)
		}
	}
	tree := m.open()
	if hs := hierarchies(tree.at); len(hs) != 1 || len(tree.at) != 2 {
		t.Errorf("hierarchies %v of %v", hs, tree.at)
	}
}

// TestPrepare asks for limits some of which cannot be had, and makes groups with the
// others.
func TestPrepare(t *testing.T) {
	m := fake(t, cgroups.Unified, "0::/\n", map[string]string{".": "memory pids", "ndklab": "", "ndklab/l": ""}, ".")
	tree := m.open()
	// Plain files do not add up what is written to them, as the kernel's do; what is there is left.
	for _, dir := range []string{".", "ndklab", "ndklab/l"} {
		if err := os.WriteFile(filepath.Join(m.top, dir, "cgroup.subtree_control"), []byte("memory pids"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.Prepare(Limits{PIDs: 1}); err != nil {
		t.Errorf("what is not asked for is told: %v", err)
	}
	if err := tree.Prepare(everything); err == nil || strings.Count(err.Error(), "\n") != 0 || !strings.HasPrefix(err.Error(), "cpu: ") {
		t.Errorf("got %v", err)
	}
	if g, err := tree.Create("l", "n", Limits{CPU: 1}); g != nil || err != nil {
		t.Errorf("a group with nothing to limit: %v, %v", g, err)
	}
	// The files of limits are the kernel's: here they are missing.
	if _, err := tree.Create("l", "n", everything); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a group without files: %v", err)
	}
}

// newTop is a version 2 group with all controllers, made by root, which goes with the
// test.
func newTop(t *testing.T) string {
	t.Helper()
	above := Open().at[cpuController]
	if os.Getuid() != 0 || !above.v2 {
		t.Skip("needs root and version 2")
	}
	if err := enable(above.root, limited); err != nil {
		t.Fatal(err)
	}
	top := filepath.Join(above.root, fmt.Sprintf("%s-%d", t.Name(), os.Getpid()))
	if err := os.Mkdir(top, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeWithRetries(top); err != nil {
			t.Error(err)
		}
	})
	return top
}

// directory opens a group for CLONE_INTO_CGROUP.
func directory(t *testing.T, group string) *os.File {
	t.Helper()
	dir, err := os.OpenFile(group, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return dir
}

// TestDelegated gives an ordinary user a group, as systemd does, in a child of which a
// session is: there the user has limits.
func TestDelegated(t *testing.T) {
	top := newTop(t)
	session := filepath.Join(top, "session")
	if err := os.Mkdir(session, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{top, session} {
		for _, name := range []string{".", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
			if err := os.Chown(filepath.Join(group, name), nobody.ID, nobody.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	asUser(t, "^Test(Group|MakeAgain|MemoryLimit|CPULimit|PIDLimit|Directory)$", directory(t, session))
	if left, err := filepath.Glob(filepath.Join(top, "*", "cgroup.procs")); len(left) != 1 || err != nil {
		t.Errorf("groups below: %v, %v; want the session's alone", left, err)
	}
}

// TestTopWithProcesses is the situation of a container that sees its own group as the
// top: only while there are no processes in it may it have children with limits.
func TestTopWithProcesses(t *testing.T) {
	top := newTop(t)
	container := this()
	container.top, container.own = top, "0::/\n"
	w := startWorker(t, "spin", 0, &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(directory(t, top).Fd())})
	tree := container.open()
	err := tree.Prepare(everything)
	if !errors.Is(err, unix.EBUSY) || !strings.HasPrefix(err.Error(), "cpu, memory, pids: ") || strings.Count(err.Error(), "\n") != 0 {
		t.Errorf("with a process: %v", err)
	}
	if g, err := tree.Create("l", "n", everything); g != nil || err != nil {
		t.Errorf("with a process a group was made: %v, %v", g, err)
	}
	w.begin.Close()
	if err := w.Wait(); err != nil {
		t.Fatal(err)
	}
	tree = container.open()
	if err := tree.Prepare(everything); err != nil {
		t.Fatal(err)
	}
	if g, err := tree.Create("l", "n", everything); err != nil || g.Limits() != everything {
		t.Errorf("%v, %v", g, err)
	}
	if err := tree.remove("l"); err != nil {
		t.Error(err)
	}
}
