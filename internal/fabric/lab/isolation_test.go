package lab

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// in runs a shell command in a node and returns what it printed.
func in(t *testing.T, l *Lab, nodeName, script string) string {
	t.Helper()
	r, w := pipe(t)
	_, err := l.Nodes.Exec(testContext(t), nodeName, node.Command{Args: []string{"/bin/sh", "-c", script}}, nil2(w)...)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r) // which is less than a pipe holds
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// bystander is a process of the host, of this user, that no lab has to do with. It has
// its mark in its command line.
func bystander(t *testing.T) (pid int, mark string) {
	t.Helper()
	mark = "bystander-" + uniqueName(t)
	cmd := exec.Command("/bin/sh", "-c", "echo; read line", mark)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Its command line is complete once it runs, which may be after Start.
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close() // upon which it ends by itself, with status 1
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("the host's process ended with %v", err)
		}
	})
	return cmd.Process.Pid, mark
}

// envSecret has what no process of a lab may see.
const envSecret = "NDKLAB_TEST_SECRET"

// TestIsolation has all that keeps a lab from its host, and nodes from each other, in one lab.
func TestIsolation(t *testing.T) {
	secret := "secret-" + uniqueName(t)
	t.Setenv(envSecret, secret)
	t.Setenv("LANG", "xx_XX."+secret)
	topo := ring(uniqueName(t), 3)
	topo.Nodes[0].Setup.Env = map[string]string{"GIVEN": "by the file"}
	l := start(t, topo)
	for name, test := range map[string]func(*testing.T, *Lab){
		"processes": hostProcessesAreOutOfReach, "proc": hostProcIsGone, "mounts": mountsStayInTheNode, "files": filesAreTheHosts,
		"shared memory": sharedMemoryGoesWithTheLab, "environment": environmentStaysOutside,
	} {
		t.Run(name, func(t *testing.T) { test(t, l) })
	}
}

// A process in a node sees no process of the host, and can do nothing to one: their ids
// mean nothing there.
func hostProcessesAreOutOfReach(t *testing.T, l *Lab) {
	pid, mark := bystander(t)
	if cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err != nil || !strings.Contains(string(cmdline), mark) {
		t.Fatalf("the host does not see its own: %q, %v", cmdline, err)
	}
	if found := in(t, l, "n0", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"); !strings.Contains(found, "ndklab-node") || strings.Contains(found, mark) {
		t.Errorf("processes %q", found)
	}
	// The id may be one of the lab's, too, but that of the shell itself is less then.
	got := in(t, l, "n0", fmt.Sprintf(`[ $$ -lt %d ] || echo skip; kill -9 %[1]d 2>/dev/null && echo killed; kill -9 1; echo $?`, pid))
	switch {
	case strings.HasPrefix(got, "skip"):
		t.Skip("the lab has more processes than the host")
	case got != "0\n": // the lab's process 1 cannot be killed from inside
		t.Errorf("kill: %q", got)
	}
	if _, err := l.Inspect(testContext(t)); err != nil {
		t.Error(err)
	}
}

// With /proc taken away, root in a node still does not find the host's processes. An
// ordinary user finds what there is to see for him anyhow, and can do nothing to it.
func hostProcIsGone(t *testing.T, l *Lab) {
	pid, mark := bystander(t)
	found := in(t, l, "n2", "while umount -l /proc 2>/dev/null; do :; done; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; echo end")
	if os.Geteuid() == 0 && strings.Contains(found, mark) || !strings.HasSuffix(found, "end\n") {
		t.Errorf("processes %q", found)
	}
	if got := in(t, l, "n2", fmt.Sprintf("while umount -l /proc 2>/dev/null; do :; done; nsenter -t %d -n true 2>/dev/null && echo entered; echo end", pid)); got != "end\n" {
		t.Errorf("nsenter: %q", got)
	}
	if got := in(t, l, "n1", "[ -e /proc/self/status ] && echo there"); got != "there\n" {
		t.Errorf("/proc of another node: %q", got)
	}
}

// A mount or unmount in a node changes that node alone.
func mountsStayInTheNode(t *testing.T, l *Lab) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := in(t, l, "n0", fmt.Sprintf("mount -t tmpfs tmpfs %s && touch %[1]s/here && echo mounted", dir)); got != "mounted\n" {
		t.Fatalf("mount: %q", got)
	}
	if got := in(t, l, "n0", "ls "+dir); got != "here\n" { // for every command there
		t.Errorf("in the node: %q", got)
	}
	if got := in(t, l, "n1", "ls "+dir+"; echo end"); got != "end\n" {
		t.Errorf("in another node: %q", got)
	}
	if exists(filepath.Join(dir, "here")) {
		t.Error("on the host")
	}
	if mounts, err := os.ReadFile("/proc/thread-self/mounts"); err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("the host's mounts: %v\n%s", err, mounts)
	}
}

// The file system is the host's, on purpose: a command in a node reads and writes the
// caller's files.
func filesAreTheHosts(t *testing.T, l *Lab) {
	path := filepath.Join(t.TempDir(), "file")
	in(t, l, "n0", "echo hello > "+path)
	if data, err := os.ReadFile(path); err != nil || string(data) != "hello\n" {
		t.Errorf("%q, %v", data, err)
	}
}

// System V IPC of a node is the lab's, and ends with it.
func sharedMemoryGoesWithTheLab(t *testing.T, l *Lab) {
	if _, err := exec.LookPath("ipcmk"); err != nil {
		t.Skip(err)
	}
	before, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		t.Fatal(err)
	}
	if got := in(t, l, "n0", "ipcmk -M 4096 >/dev/null && wc -l </proc/sysvipc/shm"); got != "2\n" {
		t.Errorf("lines in the node: %q, want one for the segment", got)
	}
	if after, err := os.ReadFile("/proc/sysvipc/shm"); err != nil || string(after) != string(before) {
		t.Errorf("the host had\n%sand has\n%s%v", before, after, err)
	}
}

// No process of a lab has what is in the environment of whoever started it, but for what
// nodes need: it may be secret, and lives as long as the lab.
func environmentStaysOutside(t *testing.T, l *Lab) {
	secret, name := os.Getenv(envSecret), l.Info().Lab
	// The environment of a node's processes, process 1 first.
	out := in(t, l, "n0", "tr '\\0' '\\n' </proc/1/environ; echo; env")
	if strings.Contains(out, envSecret) || strings.Count(out, "LANG=xx_XX."+secret) != 2 || !strings.Contains(out, "GIVEN=by the file") {
		t.Errorf("the node has\n%s", out)
	}
	// The others hang from the lab's guardian or supervisor, which name it.
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, dir := range processes {
		// Those that are gone, or another user's, are none of the lab's.
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		environ, _ := os.ReadFile(dir + "/environ")
		if !strings.HasPrefix(string(cmdline), "ndklab-") || !strings.Contains(string(cmdline), name) || len(environ) == 0 {
			continue
		}
		seen++
		if strings.Contains(string(environ), envSecret) {
			t.Errorf("%q has it", cmdline)
		}
	}
	if seen < 4 { // the guardian, the supervisor, agents
		t.Errorf("%d processes of the lab are there", seen)
	}
}

// No process of a lab keeps a file open that the command which made the lab has inherited: its caller's lock, say.
func TestCallersFilesStayTheirs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT, 0o600) // which children inherit
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	topo := ring(uniqueName(t), 2)
	topo.Links[0].Directions[0].Delay = time.Millisecond
	topo.Captures = []topology.Capture{{Interfaces: topo.Links[0].Endpoints[:1], File: filepath.Join(t.TempDir(), "a.pcapng")}}
	start(t, topo)
	found := processes(topo.Name)
	if len(found) != 6 {
		t.Errorf("the lab has %d processes, want guardian, supervisor, engine, recorder and two agents: %v", len(found), found)
	}
	for _, p := range found {
		open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.pid))
		if err != nil || len(open) == 0 {
			t.Fatalf("%s has %d files open, %v", p.args, len(open), err)
		}
		for _, f := range open {
			if target, _ := os.Readlink(f); target == path {
				t.Errorf("%s has its caller's file open", p.args)
			}
		}
	}
}
