package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// A status tells people on standard error what long work does: lines that stay, and below them how far
// the work is. On a terminal the latter is a few lines that are drawn again and again; a log, as CI systems
// keep it, gets it as one line now and then. All commands that take long use it.
//
// The owner of a status changes the shown values with the lock held.
type status struct {
	mu    sync.Mutex      // guards what follows, and what lines returns
	lines func() []string // how far the work is now; with the lock held. Nothing: nothing is shown
	w     io.Writer
	tty   *os.File // nil: w is no terminal
	stamp bool     // lines in a log have the time

	told  string // how far the work was, in the log
	drawn int    // lines on the terminal that will be drawn again
	above []byte // lines to be written above them

	tick  *time.Ticker
	over  chan struct{}
	shown sync.WaitGroup // the goroutine that lets time be seen passing
}

const (
	// redraw is the time from one drawing to the next, and logged that from one line in a log about how
	// far the work is to the next.
	redraw = 500 * time.Millisecond
	logged = 10 * time.Second
)

// newStatus returns a status on w, to be closed before anything else is written there.
func newStatus(w io.Writer, stamp bool, lines func() []string) *status {
	s := &status{w: w, lines: lines, stamp: stamp, over: make(chan struct{})}
	every := logged
	if f, ok := w.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			s.tty, every = f, redraw
		}
	}
	s.tick = time.NewTicker(every)
	s.shown.Go(func() {
		for {
			select {
			case <-s.tick.C:
				s.mu.Lock()
				s.show()
				s.mu.Unlock()
			case <-s.over:
				return
			}
		}
	})
	return s
}

// show shows how far the work is. The caller holds the lock.
func (s *status) show() {
	if s.tty != nil {
		s.draw()
		return
	}
	if text := strings.Join(s.lines(), "; "); text != "" && text != s.told {
		s.told = text
		s.write("%s", text)
	}
}

// keep writes a line that stays. The caller holds the lock.
func (s *status) keep(format string, args ...any) {
	if s.tty != nil {
		s.above = fmt.Appendf(s.above, format+"\n", args...)
		s.draw()
		return
	}
	s.write(format, args...)
}

// write writes a line to a log. The caller holds the lock.
func (s *status) write(format string, args ...any) {
	if s.stamp {
		format = time.Now().Format(time.RFC3339) + "  " + format
	}
	// Nobody can be told that nobody reads it.
	_, _ = fmt.Fprintf(s.w, format+"\n", args...)
}

// say writes a line that stays.
func (s *status) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(format, args...)
}

// change has do change what is shown, and shows it on a terminal.
func (s *status) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	if s.tty != nil {
		s.draw()
	}
}

// close leaves on a terminal the lines that stay, and ends the status.
func (s *status) close() {
	s.tick.Stop()
	close(s.over)
	s.shown.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = func() []string { return nil }
	if s.tty != nil {
		s.draw()
	}
}

// Control sequences (ECMA-48).
const (
	upLines    = "\x1b[%dA"
	eraseBelow = "\x1b[J"
)

// draw draws all lines again, with those that scroll away above them, in one write. The
// caller holds the lock.
func (s *status) draw() {
	lines := s.lines()
	if s.drawn == 0 && len(lines) == 0 && len(s.above) == 0 {
		return
	}
	var b bytes.Buffer
	if s.drawn > 0 {
		fmt.Fprintf(&b, upLines, s.drawn)
		b.WriteString("\r" + eraseBelow)
	}
	b.Write(s.above)
	s.above = s.above[:0]
	columns, rows := 80, 24
	if size, err := unix.IoctlGetWinsize(int(s.tty.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 && size.Row > 0 {
		columns, rows = int(size.Col), int(size.Row)
	}
	if most := max(rows-1, 1); len(lines) > most { // the whole must fit, or it could not be drawn again
		last := lines[len(lines)-1]
		lines = append(lines[:max(most-2, 0):max(most-2, 0)], fmt.Sprintf("and %d more labs", len(lines)-most+1), last)
	}
	for _, line := range lines {
		b.WriteString(cut(line, columns-1) + "\n")
	}
	s.drawn = len(lines)
	// Nobody can be told that the terminal has gone.
	_, _ = s.tty.Write(b.Bytes())
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
