package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/nobody"
	"github.com/ndklab/ndklab/internal/node/cgroup"
)

// groupOf makes a control group, as a lab with a limited node has it.
func groupOf(t *testing.T, p place) string {
	t.Helper()
	root := "/sys/fs/cgroup/memory" // version 1, or hybrid
	if !exists(root) {
		root = "/sys/fs/cgroup"
	}
	if os.Geteuid() != 0 || !exists(filepath.Join(root, "cgroup.procs")) {
		t.Skip("no control groups for us here")
	}
	dir := filepath.Join(root, "ndklab", p.name, "a")
	eventually(t, testTime, func() string { // another lab's end may remove the parent
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err.Error()
		}
		return ""
	})
	t.Cleanup(func() {
		if err := cgroup.Remove(p.name); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// nameOf makes a name for ip netns of an external out, whose namespace is in a process
// of this id.
func nameOf(t *testing.T, p place, pid int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root has names for ip netns")
	}
	path := fmt.Sprintf("/proc/%d/root%s/out", pid, p.namespaceDir())
	if err := nameNamespace(p.name+".out", path); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(namesDir, p.name+".out")
	t.Cleanup(func() {
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	return link
}

// noProcess is an id that no process has (PID_MAX_LIMIT).
const noProcess = 1 << 22

// Each of the things that a lab may leave is found by itself, and removed unless the lab
// lives.
func TestCollect(t *testing.T) {
	for _, test := range []struct {
		name string
		make func(t *testing.T, p place) []Leftover
	}{
		{"state", func(t *testing.T, p place) []Leftover {
			writeFile(t, p.stateFile())
			return []Leftover{{p.name, LeftState, p.stateFile()}}
		}},
		{"log", func(t *testing.T, p place) []Leftover {
			writeFile(t, p.logFile())
			return []Leftover{{p.name, LeftLog, p.logFile()}}
		}},
		{"sockets", func(t *testing.T, p place) []Leftover {
			if err := os.Mkdir(p.externalDir(), 0o700); err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(p.externalDir(), "out.lab"))
			return []Leftover{{p.name, LeftSockets, p.externalDir()}}
		}},
		{"name", func(t *testing.T, p place) []Leftover {
			return []Leftover{{p.name, LeftName, nameOf(t, p, noProcess)}}
		}},
		{"group", func(t *testing.T, p place) []Leftover {
			dir := groupOf(t, p)
			return []Leftover{{p.name, LeftGroup, filepath.Dir(dir)}, {p.name, LeftGroup, dir}}
		}},
		{"nothing", func(*testing.T, place) []Leftover { return nil }},
		{"state that is locked", func(t *testing.T, p place) []Leftover {
			writeFile(t, p.logFile())
			locked, err := p.lock(true)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { locked.Close() })
			return nil
		}},
		{"log of a lab that listens", func(t *testing.T, p place) []Leftover {
			writeFile(t, p.logFile())
			listener, err := p.bind()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { listener.Close() })
			return nil
		}},
		{"name that leads somewhere", func(t *testing.T, p place) []Leftover {
			if err := os.MkdirAll(p.namespaceDir(), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(filepath.Join(p.dir, "ns")) })
			writeFile(t, filepath.Join(p.namespaceDir(), "out"))
			nameOf(t, p, os.Getpid())
			return nil
		}},
		{"name in another directory", func(t *testing.T, p place) []Leftover {
			p.dir = t.TempDir()
			nameOf(t, p, noProcess)
			return nil
		}},
		{"group with a process", func(t *testing.T, p place) []Leftover {
			writeFile(t, p.logFile())
			dir := groupOf(t, p)
			sleeper := exec.Command("sleep", "1000")
			if err := sleeper.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = sleeper.Process.Kill()
				_ = sleeper.Wait()
			})
			if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, sleeper.Process.Pid), 0); err != nil {
				t.Fatal(err)
			}
			return nil
		}},
		{"group of another user", func(t *testing.T, p place) []Leftover {
			if err := os.Chown(filepath.Dir(groupOf(t, p)), nobody.ID, nobody.ID); err != nil {
				t.Fatal(err)
			}
			return nil
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := place{t.TempDir(), testPlace(t).name} // where no other command sweeps
			want := test.make(t, p)
			before := placeRemains(t, p)
			for _, step := range []struct {
				name   string
				dryRun bool
				want   []Leftover
			}{{"dry run", true, want}, {"first", false, want}, {"second", false, nil}} {
				got, err := collectIn(p.dir, []string{p.name}, step.dryRun)
				if err != nil {
					t.Errorf("%s: %v", step.name, err)
				}
				if len(got)+len(step.want) > 0 {
					if diff := cmp.Diff(step.want, got); diff != "" {
						t.Errorf("%s (-want +got):\n%s", step.name, diff)
					}
				}
				if now := placeRemains(t, p); now != before && (step.dryRun || want == nil) {
					t.Errorf("%s: what was %s is %s", step.name, before, now)
				}
			}
			if rest := placeRemains(t, p); want != nil && rest != "" {
				t.Errorf("left behind: %s", rest)
			}
		})
	}
}

// placeRemains lists what there is of a lab, wherever its files are.
func placeRemains(t *testing.T, p place) string {
	t.Helper()
	left := cgroupsOf(t, p.name)
	for _, pattern := range []string{filepath.Join(p.dir, p.name+".*"), filepath.Join(namesDir, p.name+".*")} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, files...)
	}
	return strings.Join(left, ", ")
}

func writeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(path) })
}

// A name is of the lab that it leads to, whatever its own says.
func TestExternalNames(t *testing.T) {
	p := testPlace(t)
	p.name += ".with.dots"
	nameOf(t, p, noProcess)
	other := place{dir: p.dir, name: strings.TrimSuffix(p.name, ".dots")}
	for _, test := range []struct {
		place
		want int
	}{{p, 1}, {other, 0}, {place{dir: "/run/another", name: p.name}, 0}} {
		if got, err := test.externalNames(); len(got) != test.want || err != nil {
			t.Errorf("%s in %s: names %v, %v; want %d", test.name, test.dir, got, err, test.want)
		}
	}
}

// Somebody who removes or replaces the state file of a lab that is up does not make it
// disappear: it is still found, and nothing takes it for dead.
func TestStateFileGone(t *testing.T) {
	for _, test := range []struct {
		name   string
		damage func(path string) error
	}{
		{"removed", os.Remove},
		{"replaced", func(path string) error {
			return errors.Join(os.WriteFile(path+"~", []byte("edited"), 0o600), os.Rename(path+"~", path))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			topo := withExternal(ring(uniqueName(t), 2))
			started := start(t, topo)
			p := started.place
			if err := test.damage(p.stateFile()); err != nil {
				t.Fatal(err)
			}
			if err := Sweep(); err != nil {
				t.Fatal(err)
			}
			if left, err := Collect([]string{topo.Name}, false); len(left) > 0 || err != nil {
				t.Errorf("collected %v, %v", left, err)
			}
			eventually(t, testTime, func() string { // it has a second to answer
				labs, err := List(testContext(t))
				if err != nil {
					t.Fatal(err)
				}
				labs = slices.DeleteFunc(labs, func(i Info) bool { return i.Lab != topo.Name })
				if len(labs) != 1 {
					t.Fatalf("found %d times: %v", len(labs), labs)
				}
				if labs[0].State != Ready {
					return "its state is " + labs[0].State
				}
				return ""
			})
			l, err := Open(testContext(t), topo.Name)
			if err != nil {
				t.Fatal(err)
			}
			inspection, err := l.Inspect(testContext(t))
			if err != nil || inspection.Externals[0].Lost > 0 {
				t.Fatalf("%v, %v", inspection, err)
			}
			if !exists(inspection.Externals[0].Socket) || !exists(p.logFile()) {
				t.Error("something of a living lab was removed")
			}
			if err := l.Down(testContext(t)); err != nil {
				t.Fatal(err)
			}
			// Its guardian may still be about to end.
			eventually(t, testTime, func() string { return remains(t, topo.Name) })
		})
	}
}

// A guardian whose lab's state file is another's by now leaves everything to that one.
func TestCleanAs(t *testing.T) {
	p := testPlace(t)
	old, err := p.lock(true)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := os.Remove(p.stateFile()); err != nil {
		t.Fatal(err)
	}
	now, err := p.lock(true)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, p.logFile())
	if err := p.cleanAs(old); err != nil {
		t.Error(err)
	}
	if !exists(p.stateFile()) || !exists(p.logFile()) {
		t.Error("another lab's files were removed")
	}
	now.Close()
	if err := p.cleanAs(old); err != nil {
		t.Error(err)
	}
	if rest := remains(t, p.name); rest != "" {
		t.Errorf("left behind: %s", rest)
	}
}

// A listener in the abstract namespace under a name that is none of ours is no lab.
func TestHeard(t *testing.T) {
	p := testPlace(t)
	listener, err := p.bind()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	other, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: p.socket().Name + "/x"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	names, err := heard()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range names {
		if strings.HasPrefix(name, p.name) {
			found++
		}
	}
	if found != 1 {
		t.Errorf("heard %v, of which %d begin with %s", names, found, p.name)
	}
}
