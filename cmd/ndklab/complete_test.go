package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// Usage lines say what the arguments are.
func TestPositional(t *testing.T) {
	for use, want := range map[string][]string{
		"ls [-o text|json]": nil,
		"events LAB|--all [-f] [--since TIME] [-o text|json]":                {"LAB"},
		"exec [-T] [--all] LAB/NODE -- COMMAND [ARGUMENT...]":                {"LAB/NODE", "COMMAND", "[ARGUMENT...]"},
		"counters LAB[/NODE] [-o text|json] [--watch [INTERVAL]]":            {"LAB[/NODE]"},
		"set LAB/NODE:IFACE KEY=VALUE... [--from NODE] [-t FILE]":            {"LAB/NODE:IFACE", "KEY=VALUE..."},
		"capture LAB/NODE:IFACE... -w FILE [--ring-size SIZE]":               {"LAB/NODE:IFACE..."},
		"perf LAB|FILE|- TEST [--from NODE] [-n MESSAGES|-D TIME] [-t FILE]": {"LAB|FILE|-", "TEST"},
		"rping -s|-c -a ADDRESS [-p PORT] [-v]":                              nil,
		"run FILE|LAB [-o text|json] [--keep]":                               {"FILE|LAB"},
		"run [FILE|LAB] [--keep]\n  ndklab run DIR|FILE... [-j N]":           {"[FILE|LAB]", "DIR|FILE..."},
		"up [FILE|-] [--name NAME] [--dry-run] [--node-filter A,B]":          {"[FILE|-]"},
		"wait LAB[/NODE] --for CONDITION [--timeout TIME] [-o JSON]":         {"LAB[/NODE]"},
	} {
		if got := positional(use); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", use, got, want)
		}
	}
}

// stop stops a process. The signal takes effect later, one thread after the other: any of
// them may answer a request until then. stop looks at the threads until all have stopped,
// which the kernel tells only the parent of the process and those that trace it.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for running := true; running; <-tick.C {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("threads of %d: %v, %v", pid, threads, err)
		}
		running = false
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			// PID (COMMAND) STATE ...
			if after := stat[bytes.LastIndexByte(stat, ')')+1:]; err == nil && !bytes.HasPrefix(after, []byte(" T ")) {
				running = true
			}
		}
	}
}

// Of a lab that does not answer, nothing is completed, and nobody waits for it for long.
func TestCompleteOfStoppedLab(t *testing.T) {
	labName := upForTest(t, "complete-stopped")
	pid := supervisorOf(t, labName)
	stop(t, pid)
	defer func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}()
	for _, begun := range []string{labName, labName + "/"} {
		cmd := exec.Command("ndklab", "__complete", "exec", begun)
		cmd.Stderr = io.Discard
		if out, err := cmd.Output(); err != nil || string(out) != ":4\n" {
			t.Errorf("%s: %v, %q", begun, err, out)
		}
	}
	out, err := exec.Command("ndklab", "__complete", "down", labName).Output()
	if err != nil || string(out) != labName+"\n:4\n" {
		t.Errorf("the lab: %v, %q", err, out)
	}
}
