package text

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/terminal"
)

// copied matches lines that are to be copied to a command line.
var copied = regexp.MustCompile(`^ *(replay|evidence): |^  frames (to|from) |\((nsenter|ip netns) `)

// widthOf returns the number of columns of the widest line, and that line. It leaves out
// lines that are to be copied, which nothing breaks.
func widthOf(text string) (widest int, line string) {
	for l := range strings.Lines(text) {
		l = strings.TrimRight(l, "\r\n")
		if n := utf8.RuneCountInString(l); n > widest && !copied.MatchString(l) {
			widest, line = n, l
		}
	}
	return widest, line
}

// written returns what write writes to a file when COLUMNS says so many columns.
func written(t *testing.T, columns int, write func(io.Writer) error) string {
	t.Helper()
	t.Setenv("COLUMNS", strconv.Itoa(columns))
	name := filepath.Join(t.TempDir(), "text")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := write(f); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every text fits the terminal, and has all numbers that it has where there is room.
func TestWidths(t *testing.T) {
	number := regexp.MustCompile(`\b[0-9][0-9.,]*\b`)
	numbers := func(text string) []string {
		found := number.FindAllString(text, -1)
		slices.Sort(found)
		return slices.Compact(found)
	}
	all := texts()
	all["long names"] = func(w io.Writer) error { return WriteRun(w, longNames(), Full) }
	all["suite"] = func(w io.Writer) error {
		runs := []*report.Run{pair(), trouble()}
		runs[0].File, runs[1].File = "examples/suite/"+strings.Repeat("long/", 20)+"pair.ndklab.yaml", "x.ndklab.yaml"
		return WriteSuite(w, &report.Suite{Labs: runs})
	}
	for name, write := range all {
		if strings.HasSuffix(name, "json") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			all := numbers(written(t, 1000, write))
			for _, columns := range []int{60, 80, 100, 120, 200} {
				text := written(t, columns, write)
				if n, line := widthOf(text); n > columns {
					t.Errorf("%d columns of %d:\n%s", n, columns, line)
				}
				has := numbers(text)
				for _, want := range all {
					if !slices.Contains(has, want) && !strings.Contains(text, want) {
						t.Errorf("in %d columns there is no %s", columns, want)
					}
				}
			}
		})
	}
}

// longNames is trouble among nodes and workloads with long names.
func longNames() *report.Run {
	r := trouble()
	for i := range r.Nodes {
		r.Nodes[i].Name = strings.Repeat("rack-17-", 9) + r.Nodes[i].Name
	}
	for i := range r.Workloads {
		r.Workloads[i].Name = strings.Repeat("shuffle-", 9) + r.Workloads[i].Name
	}
	for i := range r.Links {
		r.Links[i].Endpoints[0] = strings.Repeat("x", 70) + ":eth0"
	}
	return r
}

// A report fits the terminal that it is written to, and has 200 columns on one that is wider.
func TestWidthOfTerminal(t *testing.T) {
	t.Setenv("COLUMNS", "")
	t.Setenv("NO_COLOR", "1")
	for _, columns := range []int{60, 80, 120, 200, 300} {
		control, peer, err := terminal.Open()
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.IoctlSetWinsize(int(peer.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)}); err != nil {
			t.Fatal(err)
		}
		done := make(chan string)
		go func() {
			text, _ := io.ReadAll(control) // it ends with EIO when the peer is closed
			done <- string(text)
		}()
		if err := WriteRun(peer, longNames(), Full); err != nil {
			t.Error(err)
		}
		peer.Close()
		text := <-done
		control.Close()
		if n, line := widthOf(text); n > min(columns, 200) || n < min(columns, 200)*2/3 {
			t.Errorf("%d columns of %d:\n%s", n, columns, line)
		}
	}
}

// Events and what hangs behind a lead fit a terminal, and are one line each elsewhere.
func TestWidthsOfEvents(t *testing.T) {
	e := &event.Event{Lab: strings.Repeat("l", 40), Kind: "workload-started", Text: "workload bulk: write of 64KiB from " + strings.Repeat("rack ", 30) + "to b"}
	var b strings.Builder
	if err := WriteEvent(&b, e); err != nil || strings.Count(b.String(), "\n") != 1 {
		t.Errorf("%v, more lines than one:\n%s", err, b.String())
	}
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	for _, columns := range []int{60, 80, 120, 200} {
		for _, lab := range []string{"l", e.Lab} {
			e.Lab = lab
			text := written(t, columns, func(w io.Writer) error { return WriteEvent(w, e) })
			if n, line := widthOf(text); n > columns {
				t.Errorf("%d columns of %d:\n%s", n, columns, line)
			}
			if !strings.HasSuffix(words(text), words(e.Text)) {
				t.Errorf("in %d columns:\n%s", columns, text)
			}
		}
	}
	if got, want := Hang(&b, "  lead: ", "one\ntwo"), "  lead: one\n        two\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
