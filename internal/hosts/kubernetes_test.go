package hosts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/need"
)

// bePod is a pod that is not the first.
func bePod() error {
	pod, err := ThisPod()
	if err != nil {
		return err
	}
	return pod.BeWorker()
}

// keyFile returns a file with a key of that many bytes.
func keyFile(t *testing.T, size int) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, append(bytes.Repeat([]byte("k"), size), '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A jobOfTest is the processes of a Job: that of the first pod is a guardian, and the others become workers.
type jobOfTest struct {
	pods  []*exec.Cmd
	said  []*safeLog
	lines *bufio.Scanner // of the first
}

// newJob starts the pods, the first one last, and returns when all have come.
func newJob(t *testing.T, count int) *jobOfTest {
	t.Helper()
	socket, _, err := new(plan).listen("")
	need.Check(t, err)
	l, err := net.FileListener(socket)
	socket.Close()
	if err != nil {
		t.Fatal(err)
	}
	head := fmt.Sprintf("127.0.0.1:%d", l.Addr().(*net.TCPAddr).Port)
	l.Close() // it is free for the head
	key := keyFile(t, KeySize)
	j := &jobOfTest{pods: make([]*exec.Cmd, count), said: make([]*safeLog, count)}
	for i := count - 1; i >= 0; i-- {
		role, args := "pod", []string{"pod"}
		if i == 0 {
			role, args = "guardian", []string{"guardian", "kubernetes"}
		}
		j.said[i] = new(safeLog)
		j.pods[i] = &exec.Cmd{Path: "/proc/self/exe", Args: args, Stderr: j.said[i], SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, Env: append(os.Environ(), envRole+"="+role,
			fmt.Sprintf("%s=%d", PodIndex, i), fmt.Sprintf("%s=%d", PodCount, count), PodJob+"=big", PodUID+"=1-2", PodHead+"="+head, PodKey+"="+key)}
		if i == 0 {
			out, err := j.pods[0].StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			j.lines = bufio.NewScanner(out)
		}
		if err := j.pods[i].Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			// It fails of one that has ended.
			_ = unix.Kill(-j.pods[i].Process.Pid, unix.SIGKILL)
			if t.Failed() {
				t.Logf("pod %d said\n%s", i, j.said[i])
			}
		})
	}
	late := time.AfterFunc(testTime, func() {
		for _, pod := range j.pods {
			// It fails of one that has ended.
			_ = unix.Kill(-pod.Process.Pid, unix.SIGKILL)
		}
	})
	for j.lines.Scan() && j.lines.Text() != "ready" {
	}
	if !late.Stop() {
		t.Fatal("the pods do not find each other")
	}
	return j
}

// head returns the process that the guardian of the first pod has as the head.
func (j *jobOfTest) head(t *testing.T) int {
	t.Helper()
	pid := j.pods[0].Process.Pid
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // each has its own
	if err != nil {
		t.Fatal(err)
	}
	var children []byte
	for _, file := range threads {
		// A thread that ends just now has none.
		of, _ := os.ReadFile(file)
		children = append(children, of...)
	}
	for child := range strings.FieldsSeq(string(children)) {
		line, err := os.ReadFile("/proc/" + child + "/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(line), "head\x00") {
			var head int
			if _, err := fmt.Sscan(child, &head); err != nil {
				t.Fatal(err)
			}
			return head
		}
	}
	t.Fatalf("%d has no head among %s", pid, children)
	return 0
}

// statuses waits for the ends of all pods and returns how they ended.
func (j *jobOfTest) statuses(t *testing.T) (all []int) {
	t.Helper()
	for j.lines.Scan() {
	}
	for _, pod := range j.pods {
		err := pod.Wait()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Error(err)
		}
		all = append(all, pod.ProcessState.ExitCode())
	}
	return all
}

// TestPods: pods find each other in any order, and end as the Job has to know: with 0 where the lab ended in order, and not
// where something is gone.
func TestPods(t *testing.T) {
	for _, c := range []struct {
		what string
		do   func(t *testing.T, j *jobOfTest)
		want []int
		pod  int    // that says
		said string // this
	}{
		{"the lab ends", func(t *testing.T, j *jobOfTest) { kill(t, j.head(t), unix.SIGTERM) }, []int{0, 0, 0}, 0, ""},
		{"a pod is deleted", func(t *testing.T, j *jobOfTest) { kill(t, j.pods[2].Process.Pid, unix.SIGTERM) }, []int{1, 0, 1}, 0, "host big-2 is gone: its worker got SIGTERM"},
		{"a pod is killed", func(t *testing.T, j *jobOfTest) { kill(t, j.pods[2].Process.Pid, unix.SIGKILL) }, []int{1, 0, -1}, 0, "host big-2 is gone: its process has ended"},
		{"the head is killed", func(t *testing.T, j *jobOfTest) { kill(t, j.head(t), unix.SIGKILL) }, []int{1, 1, 1}, 1, "host big-1: the head of the lab is gone"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, 3)
			c.do(t, j)
			if got := j.statuses(t); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("pods ended with %v, want %v", got, c.want)
			}
			if said := j.said[c.pod].String(); !strings.Contains(said, c.said) {
				t.Errorf("said\n%s\nwant %s", said, c.said)
			}
		})
	}
}

// TestPodGivenUp: a pod that waits for the first ends when it is told to, though it is just about to connect to somebody who does
// not answer.
func TestPodGivenUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	need.Check(t, err)
	defer l.Close()
	credentials, err := NewCredentials()
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{assignment: &assignment{Addresses: []string{l.Addr().String()}, Wait: podTime}, credentials: credentials}
	signals, ended := make(chan os.Signal, 1), make(chan error, 1)
	go func() { ended <- w.dial(signals) }()
	silent, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	l.Close() // whoever connects again is refused, and waits
	signals <- unix.SIGTERM
	want := "its worker got SIGTERM before it was connected to the head at " + l.Addr().String()
	select {
	case err := <-ended:
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	case <-time.After(dialTime):
		t.Error("the pod still waits for an answer")
	}
}

// TestPodEnvironment: what the manifest has wrong is told.
func TestPodEnvironment(t *testing.T) {
	key, short := keyFile(t, KeySize), keyFile(t, KeySize-1)
	right := map[string]string{PodIndex: "1", PodCount: "2", PodJob: "big", PodUID: "1-2", PodHead: "big-0.big:7437", PodKey: key}
	for _, c := range []struct{ name, value, want string }{
		{PodIndex, "", PodIndex + " is not set, expected to be run in the pods of a Job that `ndklab generate kubernetes` has written"},
		{PodKey, "", PodKey + " is not set"},
		{PodIndex, "2", PodIndex + ` is "2", expected a number below ` + PodCount + ", which is 2"},
		{PodCount, "0", PodCount + ` is "0", expected the number of pods, 1 to 1024`},
		{PodHead, "big-0.big", PodHead + ` is "big-0.big", expected a name and a port such as lab-0.lab:7437`},
		{PodHead, "big-0.big:0", `expected a name and a port`},
		{PodKey, "/no/such", "the key: open /no/such: no such file or directory, expected a Secret to be mounted there"},
		{PodKey, short, short + " has a key of 31 bytes, expected at least 32"},
	} {
		for name, value := range right {
			t.Setenv(name, value)
		}
		if _, err := ThisPod(); err != nil {
			t.Fatal(err)
		}
		t.Setenv(c.name, c.value)
		if _, err := ThisPod(); err == nil || !strings.Contains(err.Error(), c.want) || control.CodeOf(err) != control.Usage {
			t.Errorf("%s=%s: %v, want %s", c.name, c.value, err, c.want)
		}
	}
}

// TestJobsDiffer: by one key, the pods of a Job have one certificate, and those of another Job another.
func TestJobsDiffer(t *testing.T) {
	certificate := func(key, uid string) string {
		c, err := deriveCredentials([]byte(key), uid)
		if err != nil {
			t.Fatal(err)
		}
		return string(c.certificate.Certificate[0])
	}
	of := certificate("key", "1")
	if again := certificate("key", "1"); again != of {
		t.Error("pods of one Job differ")
	}
	if of == certificate("key", "2") || of == certificate("other", "1") {
		t.Error("Jobs have one certificate")
	}
}
