package lab

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// nobody is an ordinary user.
const nobody = 65534

// asNobody is the test binary, to be run as an ordinary user. That user need not
// be able to reach its file.
func asNobody(env []string, args ...string) *exec.Cmd {
	return &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        append([]string{"lab.test"}, args...),
		Env:         append(env, "XDG_RUNTIME_DIR="),
		Dir:         "/",
		SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}},
	}
}

// Every test of this package passes for an ordinary user too.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user")
	}
	args := []string{"-test.timeout=60s"}
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
	wantCode(t, err, "usage")
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
