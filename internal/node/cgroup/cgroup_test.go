package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/nobody"
	"golang.org/x/sys/unix"
)

// envWork tells the test binary, started again, what to do: one of works and an amount.
const envWork = "NDKLAB_TEST_WORK"

func TestMain(m *testing.M) {
	if work := os.Getenv(envWork); work != "" {
		bufio.NewReader(os.Stdin).ReadString('\n') // until the parent has put it where it belongs
		work, amount, _ := strings.Cut(work, " ")
		n, err := strconv.Atoi(amount)
		if err != nil {
			panic(err)
		}
		works[work](n)
		return
	}
	os.Exit(m.Run())
}

var works = map[string]func(int){
	"allocate": allocate,
	"spin":     func(n int) { spin(time.Duration(n)) },
	"fork":     fork,
	"wait":     func(int) { select {} }, // for a signal
}

func allocate(bytes int) {
	b := make([]byte, bytes)
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
	fmt.Println("allocated", b[0])
}

// spin uses d of processor time, beside what was used before.
func spin(d time.Duration) {
	for before := used(); used()-before < d; {
	}
}

// used is the processor time that this process has used.
func used() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// fork starts processes until there are n or no more can be, says how many there are
// and why not more, and ends them.
func fork(n int) {
	var children []*exec.Cmd
	var err error
	for range n {
		child := exec.Command("sleep", "100")
		if err = child.Start(); err != nil {
			break
		}
		children = append(children, child)
	}
	fmt.Printf("%d %v\n", len(children), errors.Is(err, unix.EAGAIN))
	for _, child := range children {
		_ = child.Process.Kill()
		_ = child.Wait()
	}
}

// A worker is the test binary, started again, waiting to begin.
type worker struct {
	*exec.Cmd
	begin io.WriteCloser
	out   io.ReadCloser
}

func startWorker(t *testing.T, work string, amount int, attr *syscall.SysProcAttr) *worker {
	t.Helper()
	w := &worker{Cmd: exec.Command("/proc/self/exe")}
	w.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", envWork, work, amount))
	w.SysProcAttr = attr
	var err error
	if w.begin, err = w.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if w.out, err = w.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // for tests that fail before
		_ = w.Process.Kill()
		_ = w.Wait()
	})
	return w
}

// everything is one limit of each kind.
var everything = Limits{CPU: 0.5, Memory: 64 << 20, PIDs: 20}

// newLab returns a tree and the name of a lab of this test's own, whose groups are made
// there and removed when the test ends.
func newLab(t *testing.T) (*Tree, string) {
	t.Helper()
	tree := Open()
	if err := tree.Prepare(everything); err != nil {
		t.Skipf("no limits here: %v", err)
	}
	lab := fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), os.Getpid())
	t.Cleanup(func() {
		if err := Remove(lab); err != nil {
			t.Error(err)
		}
		for _, h := range hierarchies(tree.at) {
			dir := filepath.Join(h.root, base, lab)
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left", dir)
			}
			if above := filepath.Dir(dir); staysEmpty(t, above) {
				t.Errorf("%s is left", above)
			}
		}
	})
	return tree, lab
}

// staysEmpty reports whether a group is there, with none below it. It may be so for a
// moment, while others' tests make or remove groups there.
func staysEmpty(t *testing.T, group string) bool {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	changes := os.NewFile(uintptr(fd), "inotify")
	defer changes.Close()
	if err := changes.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Dir(group), group} {
		_, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_DELETE)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false
		case err != nil:
			t.Fatal(err)
		}
	}
	event := make([]byte, unix.SizeofInotifyEvent+unix.NAME_MAX+1)
	for {
		if _, err := os.Stat(group); err != nil || len(children(group)) > 0 {
			return false
		}
		if _, err := changes.Read(event); err != nil {
			return true
		}
	}
}

func newGroup(t *testing.T, limits Limits) *Group {
	t.Helper()
	tree, lab := newLab(t)
	g, err := tree.Create(lab, "a", limits)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestLimitFiles(t *testing.T) {
	v1, v2 := hierarchy{}, hierarchy{v2: true}
	for _, test := range []struct {
		cores  float64
		v1, v2 []setting
	}{
		{0.5, []setting{{"cpu.cfs_period_us", "10000", false}, {"cpu.cfs_quota_us", "5000", false}}, []setting{{"cpu.max", "5000 10000", false}}},
		{2, []setting{{"cpu.cfs_period_us", "10000", false}, {"cpu.cfs_quota_us", "20000", false}}, []setting{{"cpu.max", "20000 10000", false}}},
		{0.1, []setting{{"cpu.cfs_period_us", "10000", false}, {"cpu.cfs_quota_us", "1000", false}}, []setting{{"cpu.max", "1000 10000", false}}},
		{0.05, []setting{{"cpu.cfs_period_us", "20000", false}, {"cpu.cfs_quota_us", "1000", false}}, []setting{{"cpu.max", "1000 20000", false}}},
		{0.003, []setting{{"cpu.cfs_period_us", "333333", false}, {"cpu.cfs_quota_us", "1000", false}}, []setting{{"cpu.max", "1000 333333", false}}},
	} {
		if diff := cmp.Diff(test.v1, v1.cpuLimit(test.cores), cmp.AllowUnexported(setting{})); diff != "" {
			t.Errorf("%v cores, v1: %s", test.cores, diff)
		}
		if diff := cmp.Diff(test.v2, v2.cpuLimit(test.cores), cmp.AllowUnexported(setting{})); diff != "" {
			t.Errorf("%v cores, v2: %s", test.cores, diff)
		}
	}
	if diff := cmp.Diff([]setting{{"memory.limit_in_bytes", "4096", false}, {"memory.memsw.limit_in_bytes", "4096", true}},
		v1.memoryLimit(4096), cmp.AllowUnexported(setting{})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]setting{{"memory.max", "4096", false}, {"memory.swap.max", "0", true}, {"memory.oom.group", "1", true}},
		v2.memoryLimit(4096), cmp.AllowUnexported(setting{})); diff != "" {
		t.Error(diff)
	}
}

// TestEnable uses plain files in place of a version 2 hierarchy with controllers,
// which not every machine has.
func TestEnable(t *testing.T) {
	root := t.TempDir()
	h := hierarchy{root, true}
	lab := filepath.Join(root, base, "l")
	if err := os.MkdirAll(lab, 0o755); err != nil {
		t.Fatal(err)
	}
	control := func(dir string) string { return filepath.Join(dir, "cgroup.subtree_control") }
	for dir, has := range map[string]string{root: "cpu memory\n", filepath.Dir(lab): "cpu\n", lab: ""} {
		if err := os.WriteFile(control(dir), []byte(has), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.makeGroup(base+"/l/n", []string{"memory"}); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{root: "cpu memory\n", filepath.Dir(lab): "+memory", lab: "+memory"} {
		if got, err := os.ReadFile(control(dir)); string(got) != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", dir, got, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(lab, "n")); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{"cgroup.type": "domain\n", "cgroup.procs": "0\n"} { // a process of another PID namespace
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.makeGroup(base+"/l/n", []string{"memory"}); err != nil {
		t.Errorf("a group with processes that gives the controller already: %v", err)
	}
	if err := h.makeGroup(base+"/l/n", []string{"pids"}); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a group with processes: %v", err)
	}
	if err := os.Remove(filepath.Join(root, "cgroup.type")); err != nil {
		t.Fatal(err)
	}
	if err := h.makeGroup(base+"/other/n", []string{"memory"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a group without the file: %v", err)
	}
}

func TestCount(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory.events")
	if err := os.WriteFile(file, []byte("oom 5\noom_kill 3\noom_group_kill 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if n, err := count(file, "oom_kill"); n != 3 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := count(file, "max"); err == nil {
		t.Error("a value that is not there was read")
	}
}

func TestNames(t *testing.T) {
	tree := &Tree{}
	for _, name := range []string{"", ".", "..", "a/b", "/"} {
		if _, err := tree.Create(name, "n", everything); err == nil {
			t.Errorf("lab %q was made", name)
		}
		if _, err := tree.Create("l", name, everything); err == nil {
			t.Errorf("node %q was made", name)
		}
		if err := Remove(name); err == nil {
			t.Errorf("lab %q was removed", name)
		}
	}
}

// TestOrdinaryUser asks without rights.
func TestOrdinaryUser(t *testing.T) {
	userLab := fmt.Sprintf("cgroup-test-user-%d", os.Getppid())
	if os.Getuid() == 0 {
		userLab = fmt.Sprintf("cgroup-test-user-%d", os.Getpid()) // the user's process is a child
		tree := Open()
		if tree.Prepare(everything) == nil { // a lab of that name is running, but not the user's
			if _, err := tree.Create(userLab, "n", everything); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := Remove(userLab); err != nil {
					t.Error(err)
				}
			}()
		}
		asUser(t, "^TestOrdinaryUser$", nil)
		return
	}
	tree := Open()
	err := tree.Prepare(everything)
	if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EROFS) || strings.Contains(err.Error(), "\n") {
		t.Errorf("limits are available, or the reasons not told: %v", err)
	}
	if g, err := tree.Create(userLab, "n", everything); g != nil || err != nil {
		t.Errorf("a group was made: %v, %v", g, err)
	}
	if err := Remove(userLab); err != nil {
		t.Error(err)
	}
}

// asUser runs tests as an ordinary user, in a version 2 group unless that is nil.
func asUser(t *testing.T, tests string, group *os.File) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run="+tests)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody.Credential()}
	if group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestGroup makes the groups of two nodes and checks what the kernel shows.
func TestGroup(t *testing.T) {
	tree, lab := newLab(t)
	a, err := tree.Create(lab, "a", everything)
	if err != nil {
		t.Fatal(err)
	}
	if want := "ndklab/" + lab + "/a"; a.Path() != want {
		t.Errorf("path %s, want %s", a.Path(), want)
	}
	if a.Limits() != everything {
		t.Errorf("limits %+v", a.Limits())
	}
	if g, err := tree.Create(lab, "b", Limits{}); g != nil || err != nil {
		t.Errorf("without limits: %v, %v", g, err)
	}
	for _, controller := range limited {
		h := a.at[controller]
		for _, s := range h.settings(controller, everything) {
			got, err := os.ReadFile(filepath.Join(h.root, a.Path(), s.file))
			if s.optional && errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if strings.TrimSpace(string(got)) != s.value || err != nil {
				t.Errorf("%s: %q, %v; want %s", s.file, got, err, s.value)
			}
		}
	}
	w := startWorker(t, "spin", 0, nil)
	if err := a.Add(w.Process.Pid); err != nil {
		t.Fatal(err)
	}
	in, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", w.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(in), "/"+a.Path()+"\n"); n != len(hierarchies(a.at)) {
		t.Errorf("the process is in\n%s", in)
	}
	if _, err := tree.Create(lab, "a", everything); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a group that is in use was made again: %v", err)
	}
	// Remove waits for the process, which ends meanwhile, if the machine is not too busy.
	if err := w.begin.Close(); err != nil {
		t.Fatal(err)
	}
	err = Remove(lab)
	for tries := 0; errors.Is(err, unix.EBUSY) && tries < 10; tries++ {
		err = Remove(lab)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := Remove(lab); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := a.Add(os.Getpid()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("add to a removed group: %v", err)
	}
}

func TestRemoveInUse(t *testing.T) {
	t.Parallel() // it waits
	tree, lab := newLab(t)
	g, err := tree.Create(lab, "a", Limits{CPU: 1})
	if err != nil {
		t.Fatal(err)
	}
	w := startWorker(t, "spin", 0, nil)
	if err := g.Add(w.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := Remove(lab); !errors.Is(err, unix.EBUSY) {
		t.Errorf("got %v", err)
	}
	if err := w.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the process does not live any more: %v", err)
	}
	w.begin.Close()
}

// TestMakeAgain makes a group where a lab of the same name left one.
func TestMakeAgain(t *testing.T) {
	tree, lab := newLab(t)
	for range 2 {
		if _, err := tree.Create(lab, "a", everything); err != nil {
			t.Error(err)
		}
	}
}

// TestTogether makes and removes labs side by side: they share a parent.
func TestTogether(t *testing.T) {
	tree, _ := newLab(t)
	errs := make(chan error)
	const labs, rounds = 4, 20
	for i := range labs {
		go func() {
			lab := fmt.Sprintf("%s-%d-%d", t.Name(), os.Getpid(), i)
			var err error
			for range rounds {
				_, createErr := tree.Create(lab, "a", everything)
				err = errors.Join(err, createErr, Remove(lab))
			}
			errs <- err
		}()
	}
	for range labs {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestDirectory has a child born in a version 2 group. In hybrid mode the group
// has no controllers, but it is a group.
func TestDirectory(t *testing.T) {
	tree, lab := newLab(t)
	h := hierarchy{"/sys/fs/cgroup/unified", true}
	if tree.at[cpuController].v2 {
		h = tree.at[cpuController]
	}
	if _, err := os.Stat(filepath.Join(h.root, "cgroup.procs")); err != nil {
		t.Skip("no version 2 hierarchy")
	}
	g := &Group{path: base + "/" + lab + "/a", at: map[string]hierarchy{cpuController: h}}
	if err := h.makeGroup(g.path, nil); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := (&Tree{at: g.at}).remove(lab); err != nil {
			t.Error(err)
		}
	}()
	dir, err := g.Directory()
	if err != nil || dir == nil {
		t.Fatalf("%v, %v", dir, err)
	}
	defer dir.Close()
	w := startWorker(t, "spin", 0, &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())})
	in, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", w.Process.Pid))
	if err != nil || !strings.Contains(string(in), "/"+g.path+"\n") {
		t.Errorf("the child is in %s, %v", in, err)
	}
	w.begin.Close()
	if err := w.Wait(); err != nil {
		t.Error(err)
	}
	v1 := &Group{path: g.path, at: map[string]hierarchy{cpuController: {root: "/sys/fs/cgroup/cpu"}}}
	if dir, err := v1.Directory(); dir != nil || err != nil {
		t.Errorf("a version 1 group: %v, %v", dir, err)
	}
}

// Limits change both ways while the group is there, and those that it has not got stay
// without.
func TestSet(t *testing.T) {
	g := newGroup(t, everything)
	larger := Limits{CPU: 2, Memory: 128 << 20, PIDs: 40}
	for _, limits := range []Limits{larger, everything, {}, larger} {
		want := limits
		if limits == (Limits{}) {
			want = everything
		}
		if err := g.Set(limits); err != nil {
			t.Fatal(err)
		}
		if g.Limits() != want {
			t.Errorf("limits %+v, want %+v", g.Limits(), want)
		}
		for _, controller := range limited {
			h := g.at[controller]
			for _, s := range h.settings(controller, want) {
				got, err := os.ReadFile(filepath.Join(h.root, g.Path(), s.file))
				if s.optional && errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if strings.TrimSpace(string(got)) != s.value || err != nil {
					t.Errorf("%s: %q, %v; want %s", s.file, got, err, s.value)
				}
			}
		}
	}
}
