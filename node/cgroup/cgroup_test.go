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
	"golang.org/x/sys/unix"
)

// envWork tells the test binary, started again, what to do: "allocate" BYTES, or
// "spin" for so long of its own time.
const envWork = "NDKLAB_TEST_WORK"

func TestMain(m *testing.M) {
	if work := os.Getenv(envWork); work != "" {
		bufio.NewReader(os.Stdin).ReadString('\n') // until the parent has put it where it belongs
		work, amount, _ := strings.Cut(work, " ")
		n, err := strconv.Atoi(amount)
		if err != nil {
			panic(err)
		}
		if work == "allocate" {
			allocate(n)
		} else {
			spin(time.Duration(n))
		}
		return
	}
	os.Exit(m.Run())
}

func allocate(bytes int) {
	b := make([]byte, bytes)
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
	fmt.Println("allocated", b[0])
}

func spin(d time.Duration) {
	for used := time.Duration(0); used < d; {
		var usage unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
			panic(err)
		}
		used = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
}

// A worker is the test binary, started again, waiting to begin.
type worker struct {
	*exec.Cmd
	begin io.WriteCloser
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
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // for tests that fail before
		_ = w.Process.Kill()
		_ = w.Wait()
	})
	return w
}

// newLab is the name of a lab of this test's own, whose groups are removed when
// the test ends.
func newLab(t *testing.T) string {
	t.Helper()
	if err := Available(); err != nil {
		t.Skipf("no limits here: %v", err)
	}
	lab := fmt.Sprintf("%s-%d", t.Name(), os.Getpid())
	t.Cleanup(func() {
		if err := Remove(lab); err != nil {
			t.Error(err)
		}
		for _, dir := range directories(t, lab) {
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left", dir)
			}
			if err := os.Remove(filepath.Dir(dir)); err == nil {
				t.Errorf("%s is left", filepath.Dir(dir))
			}
		}
	})
	return lab
}

// directories are those of a lab.
func directories(t *testing.T, lab string) []string {
	t.Helper()
	var dirs []string
	for _, controller := range []string{cpuController, memoryController} {
		h, err := find(controller)
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, filepath.Join(h.root, base, lab))
	}
	return dirs
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
	if diff := cmp.Diff([]setting{{"memory.max", "4096", false}, {"memory.swap.max", "0", true}},
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
	for _, name := range []string{"", ".", "..", "a/b", "/"} {
		if _, err := Create(name, "n", 1, 0); err == nil {
			t.Errorf("lab %q was made", name)
		}
		if _, err := Create("l", name, 1, 0); err == nil {
			t.Errorf("node %q was made", name)
		}
		if err := Remove(name); err == nil {
			t.Errorf("lab %q was removed", name)
		}
	}
}

const userLab = "cgroup-test-user"

// TestOrdinaryUser asks without rights.
func TestOrdinaryUser(t *testing.T) {
	if os.Getuid() == 0 {
		if Available() == nil { // a lab of that name is running, but not the user's
			if _, err := Create(userLab, "n", 1, 1<<20); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := Remove(userLab); err != nil {
					t.Error(err)
				}
			}()
		}
		cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run=^TestOrdinaryUser$")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := Available(); err == nil {
		t.Error("limits are available")
	}
	if _, err := Create(userLab, "n", 1, 1<<20); err == nil {
		t.Error("a group was made")
	}
	if err := Remove(userLab); err != nil {
		t.Error(err)
	}
}

// TestGroup makes the groups of two nodes and checks what the kernel shows.
func TestGroup(t *testing.T) {
	lab := newLab(t)
	a, err := Create(lab, "a", 0.5, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	if want := "ndklab/" + lab + "/a"; a.Path() != want {
		t.Errorf("path %s, want %s", a.Path(), want)
	}
	if _, err := Create(lab, "b", 0, 0); err != nil {
		t.Errorf("without limits: %v", err)
	}
	onlyCPU, err := Create(lab, "c", 0.5, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := onlyCPU.OOMKills(); n != 0 || err != nil {
		t.Errorf("kills without a limit: %d, %v", n, err)
	}
	for _, s := range append(a.cpu.cpuLimit(0.5), a.memory.memoryLimit(64<<20)...) {
		h := a.memory
		if strings.HasPrefix(s.file, "cpu.") {
			h = a.cpu
		}
		got, err := os.ReadFile(filepath.Join(h.root, a.Path(), s.file))
		if s.optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if strings.TrimSpace(string(got)) != s.value || err != nil {
			t.Errorf("%s: %q, %v; want %s", s.file, got, err, s.value)
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
	if n := strings.Count(string(in), "/"+a.Path()+"\n"); n != len(a.hierarchies()) {
		t.Errorf("the process is in\n%s", in)
	}
	if _, err := Create(lab, "a", 1, 0); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a group that is in use was made again: %v", err)
	}
	// Remove waits for the process, which ends meanwhile.
	if err := w.begin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Remove(lab); err != nil {
		t.Error(err)
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
	lab := newLab(t)
	g, err := Create(lab, "a", 1, 0)
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
	lab := newLab(t)
	for range 2 {
		if _, err := Create(lab, "a", 0.5, 64<<20); err != nil {
			t.Error(err)
		}
	}
}

// TestTogether makes and removes labs side by side: they share a parent.
func TestTogether(t *testing.T) {
	if err := Available(); err != nil {
		t.Skipf("no limits here: %v", err)
	}
	errs := make(chan error)
	const labs, rounds = 4, 20
	for i := range labs {
		go func() {
			lab := fmt.Sprintf("%s-%d-%d", t.Name(), os.Getpid(), i)
			var err error
			for range rounds {
				_, createErr := Create(lab, "a", 0.5, 64<<20)
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

func TestMemoryLimit(t *testing.T) {
	lab := newLab(t)
	g, err := Create(lab, "a", 0, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		bytes int
		kills uint64
	}{{1 << 20, 0}, {256 << 20, 1}} {
		w := startWorker(t, "allocate", test.bytes, nil)
		if err := g.Add(w.Process.Pid); err != nil {
			t.Fatal(err)
		}
		w.begin.Close()
		err := w.Wait()
		killed := err != nil && w.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
		if killed != (test.kills > 0) || (err != nil) != killed {
			t.Errorf("%d bytes: %v", test.bytes, err)
		}
		if n, err := g.OOMKills(); n != test.kills || err != nil {
			t.Errorf("%d bytes: %d kills, %v", test.bytes, n, err)
		}
	}
}

func TestCPULimit(t *testing.T) {
	lab := newLab(t)
	g, err := Create(lab, "a", 0.1, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := startWorker(t, "spin", int(50*time.Millisecond), nil)
	if err := g.Add(w.Process.Pid); err != nil {
		t.Fatal(err)
	}
	w.begin.Close()
	if err := w.Wait(); err != nil {
		t.Fatal(err)
	}
	n, err := count(filepath.Join(g.cpu.root, g.Path(), "cpu.stat"), "nr_throttled")
	if n == 0 || err != nil {
		t.Errorf("throttled %d times, %v", n, err)
	}
}

// TestDirectory has a child born in a version 2 group. In hybrid mode the group
// has no controllers, but it is a group.
func TestDirectory(t *testing.T) {
	lab := newLab(t)
	h := hierarchy{unified, true}
	if _, err := os.Stat(filepath.Join(unified, "cgroup.procs")); err != nil {
		h.root = top
	}
	if _, err := os.Stat(filepath.Join(h.root, "cgroup.procs")); err != nil {
		t.Skip("no version 2 hierarchy")
	}
	g := &Group{path: base + "/" + lab + "/a", cpu: &h}
	if err := h.makeGroup(g.path, nil); err != nil {
		t.Fatal(err)
	}
	defer func() {
		err := errors.Join(removePatiently(filepath.Join(h.root, base, lab)), os.Remove(filepath.Join(h.root, base)))
		if err != nil {
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
	if err != nil || !strings.Contains(string(in), "0::/"+g.path+"\n") {
		t.Errorf("the child is in %s, %v", in, err)
	}
	w.begin.Close()
	if err := w.Wait(); err != nil {
		t.Error(err)
	}
	v1 := &Group{path: g.path, cpu: &hierarchy{root: top + "/cpu"}}
	if dir, err := v1.Directory(); dir != nil || err != nil {
		t.Errorf("a version 1 group: %v, %v", dir, err)
	}
}
