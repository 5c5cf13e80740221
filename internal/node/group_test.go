package node

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/node/cgroup"
)

// TestGroup starts an agent in a group, where its commands are too, and has one
// of them exceed its memory.
func TestGroup(t *testing.T) {
	limits := cgroup.Limits{CPU: 0.5, Memory: 128 << 20, PIDs: 64}
	tree := cgroup.Open()
	if err := tree.Prepare(limits); err != nil {
		t.Skipf("no limits here: %v", err)
	}
	lab := fmt.Sprintf("node-test-%d", os.Getpid())
	group, err := tree.Create(lab, "n", limits)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cgroup.Remove(lab); err != nil {
			t.Error(err)
		}
	}()
	log := newLog(t)
	a, err := Start(Config{Lab: lab, Name: "n"}, group, log.File)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		a.Kill()
		awaitDone(t, a)
	}()
	if err := a.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	status, out, _ := run(t, a, Command{Args: []string{"cat", "/proc/self/cgroup"}}, "")
	if status != 0 || !strings.Contains(out, "/"+group.Path()+"\n") {
		t.Errorf("the command is in\n%s", out)
	}
	// tail keeps its input's last line, which does not end. The kernel kills it alone in
	// version 1, and the agent as well in version 2.
	status, err = a.Exec(t.Context(), Command{Args: []string{"tail", "-n1", "/dev/zero"}, Env: env})
	if err == nil && status != 128+int(unix.SIGKILL) {
		t.Errorf("status %d", status)
	}
	if !group.OverMemory() {
		t.Error("the group was not over its memory")
	}
}

// TestGroupGone starts an agent in a group that was removed: there must be none.
func TestGroupGone(t *testing.T) {
	limits := cgroup.Limits{CPU: 0.5}
	tree := cgroup.Open()
	if err := tree.Prepare(limits); err != nil {
		t.Skipf("no limits here: %v", err)
	}
	lab := fmt.Sprintf("node-test-gone-%d", os.Getpid())
	group, err := tree.Create(lab, "n", limits)
	if err != nil {
		t.Fatal(err)
	}
	if err := cgroup.Remove(lab); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(Config{Lab: lab, Name: "n"}, group, os.Stderr); err == nil {
		t.Error("started without its group")
	}
}
