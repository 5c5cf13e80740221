package labtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/need"
)

// upLine is by which a test tells of its lab.
var upLine = regexp.MustCompile(`lab ([a-z0-9-]+) is up`)

// gone waits until nothing of a lab is left.
func gone(t *testing.T, name string) {
	t.Helper()
	got, err := lab.Await(bounded(t), name, "", lab.Condition{State: lab.Down}, innerTime)
	if err != nil || !got.Reached {
		t.Errorf("lab %s is not down: %+v, %v", name, got, err)
	}
}

func TestInnerFails(t *testing.T) {
	inner(t)
	l := Up(t, pairOf())
	if err := converse(bounded(t), l.Node("a"), l.Node("b")); err != nil {
		t.Error(err)
	}
	t.Log("EXPECTED: 4, GOT: 5")
	t.Fail()
}

func TestInnerPanics(t *testing.T) {
	inner(t)
	Up(t, pairOf())
	panic("a bug of the test's")
}

func TestInnerWaits(t *testing.T) {
	inner(t)
	l := Up(t, pairOf())
	l.Await("Connect>=1") // which nobody does
}

func TestInnerHangs(t *testing.T) {
	inner(t)
	Up(t, pairOf())
	select {}
}

func TestInnerLosesItsLab(t *testing.T) {
	inner(t)
	l := Up(t, pairOf())
	other, err := lab.Open(bounded(t), l.topo.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Down(bounded(t)); err != nil {
		t.Fatal(err)
	}
}

func TestInnerSimulatedFails(t *testing.T) {
	inner(t)
	Simulate(t, pairOf(), 1, Client("a", func(context.Context, *Simulated) error { return errors.New("no luck") }))
}

func TestInnerSimulatedElsewhere(t *testing.T) {
	inner(t)
	Simulate(t, pairOf(), 1, Client("c", func(context.Context, *Simulated) error { return nil }))
}

func TestInnerUpWithClient(t *testing.T) {
	inner(t)
	Up(t, pairOf(), Client("a", func(context.Context, *Simulated) error { return nil }))
}

// An error that a function in a simulation returns fails the test, and so does a function
// that cannot run.
func TestFunctionsFail(t *testing.T) {
	t.Parallel()
	for test, want := range map[string]string{
		"TestInnerSimulatedFails":     "node a: no luck",
		"TestInnerSimulatedElsewhere": `has no host "c" with an adapter`,
		"TestInnerUpWithClient":       "Node.Do runs a function",
	} {
		out, err := again(t, test).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, expected %q in\n%s", test, err, want, out)
		}
	}
}

// The lab of a test that fails is taken down, and leaves its evidence; the output says
// where, and how to repeat the test.
func TestEvidence(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, err := again(t, "TestInnerFails", envArtifacts+"="+dir).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	m := upLine.FindSubmatch(out)
	if m == nil {
		t.Fatalf("no lab was up:\n%s", out)
	}
	name := string(m[1])
	gone(t, name)
	for _, want := range []string{
		"evidence is in " + dir + "/" + name + "-42: ", "NDKLAB_SEED=42 go test -run '^TestInnerFails$'", "all nodes are ready",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for file, want := range map[string]string{
		"topology.yaml": `"endpoints": ["a:eth0", "b:eth0"]`, "lab.log": "all nodes are ready", "events.jsonl": "lab-ready",
		"inspect.json": `"Connect": 1`, "links.pcapng": "\x0a\x0d\x0d\x0a", // a Section Header Block
	} {
		data, err := os.ReadFile(filepath.Join(dir, name+"-42", file))
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s: %d bytes, no %q: %v", file, len(data), want, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, name+"-42", "links.pcapng")); err == nil && info.Size() < 2000 {
		t.Errorf("the packets are %d bytes, want those of a conversation", info.Size())
	}
}

// With go test -artifacts evidence is where package testing has it.
func TestArtifactDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := again(t, "TestInnerFails", envArtifacts+"=")
	cmd.Args = append(cmd.Args, "-test.artifacts", "-test.outputdir="+dir)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("it passes:\n%s", out)
	}
	found := 0
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Base(path) == "lab.log" {
			found++
		}
		return err
	})
	if err != nil || found != 1 {
		t.Errorf("%d logs, %v:\n%s", found, err, out)
	}
}

// The lab of a test that passes leaves nothing.
func TestNoEvidence(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(envArtifacts, dir)
	t.Run("pass", func(t *testing.T) { Up(t, pairOf()) })
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// However a test ends, its lab does.
func TestEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, run string
		timeout   time.Duration  // 0: far more than it takes
		signal    syscall.Signal // 0: the test ends by itself
		output    string
	}{
		{name: "panic", run: "TestInnerPanics", output: "panic: a bug of the test's"},
		{name: "waits for too long", run: "TestInnerWaits", timeout: 6 * time.Second,
			output: "Connect>=1 does not come true"},
		{name: "loses its lab", run: "TestInnerLosesItsLab", output: "has ended before its test: lab topology-"},
		{name: "timeout", run: "TestInnerHangs", timeout: 6 * time.Second, output: "TestInnerHangs: the test is near its deadline"},
		{name: "killed", run: "TestInnerHangs", signal: unix.SIGKILL},
		{name: "interrupted", run: "TestInnerHangs", signal: unix.SIGINT},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			lab, text := "", ""
			// A busy machine may need more time than that for a lab.
			for timeout := test.timeout; ; timeout *= 2 {
				lab, text = ends(t, test.run, timeout, test.signal)
				if lab != "" && strings.Contains(text, test.output) || timeout == 0 || 2*timeout > innerTime {
					break
				}
			}
			if lab == "" {
				t.Fatalf("no lab was up:\n%s", text)
			}
			if !strings.Contains(text, test.output) {
				t.Errorf("no %q in\n%s", test.output, text)
			}
			gone(t, lab)
		})
	}
}

// ends runs a test that does not pass, and may get a signal when its lab is up. It returns
// the lab's name and the output.
func ends(t *testing.T, test string, timeout time.Duration, signal syscall.Signal) (lab, output string) {
	t.Helper()
	cmd := again(t, test, envArtifacts+"="+t.TempDir())
	if timeout > 0 {
		cmd.Args = append(cmd.Args, fmt.Sprintf("-test.timeout=%v", timeout))
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text := strings.Builder{}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		if m := upLine.FindStringSubmatch(lines.Text()); m != nil {
			lab = m[1]
			if signal != 0 {
				if err := cmd.Process.Signal(signal); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Errorf("it passes:\n%s", &text)
	}
	return lab, text.String()
}

// TestInnerUnable is run in a user namespace, of which it takes the right to make network
// namespaces.
func TestInnerUnable(t *testing.T) {
	inner(t)
	if err := os.WriteFile("/proc/sys/user/max_net_namespaces", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	Up(t, pairOf())
}

// Where the machine cannot have labs a test is skipped, or fails if labs are required.
func TestUnable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ required, verdict string }{
		{"", "--- SKIP: TestInnerUnable"},
		{"1", "--- FAIL: TestInnerUnable"},
	} {
		cmd := again(t, "TestInnerUnable", need.Variable+"="+test.required, envArtifacts+"="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if (err == nil) != (test.required == "") || !strings.Contains(string(out), test.verdict) || !strings.Contains(string(out), "this machine cannot have labs: ") {
			t.Errorf("required %q: %v\n%s", test.required, err, out)
		}
	}
}
