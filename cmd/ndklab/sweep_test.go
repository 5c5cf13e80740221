package main

import (
	"bytes"
	"encoding/csv"
	stdjson "encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/need"
	"golang.org/x/sys/unix"
)

// sweptFile is a topology whose run in virtual time takes some milliseconds.
const sweptFile = `name: %s
seed: 5
topology:
  nodes: {a: {}, b: {}}
  links:
    - {endpoints: ["a:eth0", "b:eth0"], delay: 1ms, loss: 1%%, rate: 1gbit}
workloads:
  - {name: w, from: a, to: b, operation: write, size: 4KiB, depth: 8, count: 2000, verify: true}
checks:
  - {workload: w, throughput: ">= 20mbit"}
`

// A sweeping is a folder with such a file, in which sweeps run.
type sweeping struct {
	t   *testing.T
	dir string
}

func newSweeping(t *testing.T, name string) *sweeping {
	t.Helper()
	s := &sweeping{t, t.TempDir()}
	if err := os.WriteFile(filepath.Join(s.dir, "f.ndklab.yaml"), fmt.Appendf(nil, sweptFile, name), 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

// command is a sweep into a folder.
func (s *sweeping) command(out string, flags ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), "ndklab", append([]string{"sweep", "f.ndklab.yaml", "--out", out}, flags...)...)
	cmd.Dir = s.dir
	return cmd
}

// read returns the files of a folder, but for the reports of runs.
func (s *sweeping) read(out string) map[string]string {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, out))
	if err != nil {
		s.t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(s.dir, out, e.Name()))
		if err != nil {
			s.t.Fatal(err)
		}
		files[e.Name()] = strings.ReplaceAll(string(data), out, "OUT")
	}
	return files
}

// interrupted runs a sweep, sends it a signal at the nth event of a kind (inotify(7)) among its reports, and
// returns how it ended.
func (s *sweeping) interrupted(out string, signal syscall.Signal, kind uint32, nth int, flags ...string) *os.ProcessState {
	s.t.Helper()
	runs := filepath.Join(s.dir, out, sweepRuns)
	if err := os.MkdirAll(runs, 0o777); err != nil {
		s.t.Fatal(err)
	}
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		s.t.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, runs, kind); err != nil {
		s.t.Fatal(err)
	}
	cmd := s.command(out, flags...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	for seen := 0; seen < nth; {
		n, err := unix.Read(watch, buf)
		if err != nil {
			s.t.Fatal(err)
		}
		for at := 0; at < n; seen++ {
			at += unix.SizeofInotifyEvent + int((*unix.InotifyEvent)(unsafe.Pointer(&buf[at])).Len)
		}
	}
	if err := cmd.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
	_ = cmd.Wait() // its status says how it ended
	s.t.Logf("%v: %s", cmd.ProcessState, stderr.String())
	return cmd.ProcessState
}

// A sweep that was interrupted by Ctrl-C, and killed as it wrote, has in the end the same results as one that was
// not, to the byte.
func TestSweepGoesOn(t *testing.T) {
	s := newSweeping(t, "f")
	flags := []string{"--simulate", "--vary", "link.delay=1ms,5ms,20ms", "--vary", "workload.size=1KiB,4KiB,16KiB", "--repeat", "3"}
	if out, err := s.command("whole", flags...).CombinedOutput(); err == nil || !strings.Contains(string(out), "points: 9, runs: 27, passed: 18, failed: 9, not made: 0") {
		t.Fatalf("%v: %s", err, out)
	}
	if state := s.interrupted("parts", syscall.SIGINT, unix.IN_MOVED_TO, 5, flags...); state.ExitCode() != exitInterrupted {
		t.Errorf("after Ctrl-C it ended with %v", state)
	}
	var begun report.Sweep
	if err := stdjson.Unmarshal([]byte(s.read("parts")[sweepJSON]), &begun); err != nil || begun.Complete || len(begun.Runs) != 27 {
		t.Errorf("after Ctrl-C: %v, %+v", err, begun)
	}
	if state := s.interrupted("parts", syscall.SIGKILL, unix.IN_CREATE, 7, flags...); state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it was not killed: %v", state)
	}
	// A write that was cut short, by a kill or by a full disk, leaves such files.
	made, err := filepath.Glob(filepath.Join(s.dir, "parts", sweepRuns, "*.json"))
	if err != nil || len(made) < 11 || len(made) == 27 {
		t.Fatalf("%d reports: %v", len(made), err)
	}
	if err := os.Truncate(made[3], 100); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"runs/.000020.json.123", ".sweep.csv.123"} {
		if err := os.WriteFile(filepath.Join(s.dir, "parts", name), []byte("{"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := s.command("parts", append(flags, "-j", "2")...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), fmt.Sprintf("parts: goes on behind %d of 27 runs", len(made)-1)) {
		t.Errorf("%v: %s", err, out)
	}
	if diff := cmp.Diff(s.read("whole"), s.read("parts")); diff != "" {
		t.Error(diff)
	}
	if left, err := filepath.Glob(filepath.Join(s.dir, "parts", sweepRuns, ".*")); len(left) > 0 || err != nil {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

// Of a run the results have the command that repeats it alone, with the same figures.
func TestSweepRunAlone(t *testing.T) {
	s := newSweeping(t, "f")
	out, err := s.command("x", "--simulate", "--vary", "link[a-b].delay=1ms,2ms", "--repeat", "2", "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var result report.Sweep
	if err := stdjson.Unmarshal(out, &result); err != nil {
		t.Fatal(err)
	}
	last := result.Runs[3]
	if last.Seed != 6 || last.Command != "ndklab run f.ndklab.yaml --set 'link[a-b].delay=2ms' --seed 6 --simulate" {
		t.Errorf("seed %d: %s", last.Seed, last.Command)
	}
	alone := exec.Command("sh", "-c", last.Command+" -o json >alone.json && ndklab compare alone.json x/"+last.Report+" --threshold 0%")
	alone.Dir = s.dir
	if out, err := alone.CombinedOutput(); err != nil || !strings.Contains(string(out), "SAME: ") {
		t.Errorf("%v: %s", err, out)
	}
}

// A sweep in labs has a row for each, and leaves no lab.
func TestSweepInLabs(t *testing.T) {
	need.Labs(t, canRun())
	name := fmt.Sprintf("cli-sweep-%d", os.Getpid())
	s := newSweeping(t, name)
	if out, err := s.command("x", "--vary", "link.delay=1ms,40ms", "--vary", "workload.count=100").CombinedOutput(); err == nil {
		t.Fatalf("a link with a delay of 40 ms had the throughput: %s", out)
	}
	rows, err := csv.NewReader(strings.NewReader(s.read("x")[sweepCSV])).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 3 || rows[1][1] != "0.001" || rows[2][1] != "0.04" || rows[2][5] != "fail" {
		t.Errorf("%v", rows)
	}
	if out, err := exec.Command("ndklab", "ls").CombinedOutput(); err != nil || strings.Contains(string(out), name) {
		t.Errorf("%v: %s", err, out)
	}
}
