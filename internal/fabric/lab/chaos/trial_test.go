package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const (
	// soon is within which time nothing is left, usually.
	soon = 2 * time.Second
	// patience bounds what has no limit but a busy machine.
	patience = 30 * time.Second
)

// A user runs a trial's commands.
type user struct {
	name string
	uid  int
}

// users are those that this process can be.
func users() []user {
	if os.Geteuid() != 0 {
		return []user{{"user", os.Geteuid()}}
	}
	return []user{{"root", 0}, {"nobody", 65534}}
}

// A trial is one lab that something happens to. Its parts are drawn when it is made.
type trial struct {
	*testing.T
	random *rand.Rand
	user   user
	moment moment
	fault  fault
	shape  shape
	after  time.Duration // from the start of the command to the fault

	lab  string
	dir  string // which commands work in
	file string // the topology's, in dir
	// changed is another file, of the same lab with other nodes and links.
	changed string
	state   string // the user's state directory
	mark    string // in the environment of every process
	host    string // the host's PID namespace

	environment []string
	log         *os.File            // what all commands print
	namespaces  map[string]*os.File // the lab's PID namespace, once it is known
	command     *exec.Cmd           // which is under way at the moment
	ended       chan struct{}       // closed when it is not any more
	disks       []string            // small ones, where they are mounted
}

// draw makes trial number n of those with a seed.
func draw(seed uint64, n int, faults []fault) *trial {
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	coin := func() bool { return random.IntN(2) == 0 }
	all := users()
	t := &trial{random: random, fault: faults[n%len(faults)], user: all[(n%len(faults)+n/len(faults))%len(all)]}
	if t.fault.root {
		t.user = all[0]
		if t.fault.prepare != nil { // it is root who prepares, for anybody
			t.user = all[random.IntN(len(all))]
		}
	}
	possible := t.fault.moments()
	t.moment = possible[random.IntN(len(possible))]
	t.shape = shape{impaired: coin(), external: coin(), fabric: coin(), limited: coin(), captures: coin(), decisions: coin()}
	if t.fault.needs != nil {
		t.fault.needs(&t.shape)
	}
	t.after = time.Duration(random.Float64() * float64(t.moment.usual))
	return t
}

func (t *trial) name() string {
	return fmt.Sprintf("%s/%s/%s/%s/%v", t.fault.name, t.moment.name, t.user.name, t.shape, t.after.Round(time.Millisecond))
}

// prepare gives the trial a directory and a lab's name that nobody else has.
func (t *trial) prepare(tt *testing.T, n int) {
	t.T = tt
	t.lab = fmt.Sprintf("chaos-%d-%d", os.Getpid(), n)
	t.dir = filepath.Join(scratch, t.lab)
	t.file = t.lab + ".ndklab.yaml"
	t.mark = "HOME=" + t.dir // which all of a lab's processes are left with
	t.namespaces = map[string]*os.File{}
	t.state = "/run/ndklab"
	if t.user.uid != 0 {
		t.state = filepath.Join(scratch, fmt.Sprintf("run-%d", t.user.uid))
	}
	var err error
	t.host, err = os.Readlink("/proc/self/ns/pid")
	t.check(err)
	for _, dir := range []string{t.dir, t.state} {
		if dir == "/run/ndklab" {
			continue
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
		t.check(os.Chown(dir, t.user.uid, t.user.uid))
	}
	t.check(os.WriteFile(filepath.Join(t.dir, t.file), []byte(t.shape.topology(t.lab)), 0o644))
	t.changed = "changed.ndklab.yaml"
	other := t.shape
	other.impaired, other.fabric, other.limited = !other.impaired, !other.fabric, !other.limited
	t.check(os.WriteFile(filepath.Join(t.dir, t.changed), []byte(other.topology(t.lab)), 0o644))
	t.log, err = os.CreateTemp(scratch, "log-")
	t.check(err)
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); name != "XDG_RUNTIME_DIR" && name != "HOME" {
			t.environment = append(t.environment, v)
		}
	}
	t.environment = append(t.environment, t.mark)
	if t.user.uid != 0 {
		t.environment = append(t.environment, "XDG_RUNTIME_DIR="+t.state)
		t.state = filepath.Join(t.state, "ndklab")
	}
	t.Cleanup(t.cleanUp)
}

func (t *trial) check(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// cleanUp tells what the commands have said if the trial has failed, and ends what it has
// left.
func (t *trial) cleanUp() {
	if t.Failed() {
		if said, err := os.ReadFile(t.log.Name()); err == nil {
			t.Logf("commands said:\n%s", said)
		}
		if said, err := os.ReadFile(filepath.Join(t.state, t.lab+".log")); err == nil {
			t.Logf("the lab's log:\n%s", said)
		}
		for _, p := range t.processes() {
			t.Logf("killed: %s", p.args)
			t.signal(p, unix.SIGKILL)
		}
		t.run("ls")
	}
	t.log.Close()
	os.Remove(t.log.Name())
	os.RemoveAll(t.dir)
}

// ndklab is the program, ready to be started by the trial's user.
func (t *trial) ndklab(args ...string) *exec.Cmd {
	cmd := exec.Command(ndklab, args...)
	cmd.Env, cmd.Dir = t.environment, t.dir
	cmd.Stdout, cmd.Stderr = t.log, t.log
	if t.user.uid != os.Geteuid() {
		id := uint32(t.user.uid)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	}
	fmt.Fprintf(t.log, "$ ndklab %s\n", strings.Join(args, " "))
	return cmd
}

// run runs ndklab to its end and returns what it printed, and its exit code.
func (t *trial) run(args ...string) (out string, code int) {
	t.Helper()
	before, err := os.ReadFile(t.log.Name())
	t.check(err)
	cmd := t.ndklab(args...)
	t.check(cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the exit code tells
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		_ = cmd.Process.Signal(unix.SIGQUIT)
		<-ended
		t.Fatalf("ndklab %s does not end", strings.Join(args, " "))
	}
	after, err := os.ReadFile(t.log.Name())
	t.check(err)
	fmt.Fprintf(t.log, "exit code %d\n", cmd.ProcessState.ExitCode())
	return string(after[len(before):]), cmd.ProcessState.ExitCode()
}

// must runs ndklab and wants it to succeed.
func (t *trial) must(args ...string) {
	t.Helper()
	if out, code := t.run(args...); code != 0 {
		t.Fatalf("ndklab %s: exit code %d: %s", strings.Join(args, " "), code, out)
	}
}

// eventually waits until ok returns "", for as long as a trial's lab may be there
// when it is over.
func (t *trial) eventually(ok func() string) {
	t.Helper()
	if missing := poll(patience, ok); missing != "" {
		t.Fatalf("after %v: %s", patience, missing)
	}
}

// poll waits until ok returns "", for at most limit, and returns what it returned last.
func poll(limit time.Duration, ok func() string) (missing string) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(limit); ; {
		if missing = ok(); missing == "" {
			return ""
		}
		select {
		case <-tick.C:
		case <-late:
			return missing
		}
	}
}

// begin starts the command that is to be under way.
func (t *trial) begin() {
	t.command = t.ndklab(t.moment.args(t)...)
	if t.fault.prepare != nil {
		t.fault.prepare(t)
	}
	t.check(t.command.Start())
	t.ended = make(chan struct{})
	go func() {
		defer close(t.ended)
		_ = t.command.Wait() // the exit code tells
	}()
}

func (t *trial) commandEnded() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// awaitCommand waits for the command's end.
func (t *trial) awaitCommand(limit time.Duration) {
	t.Helper()
	select {
	case <-t.ended:
		fmt.Fprintf(t.log, "%v\n", t.command.ProcessState)
	case <-time.After(limit):
		_ = t.command.Process.Signal(unix.SIGQUIT) // it prints where it waits
		<-t.ended
		t.Fatalf("ndklab %s does not end", t.moment.name)
	}
}

// do does the trial. It returns false if the fault came too late to strike anything.
func (t *trial) do() (struck bool) {
	before := host(t)
	if t.moment.up {
		t.must(t.withRecord("up", t.file)...)
		t.processes() // of which the PID namespace is remembered
	}
	t.begin()
	select {
	case <-time.After(t.after): // the random moment
	case <-t.ended:
	}
	struck = t.fault.strike(t)
	t.finish()
	t.eventually(t.alive)
	t.eventually(t.recorder) // it completes its files with a low priority
	// The next command removes the names, unless another command, of which there may be
	// some on this machine, just looks at them.
	t.eventually(func() string {
		t.must("ls")
		return t.names()
	})
	if diff := cmp.Diff(before, host(t)); diff != "" {
		t.Fatalf("the host has changed (-before +after):\n%s", diff)
	}
	t.checkCaptures()
	t.freeDisks()
	t.must(t.withRecord("up", t.file)...)
	t.must("down", t.lab)
	t.eventually(t.alive)
	if left := t.names(); left != "" {
		t.Fatalf("down has left %s", left)
	}
	return struck
}

// finish brings the trial to where nothing of the lab is to be there any more: by itself,
// where the fault is the lab's end, else by taking it down.
func (t *trial) finish() {
	t.Helper()
	if !t.fault.ends && (t.moment.name == "run" || t.moment.owns && t.fault.stuck) {
		if !t.fault.command {
			toCommand(unix.SIGINT)(t)
		}
	}
	if t.moment.owns {
		t.awaitCommand(patience)
	}
	if t.isOver() {
		t.awaitCommand(patience)
		return
	}
	if out, code := t.run("down", t.lab); code != 0 && !strings.Contains(out, "is not up") {
		t.Fatalf("down: exit code %d: %s", code, out)
	}
	t.awaitCommand(patience)
}

// isOver reports whether the lab ends without being taken down, and waits for it where that
// cannot be known otherwise.
func (t *trial) isOver() bool {
	if t.fault.ends && !(t.moment.up && t.moment.owns) { // else it was the one before that has ended
		return true
	}
	if !t.moment.owns {
		return false
	}
	if !t.moment.releases {
		return true
	}
	code := t.command.ProcessState.ExitCode()
	if code == 0 {
		return false
	}
	// One that was killed has released the lab before or not; one that was to put a lab in
	// the place of another may have left that one alone.
	return code != -1 && !t.moment.up || poll(soon, t.alive) == ""
}

// ownMounts puts what is left of the trial in a mount namespace of its own. The thread ends
// with the trial's goroutine.
func (t *trial) ownMounts() {
	runtime.LockOSThread()
	t.check(unix.Unshare(unix.CLONE_NEWNS))
	t.check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
}

// smallDisk mounts a disk that has so many free pages, or one more, at a directory.
func (t *trial) smallDisk(dir string, pages int) {
	data, err := os.ReadFile(filepath.Join(t.dir, t.file))
	t.check(err)
	const used = 3
	t.check(unix.Mount("ndklab-chaos", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700,uid=%d,gid=%d", (used+pages)*os.Getpagesize(), t.user.uid, t.user.uid)))
	filler := filepath.Join(dir, "filler")
	t.check(os.WriteFile(filler, make([]byte, (used-1)*os.Getpagesize()), 0o600))
	if dir == t.dir {
		t.check(os.WriteFile(filepath.Join(dir, t.file), data, 0o644))
	}
	t.disks = append(t.disks, dir)
}

// freeDisks gives the small disks some space.
func (t *trial) freeDisks() {
	for _, dir := range t.disks {
		t.check(unix.Mount("", dir, "", unix.MS_REMOUNT, "size=16m"))
	}
}
