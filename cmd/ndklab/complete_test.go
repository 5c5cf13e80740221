package main

import (
	"io"
	"os/exec"
	"slices"
	"syscall"
	"testing"
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

// Of a lab that does not answer, nothing is completed, and nobody waits for it for long.
func TestCompleteOfStoppedLab(t *testing.T) {
	labName := upForTest(t, "complete-stopped")
	pid := supervisorOf(t, labName)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
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
