package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
)

var env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C"}

// run runs a command with stdin as its input, and returns its status and what
// it wrote.
func run(t *testing.T, a *Agent, cmd Command, stdin string) (status int, stdout, stderr string) {
	t.Helper()
	in, inW := pipe(t)
	outR, out := pipe(t)
	errR, errW := pipe(t)
	go func() {
		_, _ = io.WriteString(inW, stdin)
		inW.Close()
	}()
	read := func(r *os.File) <-chan string {
		text := make(chan string, 1)
		go func() {
			b, _ := io.ReadAll(r)
			text <- string(b)
		}()
		return text
	}
	outText, errText := read(outR), read(errR)
	if cmd.Env == nil {
		cmd.Env = env
	}
	status, err := a.Exec(t.Context(), cmd, in, out, errW)
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	errW.Close()
	return status, <-outText, <-errText
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	// A test that goes wrong is not to wait for ever.
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return r, w
}

func sh(script string, args ...string) Command {
	return Command{Args: append([]string{"sh", "-c", script, "sh"}, args...)}
}

func TestExecStatus(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(dir, "plain")
	script := filepath.Join(dir, "script")
	if err := errors.Join(os.WriteFile(plain, []byte("x"), 0o644), os.WriteFile(script, []byte("exit 3\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		cmd    Command
		status int
		stdout string
		stderr string // a part of it
	}{
		{"success", Command{Args: []string{"true"}}, 0, "", ""},
		{"status", sh("exit 42"), 42, "", ""},
		{"signal", sh("kill -KILL $$"), 128 + 9, "", ""},
		{"arguments", sh(`echo "$1,$2"`, "a b", "c"), 0, "a b,c\n", ""},
		{"standard error", sh("echo oops >&2"), 0, "", "oops\n"},
		{"directory", Command{Args: []string{"pwd"}, Dir: "/usr"}, 0, "/usr\n", ""},
		{"relative to the directory", Command{Args: []string{"bin/env"}, Dir: "/usr", Env: []string{"A=1"}}, 0, "A=1\n", ""},
		{"relative PATH", Command{Args: []string{"env"}, Dir: "/usr", Env: []string{"PATH=bin"}}, 0, "PATH=bin\n", ""},
		{"last PATH counts", Command{Args: []string{"true"}, Env: []string{"PATH=/nowhere", "PATH=/usr/bin"}}, 0, "", ""},
		{"not found", Command{Args: []string{"no-such-command"}}, 127, "", "n: no-such-command: command not found\n"},
		{"no such file", Command{Args: []string{"/no/such"}}, 127, "", "n: /no/such: no such file or directory\n"},
		{"not executable", Command{Args: []string{plain}}, 126, "", "permission denied\n"},
		{"not executable in PATH", Command{Args: []string{"plain"}, Env: []string{"PATH=" + dir}}, 126, "", "n: plain: permission denied\n"},
		{"directory as command", Command{Args: []string{dir}}, 126, "", "permission denied\n"},
		{"no binary", Command{Args: []string{script}}, 126, "", "exec format error\n"},
		{"no PATH", Command{Args: []string{"true"}, Env: []string{"A=1"}}, 127, "", "command not found\n"},
		{"host name", Command{Args: []string{"uname", "-n"}}, 0, "n\n", ""},
		{"interfaces", Command{Args: []string{"ls", "/sys/class/net"}}, 0, "lo\n", ""},
		{"cgroups stay visible", sh("stat -c %d:%i /sys/fs/cgroup"), 0, identity(t, "/sys/fs/cgroup"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, stdout, stderr := run(t, a, test.cmd, "")
			if status != test.status || stdout != test.stdout ||
				!strings.HasSuffix(stderr, test.stderr) || (test.stderr == "") != (stderr == "") {
				t.Errorf("got %d %q %q, want %d %q %q", status, stdout, stderr, test.status, test.stdout, test.stderr)
			}
		})
	}
}

func TestExecRefused(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	r, _ := pipe(t)
	for _, test := range []struct {
		name  string
		cmd   Command
		files []*os.File
		want  string
	}{
		{"nothing", Command{}, nil, "node n: exec: no command"},
		{"files", sh("true"), []*os.File{r, r, r, r}, "node n: exec: 4 files, expected 0 to 3"},
		{"directory", Command{Args: []string{"true"}, Dir: "/no/such"}, nil, "node n: working directory /no/such: no such directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := a.Exec(t.Context(), test.cmd, test.files...)
			var e *control.Error
			if !errors.As(err, &e) || e.Code != control.Usage || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestExecInputAndBigOutput(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	data := strings.Repeat("0123456789abcde\n", 1<<16) // 1 MiB: no pipe holds it
	status, stdout, stderr := run(t, a, Command{Args: []string{"cat"}}, data)
	if status != 0 || stdout != data || stderr != "" {
		t.Errorf("status %d, %d bytes of %d, %q", status, len(stdout), len(data), stderr)
	}
}

func TestExecWithoutFiles(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	status, err := a.Exec(t.Context(), sh("cat; echo x; echo y >&2; readlink /proc/self/fd/0 | grep -q null"))
	if status != 0 || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
}

// TestExecEnvironment checks that a command has of the supervisor's environment what nodes
// have, unless it is given another, and not what the agent has been given for itself.
func TestExecEnvironment(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n", Env: map[string]string{"OF_THE_NODE": "n"}})
	t.Setenv("GOMAXPROCS", "7")
	for given, want := range map[string]string{"": "-\nn\n", "7": "7\nn\n"} {
		cmd := sh("echo ${GOMAXPROCS--}; echo $OF_THE_NODE")
		if given != "" {
			cmd.Env = os.Environ()
		}
		r, w := pipe(t)
		if status, err := a.Exec(t.Context(), cmd, devNull(t), w); status != 0 || err != nil {
			t.Fatalf("status %d, %v", status, err)
		}
		w.Close()
		if got, err := io.ReadAll(r); string(got) != want || err != nil {
			t.Errorf("GOMAXPROCS=%s: %q, %v, want %q", given, got, err, want)
		}
	}
}

// TestExecDescriptors checks that a command gets nothing but its standard files.
func TestExecDescriptors(t *testing.T) {
	open, err := unix.Dup(0) // as a careless parent leaves it to its children
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(open)
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	_, stdout, _ := run(t, a, Command{Args: []string{"ls", "-l", "/proc/self/fd"}}, "")
	for line := range strings.Lines(stdout) {
		// ... 0 -> pipe:[4711]; and one that is the directory which ls reads
		_, fd, ok := strings.Cut(line, " -> ")
		if ok && !strings.HasPrefix(fd, "pipe:") && !strings.HasPrefix(fd, "/proc/") || strings.Count(stdout, " -> ") != 4 {
			t.Fatalf("descriptors:\n%s", stdout)
		}
	}
}

// TestExecEndOfOutput closes the command's output while it runs on: the reader
// must see the end of it at once, which it does not if the agent still holds the
// pipe.
func TestExecEndOfOutput(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	in, inW := pipe(t)
	outR, out := pipe(t)
	done := make(chan error, 1)
	go func() {
		_, err := a.Exec(t.Context(), Command{Args: []string{"sh", "-c", "echo a; exec >&-; read x"}, Env: env}, in, out)
		done <- err
	}()
	first := make([]byte, 2)
	if _, err := io.ReadFull(outR, first); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if rest, err := io.ReadAll(outR); len(rest) > 0 || err != nil {
		t.Errorf("after the end: %q, %v", rest, err)
	}
	inW.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// running starts a shell script that first writes "ready", and waits for that. The
// file that it returns has the output that follows; the channel gives the status,
// or -1.
func running(t *testing.T, ctx context.Context, a *Agent, id, script string) (*os.File, <-chan int) {
	t.Helper()
	outR, out := pipe(t)
	result := make(chan int, 1)
	go func() {
		status, err := a.Exec(ctx, Command{ID: id, Args: []string{"sh", "-c", script}, Env: env}, devNull(t), out)
		if err != nil {
			status = -1
		}
		out.Close()
		result <- status
	}()
	line := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(outR, line); err != nil || string(line) != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return outR, result
}

func devNull(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestExecIgnoresNoSignal starts a node as nohup, and a shell's "&", would have it started:
// commands in it ignore nothing of what they would not ignore elsewhere.
func TestExecIgnoresNoSignal(t *testing.T) {
	for _, s := range []os.Signal{unix.SIGHUP, unix.SIGINT} {
		if !signal.Ignored(s) {
			signal.Ignore(s)
			defer func() { // Reset would not: it undoes Notify alone
				taken := make(chan os.Signal, 1)
				signal.Notify(taken, s)
				signal.Stop(taken)
			}()
		}
	}
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	outR, out := pipe(t)
	status, err := a.Exec(t.Context(), Command{Args: []string{"grep", "SigIgn", "/proc/self/status"}, Env: env}, devNull(t), out)
	out.Close()
	var ignored uint64 // signal n in bit n-1
	if _, scanErr := fmt.Fscanf(outR, "SigIgn:\t%x", &ignored); status != 0 || err != nil || scanErr != nil {
		t.Fatalf("status %d, %v, %v", status, err, scanErr)
	}
	if ignored&(1<<(unix.SIGHUP-1)|1<<(unix.SIGINT-1)) != 0 {
		t.Errorf("ignores %#x", ignored)
	}
}

// TestSignal's script, as others here, sleeps in short pieces: a shell that gets
// a signal just before it starts a command acts on it after that.
func TestSignal(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	out, result := running(t, t.Context(), a, "mine", `trap 'echo hup; exit 5' HUP; echo ready; while :; do sleep 0.05; done`)
	if err := a.Signal(t.Context(), "other", unix.SIGHUP); err == nil || !strings.Contains(err.Error(), `no command "other" runs`) {
		t.Errorf("a signal to nothing: %v", err)
	}
	if err := a.Signal(t.Context(), "mine", unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if status := <-result; status != 5 {
		t.Errorf("status %d", status)
	}
	if rest, err := io.ReadAll(out); string(rest) != "hup\n" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if err := a.Signal(t.Context(), "mine", unix.SIGHUP); err == nil {
		t.Error("a signal to a command that has ended succeeded")
	}
}

// TestSignalAtOnce sends the signal before the command can have started: it must
// not get lost.
func TestSignalAtOnce(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	result := make(chan int, 1)
	go func() {
		status, _ := a.Exec(t.Context(), Command{ID: "x", Args: []string{"sleep", "100"}, Env: env})
		result <- status
	}()
	for {
		err := a.Signal(t.Context(), "x", unix.SIGTERM)
		if err == nil {
			break
		}
		if !strings.Contains(err.Error(), "no command") {
			t.Fatal(err)
		}
	}
	if status := <-result; status != 128+15 {
		t.Errorf("status %d", status)
	}
}

func TestExecTwice(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	_, result := running(t, t.Context(), a, "x", "echo ready; exec sleep 100")
	if _, err := a.Exec(t.Context(), Command{ID: "x", Args: []string{"true"}, Env: env}); err == nil {
		t.Error("two commands of one ID")
	}
	if err := a.Signal(t.Context(), "x", unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if status := <-result; status != 128+9 {
		t.Errorf("status %d", status)
	}
	if status, err := a.Exec(t.Context(), Command{ID: "x", Args: []string{"true"}, Env: env}); status != 0 || err != nil {
		t.Errorf("the ID is not free again: %d, %v", status, err)
	}
}

// TestGiveUp ends the context of commands: their whole group must go, be it
// willing or not. The end of its output shows that it is gone.
func TestGiveUp(t *testing.T) {
	for _, test := range []struct{ name, script, last string }{
		{"willing", "trap 'echo bye; exit' TERM; echo ready; while :; do sleep 0.05; done", "bye\n"},
		{"ignores SIGTERM", "trap '' TERM; echo ready; sleep 100", ""},
		{"background ignores", "(trap '' TERM; echo ready; sleep 100) & sleep 100", ""},
		{"stopped", "echo ready; kill -STOP $$", ""},
		{"leader ends, child does not", "trap 'exit 0' TERM; (trap '' TERM; echo ready; exec sleep 100) & wait", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Lab: "l", Name: "n"}
			if test.last != "" {
				cfg.Name = patient
			}
			a, _ := started(t, cfg)
			ctx, cancel := context.WithCancel(t.Context())
			out, result := running(t, ctx, a, "", test.script)
			cancel()
			if status := <-result; status != -1 {
				t.Errorf("status %d", status)
			}
			if rest, err := io.ReadAll(out); string(rest) != test.last || err != nil {
				t.Errorf("last words %q, %v", rest, err)
			}
		})
	}
}

// TestAgentEndsWithCommands ends an agent and expects its command to end with it,
// in good order where there is time for that.
func TestAgentEndsWithCommands(t *testing.T) {
	for _, test := range []struct {
		name         string
		end          func(*Agent)
		script, last string
	}{
		{"killed", (*Agent).Kill, "echo ready; exec sleep 100", ""},
		{"channel closed", func(a *Agent) { a.control.Close() }, "trap 'echo bye; exit' TERM; echo ready; while :; do sleep 0.05; done", "bye\n"},
		{"channel closed, unwilling", func(a *Agent) { a.control.Close() }, "trap '' TERM; echo ready; exec sleep 100", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Lab: "l", Name: "n"}
			if test.last != "" {
				cfg.Name = patient
			}
			a, _ := started(t, cfg)
			out, result := running(t, t.Context(), a, "", test.script)
			test.end(a)
			if status := <-result; status != -1 {
				t.Errorf("status %d", status)
			}
			if rest, err := io.ReadAll(out); string(rest) != test.last || err != nil {
				t.Errorf("last words %q, %v", rest, err)
			}
			awaitDone(t, a)
		})
	}
}

// TestExecStoppedAgent gives up on an agent that does not answer.
func TestExecStoppedAgent(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	if _, err := a.Exec(t.Context(), Command{Args: []string{"true"}, Env: env}); err != nil {
		t.Fatal(err)
	}
	if err := stop(a); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := a.Exec(ctx, Command{Args: []string{"true"}, Env: env}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	a.Kill()
	awaitDone(t, a)
	if got := a.Exit(); got.Signal != unix.SIGKILL {
		t.Errorf("exit %v", got)
	}
	if _, err := a.Exec(t.Context(), Command{Args: []string{"true"}, Env: env}); !errors.Is(err, control.ErrClosed) {
		t.Errorf("after its end: %v", err)
	}
}

func TestExecManyAtOnce(t *testing.T) {
	a, _ := started(t, Config{Lab: "l", Name: "n"})
	const n = 20
	results := make(chan int, n)
	for i := range n {
		go func() {
			status, err := a.Exec(t.Context(), Command{Args: []string{"sh", "-c", "exit $0", string(rune('0' + i%10))}, Env: env})
			if err != nil || status != i%10 {
				t.Errorf("command %d: %d, %v", i, status, err)
			}
			results <- status
		}()
	}
	for range n {
		<-results
	}
}

// identity returns the output of `stat -c %d:%i DIR`.
func identity(t *testing.T, dir string) string {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d:%d\n", stat.Dev, stat.Ino)
}
