package chaos

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A fault befalls a lab, or the command that is under way.
type fault struct {
	name string
	// during names the moments at which it makes sense; nil is all.
	during []string
	// root says that it needs root.
	root bool
	// needs has a shape get what the fault is about.
	needs func(*shape)
	// prepare is called before the command is started; may be nil.
	prepare func(t *trial)
	// strike does the harm; it returns false if there was nothing to harm any more.
	strike func(t *trial) (struck bool)
	// ends says that the lab ends by it, without anybody's help.
	ends bool
	// command says that it befalls the command, and not the lab.
	command bool
	// stuck says that the lab's making may not come to an end by itself.
	stuck bool
}

// moments are those at which the fault may strike.
func (f *fault) moments() []moment {
	return slices.DeleteFunc(slices.Clone(moments), func(m moment) bool {
		return f.during != nil && !slices.Contains(f.during, m.name) || !chosenMoments.MatchString(m.name)
	})
}

var lives = []string{"exec", "capture", "verbs"} // moments at which the lab is up and stays up

var faults = []fault{
	{name: "kill-command", strike: toCommand(unix.SIGKILL), command: true},
	{name: "interrupt", strike: toCommand(unix.SIGINT), command: true},
	{name: "kill-guardian", strike: kill("ndklab-guardian")},
	{name: "kill-supervisor", strike: kill("ndklab-supervisor"), ends: true},
	{name: "kill-agent", strike: kill("ndklab-node")},
	{name: "kill-engine", strike: kill("ndklab-linkem"), ends: true, needs: func(s *shape) { s.impaired = true }},
	{name: "kill-recorder", strike: kill("ndklab-recorder"), needs: func(s *shape) { s.captures = true }},
	{name: "kill-guardian-and-supervisor", strike: func(t *trial) bool {
		return kill("ndklab-guardian")(t) && kill("ndklab-supervisor")(t)
	}, ends: true},
	{name: "interrupt-twice", strike: func(t *trial) bool { return toCommand(unix.SIGINT)(t) && again(t, toCommand(unix.SIGINT)) }, command: true},
	{name: "interrupt-and-kill", strike: func(t *trial) bool { return toCommand(unix.SIGINT)(t) && again(t, toCommand(unix.SIGKILL)) }, command: true},
	{name: "terminate", strike: toCommand(unix.SIGTERM), command: true},
	{name: "stop-agent", strike: signal("ndklab-node", unix.SIGSTOP), stuck: true},
	{name: "pause-node", during: lives, strike: func(t *trial) bool { t.must("pause", t.lab+"/a"); return true }},
	{name: "out-of-memory", root: true, during: lives, needs: func(s *shape) { s.limited = true }, strike: outOfMemory},
	{name: "full-disk", during: []string{"up", "run"}, root: true, prepare: fullDisk, strike: nothing, needs: func(s *shape) { s.decisions = true }},
	{name: "broken-state", strike: breakState},
	{name: "daemon", during: lives, strike: daemonise},
	{name: "daemon-and-kill-supervisor", during: lives, strike: func(t *trial) bool { return daemonise(t) && kill("ndklab-supervisor")(t) }, ends: true},
	{name: "closed-output", prepare: closeOutput, strike: nothing},
}

// nothing is for faults that were there before the command.
func nothing(*trial) bool { return true }

// toCommand sends a signal to the command that is under way.
func toCommand(sig unix.Signal) func(*trial) bool {
	return func(t *trial) bool {
		err := t.command.Process.Signal(sig)
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		return err == nil
	}
}

// again strikes a second time, a little later.
func again(t *trial, strike func(*trial) bool) bool {
	<-time.After(time.Duration(t.random.Int64N(int64(20 * time.Millisecond))))
	strike(t) // or the first time was enough
	return true
}

// kill kills a part of the lab, by its name.
func kill(part string) func(*trial) bool { return signal(part, unix.SIGKILL) }

// signal sends a signal to a part of the lab, by its name. If there is none yet it is
// waited for while the command runs.
func signal(part string, sig unix.Signal) func(*trial) bool {
	return func(t *trial) bool {
		for {
			ended := t.commandEnded()
			all := t.processes()
			t.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			for _, p := range all {
				if strings.HasPrefix(p.args, part+" ") && !p.forked() && t.signal(p, sig) {
					return true
				}
			}
			if ended {
				return false
			}
		}
	}
}

// outOfMemory has a process in node a use up the node's memory.
func outOfMemory(t *trial) bool {
	out, code := t.run("exec", t.lab+"/a", "--", "tail", "/dev/zero")
	// The kernel may take the agent for the culprit, and ndklab then says so.
	if code != 137 && code != 125 {
		t.Fatalf("a process that uses up its memory ended with exit code %d: %s", code, out)
	}
	return true
}

// daemonise leaves a process in node a that has nothing to do with us any more: in
// a session of its own, deaf to signals, without our files or our environment.
func daemonise(t *trial) bool {
	const daemon = `(env -i setsid sh -c 'trap "" HUP INT TERM; echo > daemon; while :; do sleep 5; done' </dev/null >/dev/null 2>&1 &) &`
	if out, code := t.run("exec", t.lab+"/a", "--", "sh", "-c", daemon); code != 0 {
		t.Fatalf("exec: exit code %d: %s", code, out)
	}
	t.eventually(func() string {
		if _, err := os.Stat(filepath.Join(t.dir, "daemon")); err != nil {
			return err.Error()
		}
		return ""
	})
	return true
}

// breakState damages the lab's state file.
func breakState(t *trial) bool {
	path := filepath.Join(t.state, t.lab+".json")
	var err error
	switch t.random.IntN(5) {
	case 0:
		err = os.WriteFile(path, []byte("\x00\xff{"), 0o600)
	case 1:
		err = os.Truncate(path, 0)
	case 2:
		err = os.WriteFile(path, []byte(`{"lab":"another","supervisor":1,"log":"/etc/passwd"}`), 0o600)
	case 3:
		err = os.Remove(path)
	case 4: // as editors do
		if err = os.WriteFile(path+"~", []byte("edited"), 0o600); err == nil {
			err = os.Rename(path+"~", path)
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, t.user.uid, t.user.uid); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return true
}

// closeOutput gives the command a standard output, or error, or both, that nobody reads, or that
// takes nothing.
func closeOutput(t *trial) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	if t.random.IntN(2) == 0 {
		w.Close()
		if w, err = os.OpenFile("/dev/full", os.O_WRONLY, 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { w.Close() })
	which := t.random.IntN(3)
	if which != 1 {
		t.command.Stdout = w
	}
	if which != 0 {
		t.command.Stderr = w
	}
}

// fullDisk puts the state directory, and the directory that the command works in, on
// disks that are full or nearly so, which nobody but this trial sees.
func fullDisk(t *trial) {
	t.ownMounts()
	pages := t.random.IntN(6)
	t.smallDisk(t.dir, pages)
	if t.user.uid == 0 {
		if err := os.MkdirAll(t.state, 0o700); err != nil {
			t.Fatal(err)
		}
		t.smallDisk(t.state, pages)
		return
	}
	t.environment = append(t.environment, "XDG_RUNTIME_DIR="+t.dir)
	t.command.Env = t.environment
	t.state = filepath.Join(t.dir, "ndklab")
}
