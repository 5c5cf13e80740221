package chaos

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/need"
)

// This file is the failures of labs over the three hosts of a real Slurm: how long it takes until every host is empty, and what
// the command prints.

var perFault = flag.Int("per-fault", 1, "how many trials of each failure of hosts")

// mostTrials bounds the trials after which the quickest counts.
const mostTrials = 4

const (
	processLimit = time.Second     // after the end of any process, all hosts are empty
	hostLimit    = 4 * time.Second // after a host is gone, the others are
)

// hostLab is a lab with a node and two links that cross on each of three hosts.
const hostLab = `name: failures
seed: 1
topology:
  nodes: {a: {host: 1}, b: {host: 2}, c: {host: 3}}
  links:
    - {endpoints: ["a:eth0", "b:eth1"], delay: 1ms, overrun: allow}
    - {endpoints: ["b:eth0", "c:eth1"], delay: 1ms, overrun: allow}
    - {endpoints: ["c:eth0", "a:eth1"], delay: 1ms, overrun: allow}
workloads:
  - {name: w, from: a, to: b, operation: write, size: 4KiB, rate: 100mbit, duration: 120s}
`

// A hostFault befalls a lab over hosts.
type hostFault struct {
	name   string
	strike func(*hostTrial)
	limit  time.Duration // for all that is to be empty
	// lives says that the lab goes on, until it is ended by end.
	lives bool
	end   func(*hostTrial)
	heal  func(*hostTrial) // ends the fault when all is empty but what is at the host
	// frozen returns the processes that the fault has stopped: they cannot end before it is healed. nil: there are none.
	frozen func(*hostTrial) map[int]bool
	want   string // in what is printed
}

func hostFaults() []hostFault {
	kill := func(prefix string) func(*hostTrial) {
		return func(t *hostTrial) { t.signal(prefix, unix.SIGKILL) }
	}
	stop := func(prefix string) func(*hostTrial) {
		return func(t *hostTrial) { t.signal(prefix, unix.SIGSTOP) }
	}
	interrupt := func(t *hostTrial) { t.signal(ndklab+" run", unix.SIGINT) }
	cancel := func(t *hostTrial) { t.on("ctl", "scancel", "--me") }
	cut := func(to string) func(*hostTrial) { return func(t *hostTrial) { t.script("cut", "host2", to) } }
	// A route that leads nowhere takes one direction alone.
	hole := func(at, verb, to string) func(*hostTrial) {
		return func(t *hostTrial) {
			for _, number := range strings.Fields(to) {
				t.as("root", at, "ip", "route", verb, "blackhole", network+"."+number+"/32")
			}
		}
	}
	holes := func(verb string) func(*hostTrial) {
		return func(t *hostTrial) {
			for _, at := range []string{"ctl", "host1", "host3"} {
				hole(at, verb, "2")(t)
			}
		}
	}
	return []hostFault{
		{name: "kill -9 the head", strike: kill("ndklab-supervisor failures"), limit: processLimit, want: "ndklab:"},
		{name: "kill -9 the guardian", strike: kill("ndklab-guardian failures"), limit: processLimit, lives: true, end: interrupt},
		{name: "kill -9 the command", strike: kill(ndklab + " run"), limit: processLimit},
		{name: "kill -9 a worker", strike: kill(ndklab + " worker"), limit: processLimit, want: "host host"},
		{name: "kill -9 a part", strike: kill("ndklab-part failures"), limit: processLimit, want: "host host"},
		{name: "kill -9 a link engine", strike: kill("ndklab-linkem failures"), limit: processLimit, want: "host host"},
		{name: "kill -9 a node's agent", strike: kill("ndklab-node failures/c"), limit: processLimit, lives: true, end: interrupt},
		{name: "kill -9 the agent of a node with traffic", strike: kill("ndklab-node failures/a"), limit: processLimit, want: "node a is down"},
		{name: "kill -9 srun", strike: kill("srun "), limit: processLimit, want: "srun"},
		{name: "kill -9 slurmd, then scancel", strike: kill("slurmd -N host2"), limit: processLimit, lives: true, end: cancel, heal: func(t *hostTrial) { t.script("slurmd", "host2") }},
		{name: "kill -9 slurmstepd, then Ctrl-C", strike: kill("slurmstepd: "), limit: hostLimit, lives: true, end: interrupt},
		{name: "scancel", strike: cancel, limit: processLimit},
		{name: "SIGSTOP of a worker", strike: stop(ndklab + " worker"), limit: hostLimit, want: "nothing was heard for 3s", frozen: (*hostTrial).stoppedWorker, heal: func(t *hostTrial) { t.signal(ndklab+" worker", unix.SIGCONT) }},
		{name: "SIGSTOP of a part", strike: stop("ndklab-part failures"), limit: hostLimit, want: "its part has not answered for 3s"},
		{name: "no network", strike: cut("down"), limit: hostLimit, want: "host host2 is gone: nothing was heard for 3s", heal: cut("up")},
		{name: "1.5 s without network, then Ctrl-C", strike: func(t *hostTrial) {
			cut("down")(t)
			<-time.After(1500 * time.Millisecond)
			cut("up")(t)
		}, limit: processLimit, lives: true, end: interrupt},
		{name: "no network from the host", strike: hole("host2", "add", "254 1 3"), limit: hostLimit, want: "host host2 is gone", heal: hole("host2", "del", "254 1 3")},
		{name: "no network to the host", strike: holes("add"), limit: hostLimit, want: "host host2 is gone", heal: func(t *hostTrial) { holes("del")(t); t.giveUp("host2") }},
		{name: "suspended", strike: func(t *hostTrial) { t.suspend(unix.SIGSTOP) }, limit: hostLimit, want: "host host2 is gone: nothing was heard for 3s", frozen: (*hostTrial).suspended, heal: func(t *hostTrial) { t.suspend(unix.SIGCONT) }},
		{name: "no power", strike: func(t *hostTrial) { t.script("die", "host2") }, limit: hostLimit, want: "host host2 is gone", heal: func(t *hostTrial) { t.giveUp("host2") }},
	}
}

const network = "10.59.0"

// A hostTrial is a run of hostLab that a fault befalls.
type hostTrial struct {
	*testing.T
	dir     string // of the cluster
	token   string
	out     transcript
	command *exec.Cmd
}

// A transcript has the text that a command has printed so far.
type transcript struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (o *transcript) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *transcript) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// TestHostFaults has each fault befall a lab, and prints a table: every host is empty in time, and the command has said why.
func TestHostFaults(t *testing.T) {
	need.Time(t)
	err := need.Programs("slurmctld", "slurmd", "srun", "munged", "unshare", "nsenter", "ip")
	if os.Geteuid() != 0 {
		err = errors.Join(err, errors.New("root"))
	}
	need.Check(t, err)
	scripts, err := filepath.Abs("../../../hosts/testdata/slurm")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(scratch, "failures.ndklab.yaml")
	if err := os.WriteFile(file, []byte(hostLab), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(scratch, "cluster")
	cluster := func(t *testing.T, name string, args ...string) {
		cmd := exec.Command(filepath.Join(scripts, name), args...)
		cmd.Env = append(os.Environ(), "DIR="+dir, "NET="+network, "CPUS=2", "SHARE="+scratch)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	t.Cleanup(func() { cluster(t, "down.sh") })
	var table strings.Builder
	for _, f := range hostFaults() {
		if matched, err := regexp.MatchString(*only, f.name); err != nil || !matched {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			var took []time.Duration
			said, code := "", 0
			for i := 0; i < *perFault || i < mostTrials && slices.Min(took) > f.limit; i++ { // a busy machine takes its time
				cluster(t, "down.sh") // whatever the last one has left of a host
				cluster(t, "up.sh", "3")
				trial := &hostTrial{T: t, dir: dir, token: fmt.Sprintf("NDKLAB_TEST_TOKEN=%d-%d", os.Getpid(), i)}
				took = append(took, trial.do(f, file))
				said, code = trial.out.String(), trial.command.ProcessState.ExitCode()
				if !strings.Contains(said, f.want) {
					t.Errorf("said\n%s\nwant %s", said, f.want)
				}
			}
			slices.Sort(took)
			if took[0] > f.limit {
				t.Errorf("empty after %v at least, want at most %v", took[0], f.limit)
			}
			fmt.Fprintf(&table, "| %s | %d | %.2f | %.2f | %.2f | %.0f | %d | %s |\n", f.name, len(took), took[0].Seconds(), took[len(took)/2].Seconds(), took[len(took)-1].Seconds(), f.limit.Seconds(), code, lastOf(said))
		})
	}
	t.Logf("\n| what | trials | least, s | median | most | goal | exit code | printed |\n|---|---|---|---|---|---|---|---|\n%s", table.String())
}

// lastOf returns the last line that ndklab has printed.
func lastOf(said string) string {
	last := ""
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "ndklab: ") {
			last = "`" + strings.TrimSpace(line) + "`"
		}
	}
	return last
}

// do starts the lab, has the fault befall it, and returns the time until every host that is there is empty.
func (t *hostTrial) do(f hostFault, file string) time.Duration {
	t.command = exec.Command(filepath.Join(t.dir, "on"), "ctl", "salloc", "-Q", "-N3", "--exclusive", ndklab, "run", file, "--hosts", "slurm")
	t.command.Env = append(os.Environ(), "AS=nobody", "HOME=/tmp", t.token)
	said, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.command.Stdout, t.command.Stderr = w, w
	if err := t.command.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	began, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		buffer, once := make([]byte, 4096), false
		for {
			n, err := said.Read(buffer)
			_, _ = t.out.Write(buffer[:n]) // which cannot fail
			if !once && (strings.Contains(t.out.String(), "workload w: write") || err != nil) {
				once = true
				close(began)
			}
			if err != nil {
				return
			}
		}
	}()
	<-began
	struck := time.Now()
	f.strike(t)
	if f.lives {
		<-time.After(processLimit)
		if len(t.left(ndklab+" run")) == 0 {
			t.Errorf("the lab has ended\n%s", &t.out)
		}
		struck = time.Now()
		f.end(t)
	}
	var stopped map[int]bool
	if f.frozen != nil {
		stopped = f.frozen(t)
	}
	took := t.await(struck, func(pid int) bool { return !stopped[pid] })
	if f.heal != nil {
		f.heal(t)
		t.await(time.Now(), func(int) bool { return true })
	}
	_ = t.command.Wait() // the exit code tells
	<-read               // what is in the pipe, until nobody has its other end
	said.Close()
	t.awaitNothing()
	return took
}

// await waits until no process of the lab is left of those that count, and returns the time since.
func (t *hostTrial) await(since time.Time, counts func(pid int) bool) time.Duration {
	t.Helper()
	for {
		left := slices.DeleteFunc(t.left(""), func(pid int) bool { return !counts(pid) })
		took := time.Since(since)
		if len(left) == 0 {
			return took
		}
		if took > patience {
			for _, pid := range left {
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				t.Errorf("left: %d %s", pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			t.Fatalf("said\n%s", &t.out)
		}
	}
}

// awaitNothing waits until no job, no file of the state directories and no cgroup of a lab is left at any host.
func (t *hostTrial) awaitNothing() {
	t.Helper()
	late := time.Now().Add(patience)
	for {
		left := t.on("ctl", "squeue", "-h")
		for _, host := range []string{"host1", "host2", "host3"} {
			pid := t.init(host)
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
				continue // it has no power
			}
			files, err := filepath.Glob(fmt.Sprintf("/proc/%d/root/tmp/ndklab-*/failures*", pid))
			if err != nil {
				t.Fatal(err)
			}
			left += strings.Join(files, " ")
		}
		group, err := os.ReadFile(filepath.Join(t.dir, "group"))
		if err != nil {
			t.Fatal(err)
		}
		groups, err := filepath.Glob("/sys/fs/cgroup/*/" + strings.TrimSpace(string(group)) + "/*/ndklab/failures*")
		if err != nil {
			t.Fatal(err)
		}
		left += strings.Join(groups, " ")
		if left == "" {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("left: %s", left)
		}
	}
}

// left returns the processes of the lab that are alive, and whose command line begins so.
func (t *hostTrial) left(prefix string) (found []int) {
	for _, pid := range pids() {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || len(line) == 0 { // it has ended, or is the kernel's
			continue
		}
		args := string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)) // of one that ends just now there is none
		ours := bytes.Contains(env, []byte(t.token)) || strings.HasPrefix(args, "ndklab-") && strings.Contains(args, " failures")
		if prefix == "slurmd -N host2" || prefix == "slurmstepd: " { // Slurm's, at the host
			ours = t.at("host2", pid)
		}
		if ours && strings.HasPrefix(args, prefix) {
			found = append(found, pid)
		}
	}
	return found
}

// signal sends a signal to a process of the lab, or of Slurm at host2.
func (t *hostTrial) signal(prefix string, s unix.Signal) {
	t.Helper()
	found := t.left(prefix)
	if s == unix.SIGCONT {
		for _, pid := range found {
			_ = unix.Kill(pid, s) // one that has ended needs none
		}
		return
	}
	if len(found) == 0 {
		t.Fatalf("there is no process %s\n%s", prefix, &t.out)
	}
	if err := unix.Kill(found[0], s); err != nil {
		t.Fatal(err)
	}
}

// suspend sends a signal to all processes of host2.
func (t *hostTrial) suspend(s unix.Signal) {
	if s == unix.SIGCONT {
		<-time.After(10*time.Second - hostLimit) // since the host was suspended, at least
	}
	for _, pid := range t.tree("host2") {
		_ = unix.Kill(pid, s) // one that has ended needs none
	}
}

// giveUp has Slurm forget what it is to end at a host: it would ask the host again after a minute.
func (t *hostTrial) giveUp(host string) {
	for _, state := range []string{"state=down", "state=resume"} {
		t.as("root", "ctl", "scontrol", "update", "nodename="+host, state, "reason=test")
	}
}

// suspended returns the processes of host2.
func (t *hostTrial) suspended() map[int]bool {
	all := map[int]bool{}
	for _, pid := range t.tree("host2") {
		all[pid] = true
	}
	return all
}

// stoppedWorker returns a worker that is stopped, its part, and all that the part has made.
func (t *hostTrial) stoppedWorker() map[int]bool {
	all := map[int]bool{}
	for _, pid := range t.left(ndklab + " worker") {
		if state, _ := status(pid); state == "T" {
			all[pid] = true
		}
	}
	for _, pid := range t.left("ndklab-") {
		if t.hasAncestor(pid, all) {
			all[pid] = true
		}
	}
	return all
}

// tree returns the processes of a host.
func (t *hostTrial) tree(host string) (all []int) {
	is := map[int]bool{t.init(host): true}
	for _, pid := range pids() {
		if is[pid] || t.hasAncestor(pid, is) {
			all = append(all, pid)
		}
	}
	return all
}

// status returns the state and the parent of a process.
func status(pid int) (state string, parent int) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // of one that has ended there is none
	_, rest, _ := strings.Cut(string(stat), ") ")
	if fields := strings.Fields(rest); len(fields) > 1 {
		state = fields[0]
		parent, _ = strconv.Atoi(fields[1])
	}
	return state, parent
}

func (t *hostTrial) hasAncestor(pid int, of map[int]bool) bool {
	for pid > 1 {
		if _, pid = status(pid); of[pid] {
			return true
		}
	}
	return false
}

// at reports whether a process is in a host's PID namespace.
func (t *hostTrial) at(host string, pid int) bool {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	its, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", t.init(host)))
	return err == nil && own == its
}

// init returns process 1 of a host, by its number here.
func (t *hostTrial) init(host string) int {
	text, err := os.ReadFile(filepath.Join(t.dir, host, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// on runs a command on a host as the lab's user, and returns what it prints.
func (t *hostTrial) on(host string, args ...string) string { return t.as("nobody", host, args...) }

func (t *hostTrial) as(user, host string, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(t.dir, "on"), append([]string{host}, args...)...)
	cmd.Env = append(os.Environ(), "AS="+user)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// script runs one of the cluster's scripts.
func (t *hostTrial) script(name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(filepath.Join(t.dir, name), args...).CombinedOutput(); err != nil {
		t.Errorf("%s %v: %v\n%s", name, args, err, out)
	}
}
