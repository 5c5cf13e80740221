package doctor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ndklab/ndklab/internal/fabric/lab"
)

func TestMain(m *testing.M) {
	lab.Child() // which is a worker
	Child()
	if os.Getenv("DOCTOR_TEST_EXAMINE") != "" { // see examineIn
		d := Examine(context.Background())
		if err := d.WriteText(os.Stdout); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// An examination leaves nothing behind: no process, socket, group or mount.
func TestExamineLeavesNothing(t *testing.T) {
	before := leftovers(t)
	d := Examine(t.Context())
	t.Logf("%+v", d)
	if len(d.Findings) < 10 {
		t.Errorf("%d findings", len(d.Findings))
	}
	if _, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != syscall.ECHILD {
		t.Errorf("there is still a child: %v", err)
	}
	if after := leftovers(t); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// leftovers lists the things of this process's own that an examination could
// leave.
func leftovers(t *testing.T) string {
	t.Helper()
	own := fmt.Sprint(namePrefix, os.Getpid())
	var b strings.Builder
	sockets, err := os.ReadFile("/proc/self/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(sockets) {
		if bytes.Contains(line, []byte(own)) {
			b.Write(line)
		}
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/ndklab/" + own + "*")
	if err != nil {
		t.Fatal(err)
	}
	b.WriteString(strings.Join(groups, "\n"))
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(mounts) {
		if !bytes.HasPrefix(line, []byte("nsfs ")) { // those are of labs that others run
			b.Write(line)
		}
	}
	return b.String()
}

// Examinations do not get in each other's way.
func TestExamineAtOnce(t *testing.T) {
	alone := Examine(t.Context())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if diff := cmp.Diff(alone, Examine(t.Context())); diff != "" {
				t.Errorf("-alone +at once:\n%s", diff)
			}
		})
	}
	all.Wait()
}

// An examination that is cut short says so, and does not call the machine able.
func TestExamineCutShort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if d := Examine(ctx); d.CanRun {
		t.Errorf("can run: %+v", d)
	}
}

// examineIn runs an examination in a user namespace whose limits on namespaces
// are changed: there the kernel refuses what other systems refuse to everybody.
func examineIn(t *testing.T, limits string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", limits+` && exec "$0"`, self)
	cmd.Env = append(os.Environ(), "DOCTOR_TEST_EXAMINE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	mapUser(cmd.SysProcAttr)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Skipf("no user namespace to test in: %v: %s", err, out)
	}
	return string(out)
}

// The kernel's own refusals are understood.
func TestRefusals(t *testing.T) {
	if !Examine(t.Context()).CanRun {
		t.Skip("labs cannot run here")
	}
	for limits, want := range map[string]string{
		"echo 0 >/proc/sys/user/max_net_namespaces": "missing  namespaces   no more namespaces are allowed",
		"echo 1 >/proc/sys/user/max_net_namespaces": "missing  nodes ",
	} {
		if got := examineIn(t, limits); !strings.Contains(got, want) || !strings.Contains(got, "labs cannot run here") {
			t.Errorf("%s: got\n%s\nwant %q", limits, got, want)
		}
	}
}
