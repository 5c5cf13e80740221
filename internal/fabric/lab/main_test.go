package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/hosts"
	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// The test binary is also every process of a lab, the programs that tests run
// in nodes, and the command that tests kill.
func TestMain(m *testing.M) {
	if answerTime = busyTime; os.Getenv(envHasty) != "" {
		answerTime = time.Second
	}
	if os.Getenv(envIdle) != "" {
		agentsAtOnce = 0
	}
	partVariables = append(partVariables, envHasty, envIdle, hosts.ClockVariable)
	Child()
	if program := os.Getenv("NDKLAB_TEST_PROGRAM"); program != "" {
		args := strings.Fields(program)
		if err := programs[args[0]](args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, program+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// A guardian is waited for until it ends, which is after the test.
	leak.Main(m, goleak.IgnoreAnyFunction("os.(*Process).Wait"))
}

// busyTime bounds the time in which agents answer in the labs of tests, on a machine that is
// busy with others.
const busyTime = 10 * time.Second

// envHasty has them take a second, as usual.
const envHasty = "NDKLAB_TEST_HASTY"

// envIdle has the nodes of labs be without a process until something runs in them, as those of large labs are.
const envIdle = "NDKLAB_TEST_IDLE"

// programEnv makes the test binary run one of programs.
func programEnv(program string) []string {
	return append(os.Environ(), "NDKLAB_TEST_PROGRAM="+program)
}

// testTime bounds every lab of a test, and whatever a test waits for.
const testTime = time.Minute

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until ok returns "", for at most limit.
func eventually(t testing.TB, limit time.Duration, ok func() (missing string)) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(limit)
	for {
		missing := ok()
		if missing == "" {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("after %v: %s", limit, missing)
		}
	}
}

// ring is a lab of n nodes, n0 to n(n-1), each joined to the next by a plain
// link: ni:eth0 to n(i+1):eth1, with addresses 10.0.i.1 and 10.0.i.2. Two nodes
// have one link, n0:eth0 to n1:eth0.
func ring(name string, n int) *topology.Topology {
	topo := &topology.Topology{Name: name, Seed: 42, HasSeed: true}
	for i := range n {
		topo.Nodes = append(topo.Nodes, topology.Node{Name: fmt.Sprintf("n%d", i)})
	}
	links := n
	if n <= 2 {
		links = n - 1
	}
	for i := range links {
		l := topology.Link{Number: i, MTU: 4200, Offload: true}
		for end, node := range []int{i, (i + 1) % n} {
			iface := topology.Interface{Name: fmt.Sprintf("eth%d", end), Link: i, End: end}
			if n <= 2 {
				iface.Name = "eth0"
			}
			for _, prefix := range []string{"10.%d.%d.%d/24", "fd00:%x:%x::%d/64"} {
				iface.Addresses = append(iface.Addresses, netip.MustParsePrefix(fmt.Sprintf(prefix, i/256, i%256, end+1)))
			}
			topo.Nodes[node].Interfaces = append(topo.Nodes[node].Interfaces, iface)
			l.Endpoints[end] = topology.Endpoint{Node: topo.Nodes[node].Name, Interface: iface.Name}
		}
		topo.Links = append(topo.Links, l)
	}
	return topo
}

// uniqueName is a lab name that no other test run on this machine has.
func uniqueName(t testing.TB) string {
	return fmt.Sprintf("lab-%08x-%d", crc32.ChecksumIEEE([]byte(t.Name())), os.Getpid())
}

// start starts a lab that lives as long as the test, and checks at the end that
// nothing of it is left.
func start(t testing.TB, topo *topology.Topology) *Lab {
	t.Helper()
	return startWith(t, topo, Options{Hosts: os.Getenv("NDKLAB_TEST_HOSTS")})
}

// patient is a tolerance for probes on a machine that is busy with other tests, which is
// no excuse for nine of ten.
var patient = topology.Tolerance{DelayP10: topology.DefaultTolerance.DelayP10, Delay: 100 * time.Millisecond, DelayP99: time.Second, Rate: 0.5, Loss: 0.01}

// startWith starts a lab whose links may be late on a machine that is busy with other
// tests, unless they tolerate less than links usually do.
func startWith(t testing.TB, topo *topology.Topology, options Options) *Lab {
	t.Helper()
	for i := range topo.Links {
		l := &topo.Links[i]
		l.AllowOverrun = l.AllowOverrun || l.Tolerance == topology.Tolerance{} || l.Tolerance.Delay >= topology.DefaultTolerance.Delay
	}
	l, err := Start(testContext(t), topo, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if rest := remains(t, topo.Name); rest != "" {
			t.Errorf("left behind: %s", rest)
		}
	})
	return l
}

// remains lists what is left of a lab: processes, cgroups, files, its socket.
func remains(t testing.TB, name string) string {
	t.Helper()
	var left []string
	for _, p := range processes(name) {
		left = append(left, fmt.Sprintf("process %d %s", p.pid, p.args))
	}
	dir, err := stateDir()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, name+".*"))
	if err != nil {
		t.Fatal(err)
	}
	left = append(left, files...)
	// The main thread, which /proc/net is of, may be in the namespace of a test before.
	sockets, err := os.ReadFile("/proc/thread-self/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(sockets)) {
		if strings.HasSuffix(line, "/"+name+"\n") {
			left = append(left, "socket "+line)
		}
	}
	names, err := filepath.Glob(filepath.Join(namesDir, name+".*"))
	if err != nil {
		t.Fatal(err)
	}
	left = append(left, names...)
	left = append(left, cgroupsOf(t, name)...)
	return strings.Join(left, ", ")
}

// cgroupsOf finds cgroups by their lab's name, in whatever hierarchy.
func cgroupsOf(t testing.TB, name string) []string {
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			return nil // another's, that is being removed
		}
		if err != nil {
			return err
		}
		if d.IsDir() && strings.Contains(d.Name(), name) {
			found = append(found, "cgroup "+path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

type process struct {
	pid  int
	args string
}

// processes finds the processes of a lab, without dead ones that nobody has
// waited for.
func processes(name string) []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		panic(err)
	}
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		args := strings.TrimRight(strings.ReplaceAll(string(cmdline), "\x00", " "), " ")
		_, lab, ok := strings.Cut(args, " ")
		lab, _, _ = strings.Cut(lab, "/")
		if err == nil && ok && strings.HasPrefix(args, "ndklab-") && lab == name {
			found = append(found, process{pid, args})
		}
	}
	return found
}

// signal sends a signal to the process, if it is still the one that was found: by now
// another may have its id.
func (p process) signal(t testing.TB, sig unix.Signal) {
	t.Helper()
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == nil {
		defer unix.Close(fd)
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid)) // of a process that has ended nothing
		if !strings.HasPrefix(string(cmdline), p.args) {
			return
		}
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	if err != nil && err != unix.ESRCH {
		t.Fatalf("%s: %v", p.args, err)
	}
}

// processOf is the pid of a lab's process whose command line begins with part.
func processOf(t testing.TB, name, part string) int {
	t.Helper()
	all := processes(name)
	i := slices.IndexFunc(all, func(p process) bool { return strings.HasPrefix(p.args, part) })
	if i < 0 {
		t.Fatalf("no process %s of lab %s in %v", part, name, all)
	}
	return all[i].pid
}

// A running is a program that runs in a node.
type running struct {
	stdin  *os.File
	stdout *bufio.Reader
	stderr bytes.Buffer
	status chan int // then its exit status
}

// program starts one of programs in a node. It is killed at the end of the test.
func program(t testing.TB, l *Lab, nodeName, program string) *running {
	t.Helper()
	return runCommand(t, l, nodeName, node.Command{Args: []string{"/proc/self/exe"}, Env: programEnv(program)})
}

func runCommand(t testing.TB, l *Lab, nodeName string, cmd node.Command) *running {
	t.Helper()
	r := &running{status: make(chan int, 1)}
	theirIn, ourIn := pipe(t)
	ourOut, theirOut := pipe(t)
	ourErr, theirErr := pipe(t)
	r.stdin, r.stdout = ourIn, bufio.NewReader(ourOut)
	ctx, cancel := context.WithCancel(testContext(t))
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(&r.stderr, ourErr)
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		status, err := l.Nodes.Exec(ctx, nodeName, cmd, theirIn, theirOut, theirErr)
		for _, f := range []*os.File{theirIn, theirOut, theirErr} {
			f.Close()
		}
		if err != nil && ctx.Err() == nil {
			t.Errorf("exec %s: %v", cmd.Args, err)
		}
		<-copied
		r.status <- status
	}()
	t.Cleanup(func() {
		cancel()
		ourErr.Close() // which a process that outlives the command may hold
		<-ended
	})
	return r
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// line is the program's next line of output.
func (r *running) line(t testing.TB) string {
	t.Helper()
	line, err := r.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("output: %v; error output: %s", err, &r.stderr)
	}
	return strings.TrimSuffix(line, "\n")
}

// wait waits for the program and wants it to have exited with status 0.
func (r *running) wait(t testing.TB) {
	t.Helper()
	select {
	case status := <-r.status:
		if status != 0 {
			t.Fatalf("status %d: %s", status, &r.stderr)
		}
	case <-time.After(testTime):
		t.Fatal("program does not end")
	}
}
