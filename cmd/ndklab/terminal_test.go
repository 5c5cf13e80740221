package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/console"
	"github.com/ndklab/ndklab/internal/need"
)

// upForTest is a lab of a test, with nodes a and b and the link between their eth0.
func upForTest(t *testing.T, name string) (labName string) {
	t.Helper()
	need.Labs(t, canRun())
	labName = fmt.Sprintf("cli-%s-%d", name, os.Getpid())
	file := filepath.Join(t.TempDir(), "lab.ndklab.yaml")
	text := fmt.Sprintf("name: %s\ntopology:\n  nodes: {a: {}, b: {}}\n  links: [{endpoints: [\"a:eth0\", \"b:eth0\"]}]\n", labName)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ndklab", "up", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		// As a rule a test takes it down, or kills it.
		_ = exec.Command("ndklab", "down", labName).Run()
	})
	return labName
}

// A screen is a terminal with ndklab at it.
type screen struct {
	*exec.Cmd
	*console.Console
	shown []byte // that no expect has passed
}

// show starts ndklab at a terminal of 33 rows and 99 columns.
func show(t *testing.T, args ...string) *screen {
	t.Helper()
	return showCommand(t, exec.Command("ndklab", args...))
}

// showCommand is show of any command.
func showCommand(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	s := &screen{Cmd: cmd, Console: console.Open(t, 33, 99)}
	s.Attach(cmd)
	s.Env = append(os.Environ(), "SHELL=/bin/sh", "ENV=", "PS1=? ", "TERM=dumb")
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.Keys.SetReadDeadline(time.Now().Add(60 * time.Second)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.ProcessState == nil {
			_ = s.Process.Kill()
			_ = s.Wait()
		}
	})
	return s
}

// expect reads up to and with text, and returns what is before that.
func (s *screen) expect(t *testing.T, text string) string {
	t.Helper()
	for buf := make([]byte, 4096); ; {
		if before, after, ok := bytes.Cut(s.shown, []byte(text)); ok {
			s.shown = after
			return string(before)
		}
		n, err := s.Keys.Read(buf)
		s.shown = append(s.shown, buf[:n]...)
		if err != nil {
			t.Fatalf("no %q: %v: %q", text, err, s.shown)
		}
	}
}

// ended waits for ndklab to end, and wants its exit code and the terminal as it was.
func (s *screen) ended(t *testing.T, code int) {
	t.Helper()
	if err := s.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	if got := s.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d: %q", got, code, s.shown)
	}
	if diff := s.Changed(t); diff != "" {
		t.Errorf("the terminal is not what it was: %s", diff)
	}
}

// A shell in a node has a terminal there, of the size of ours, with jobs.
func TestTerminal(t *testing.T) {
	labName := upForTest(t, "terminal")
	s := show(t, "shell", labName+"/a", "--shell", "/bin/sh")
	s.expect(t, "["+labName+"/a] # ")
	s.Press(t, "tty; stty size\n")
	s.expect(t, "/dev/pts/")
	s.expect(t, "33 99\r\n")
	s.Resize(t, 44, 123)
	s.Press(t, "until [ \"$(stty size)\" = '44 123' ]; do :; done; echo si''ze\n")
	s.expect(t, "size\r\n")
	s.Press(t, "sh -c 'echo be''gins; exec cat'\n")
	s.expect(t, "begins\r\n")
	s.Press(t, "\x1a") // Ctrl-Z
	s.expect(t, "Stopped")
	s.expect(t, "# ")
	s.Press(t, "fg\n")
	s.Press(t, "copied\n") // by what has the foreground
	s.expect(t, "copied\r\n")
	s.expect(t, "copied\r\n")
	s.Press(t, "\x03") // Ctrl-C
	s.expect(t, "^C")
	s.expect(t, "# ")
	s.Press(t, "echo $?; exit 7\n")
	s.expect(t, "130\r\n")
	s.ended(t, 7)
}

// A command in a node is ended by Ctrl-C, in whose terminal's foreground it is, and
// what it has written last is shown.
func TestTerminalInterrupt(t *testing.T) {
	labName := upForTest(t, "interrupt-terminal")
	s := show(t, "exec", labName+"/a", "--", "sh", "-c", "trap 'seq 2000; exit 9' INT; echo ready; while :; do sleep 0.1; done")
	s.expect(t, "ready\r\n")
	if s.Changed(t) == "" {
		t.Error("our terminal is not raw")
	}
	s.Press(t, "\x03")
	s.expect(t, "\n2000\r\n")
	s.ended(t, 9)
}

// Without a terminal in the node, the command has ours, and its name is ours too.
func TestNoTTY(t *testing.T) {
	labName := upForTest(t, "no-tty")
	names := map[string]bool{}
	for _, args := range [][]string{{"exec", labName + "/a", "tty"}, {"exec", "-T", labName + "/a", "tty"}} {
		s := show(t, args...)
		own, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", s.TTY.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		s.expect(t, "/dev/pts/")
		name := "/dev/pts/" + s.expect(t, "\r\n")
		names[name] = true
		if plain := len(args) == 4; (name == own) != plain {
			t.Errorf("%s: the command is at %s, ndklab at %s", args, name, own)
		}
		s.ended(t, 0)
	}
}

// Standard files that are no terminal stay what they are.
func TestTerminalAndFiles(t *testing.T) {
	labName := upForTest(t, "terminal-files")
	s := show(t, "exec", labName+"/a", "--", "true") // for a screen
	s.ended(t, 0)
	var stderr bytes.Buffer
	again := &screen{Console: s.Console}
	again.Cmd = exec.Command("ndklab", "exec", labName+"/a", "--", "sh", "-c", "tty; tty <&1 >&2; echo problem >&2")
	again.Stdin, again.Stdout, again.Stderr = s.TTY, s.TTY, &stderr
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	again.expect(t, "/dev/pts/")
	again.ended(t, 0)
	if !strings.HasPrefix(stderr.String(), "/dev/pts/") || !strings.HasSuffix(stderr.String(), "\nproblem\n") {
		t.Errorf("standard error %q", &stderr)
	}
}

// When the lab goes, by force or not, the terminal is what it was.
func TestTerminalOfLabThatGoes(t *testing.T) {
	for _, how := range []struct {
		name string
		code int
		end  func(t *testing.T, lab string) error
	}{
		{"down", exitUsage, func(_ *testing.T, lab string) error { return exec.Command("ndklab", "down", lab).Run() }},
		{"killed", exitExecFault, func(t *testing.T, lab string) error {
			return syscall.Kill(supervisorOf(t, lab), syscall.SIGKILL)
		}},
	} {
		t.Run(how.name, func(t *testing.T) {
			labName := upForTest(t, "terminal-"+how.name)
			s := show(t, "exec", labName+"/a", "--", "sh", "-c", "echo ready; exec sleep 1000")
			s.expect(t, "ready\r\n")
			if err := how.end(t, labName); err != nil {
				t.Fatal(err)
			}
			s.ended(t, how.code)
		})
	}
}

// A signal to ndklab is the command's, also at a terminal.
func TestTerminalSignal(t *testing.T) {
	labName := upForTest(t, "terminal-signal")
	s := show(t, "exec", labName+"/a", "--", "sh", "-c", "echo ready; exec sleep 1000")
	s.expect(t, "ready\r\n")
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.ended(t, 128+int(syscall.SIGTERM))
}

// supervisorOf is the process id of a lab's supervisor.
func supervisorOf(t *testing.T, labName string) int {
	t.Helper()
	out, err := exec.Command("ps", "-eo", "pid=,args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		var pid int
		var part, name string
		if n, err := fmt.Sscan(line, &pid, &part, &name); n == 3 && err == nil && part == "ndklab-supervisor" && name == labName {
			return pid
		}
	}
	t.Fatalf("no supervisor of %s in\n%s", labName, out)
	return 0
}

// At a terminal, down --all says which labs would go, and asks. The labs are in
// namespaces of the test, where there are no others.
func TestDownAllAsks(t *testing.T) {
	if !canRun() || os.Geteuid() != 0 {
		t.Skip("it needs labs and a folder /run of its own")
	}
	file := filepath.Join(t.TempDir(), "lab.ndklab.yaml")
	if err := os.WriteFile(file, []byte("topology:\n  nodes: {a: , b: }\n  links: [{endpoints: [\"a:eth0\", \"b:eth0\"]}]\nlabels: {ci: 42}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("cli-ask-%d", os.Getpid())
	for _, test := range []struct{ flags, answer, want, left string }{
		{"", "n\n", "no lab is taken down", name},
		{"", "\n", "no lab is taken down", name},
		{"", "Yes\n", "lab " + name + " is down", ""},
		{" --yes", "", "lab " + name + " is down", ""},
		{" < /dev/null", "", "lab " + name + " is down", ""}, // a script
	} {
		s := showCommand(t, exec.Command("unshare", "-m", "-n", "sh", "-c", "mount -t tmpfs none /run && ndklab up --name "+name+" "+file+
			"; ndklab down --all"+test.flags+"; echo status $?; ndklab ls; ndklab down --all --yes; echo end"))
		if test.answer != "" {
			s.expect(t, "  "+name+": ready, nodes: 2 (ci=42)\r\nTake down 1 lab? [y/N] ")
			s.Press(t, test.answer)
		}
		s.expect(t, test.want)
		if test.left != "" {
			s.expect(t, "status 1")
			s.expect(t, test.left+"  ready")
		} else {
			s.expect(t, "status 0")
			s.expect(t, "no lab is up")
		}
		s.expect(t, "end")
		if err := s.Wait(); err != nil {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
