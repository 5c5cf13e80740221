package node

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/internal/need"
)

// envUser says that this is an ordinary user's namespace.
const envUser = "NDKLAB_TEST_USER"

const ordinaryUser = 65534

// patient is the name of nodes where a command that is willing to end may take its time.
const patient = "patient"

const noUserNamespace = "no user namespace for an ordinary user"

// TestMain is also the agents' main function. Agents need CAP_SYS_ADMIN: an
// ordinary user's tests run in a user namespace.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(envProgram) != "":
		if err := runProgram(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case IsAgent():
		if strings.HasSuffix(os.Args[0], "/"+patient) {
			killDelay = time.Minute
		}
		if err := Main(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case os.Geteuid() != 0:
		os.Exit(inUserNamespace())
	default:
		leak.Main(m)
	}
}

// inUserNamespace runs this test binary as root of a new user namespace, which
// has no rights outside, and returns its exit status.
func inUserNamespace() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), envUser+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Printf("%s: %v\n", noUserNamespace, err)
		return 0
	}
	return cmd.ProcessState.ExitCode()
}

// TestOrdinaryUser runs all other tests with an ordinary user's rights.
func TestOrdinaryUser(t *testing.T) {
	if os.Getenv(envUser) != "" {
		t.Skip("all tests run as an ordinary user's")
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.skip=Group|OrdinaryUser")
	// Under -cover, agents that end say so if they cannot leave their counts.
	counts, err := os.MkdirTemp("", "counts")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(counts)
	if err := os.Chown(counts, ordinaryUser, ordinaryUser); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+counts)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser},
		Pdeathsig:  syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), noUserNamespace) {
		t.Skipf("%s", out)
	}
	if n := strings.Count(string(out), "\n--- PASS"); n < 20 || strings.Count(string(out), "\n--- SKIP") != need.Unmet(string(out)) {
		t.Errorf("%d tests passed, which are not all:\n%s", n, out)
	}
}

// started starts an agent that ends with the test, and returns what it logs.
func started(t *testing.T, cfg Config) (*Agent, *logFile) {
	t.Helper()
	log := newLog(t)
	a, err := Start(cfg, nil, log.File)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Kill()
		awaitDone(t, a)
	})
	return a, log
}

func awaitDone(t *testing.T, a *Agent) {
	t.Helper()
	select {
	case <-a.Done():
	case <-time.After(time.Minute):
		t.Fatal("the agent does not end")
	}
}

// stop stops an agent. The thread that takes the signal has the others stop, which may
// run meanwhile: only when the last has, the kernel tells the parent.
func stop(a *Agent) error {
	if err := a.Send(unix.SIGSTOP); err != nil {
		return err
	}
	for {
		err := unix.Waitid(unix.P_PID, a.PID(), nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

// A logFile is a file that can be read while it is written to.
type logFile struct{ *os.File }

func newLog(t *testing.T) *logFile {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &logFile{f}
}

func (l *logFile) text(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(l.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestCloseEachOnExec: no command inherits the files from a descriptor on, as close_range(2) has it since Linux 5.11.
func TestCloseEachOnExec(t *testing.T) {
	var open [2]int
	for i := range open {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0) // without O_CLOEXEC
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		open[i] = fd
	}
	first := max(open[0], open[1])
	if err := closeEachOnExec(first); err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || (flags&unix.FD_CLOEXEC != 0) != (fd == first) {
			t.Errorf("descriptor %d of those from %d on: flags %#x, %v", fd, first, flags, err)
		}
	}
}
