package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/suite"
	"github.com/ndklab/ndklab/internal/terminal"
	"golang.org/x/sys/unix"
)

// A glass keeps the lines that a terminal shows, as far as displays use one.
type glass struct {
	lines []string
	row   int
}

var sequence = regexp.MustCompile(`^\x1b\[(\d*)([A-Z])`)

// write does what a terminal does.
func (g *glass) write(t *testing.T, data string) {
	t.Helper()
	for data != "" {
		for len(g.lines) <= g.row {
			g.lines = append(g.lines, "")
		}
		if m := sequence.FindStringSubmatch(data); m != nil {
			switch n, _ := strconv.Atoi(m[1]); m[2] {
			case "A":
				g.row -= n
			case "J":
				g.lines = append(g.lines[:g.row], "")
			default:
				t.Fatalf("control sequence %q", m[0])
			}
			data = data[len(m[0]):]
			continue
		}
		switch data[0] {
		case '\r': // what follows is erased
		case '\n':
			g.row++
		default:
			g.lines[g.row] += data[:1]
		}
		data = data[1:]
	}
}

// shown returns the lines that the terminal shows, with the times that labs have run
// left out.
func (g *glass) shown() []string {
	var lines []string
	for _, line := range g.lines {
		line = regexp.MustCompile(` +\d+\.\d s  `).ReplaceAllString(line, " T ")
		if line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// cases of a suite, and what became of some.
var (
	caseOne   = suite.Case{File: "one.yaml", Lab: "one", Seed: 1, Attempt: 1}
	caseTwo   = suite.Case{File: "two.yaml", Lab: "two", Seed: 2, Attempt: 1}
	caseThree = suite.Case{File: "three.yaml", Lab: "three", Seed: 3, Attempt: 2}

	hasPassed  = suite.Outcome{Case: caseOne, Run: &report.Run{Passed: true, WallSeconds: 1}}
	hasFailed  = suite.Outcome{Case: caseTwo, Again: true, Run: &report.Run{WallSeconds: 1, Checks: []report.Check{{}}}}
	isFlaky    = suite.Outcome{Case: caseThree, Run: &report.Run{Passed: true, Flaky: true, WallSeconds: 1}}
	wasStopped = suite.Outcome{Case: caseTwo}
	hadNoLab   = suite.Outcome{Case: caseTwo, Run: &report.Run{WallSeconds: 1}, Err: errors.New("no room\nfor it")}
)

// A terminal has a line for each lab that runs, cut to its width, and what is done above.
func TestTerminalDisplay(t *testing.T) {
	master, tty, err := terminal.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer tty.Close()
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 5, Col: 50}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TERM", "xterm")
	show := newDisplay(tty, make([]suite.Case, 3))
	if show.tty == nil {
		t.Fatal("it is taken for no terminal")
	}
	defer show.close()
	g := new(glass)
	buf := make([]byte, 64<<10)
	wants := func(want ...string) {
		t.Helper()
		show.mu.Lock()
		defer show.mu.Unlock()
		const mark = "\x07" // behind all that was written
		if _, err := tty.WriteString(mark); err != nil {
			t.Fatal(err)
		}
		text, ended := "", false
		for !ended { // a read may end amid a control sequence
			n, err := master.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			text, ended = strings.CutSuffix(text+string(buf[:n]), mark)
		}
		g.write(t, text)
		if diff := cmp.Diff(want, g.shown()); diff != "" {
			t.Error(diff)
		}
	}
	show.began(caseOne)
	show.began(caseTwo)
	wants("one T seed 1", "two T seed 2", "0 of 3 done, 0 failed, 0 %")
	show.event(caseTwo, event.Event{Text: "a text that is\nlonger\x1b than the terminal is wide"})
	show.ended(hasPassed)
	wants("ok    one, seed 1: 1.00 s", "two T a text that is long", "1 of 3 done, 0 failed, 0 %")
	show.ended(hasFailed)
	show.say("a note")
	for i := range 5 {
		show.began(suite.Case{Lab: fmt.Sprint("more-", i)})
	}
	wants("ok    one, seed 1: 1.00 s", "FAIL  two, seed 2: 1.00 s, runs again: 1 of 1 check failed", "a note",
		"more-0 T seed 0", "more-1 T seed 0", "and 3 more labs", "1 of 3 done, 0 failed, 0 %")
	show.ended(hadNoLab)
	wants("ok    one, seed 1: 1.00 s", "FAIL  two, seed 2: 1.00 s, runs again: 1 of 1 check failed", "a note", "FAIL  two, seed 2: 1.00 s: no room",
		"more-0 T seed 0", "more-1 T seed 0", "and 3 more labs", "2 of 3 done, 1 failed, 0 %")
}

// An output that is no terminal gets plain lines with the time.
func TestLogDisplay(t *testing.T) {
	var b bytes.Buffer
	show := newDisplay(&b, make([]suite.Case, 3))
	show.began(caseOne)
	show.began(caseTwo)
	show.event(caseOne, event.Event{Kind: event.WorkloadStarted, Text: "not told of"})
	show.event(caseOne, event.Event{Kind: event.Warning, Text: "told of"})
	show.ended(hasPassed)
	tick := func() {
		show.mu.Lock()
		defer show.mu.Unlock()
		show.show() // as it does now and then
	}
	tick()
	show.ended(hasFailed)
	show.ended(isFlaky)
	show.ended(wasStopped)
	show.close()
	tick()
	got := regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S+  `).ReplaceAllString(b.String(), "")
	got = regexp.MustCompile(`\(\d+ s\)`).ReplaceAllString(got, "(T)")
	want := `run   one, seed 1: one.yaml
run   two, seed 2: two.yaml
note  one: told of
ok    one, seed 1: 1.00 s
1 of 3 done, 0 failed, 0 %; running: two (T)
FAIL  two, seed 2: 1.00 s, runs again: 1 of 1 check failed
ok    three, seed 3: 1.00 s, flaky: passed on attempt 2
stop  two, seed 2: interrupted
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A terminal that can do nothing gets what a file gets.
func TestDumbTerminal(t *testing.T) {
	master, tty, err := terminal.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer tty.Close()
	t.Setenv("TERM", "dumb")
	for _, w := range []*os.File{tty, os.Stderr} {
		show := newDisplay(w, make([]suite.Case, 1))
		if show.tty != nil {
			t.Fatalf("%s is taken for more than it is", w.Name())
		}
		show.close()
	}
}
