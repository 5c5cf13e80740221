package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/nobody"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/node/cgroup"
	"golang.org/x/sys/unix"
)

func skipWithoutLimits(t *testing.T, limits cgroup.Limits) {
	t.Helper()
	if err := cgroup.Open().Prepare(limits); err != nil {
		t.Skipf("no limits here: %v", err)
	}
}

// runIn runs a command in a node, whose input and output are nothing.
func runIn(t *testing.T, l *Lab, nodeName string, args ...string) (status int, err error) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	return l.Nodes.Exec(testContext(t), nodeName, node.Command{Args: args}, null, null, null)
}

// TestLimits starts a lab with limits, which has groups, or else says so.
func TestLimits(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	topo.Nodes[0].CPU = 0.5
	topo.Nodes[1].Memory = 256 << 20
	var mu sync.Mutex
	var warnings []string
	startWith(t, topo, Options{Events: func(e event.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == event.Warning {
			warnings = append(warnings, e.Text)
		}
	}})
	groups := cgroupsOf(t, topo.Name)
	want := 0
	if cgroup.Open().Prepare(cgroup.Limits{CPU: 1, Memory: 1}) != nil {
		want = 1 // said once, not for each node
	}
	if (len(groups) == 0) != (want == 1) {
		t.Errorf("cgroups %v, %d warnings expected", groups, want)
	}
	eventually(t, testTime, func() string {
		mu.Lock()
		defer mu.Unlock()
		if len(warnings) != want {
			return fmt.Sprintf("warnings %q, want %d", warnings, want)
		}
		return ""
	})
}

// TestLimitOfMemory has a command in a node go over the node's memory: the node dies,
// with all that ran there, the reason is told, and the other one goes on.
func TestLimitOfMemory(t *testing.T) {
	skipWithoutLimits(t, cgroup.Limits{Memory: 1})
	topo := ring(uniqueName(t), 2)
	topo.Nodes[0].Memory = 64 << 20
	l := start(t, topo)
	inspect := func() []report.Node {
		i, err := l.Inspect(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		return i.Nodes
	}
	before := inspect()
	if n := before[0]; n.State != nodeReady || n.Limits == nil || *n.Limits.Memory != 64<<20 || n.Limits.CPU != nil || n.Limits.PIDs != nil ||
		n.Usage == nil || n.Usage.Memory == nil || *n.Usage.Memory == 0 || *n.Usage.OOMKills != 0 {
		t.Errorf("before: %+v, limits %+v, usage %+v", n, n.Limits, n.Usage)
	}
	if n := before[1]; n.Limits != nil || n.Usage != nil {
		t.Errorf("a node without limits: %+v %+v", n.Limits, n.Usage)
	}
	exhaust(t, l, "n0")
	const reason = "the node went over its memory limit of 64MiB"
	eventually(t, testTime, func() string {
		if n := inspect()[0]; n.State != nodeDown || !strings.Contains(n.Reason, reason) {
			return fmt.Sprintf("node %+v", n.NodeState)
		}
		return ""
	})
	if n := inspect()[0]; n.Usage == nil || n.Usage.Memory == nil {
		t.Errorf("usage of a node that is down: %+v", n.Usage)
	}
	if status, err := runIn(t, l, "n1", "true"); status != 0 || err != nil {
		t.Errorf("the other node: status %d, %v", status, err)
	}
}

// exhaust has a command in a node go over the node's memory. The agent may come to tell of
// its end before it ends itself.
func exhaust(t *testing.T, l *Lab, nodeName string) {
	t.Helper()
	// tail keeps its input's last line, which does not end.
	if status, err := runIn(t, l, nodeName, "tail", "-n1", "/dev/zero"); err == nil && status != 128+int(unix.SIGKILL) {
		t.Errorf("the command ended with status %d", status)
	}
}

// TestLimitOfPIDs has a command in a node start more processes than the node may have:
// it hears of it, the agent and the other node go on, and inspect tells.
func TestLimitOfPIDs(t *testing.T) {
	skipWithoutLimits(t, cgroup.Limits{PIDs: 64})
	topo := ring(uniqueName(t), 2)
	topo.Nodes[0].PIDs = 64
	l := start(t, topo)
	r := runCommand(t, l, "n0", node.Command{Args: []string{"/proc/self/exe"}, Env: programEnv("fill")})
	if got := r.line(t); got != "full" {
		t.Fatalf("the program says %q", got)
	}
	for range 3 {
		if _, err := runIn(t, l, "n0", "true"); err == nil || !strings.Contains(err.Error(), unix.EAGAIN.Error()) {
			t.Errorf("a command in a node that is full: %v", err)
		}
	}
	i, err := l.Inspect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if u := i.Nodes[0].Usage; i.Nodes[0].State != nodeReady || u == nil || u.PIDsRefused == nil || *u.PIDsRefused == 0 || *u.PIDs > 64 || *u.PIDs < 50 {
		t.Errorf("node %+v, usage %+v", i.Nodes[0].NodeState, u)
	}
	if status, err := runIn(t, l, "n1", "true"); status != 0 || err != nil {
		t.Errorf("the other node: status %d, %v", status, err)
	}
	r.stdin.Close()
	r.wait(t)
	if status, err := runIn(t, l, "n0", "true"); status != 0 || err != nil {
		t.Errorf("a command when there is room again: status %d, %v", status, err)
	}
}

// TestLimitsAfterKill kills a lab's supervisor and guardian at once: the next command
// removes the groups of its nodes.
func TestLimitsAfterKill(t *testing.T) {
	skipWithoutLimits(t, cgroup.Limits{CPU: 1, Memory: 1, PIDs: 64})
	topo := ring(uniqueName(t), 2)
	topo.Nodes[0].CPU, topo.Nodes[0].Memory, topo.Nodes[1].PIDs = 0.5, 64<<20, 64
	start(t, topo)
	if len(cgroupsOf(t, topo.Name)) == 0 {
		t.Error("the lab has no groups")
	}
	for _, part := range []string{"ndklab-guardian", "ndklab-supervisor"} {
		if err := unix.Kill(processOf(t, topo.Name, part), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, testTime, func() string {
		if err := Sweep(); err != nil {
			return err.Error()
		}
		return remains(t, topo.Name)
	})
}

// TestLimitsOfNextLife has a node go over its memory that is started again: it has its
// limit as before, and its usage is counted anew.
func TestLimitsOfNextLife(t *testing.T) {
	skipWithoutLimits(t, cgroup.Limits{Memory: 1})
	topo := ring(uniqueName(t), 2)
	topo.Nodes[0].Memory, topo.Nodes[0].Restart = 64<<20, true
	l := start(t, topo)
	for life := range 2 {
		eventually(t, testTime, func() string {
			i, err := l.Inspect(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			if n := i.Nodes[0]; n.State != nodeReady || n.Restarts != life || n.Limits == nil || *n.Limits.Memory != 64<<20 || n.Usage == nil || *n.Usage.OOMKills != 0 {
				return fmt.Sprintf("start %d: node %+v, limits %+v, usage %+v", life, n.NodeState, n.Limits, n.Usage)
			}
			return ""
		})
		exhaust(t, l, "n0")
	}
}

// TestDelegated runs the tests of limits for an ordinary user in a session to whose
// parent systemd, or who is in its place, has delegated a group of version 2.
func TestDelegated(t *testing.T) {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); os.Geteuid() != 0 || err != nil {
		t.Skip("needs root and control groups of version 2 alone")
	}
	if err := cgroup.Open().Prepare(cgroup.Limits{CPU: 1, Memory: 1, PIDs: 64}); err != nil {
		t.Fatal(err)
	}
	top := filepath.Join(root, uniqueName(t))
	session := filepath.Join(top, "session")
	for _, group := range []string{top, session} {
		if err := os.Mkdir(group, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // the session's first
			eventually(t, testTime, func() string {
				if err := unix.Rmdir(group); err != nil {
					return fmt.Sprintf("remove %s: %v", group, err)
				}
				return ""
			})
		})
		for _, name := range []string{".", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
			if err := os.Chown(filepath.Join(group, name), nobody.ID, nobody.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir, err := os.OpenFile(session, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := asNobody(os.Environ(), "-test.v", "-test.timeout=300s", "-test.run=^TestLimits?(OfMemory|AfterKill)$")
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "--- PASS") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
}
