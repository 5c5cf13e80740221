package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// openLog is a reader of a log in a file, whose lab lives until the second value is
// closed.
func openLog(t *testing.T, nodes ...string) (r *logReader, life *os.File, path string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var files [3]*os.File
	for i, name := range []string{"state", "state", "log"} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		files[i] = f
	}
	if err := tryLock(files[0]); err != nil {
		t.Fatal(err)
	}
	return &logReader{wanted: linesOf(nodes), life: files[1], log: files[2]}, files[0], path
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// A log that is followed is read to the lab's end, over being cut short, and a line
// is one when its end is there.
func TestFollowLog(t *testing.T) {
	r, life, path := openLog(t)
	appendTo(t, path, "one\ntwo\nthr")
	var got []string
	if err := r.tail(1, func(line []byte) error { got = append(got, string(line)); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"two"}; !slices.Equal(got, want) {
		t.Fatalf("tail %q, want %q", got, want)
	}
	lines, ended := make(chan string), make(chan error, 1)
	go func() {
		ended <- r.follow(testContext(t), func(line []byte) error { lines <- string(line); return nil })
	}()
	next := func(want string) {
		t.Helper()
		select {
		case got := <-lines:
			if got != want {
				t.Fatalf("line %q, want %q", got, want)
			}
		case <-time.After(testTime):
			t.Fatalf("no line %q", want)
		}
	}
	appendTo(t, path, "ee\n")
	next("three")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path, "anew\n")
	next("anew")
	appendTo(t, path, "last\n")
	life.Close() // and with it the lock
	next("last")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Following ends with the context and with what line returns.
func TestFollowLogEnds(t *testing.T) {
	r, _, path := openLog(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.follow(ctx, nil); err != nil {
		t.Errorf("got %v", err)
	}
	appendTo(t, path, "line\n")
	enough := fmt.Errorf("enough")
	if err := r.follow(testContext(t), func([]byte) error { return enough }); err != enough {
		t.Errorf("got %v", err)
	}
}

// A node's lines are its own and those that name it, and not those of a node whose
// name begins as its does.
func TestLinesOfNode(t *testing.T) {
	wanted := linesOf([]string{"a"})
	for line, want := range map[string]bool{
		"node a: ndklab-node: adapter: lost":                 true,
		"ndklab-supervisor: node a is down: its agent ended": true,
		"ndklab-supervisor: lost: node a":                    true,
		"node a-2: adapter: lost":                            false,
		"node ab: adapter: lost":                             false,
		"node b: adapter: lost":                              false,
	} {
		if wanted.MatchString(line) != want {
			t.Errorf("%q: %v", line, !want)
		}
	}
}

// A line without an end is not waited for without a bound.
func TestLongLogLine(t *testing.T) {
	r, _, path := openLog(t)
	appendTo(t, path, strings.Repeat("x", 3*mostLine)+"\nend\n")
	total, end := 0, false
	if err := r.read(func(line []byte) error {
		total += len(line)
		end = bytes.Equal(line, []byte("end"))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if total != 3*mostLine+3 || !end || len(r.part) > 0 {
		t.Errorf("%d bytes read, %v", total, end)
	}
}

// A log that is too long is cut: its last lines stay, and who follows it goes on.
func TestCutLog(t *testing.T) {
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "log"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	write := func(from, to int) {
		for i := range to - from {
			if _, err := fmt.Fprintf(file, "line %d\n", from+i); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := &logReader{wanted: linesOf(nil), log: file}
	last := ""
	read := func() {
		t.Helper()
		if err := r.read(func(text []byte) error { last = string(text); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	write(0, 1000)
	if err := cutLog(file, 1<<20, 100); err != nil {
		t.Fatal(err)
	}
	if read(); last != "line 999" {
		t.Fatalf("a log that is short enough ends with %q", last)
	}
	if err := cutLog(file, 1000, 100); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(all)), "\n")
	if len(all) > 300 || !strings.HasPrefix(lines[0], "log: 87") || lines[len(lines)-1] != "line 999" || !strings.HasPrefix(lines[1], "line 9") {
		t.Errorf("%q is left", all)
	}
	write(1000, 1001)
	if read(); last != "line 1000" {
		t.Errorf("who follows the log has read %q", last)
	}
}
