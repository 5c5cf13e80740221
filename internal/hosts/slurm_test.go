package hosts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/need"
)

func TestLeastProcessors(t *testing.T) {
	for text, want := range map[string]int{"1": 1, "16(x2)": 16, "16(x2),8": 8, "4,36(x3),12": 4, "": 0, "x": 0, "0(x2)": 0, "4,": 0} {
		if got, err := leastProcessors(text); got != want && err == nil || (err != nil) != (want == 0) {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	_, err := Spec{Kind: Slurm}.jobPlan(func(string) string { return "" })
	if want := "salloc or sbatch"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// A cluster is a real Slurm of two hosts in namespaces, for the time of a test.
type cluster struct{ dir string }

func newCluster(t *testing.T) *cluster {
	t.Helper()
	need.Time(t)
	err := need.Programs("slurmctld", "slurmd", "srun", "munged", "unshare", "nsenter", "ip")
	if os.Geteuid() != 0 {
		err = errors.Join(err, errors.New("root"))
	}
	need.Check(t, err)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{dir: t.TempDir()}
	env := append(os.Environ(), "DIR="+c.dir, "NET=10.57.0", "CPUS=2", "SHARE="+filepath.Dir(self))
	for _, step := range []struct {
		script string
		args   []string
	}{{"up.sh", []string{"2"}}, {"down.sh", nil}} {
		run := func() {
			cmd := exec.Command("testdata/slurm/"+step.script, step.args...)
			cmd.Env = env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", step.script, err, out)
			}
		}
		if step.script == "up.sh" {
			run()
		} else {
			t.Cleanup(run)
		}
	}
	return c
}

// on returns a command on a host.
func (c *cluster) on(host string, args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(c.dir, "on"), append([]string{host}, args...)...)
}

// output returns what a command prints on the host of the user.
func (c *cluster) output(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.on("ctl", args...).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// A run is a lab's processes, which have its token in their environment.
type run struct {
	*cluster
	token string
	cmd   *exec.Cmd
	log   safeLog
}

// started starts a guardian, by salloc if before says so, and returns when all hosts have come.
func (c *cluster) started(t *testing.T, hosts string, before ...string) *run {
	t.Helper()
	return c.startedAs(t, "NDKLAB_TEST_TOKEN="+filepath.Base(c.dir)+strings.ReplaceAll(t.Name(), "/", "-"), hosts, before...)
}

// startedAs is started with a token.
func (c *cluster) startedAs(t *testing.T, token, hosts string, before ...string) *run {
	t.Helper()
	r := &run{cluster: c, token: token}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r.cmd = c.on("ctl", append(before, self, hosts)...)
	r.cmd.Env = append(os.Environ(), envRole+"=guardian", r.token)
	r.cmd.Stderr = &r.log
	said, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() {
		for _, pid := range r.processes(t, "") {
			// It fails of one that has ended.
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	late := time.AfterFunc(testTime, end)
	t.Cleanup(func() {
		late.Stop()
		if t.Failed() {
			end()
			t.Logf("the log:\n%s", &r.log)
		}
	})
	lines := bufio.NewScanner(said)
	for lines.Scan() && lines.Text() != "ready" {
	}
	return r
}

// processes returns those of the run that are the role's, "" for all.
func (r *run) processes(t *testing.T, role string) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A process that ends just now has neither.
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		if slices.Contains(strings.Split(string(env), "\x00"), r.token) && (role == "" || r.role(args) == role) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// role returns what a process is by its arguments.
func (r *run) role(args []string) string {
	if name := filepath.Base(args[0]); name == "srun" || name == "ssh" || len(args) == 1 || args[1] != workerCommand {
		return name
	}
	return workerCommand
}

// kill kills one process of a role.
func (r *run) kill(t *testing.T, role string, s unix.Signal) {
	t.Helper()
	pids := r.processes(t, role)
	if len(pids) == 0 {
		t.Fatalf("there is no %s", role)
	}
	kill(t, pids[0], s)
}

// awaitEnd waits until no process and no job is left, and returns what was said.
func (r *run) awaitEnd(t *testing.T) string {
	t.Helper()
	eventually(t, func() string {
		if left := r.processes(t, ""); left != nil {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", left[0]))
			return fmt.Sprintf("processes %d are left: %s", left, bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
		}
		return ""
	})
	// The log tells of its end.
	_ = r.cmd.Wait()
	eventually(t, func() string {
		if jobs := r.output(t, "squeue", "-h"); jobs != "" {
			return "jobs are left: " + jobs
		}
		return ""
	})
	return r.log.String()
}

// TestSlurm: in an allocation and without one, hosts come, are joined, and end; whatever is killed, nothing is left.
func TestSlurm(t *testing.T) {
	c := newCluster(t)
	salloc := []string{"salloc", "-Q", "-N2"}
	for _, kind := range []struct {
		name, hosts string
		before      []string
	}{{"step", "slurm", salloc}, {"allocation", "slurm:-N 2", nil}} {
		t.Run(kind.name+" end", func(t *testing.T) {
			r := c.started(t, kind.hosts, kind.before...)
			r.kill(t, "head", unix.SIGTERM)
			if log := r.awaitEnd(t); log != "" {
				t.Errorf("said\n%s\nwant nothing", log)
			}
		})
		for _, k := range []struct{ role, want string }{
			{"head", ""}, {"part", "is gone: its part has ended: signal: killed"}, {"srun", "is gone: its process has ended (srun: signal: killed"}, {"worker", "is gone: its process has ended"},
		} {
			t.Run(kind.name+" "+k.role, func(t *testing.T) {
				r := c.started(t, kind.hosts, kind.before...)
				r.kill(t, k.role, unix.SIGKILL)
				if log := r.awaitEnd(t); !strings.Contains(log, k.want) {
					t.Errorf("said\n%s\nwant %s", log, k.want)
				}
			})
		}
	}
	t.Run("allocation guardian", func(t *testing.T) {
		r := c.started(t, "slurm:-N 2")
		r.kill(t, "hosts.test", unix.SIGKILL)
		r.kill(t, "head", unix.SIGTERM) // which has nobody to tell, and still ends what it has
		if log := r.awaitEnd(t); strings.Contains(log, "gone") {
			t.Errorf("said\n%s", log)
		}
	})
	t.Run("two clusters", func(t *testing.T) {
		group, err := os.ReadFile(filepath.Join(c.dir, "group"))
		if err != nil {
			t.Fatal(err)
		}
		roots, err := filepath.Glob("/sys/fs/cgroup/*/" + strings.TrimSpace(string(group)) + "/host1")
		if err == nil && len(roots) == 0 {
			err = errors.New("control groups of version 1, which hosts have here")
		}
		need.Check(t, err)
		step := filepath.Join(roots[0], "of-a-step-without-a-process")
		if err := os.Mkdir(step, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Run("the other", func(t *testing.T) { newCluster(t) })
		if err := os.Remove(step); err != nil {
			t.Errorf("the end of one cluster has ended a cgroup of another: %v", err)
		}
	})
	t.Run("no partition", func(t *testing.T) {
		log := c.started(t, "slurm:-N 2 -p nope").awaitEnd(t)
		if want := "srun: exit status 1: srun: error: invalid partition specified: nope"; !strings.Contains(log, want) {
			t.Errorf("said\n%s\nwant %s", log, want)
		}
	})
	t.Run("a network that is gone", func(t *testing.T) {
		r := c.started(t, "slurm", salloc...)
		if out, err := exec.Command(filepath.Join(c.dir, "cut"), "host2", "down").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		log := ""
		eventually(t, func() string {
			if left := append(r.processes(t, "worker"), r.processes(t, "part")...); left != nil {
				return fmt.Sprintf("processes %d are left", left)
			}
			return ""
		})
		if out, err := exec.Command(filepath.Join(c.dir, "cut"), "host2", "up").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		log = r.awaitEnd(t)
		if want := "host host2 is gone: nothing was heard for 3s"; !strings.Contains(log, want) {
			t.Errorf("said\n%s\nwant %s", log, want)
		}
	})
}
