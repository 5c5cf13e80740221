package hosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/trunk"
	"github.com/ndklab/ndklab/internal/leak"
)

// The test binary is also the workers, the parts and the heads that tests kill.
func TestMain(m *testing.M) {
	var run func() error
	switch {
	case IsWorker():
		run = func() error { return Work(startPart) }
	case os.Getenv(envRole) == "part":
		run = bePart
	case os.Getenv(envRole) == "head":
		run = beHead
	case os.Getenv(envRole) == "guardian":
		run = beGuardian
	case os.Getenv(envRole) == "pod":
		run = bePod
	default:
		leak.Main(m)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

const (
	envRole = "NDKLAB_TEST_HOSTS"
	// envRefuse has the part of a host not start.
	envRefuse = "NDKLAB_TEST_REFUSE"
	// testTime bounds whatever a test waits for.
	testTime = time.Minute
)

// The requests of a part of tests, and what it asks its head.
var (
	methodWho  = control.NewMethod[control.None, who]("who")
	methodName = control.NewMethod[string, string]("name")
	methodExit = control.NewProcedure[int]("exit")
	// methodClocks returns what the part was told of its host's clock.
	methodClocks = control.NewMethod[control.None, []trunk.Difference]("clocks")
)

type who struct {
	Lab, Host    string
	Part, Worker int // process ids
}

func startPart(lab, host string, inherited *os.File) (*exec.Cmd, error) {
	if os.Getenv(envRefuse) == host {
		return nil, errors.New("this system makes no namespaces")
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"part", lab, host}, Env: append(os.Environ(), envRole+"=part"),
		Stderr: os.Stderr, ExtraFiles: []*os.File{inherited}, SysProcAttr: &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL},
	}
	return cmd, cmd.Start()
}

// bePart is a part that knows who it is, and what its head calls it.
func bePart() error {
	mux := new(control.Mux)
	methodWho.Handle(mux, func(context.Context, *control.Request, control.None) (who, error) {
		return who{Lab: os.Args[1], Host: os.Args[2], Part: os.Getpid(), Worker: os.Getppid()}, nil
	})
	methodName.Handle(mux, func(ctx context.Context, r *control.Request, text string) (string, error) {
		return methodName.Call(ctx, r.Conn, text)
	})
	methodExit.Handle(mux, func(_ context.Context, _ *control.Request, code int) error {
		os.Exit(code)
		return nil
	})
	PartAlive.Handle(mux, func(context.Context, *control.Request, control.None) error { return nil })
	var mu sync.Mutex // guards clocks
	var clocks []trunk.Difference
	PartClock.Handle(mux, func(_ context.Context, _ *control.Request, d trunk.Difference) error {
		mu.Lock()
		defer mu.Unlock()
		clocks = append(clocks, d)
		return nil
	})
	methodClocks.Handle(mux, func(context.Context, *control.Request, control.None) ([]trunk.Difference, error) {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(clocks), nil
	})
	PartTrunk.Handle(mux, takeTrunk)
	methodSpeak.Handle(mux, speakOverTrunk)
	unix.CloseOnExec(3)
	conn, err := control.FromFile(os.NewFile(3, "control"), mux.Serve)
	if err != nil {
		return err
	}
	<-conn.Done()
	return nil
}

// beGuardian is a guardian of hosts, by its argument, with a head in a process of its own.
func beGuardian() error {
	spec, err := Parse(os.Args[1])
	if err != nil {
		return err
	}
	l, err := NewLaunch(spec, "big", os.Stderr)
	if err != nil {
		return err
	}
	files := l.Files()
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{"head"}, Env: append(os.Environ(), envRole+"=head"), Stdout: os.Stdout, Stderr: os.Stderr, ExtraFiles: files[:]}
	err = cmd.Start()
	l.Begun()
	if err == nil {
		err = cmd.Wait()
	}
	l.End()
	return err
}

// beHead is a head that a test kills. It says who has come, and ends what it has when it is told to.
func beHead() error {
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM)
	h, err := FromFiles(os.NewFile(3, "listener"), os.NewFile(4, "launch"), serveName)
	if err != nil {
		return err
	}
	defer h.End()
	found, err := h.Await(context.Background())
	if err != nil {
		return err
	}
	for _, host := range found {
		w, err := methodWho.Call(context.Background(), host.Conn, nil)
		if err != nil {
			return err
		}
		fmt.Println(w.Worker, w.Part)
	}
	for i, a := range found {
		for _, b := range found[:i] {
			if err := h.Join(context.Background(), a, b); err != nil {
				return err
			}
		}
	}
	fmt.Println("ready")
	select {
	case <-signals:
		return nil
	case l := <-h.Lost():
		return l.Err
	}
}

// serveName tells parts which host the head has for them.
func serveName(h *Host) control.Handler {
	mux := new(control.Mux)
	methodName.Handle(mux, func(_ context.Context, _ *control.Request, text string) (string, error) {
		return fmt.Sprintf("%s of %s, %d", text, h.Name, h.Index), nil
	})
	return mux.Serve
}

// A safeLog is a log of several goroutines.
type safeLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *safeLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *safeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// launched returns what a guardian has for a lab, which ends with the test.
func launched(t *testing.T, spec Spec) (*Launch, *safeLog) {
	t.Helper()
	log := new(safeLog)
	l, err := NewLaunch(spec, "big", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.End()
		if t.Failed() {
			t.Logf("the log:\n%s", log)
		}
	})
	return l, log
}

// headOf returns a head in this process, which ends with the test.
func headOf(t *testing.T, l *Launch) *Head {
	t.Helper()
	files := l.Files()
	var own [2]*os.File
	for i, f := range files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		own[i] = os.NewFile(uintptr(fd), f.Name())
	}
	l.Begun()
	h, err := FromFiles(own[0], own[1], serveName)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.End)
	return h
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	t.Cleanup(cancel)
	return ctx
}

// come returns a head and its hosts.
func come(t *testing.T, spec Spec) (*Head, []*Host, []who) {
	t.Helper()
	l, _ := launched(t, spec)
	h := headOf(t, l)
	found, err := h.Await(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	var all []who
	for _, host := range found {
		w, err := methodWho.Call(testContext(t), host.Conn, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, w)
	}
	return h, found, all
}

// eventually waits until ok returns "".
func eventually(t *testing.T, ok func() (missing string)) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(testTime)
	for missing := ok(); missing != ""; missing = ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal(missing)
		}
	}
}

// gone waits until processes are no more, or have ended and are their parent's to look at.
func gone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		eventually(t, func() string {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			_, state, _ := strings.Cut(string(stat), ") ")
			if err != nil || strings.HasPrefix(state, "Z") {
				return ""
			}
			return fmt.Sprintf("process %d lives: %s", pid, stat)
		})
	}
}

// lostText waits for the loss of something.
func lostText(t *testing.T, h *Head) string {
	t.Helper()
	select {
	case l := <-h.Lost():
		return l.Err.Error()
	case <-time.After(testTime):
		t.Fatal("nothing is lost")
	}
	return ""
}
