package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/ndklab/ndklab/internal/console"
	"github.com/ndklab/ndklab/internal/fabric/live"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"golang.org/x/sys/unix"
)

// A screen is a terminal with ndklab at it.
type screen struct {
	*exec.Cmd
	*console.Console
	came chan struct{} // tells that something was shown; closed when nothing comes any more
	over chan struct{} // closed when all that was shown is read

	mu    sync.Mutex // guards what follows
	shows *vt.Emulator
	raw   bytes.Buffer // all that was shown
}

// rows is the height of terminals.
const rows = 20

// showTop starts `ndklab top` at a terminal.
func showTop(t *testing.T, columns int, env []string, args ...string) *screen {
	t.Helper()
	s := &screen{Cmd: exec.Command(filepath.Join(bin, "ndklab"), append([]string{"top", "--interval", "100ms"}, args...)...),
		Console: console.Open(t, rows, uint16(columns)), came: make(chan struct{}, 1), over: make(chan struct{}), shows: vt.NewEmulator(columns, rows)}
	s.Attach(s.Cmd)
	s.Env = append(append(os.Environ(), "TERM=xterm-256color", "NO_COLOR="), env...)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	var answers sync.WaitGroup
	answers.Go(func() { _, _ = io.Copy(s.Keys, s.shows) }) // what a terminal answers, until it is closed
	go s.read()
	t.Cleanup(func() {
		if s.ProcessState == nil {
			_ = s.Process.Kill()
			_ = s.Wait()
		}
		s.TTY.Close()
		s.Keys.Close()
		<-s.over
		if err := s.shows.Close(); err != nil {
			t.Error(err)
		}
		answers.Wait()
	})
	return s
}

// read has the terminal show what comes.
func (s *screen) read() {
	defer close(s.over)
	defer close(s.came)
	for buf := make([]byte, 32<<10); ; {
		n, err := s.Keys.Read(buf)
		s.mu.Lock()
		s.raw.Write(buf[:n])
		_, _ = s.shows.Write(buf[:n]) // it cannot fail while it is open
		s.mu.Unlock()
		select {
		case s.came <- struct{}{}:
		default: // and has not been looked at
		}
		if err != nil {
			return
		}
	}
}

// text returns the lines that are shown.
func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for y := range s.shows.Height() {
		var line strings.Builder
		for x := range s.shows.Width() {
			if cell := s.shows.CellAt(x, y); cell != nil && cell.Content != "" {
				line.WriteString(cell.Content)
			} else {
				line.WriteByte(' ')
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// expect waits until a line is shown that a pattern fits.
func (s *screen) expect(t *testing.T, pattern string) {
	t.Helper()
	want := regexp.MustCompile("(?m)" + pattern)
	for deadline := time.After(time.Minute); ; {
		if want.MatchString(s.text()) {
			return
		}
		select {
		case _, ok := <-s.came:
			if !ok && !want.MatchString(s.text()) {
				t.Fatalf("nothing comes any more that %s fits:\n%s", pattern, s.text())
			}
		case <-deadline:
			t.Fatalf("no line that %s fits:\n%s", pattern, s.text())
		}
	}
}

// resize changes the window's width.
func (s *screen) resize(t *testing.T, columns int) {
	t.Helper()
	s.mu.Lock()
	s.shows.Resize(columns, rows)
	s.mu.Unlock()
	s.Resize(t, rows, uint16(columns))
}

// ends waits for the end of ndklab, and wants its exit code, what it says last, and the terminal as it was.
func (s *screen) ends(t *testing.T, code int, said string) {
	t.Helper()
	if err := s.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	if got := s.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d\n%s", got, code, s.text())
	}
	if said != "" {
		s.expect(t, said)
	}
	s.restored(t)
}

// restored wants the terminal as it was: its attributes, and the screen that there was before, with its cursor.
func (s *screen) restored(t *testing.T) {
	t.Helper()
	if _, err := s.TTY.WriteString("\r\nall that came\r\n"); err != nil {
		t.Fatal(err)
	}
	s.expect(t, "^all that came$")
	if diff := s.Changed(t); diff != "" {
		t.Errorf("the terminal is not what it was: %s", diff)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shows.IsAltScreen() || s.shows.CursorHidden() {
		t.Errorf("alternate screen: %v, no cursor: %v", s.shows.IsAltScreen(), s.shows.CursorHidden())
	}
}

// linkState returns what `ndklab link` says of a link.
func linkState(t *testing.T, link string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(bin, "ndklab"), "link", "show", link, "-o", "json").Output()
	var shown struct{ Links []report.Link }
	if err == nil {
		err = json.Unmarshal(out, &shown)
	}
	if err != nil || len(shown.Links) != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	return shown.Links[0].State
}

// A lab is shown in a terminal, and keys cut its links and pause its nodes.
func TestTop(t *testing.T) {
	lab := up(t, 2)
	s := showTop(t, 100, nil, lab)
	s.expect(t, `^> s +ready `)
	s.Press(t, "/h0\r")
	s.expect(t, `^> h0 +ready `)
	s.expect(t, "^p  ndklab pause "+lab+"/h0$")
	s.Press(t, "p")
	s.expect(t, `^>!h0 +paused `)
	s.expect(t, "^ndklab pause "+lab+"/h0: node h0 is paused$")
	s.Press(t, "u") // undo
	s.expect(t, `^> h0 +ready `)
	s.Press(t, "2/h0:\r")
	s.expect(t, "^c  ndklab link down "+lab+"/h0:eth0$")
	s.Press(t, "c")
	s.expect(t, `^>!h0:eth0 - s:p0 +down `)
	s.expect(t, `link-changed: link h0:eth0 is down$`)
	if got := linkState(t, lab+"/h0:eth0"); got != "down" {
		t.Errorf("ndklab link says %s, want down", got)
	}
	s.Press(t, "c")
	s.expect(t, `^> h0:eth0 - s:p0 +up `)
	if got := linkState(t, lab+"/h0:eth0"); got != "up" {
		t.Errorf("ndklab link says %s, want up", got)
	}
	s.resize(t, 60)
	s.expect(t, `^  link +state    rate ->    rate <-   lost/s$`)
	s.Press(t, "\x1b")
	s.expect(t, `^  h1:eth0 - s:p1 +up `)
	s.Press(t, "/h1\r")
	s.expect(t, `^> h1:eth0 - s:p1 +up `)
	s.Press(t, "q")
	s.ends(t, 0, "")
	s.mu.Lock()
	defer s.mu.Unlock()
	if !regexp.MustCompile(`\x1b\[[\d;]*31[\d;]*m`).Match(s.raw.Bytes()) {
		t.Error("trouble is not red")
	}
}

// Without colours, marks and words say the same.
func TestTopWithoutColors(t *testing.T) {
	lab := up(t, 2)
	s := showTop(t, 80, []string{"NO_COLOR=1"}, lab)
	s.expect(t, `^> s +ready `)
	s.Press(t, "jp")
	s.expect(t, `^>!h0 +paused `)
	s.Press(t, "p")
	s.expect(t, `^> h0 +ready `)
	s.Press(t, "\x03") // Ctrl-C
	s.ends(t, 0, "")
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := regexp.MustCompile(`\x1b\[[\d;]*[1-9][\d;]*m`).Find(s.raw.Bytes()); found != nil {
		t.Errorf("colours: %q", found)
	}
}

// However it ends, the terminal is what it was.
func TestTopEnds(t *testing.T) {
	down := func(t *testing.T, _ *screen, lab string) {
		if out, err := exec.Command(filepath.Join(bin, "ndklab"), "down", lab).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, c := range []struct {
		name string
		end  func(t *testing.T, s *screen, lab string)
		code int
		said string
	}{
		{"SIGTERM", func(t *testing.T, s *screen, _ string) { signalTo(t, s.Process.Pid, syscall.SIGTERM) }, 0, ""},
		{"SIGINT", func(t *testing.T, s *screen, _ string) { signalTo(t, s.Process.Pid, syscall.SIGINT) }, 0, ""},
		{"the lab's", down, 2, `^ndklab: lab .* was taken down`},
		{"the program's", func(t *testing.T, s *screen, _ string) { signalTo(t, monitorOf(t, s.Process.Pid), syscall.SIGKILL) }, 4, `^ndklab: ndklab-monitor died \(signal: killed\)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			lab := bring(t, 1)
			t.Cleanup(func() {
				_ = exec.Command(filepath.Join(bin, "ndklab"), "down", lab).Run() // unless it is down
			})
			s := showTop(t, 80, nil, lab)
			s.expect(t, `^> s +ready `)
			c.end(t, s, lab)
			s.ends(t, c.code, c.said)
		})
	}
	t.Run("ndklab killed", func(t *testing.T) {
		s := showTop(t, 80, nil, up(t, 1))
		s.expect(t, `^> s +ready `)
		pid := monitorOf(t, s.Process.Pid)
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		signalTo(t, s.Process.Pid, syscall.SIGKILL)
		_ = s.Wait()                                                                                                // it was killed
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000); n != 1 || err != nil { // until the other has ended
			t.Fatalf("%s goes on: %d, %v", "ndklab-monitor", n, err)
		}
		s.restored(t)
	})
}

func signalTo(t *testing.T, pid int, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
}

// wantConfined says so unless the program that a command has started is confined.
func wantConfined(t *testing.T, c *command) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", monitorOf(t, c.Process.Pid)))
	if err != nil || !strings.Contains(string(status), "\nSeccomp:\t2\n") {
		t.Errorf("who serves is not confined: %v\n%s", err, status)
	}
}

// monitorOf returns the process id of the program that ndklab has started.
func monitorOf(t *testing.T, pid int) int {
	t.Helper()
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range children {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // a thread that has ended
		}
		var child int
		if n, _ := fmt.Sscan(string(text), &child); n == 1 {
			return child
		}
	}
	t.Fatalf("process %d has no child", pid)
	return 0
}

// Where there is no terminal, or it is a dumb one, tables are printed once.
func TestTopOnce(t *testing.T) {
	lab := up(t, 2)
	run := func(args ...string) []byte {
		t.Helper()
		out, err := exec.Command(filepath.Join(bin, "ndklab"), append([]string{"top", lab, "--interval", "100ms"}, args...)...).Output()
		if err != nil || bytes.ContainsRune(out, '\x1b') {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}
	for _, args := range [][]string{nil, {"--once"}} {
		out := string(run(args...))
		for _, want := range []string{`(?m)^` + lab + `, up 0:00:\d\d, nodes:$`, `(?m)^   h0 +ready `, `(?m)^   h1:eth0 - s:p1 +up `, `(?m)^flows: no workload has clients now$`, `(?m)^QPs: there are none$`} {
			if !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("%v: no %s in\n%s", args, want, out)
			}
		}
	}
	var shown struct {
		Map    live.Map
		Sample live.Sample
	}
	if err := json.Unmarshal(run("-o", "json"), &shown); err != nil {
		t.Fatal(err)
	}
	// The lab's clock is read when each of the two looks is answered, the first of which may take its time.
	if len(shown.Map.Nodes) != 3 || len(shown.Sample.Links) != 2 || shown.Sample.Over <= 0 {
		t.Errorf("%+v", shown)
	}
	s := showTop(t, 80, []string{"TERM=dumb"}, lab)
	s.ends(t, 0, `^QPs: there are none`)
	s = showTop(t, 80, nil, "nosuchlab")
	s.ends(t, 2, `^ndklab: lab nosuchlab is not up`)
}
