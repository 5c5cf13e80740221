package lab

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/internal/nobody"
	"golang.org/x/sys/unix"
)

// asNobody is the test binary, to be run as an ordinary user. That user need not
// be able to reach its file.
func asNobody(env []string, args ...string) *exec.Cmd {
	return &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        append([]string{"lab.test"}, args...),
		Env:         append(env, "XDG_RUNTIME_DIR=", "HOME=/nonexistent"),
		Dir:         "/",
		SysProcAttr: &syscall.SysProcAttr{Credential: nobody.Credential()},
	}
}

// ofUsers matches the tests of what an ordinary user has otherwise than root: namespaces, limits, sockets, files and places.
const ofUsers = "^Test(Inspect|Exec|Release|ReceiveBuffer|OpenDevice|Limits|External|Collect|Interrupt$|SupervisorDies$|Pauses$|Storm$|Host|Isolation|Stages|CaptureComments|VerifyLink$|Pause$|Run$)"

// Every test of this package passes for an ordinary user too.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user")
	}
	args := []string{"-test.timeout=20m"}
	if !need.Long() {
		args = append(args, "-test.run="+ofUsers)
	}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	cmd := asNobody(os.Environ(), args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "PASS") {
		t.Errorf("no tests ran:\n%s", out)
	}
}

// Another user's lab of the same name is another lab, and out of reach.
func TestTwoUsersOneName(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs to become another user")
	}
	topo := ring(uniqueName(t), 2)
	cmd := asNobody(programEnv("up " + topo.Name + " plain"))
	theirs := startProcess(t, cmd)
	if line, err := theirs.out.ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	_, err := Open(testContext(t), topo.Name)
	wantCode(t, err, control.Usage)
	l, err := Start(testContext(t), topo, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(processes(topo.Name)); n != 8 {
		t.Errorf("%d processes, want 8", n)
	}
	if err := l.Down(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if n := len(processes(topo.Name)); n != 4 {
		t.Errorf("%d processes, want the other user's 4", n)
	}
	if err := theirs.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-theirs.ended
	if rest := remains(t, topo.Name); rest != "" {
		t.Errorf("left behind: %s", rest)
	}
}

// Other users can neither use a lab nor pass for one.
func TestSocketIsPrivate(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs to become another user")
	}
	topo := ring(uniqueName(t), 2)
	start(t, topo)
	p, err := placeOf(topo.Name)
	if err != nil {
		t.Fatal(err)
	}
	intruder := startProcess(t, asNobody(programEnv("intrude "+p.socket().Name)))
	if line, err := intruder.out.ReadString('\n'); line != "refused\n" {
		t.Error(line, err)
	}
	p.name += "-not"
	squatter := startProcess(t, asNobody(programEnv("squat "+p.socket().Name)))
	if line, err := squatter.out.ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	_, err = p.dial(testContext(t))
	wantCode(t, err, control.Failed)
}

// A system that allows no namespaces is told apart from a failure.
func TestNoNamespaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs a user namespace in which it is root, as outside")
	}
	name := uniqueName(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = programEnv("limited " + name)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: 0, Size: 1}},
	}
	limited := startProcess(t, cmd)
	if line, err := limited.out.ReadString('\n'); line != string(control.Unable)+"\n" {
		t.Error(line, err)
	}
	<-limited.ended
	if rest := remains(t, name); rest != "" {
		t.Errorf("left behind: %s", rest)
	}
}

// An error says who is refused namespaces, and what can be done about it.
func TestRefusal(t *testing.T) {
	all := []string{"CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_RAW"}
	for _, c := range []struct {
		err     error
		uid     int
		lacking []string
		code    control.Code
		want    string
	}{
		{unix.EPERM, 1000, all, control.Unable, "user 1000 make namespaces (operation not permitted): allow unprivileged user namespaces, or run as root"},
		{unix.EPERM, 0, all[2:], control.Unable, "root without CAP_NET_RAW make namespaces (operation not permitted): give ndklab these capabilities"},
		{unix.EACCES, 0, nil, control.Unable, "user 0 make namespaces"},
		{unix.ENOSPC, 0, all, control.Unable, "raise user.max_user_namespaces"},
		{unix.ENOMEM, 0, all, control.Failed, "start a process of the lab: cannot allocate memory"},
	} {
		if err := refusal(c.err, c.uid, c.lacking); err.Code != c.code || !strings.Contains(err.Message, c.want) {
			t.Errorf("%v for %d without %v: %v, want %s", c.err, c.uid, c.lacking, err, c.want)
		}
	}
}

// The lab's own UTS namespace has its name, as prompts and logs show it.
func wantHostName(t *testing.T, lab string) {
	t.Helper()
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/uts", processOf(t, lab, "ndklab-supervisor")))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	names := make(chan string)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWUTS); err != nil {
			names <- err.Error()
			return
		}
		name, err := os.Hostname()
		if err != nil {
			name = err.Error()
		}
		names <- name
	}()
	if got := <-names; got != lab {
		t.Errorf("host name %q, want %q", got, lab)
	}
}
