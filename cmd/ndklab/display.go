package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/internal/fabric/suite"
	"golang.org/x/sys/unix"
)

// A display shows how far a suite is. Its methods may be called from any goroutine.
type display interface {
	began(c suite.Case)
	ended(o suite.Outcome)
	event(c suite.Case, e event.Event)
	say(format string, args ...any)
	close() // before anything else is printed
}

// newDisplay is the display that suits w: a terminal has a line for each lab that runs,
// which changes in place; what is kept in a file gets lines with the time.
func newDisplay(w io.Writer, cases int) display {
	if f, ok := w.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			return newTerminalDisplay(f, cases)
		}
	}
	return newLogDisplay(w, cases)
}

// outcomeText says what became of an attempt, in a line.
func outcomeText(o *suite.Outcome) (word, text string) {
	took := ""
	if o.Run != nil {
		took = words.Duration(o.Run.WallSeconds * 1e6)
	}
	switch {
	case o.Run == nil || o.Run.Interrupted:
		return "stop", "interrupted"
	case o.Again:
		return "FAIL", took + ", runs again: " + reason(o)
	case !o.Run.Passed:
		return "FAIL", took + ": " + reason(o)
	case o.Run.Flaky:
		return "ok", fmt.Sprintf("%s, flaky: passed on attempt %d", took, o.Attempt)
	}
	return "ok", took
}

// reason says in a line why a run has not passed.
func reason(o *suite.Outcome) string {
	if o.Err != nil {
		first, _, _ := strings.Cut(o.Err.Error(), "\n")
		return first
	}
	return words.Failure(o.Run)
}

// A logDisplay is a display for the log of a CI system: whole lines, without control
// characters, each with the time.
type logDisplay struct {
	cases int
	quiet *time.Timer // says what runs when nothing else has been said for a while

	mu      sync.Mutex // guards what follows
	w       io.Writer
	running []running
	done    int
	closed  bool
}

// A running is an attempt that is under way.
type running struct {
	suite.Case
	since time.Time
	text  string // the last that happened in the lab
}

// quietTime is the longest time that a log stays without a line: CI systems end jobs that say
// nothing for minutes.
const quietTime = 30 * time.Second

func newLogDisplay(w io.Writer, cases int) *logDisplay {
	d := &logDisplay{w: w, cases: cases}
	d.quiet = time.AfterFunc(quietTime, d.reportRunning)
	return d
}

// line writes a line. The caller holds the lock.
func (d *logDisplay) line(format string, args ...any) {
	// Nobody can be told that nobody reads it.
	_, _ = fmt.Fprintf(d.w, time.Now().Format(time.RFC3339)+"  "+format+"\n", args...)
	if !d.closed {
		d.quiet.Reset(quietTime)
	}
}

// reportRunning says what runs.
func (d *logDisplay) reportRunning() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	var labs []string
	for _, r := range d.running {
		labs = append(labs, fmt.Sprintf("%s (%.0f s)", r.Lab, time.Since(r.since).Seconds()))
	}
	d.line("%d of %d done; running: %s", d.done, d.cases, strings.Join(labs, ", "))
}

func (d *logDisplay) began(c suite.Case) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = append(d.running, running{Case: c, since: time.Now()})
	d.line("run   %s, seed %d: %s", c.Lab, c.Seed, c.File)
}

func (d *logDisplay) ended(o suite.Outcome) {
	word, text := outcomeText(&o)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = without(d.running, o.Case)
	if !o.Again {
		d.done++
	}
	d.line("%-4s  %s, seed %d: %s", word, o.Lab, o.Seed, text)
}

// event shows warnings alone: what happens in the labs of a suite is in the evidence of
// those that fail.
func (d *logDisplay) event(c suite.Case, e event.Event) {
	if e.Kind == event.Warning {
		d.say("%s: %s", c.Lab, e.Text)
	}
}

func (d *logDisplay) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.line("note  "+format, args...)
}

func (d *logDisplay) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.quiet.Stop()
}

// without is the attempts but that of a case.
func without(all []running, c suite.Case) []running {
	return slices.DeleteFunc(all, func(r running) bool { return r.Lab == c.Lab })
}

// A terminalDisplay is a display for a terminal: what is done scrolls away above a line
// for each lab that runs and one that counts.
type terminalDisplay struct {
	cases int
	tick  *time.Ticker
	over  chan struct{}
	shown sync.WaitGroup // the goroutine that lets time be seen passing

	mu      sync.Mutex // guards what follows
	w       *os.File
	running []running
	done    int
	failed  int
	drawn   int    // lines that are drawn and will be again
	above   []byte // lines to be written above them
}

// redraw is the time from one drawing to the next.
const redraw = 500 * time.Millisecond

func newTerminalDisplay(w *os.File, cases int) *terminalDisplay {
	d := &terminalDisplay{w: w, cases: cases, tick: time.NewTicker(redraw), over: make(chan struct{})}
	d.shown.Go(func() {
		for {
			select {
			case <-d.tick.C:
				d.mu.Lock()
				d.draw()
				d.mu.Unlock()
			case <-d.over:
				return
			}
		}
	})
	return d
}

// Control sequences (ECMA-48).
const (
	upLines    = "\x1b[%dA"
	eraseBelow = "\x1b[J"
)

// draw draws all lines again, with those that scroll away above them, in one write. The
// caller holds the lock.
func (d *terminalDisplay) draw() {
	var b bytes.Buffer
	if d.drawn > 0 {
		fmt.Fprintf(&b, upLines, d.drawn)
	}
	b.WriteString("\r" + eraseBelow)
	b.Write(d.above)
	d.above = d.above[:0]
	columns, rows := 80, 24
	if size, err := unix.IoctlGetWinsize(int(d.w.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 && size.Row > 0 {
		columns, rows = int(size.Col), int(size.Row)
	}
	var lines []string
	for _, r := range d.running {
		lines = append(lines, fmt.Sprintf("%-20s %5.1f s  %s", r.Lab, time.Since(r.since).Seconds(), r.text))
	}
	if most := max(rows-2, 1); len(lines) > most { // the whole must fit, or it could not be drawn again
		lines = append(lines[:most-1], fmt.Sprintf("and %d more labs", len(lines)-most+1))
	}
	if d.done < d.cases && len(lines) > 0 {
		lines = append(lines, fmt.Sprintf("%d of %d done, %d failed", d.done, d.cases, d.failed))
	}
	for _, line := range lines {
		b.WriteString(cut(line, columns-1) + "\n")
	}
	d.drawn = len(lines)
	// Nobody can be told that the terminal has gone.
	_, _ = d.w.Write(b.Bytes())
}

// cut is the first columns of a line: one that wrapped would count for two.
func cut(line string, columns int) string {
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, line)
	if utf8.RuneCountInString(line) <= columns {
		return line
	}
	return string([]rune(line)[:max(columns, 0)])
}

func (d *terminalDisplay) began(c suite.Case) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = append(d.running, running{Case: c, since: time.Now(), text: fmt.Sprintf("seed %d", c.Seed)})
	d.draw()
}

func (d *terminalDisplay) ended(o suite.Outcome) {
	word, text := outcomeText(&o)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = without(d.running, o.Case)
	if !o.Again {
		d.done++
		if !o.Passed() {
			d.failed++
		}
	}
	d.above = fmt.Appendf(d.above, "%-4s  %s, seed %d: %s\n", word, o.Lab, o.Seed, text)
	d.draw()
}

func (d *terminalDisplay) event(c suite.Case, e event.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.running {
		if d.running[i].Lab == c.Lab {
			d.running[i].text = e.Text // which the ticker shows
		}
	}
}

func (d *terminalDisplay) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.above = fmt.Appendf(d.above, format+"\n", args...)
	d.draw()
}

func (d *terminalDisplay) close() {
	d.tick.Stop()
	close(d.over)
	d.shown.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = nil
	d.draw()
}
