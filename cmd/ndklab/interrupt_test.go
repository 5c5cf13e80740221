package main

import (
	"bufio"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/need"
)

// longRun is a topology that keeps a run busy for longer than any test.
const longRun = `name: %s
seed: 1
topology:
  nodes: {a: {}, b: {}}
  links:
    - {endpoints: ["a:eth0", "b:eth0"], delay: 1ms, overrun: allow}
workloads:
  - {name: long, from: a, to: b, operation: write, size: 4KiB, duration: 10m}
`

// A command is ndklab, running.
type command struct {
	*exec.Cmd
	lab    string
	dir    string
	stdout strings.Builder
	stderr *bufio.Scanner
}

// startRun starts a long run, of a lab with name in its own, and returns when its
// workload has started.
func startRun(t *testing.T, name string, flags ...string) *command {
	t.Helper()
	need.Labs(t, canRun())
	c := &command{lab: fmt.Sprintf("cli-%s-%d", name, os.Getpid())}
	file := filepath.Join(t.TempDir(), "long.ndklab.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, longRun, c.lab), 0o644); err != nil {
		t.Fatal(err)
	}
	c.dir = filepath.Dir(file)
	c.Cmd = exec.CommandContext(t.Context(), "ndklab", append([]string{"run", file}, flags...)...)
	c.Dir, c.Stdout = c.dir, &c.stdout
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	c.stderr = bufio.NewScanner(stderr)
	for c.stderr.Scan() {
		t.Log(c.stderr.Text())
		if strings.Contains(c.stderr.Text(), "workload long") {
			return c
		}
	}
	t.Fatalf("the run ended early: %v", c.Wait())
	return nil
}

// ended waits for the command's end, reading what it has to say, and returns its
// exit code.
func (c *command) ended(t *testing.T) int {
	t.Helper()
	for c.stderr.Scan() {
		t.Log(c.stderr.Text())
	}
	err := c.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode()
}

// measures waits until the lab, which may still be coming up, has measured something from
// now on.
func (c *command) measures(t *testing.T) {
	t.Helper()
	for since := time.Now(); time.Since(since) < time.Minute; {
		events := exec.CommandContext(t.Context(), "ndklab", "events", c.lab, "--follow", "--since", time.Since(since).String(), "-o", "json")
		stdout, err := events.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := events.Start(); err != nil {
			t.Fatal(err)
		}
		found := false
		for lines := bufio.NewScanner(stdout); !found && lines.Scan(); {
			found = strings.Contains(lines.Text(), "workload-progress")
		}
		_ = events.Process.Kill() // it may be over
		_ = events.Wait()
		if found {
			return
		}
	}
	t.Fatal("nothing is measured")
}

// up reports whether the command's lab is in the list of labs.
func (c *command) up(t *testing.T) bool {
	t.Helper()
	out, err := exec.Command("ndklab", "ls").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(out), c.lab)
}

// Ctrl-C, or a CI system's SIGTERM, takes a lab down before the command ends, which
// reports what was measured until then, in all forms, also of virtual time.
func TestInterrupt(t *testing.T) {
	for _, test := range []struct {
		name   string
		signal syscall.Signal
		flags  []string
	}{{"sigint", syscall.SIGINT, nil}, {"sigterm", syscall.SIGTERM, nil}, {"simulated", syscall.SIGINT, []string{"--simulate"}}} {
		t.Run(test.name, func(t *testing.T) {
			signal := test.signal
			c := startRun(t, test.name, append(test.flags, "-o", "json", "--junit", "out.xml", "--html", "out.html")...)
			if test.flags == nil {
				for c.stderr.Scan() && !strings.Contains(c.stderr.Text(), "messages: ") { // something is measured
				}
			}
			if err := c.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if code := c.ended(t); code != exitInterrupted {
				t.Errorf("exit code %d, want %d", code, exitInterrupted)
			}
			if c.up(t) {
				t.Error("the lab is still up")
			}
			var r report.Run
			if err := stdjson.Unmarshal([]byte(c.stdout.String()), &r); err != nil {
				t.Fatal(err)
			}
			if w := r.Workloads[0]; !r.Interrupted || r.Passed || w.Messages == 0 || w.Errors > 0 || len(r.Nodes) != 2 || r.Links[0].Directions[0].Packets == 0 {
				t.Errorf("interrupted %v, passed %v, %+v, %d nodes, %d links", r.Interrupted, r.Passed, w, len(r.Nodes), len(r.Links))
			}
			for file, want := range map[string]string{"out.xml": `<error message="the run was interrupted"`, "out.html": "the run was interrupted"} {
				text, err := os.ReadFile(filepath.Join(c.dir, file))
				if err != nil || !strings.Contains(string(text), want) {
					t.Errorf("%s lacks %q: %v", file, want, err)
				}
			}
		})
	}
}

// A run of a lab that was up, and a measurement there, report what was until Ctrl-C and
// leave the lab up.
func TestInterruptInLab(t *testing.T) {
	c := startRun(t, "interrupt-in-lab", "--keep")
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := c.ended(t); code != exitInterrupted {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
	}
	if c.up(t) {
		t.Fatal("a run that was interrupted keeps its lab")
	}
	if out, err := exec.Command("ndklab", "up", filepath.Join(c.dir, "long.ndklab.yaml")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer func() {
		if out, err := exec.Command("ndklab", "down", c.lab).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}()
	for _, args := range [][]string{{"run", c.lab}, {"perf", c.lab, "write-bw", "-D", "10m"}} {
		cmd := exec.CommandContext(t.Context(), "ndklab", append(args, "-o", "json")...)
		var stdout strings.Builder
		cmd.Stdout = &stdout
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c.measures(t)
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the exit code tells
		var r struct {
			Interrupted bool
			Workload    report.Workload   // of perf
			Workloads   []report.Workload // of run
		}
		if err := stdjson.Unmarshal([]byte(stdout.String()), &r); err != nil {
			t.Fatal(err)
		}
		measured := append(r.Workloads, r.Workload)[0]
		if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || !r.Interrupted || measured.Messages == 0 {
			t.Errorf("%v: exit code %d, and\n%s", args, code, &stdout)
		}
	}
	if !c.up(t) {
		t.Error("the lab is down")
	}
}

// A second Ctrl-C does not wait; the lab goes all the same.
func TestSecondInterrupt(t *testing.T) {
	c := startRun(t, "interrupt-twice")
	for range 2 {
		if err := c.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
	if code := c.ended(t); code != exitInterrupted {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
	}
	for deadline := time.Now().Add(30 * time.Second); c.up(t); {
		if time.Now().After(deadline) {
			t.Fatal("the lab is still up")
		}
	}
}

// untilTwice is a shell command that says when it is ready, and ends with status
// 9 at the second SIGINT.
const untilTwice = `n=0; trap 'n=$((n+1)); echo $n; [ $n -lt 2 ] || exit 9' INT; echo 0; while :; do sleep 0.1; done`

// A signal that would interrupt exec goes to its command, every time.
func TestExecPassesSignals(t *testing.T) {
	run := startRun(t, "exec-signals")
	cmd := exec.CommandContext(t.Context(), "ndklab", "exec", run.lab+"/a", "--", "sh", "-c", untilTwice)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && lines.Text() != "2" {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 9 {
		t.Errorf("%v, want exit status 9", err)
	}
	if err := run.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	run.ended(t)
}

// A signal that a node does not take ends exec itself: nobody could tell the command there.
func TestExecInPausedNode(t *testing.T) {
	run := startRun(t, "exec-paused")
	cmd := exec.CommandContext(t.Context(), "ndklab", "exec", run.lab+"/a", "--", "sh", "-c", "echo 0; sleep 1000")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr, cmd.WaitDelay = &stderr, time.Second // the command in the node has it, too
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !bufio.NewScanner(stdout).Scan() {
		t.Fatal("the command has not begun")
	}
	if out, err := exec.Command("ndklab", "pause", run.lab+"/a").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) || !strings.Contains(stderr.String(), "node a takes no signals now") {
		t.Errorf("%v, want exit status %d: %s", err, 128+int(syscall.SIGTERM), stderr.String())
	}
	if err := run.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	run.ended(t)
}

// A lab that is taken down under a command is that command's failure: what it
// is about exists no more.
func TestTakenDownByAnother(t *testing.T) {
	c := startRun(t, "taken")
	if out, err := exec.Command("ndklab", "down", c.lab).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if code := c.ended(t); code != exitUsage {
		t.Errorf("exit code %d, want %d", code, exitUsage)
	}
}

// TestInterruptReading interrupts a command that reads a pipe to which nobody
// writes.
func TestInterruptReading(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe.ndklab.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "ndklab", "validate", pipe)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns when the command has opened its end
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Errorf("ended with %v, want exit code %d", err, exitInterrupted)
	}
}

// Ctrl-C ends a capture: the packets written are whole, with the counts, and the command
// tells the counts. A signal that comes twice, from timeout(1), counts as one.
func TestInterruptCapture(t *testing.T) {
	run := startRun(t, "interrupt-capture")
	cmd := exec.CommandContext(t.Context(), "ndklab", "capture", run.lab+"/a:eth0", "-w", "-")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(stdout, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	packets, first := uint64(0), time.Time{}
	for {
		if _, _, err = r.ReadPacketData(); err != nil {
			break
		}
		packets++
		// At once, and yet not so that the kernel makes one of them.
		if packets == 10 || packets > 10 && packets < 20 && time.Since(first) < together/2 {
			if packets == 10 {
				first = time.Now()
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err != io.EOF {
		t.Errorf("the capture ends with %v", err)
	}
	iface, err := r.Interface(0)
	if err != nil {
		t.Fatal(err)
	}
	if iface.Statistics.PacketsReceived != packets {
		t.Errorf("%d packets, the file says %d", packets, iface.Statistics.PacketsReceived)
	}
	want := fmt.Sprintf("capturing a:eth0: Ctrl-C ends it\na:eth0: packets: %d, dropped from the capture: %d\n", packets, iface.Statistics.PacketsDropped)
	if err := cmd.Wait(); err != nil || stderr.String() != want {
		t.Errorf("ended with %v: %q, want %q", err, stderr.String(), want)
	}
	if err := run.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	run.ended(t)
}

// Samples of jitter may come from a pipe: waiting for them can be interrupted.
func TestInterruptedSamples(t *testing.T) {
	c := startRun(t, "samples")
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	set := exec.CommandContext(t.Context(), "ndklab", "link", "set", c.lab+"/a:eth0", "jitter={file: "+pipe+"}")
	if err := set.Start(); err != nil {
		t.Fatal(err)
	}
	end, err := os.OpenFile(pipe, os.O_WRONLY, 0) // which waits for a reader
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	if err := set.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = set.Wait() // the exit code tells
	if code := set.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
	}
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	c.ended(t)
}

// A suite that is interrupted takes its labs down and reports what it has, in files, too.
func TestInterruptedSuite(t *testing.T) {
	need.Labs(t, canRun())
	dir := t.TempDir()
	c := &command{lab: fmt.Sprintf("cli-suite-%d", os.Getpid())}
	short := strings.Replace(fmt.Sprintf(longRun, c.lab+"-short"), "10m", "1ms", 1)
	for name, text := range map[string]string{"a": short, "b": fmt.Sprintf(longRun, c.lab), "c": short} {
		if err := os.WriteFile(filepath.Join(dir, name+".ndklab.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c.Cmd = exec.CommandContext(t.Context(), "ndklab", "run", ".", "--junit", "out.xml", "--retries", "2")
	c.Dir = dir
	var stdout strings.Builder
	c.Stdout = &stdout
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	c.stderr = bufio.NewScanner(stderr)
	for c.stderr.Scan() && !strings.Contains(c.stderr.Text(), "run   "+c.lab+", seed 1") {
		t.Log(c.stderr.Text())
	}
	c.measures(t)
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := c.ended(t); code != exitInterrupted {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
	}
	if c.up(t) {
		t.Error("the lab is still up")
	}
	want := "\nnot run\n  c.ndklab.yaml\n\nFAIL: 1 lab passed, 1 lab interrupted, 1 not run ("
	if !strings.Contains(stdout.String(), want) {
		t.Errorf("it prints\n%swhich lacks\n%s", &stdout, want)
	}
	file, err := os.ReadFile(filepath.Join(dir, "out.xml"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(file), `<testsuite name="`+c.lab+`-short"`) || !strings.Contains(string(file), `<error message="the run was interrupted"`) || !strings.HasSuffix(string(file), "</testsuites>\n") {
		t.Errorf("the file is\n%s", file)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 4 {
		t.Errorf("in the folder are %v, want the file and the three that were there: %v", left, err)
	}
}
