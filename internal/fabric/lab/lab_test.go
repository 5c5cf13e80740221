package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node"
	"golang.org/x/sys/unix"
)

func TestInspect(t *testing.T) {
	topo := ring(uniqueName(t), 3)
	l := start(t, topo)
	in, err := l.Inspect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if want := processOf(t, topo.Name, "ndklab-node "+topo.Name+"/"+n.Name); n.PID != want {
			t.Errorf("node %s: pid %d, want %d", n.Name, n.PID, want)
		}
		n.PID, n.Counters, n.Transport = 0, nil, nil
	}
	for i := range in.Links {
		for d := range in.Links[i].Directions {
			d := &in.Links[i].Directions[d]
			d.Packets, d.Bytes = 0, 0 // whatever the kernel thinks it should say to neighbours
		}
	}
	direction := func(from string) report.Direction { return report.Direction{From: from, Set: &report.Quality{}} }
	link := func(a, b string) report.Link {
		return report.Link{Endpoints: [2]string{a, b}, Engine: "plain", State: "up",
			Directions: [2]report.Direction{direction(a), direction(b)}}
	}
	want := &Inspection{
		Lab: topo.Name, Seed: 42, State: Ready,
		Nodes: []report.Node{
			{NodeState: report.NodeState{Name: "n0", State: "ready"}, Kind: "host", Addresses: []string{"10.0.0.1/24", "fd00::1/64", "10.0.2.2/24", "fd00:0:2::2/64"}},
			{NodeState: report.NodeState{Name: "n1", State: "ready"}, Kind: "host", Addresses: []string{"10.0.0.2/24", "fd00::2/64", "10.0.1.1/24", "fd00:0:1::1/64"}},
			{NodeState: report.NodeState{Name: "n2", State: "ready"}, Kind: "host", Addresses: []string{"10.0.1.2/24", "fd00:0:1::2/64", "10.0.2.1/24", "fd00:0:2::1/64"}},
		},
		Links:     []report.Link{link("n0:eth0", "n1:eth1"), link("n1:eth0", "n2:eth1"), link("n2:eth0", "n0:eth1")},
		Externals: []report.External{},
	}
	if diff := cmp.Diff(want, in); diff != "" {
		t.Errorf("inspection (-want +got):\n%s", diff)
	}
}

// A process of a lab shows what it is, in its command line and its name.
func TestProcessNames(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	topo.Links[0].Directions[0].Delay = time.Millisecond
	start(t, topo)
	var got []string
	for _, p := range processes(topo.Name) {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.pid))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.TrimSpace(string(comm))+": "+strings.ReplaceAll(p.args, topo.Name, "LAB"))
	}
	slices.Sort(got)
	want := []string{
		"ndklab-guardian: ndklab-guardian LAB",
		"ndklab-linkem: ndklab-linkem LAB",
		"ndklab-node: ndklab-node LAB/n0",
		"ndklab-node: ndklab-node LAB/n1",
		"ndklab-supervis: ndklab-supervisor LAB",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	if os.Geteuid() == 0 { // who can enter another namespace
		wantHostName(t, topo.Name)
	}
}

func TestHostIsUntouched(t *testing.T) {
	host := func() string {
		interfaces, err := net.Interfaces()
		if err != nil {
			t.Fatal(err)
		}
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err != nil {
			t.Fatal(err)
		}
		name, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintln(interfaces, name, string(mounts))
	}
	before := host()
	start(t, ring(uniqueName(t), 2))
	if diff := cmp.Diff(before, host()); diff != "" {
		t.Errorf("the host changed (-before +after):\n%s", diff)
	}
}

func TestExec(t *testing.T) {
	l := start(t, ring(uniqueName(t), 2))
	t.Run("status and streams", func(t *testing.T) {
		r := runCommand(t, l, "n0", node.Command{Args: []string{"sh", "-c", "read x; echo got $x; echo bad >&2; exit 7"}})
		if _, err := r.stdin.WriteString("this\n"); err != nil {
			t.Fatal(err)
		}
		if got := r.line(t); got != "got this" {
			t.Errorf("output %q", got)
		}
		if status := <-r.status; status != 7 || r.stderr.String() != "bad\n" {
			t.Errorf("status %d, error output %q", status, &r.stderr)
		}
	})
	t.Run("host name", func(t *testing.T) {
		if got := runCommand(t, l, "n1", node.Command{Args: []string{"uname", "-n"}}).line(t); got != "n1" {
			t.Errorf("host name %q, want n1", got)
		}
	})
	t.Run("signal", func(t *testing.T) {
		r := runCommand(t, l, "n0", node.Command{ID: "it", Args: []string{"/proc/self/exe"}, Env: programEnv("block")})
		r.line(t)
		if err := l.Nodes.Signal(testContext(t), "n0", "it", unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if status := <-r.status; status != 128+int(unix.SIGTERM) {
			t.Errorf("status %d", status)
		}
		wantCode(t, l.Nodes.Signal(testContext(t), "n0", "it", unix.SIGTERM), control.Usage)
	})
	t.Run("client's death", func(t *testing.T) {
		other, err := Open(testContext(t), l.Info().Lab)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		out, theirs := pipe(t)
		ended := make(chan error, 1)
		go func() {
			_, err := other.Nodes.Exec(testContext(t), "n0", node.Command{Args: []string{"sh", "-c", "echo ready; sleep 1000 & wait"}}, nil2(theirs)...)
			ended <- err
		}()
		if _, err := out.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, control.ErrClosed) {
			t.Errorf("exec: %v", err)
		}
		// Both processes of the group held the pipe open.
		if err := out.SetReadDeadline(time.Now().Add(testTime)); err != nil {
			t.Fatal(err)
		}
		if n, err := out.Read(make([]byte, 100)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the command lives on: read %d, %v", n, err)
		}
	})
	t.Run("orphans", func(t *testing.T) { orphansAreReaped(t, l) })
	t.Run("unknown node", func(t *testing.T) {
		_, err := l.Nodes.Exec(testContext(t), "n9", node.Command{Args: []string{"true"}})
		wantCode(t, err, control.Usage)
	})
}

// nil2 is f as a command's output, with no input.
func nil2(f *os.File) []*os.File {
	null, err := os.Open(os.DevNull)
	if err != nil {
		panic(err)
	}
	return []*os.File{null, f}
}

// An orphan of a command becomes the agent's child, and does not stay a
// zombie.
func orphansAreReaped(t *testing.T, l *Lab) {
	r := runCommand(t, l, "n0", node.Command{Args: []string{"setsid", "-f", "sh", "-c", "exec 2>/dev/null; echo $$; read wait"}})
	inside := r.line(t)
	r.wait(t)
	ps := func() string {
		r := runCommand(t, l, "n0", node.Command{Args: []string{"sh", "-c", "test -e /proc/" + inside + " && echo there || echo gone"}})
		defer r.wait(t)
		return r.line(t)
	}
	if got := ps(); got != "there" {
		t.Fatal(got)
	}
	r.stdin.Close()
	eventually(t, testTime, func() string {
		if ps() == "gone" {
			return ""
		}
		return "the orphan is still there"
	})
}

func TestNodeDies(t *testing.T) {
	topo := ring(uniqueName(t), 3)
	events := make(chan event.Event, 10)
	l := startWith(t, topo, Options{Events: func(e event.Event) {
		if e.Kind != event.LabReady {
			events <- e
		}
	}})
	kill(t, processOf(t, topo.Name, "ndklab-node "+topo.Name+"/n1"))
	select {
	case e := <-events:
		if e.Kind != event.NodeDown || e.Node != "n1" || !strings.Contains(e.Text, "SIGKILL") {
			t.Errorf("event %+v", e)
		}
	case <-time.After(testTime):
		t.Fatal("no event")
	}
	in, err := l.Inspect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, n := range in.Nodes {
		states = append(states, n.State)
	}
	if want := []string{"ready", "down", "ready"}; !slices.Equal(states, want) || in.Nodes[1].Reason == "" {
		t.Errorf("states %v, want %v; %+v", states, want, in.Nodes[1])
	}
	_, err = l.Nodes.Exec(testContext(t), "n1", node.Command{Args: []string{"true"}})
	wantCode(t, err, control.Usage)
	runCommand(t, l, "n2", node.Command{Args: []string{"true"}}).wait(t)
}

// TestEngineIsConfined: a link engine starts no program and writes to no file by its name (package confine).
func TestEngineIsConfined(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	topo.Links[0].Directions[0].Delay = time.Millisecond
	start(t, topo)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", processOf(t, topo.Name, "ndklab-linkem")))
	if err != nil || !strings.Contains(string(status), "\nNoNewPrivs:\t1\n") || !strings.Contains(string(status), "\nSeccomp:\t2\n") {
		t.Errorf("%v\n%s", err, status)
	}
}

func TestEngineDies(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	topo.Links[0].Directions[0].Loss.Rate = 0.5
	l := start(t, topo)
	kill(t, processOf(t, topo.Name, "ndklab-linkem"))
	select {
	case <-l.Done():
	case <-time.After(testTime):
		t.Fatal("the lab goes on")
	}
	if err := l.Err(); err == nil || !strings.Contains(err.Error(), "link engine") {
		t.Errorf("reason %v", err)
	}
	_, err := l.Inspect(testContext(t))
	wantCode(t, err, control.Failed)
}

func kill(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// Every call tells why the lab ended, to whoever is connected.
func TestTakenDownByAnother(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	l := start(t, topo)
	other, err := Open(testContext(t), topo.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Down(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if rest := remains(t, topo.Name); rest != "" {
		t.Errorf("left behind: %s", rest)
	}
	_, err = l.Inspect(testContext(t))
	if err == nil || !strings.Contains(err.Error(), "taken down") {
		t.Errorf("inspect: %v", err)
	}
}

func TestRelease(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	owner, err := Start(testContext(t), topo, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Release(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Open(testContext(t), topo.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Inspect(testContext(t)); err != nil {
		t.Error(err)
	}
	if err := l.Down(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if rest := remains(t, topo.Name); rest != "" {
		t.Errorf("left behind: %s", rest)
	}
}

func TestList(t *testing.T) {
	a, b := ring(uniqueName(t)+"a", 2), ring(uniqueName(t)+"b", 3)
	start(t, b)
	start(t, a)
	var labs []Info
	eventually(t, testTime, func() string { // they have a second to answer
		var err error
		if labs, err = List(testContext(t)); err != nil {
			t.Fatal(err)
		}
		labs = slices.DeleteFunc(labs, func(i Info) bool { return i.Lab != a.Name && i.Lab != b.Name })
		for i := range labs {
			labs[i].Up = 0
			if labs[i].State == Unknown {
				return labs[i].Lab + " does not answer"
			}
		}
		return ""
	})
	want := []Info{
		{Lab: a.Name, Seed: 42, State: Ready, Nodes: 2, Links: 1},
		{Lab: b.Name, Seed: 42, State: Ready, Nodes: 3, Links: 3},
	}
	if diff := cmp.Diff(want, labs); diff != "" {
		t.Errorf("labs (-want +got):\n%s", diff)
	}
	_, err := Open(testContext(t), "no-such-lab")
	wantCode(t, err, control.Usage)
	if err == nil || !strings.Contains(err.Error(), a.Name) {
		t.Errorf("%v names no lab that is up", err)
	}
}

func TestStartFails(t *testing.T) {
	t.Run("already up", func(t *testing.T) {
		topo := ring(uniqueName(t), 2)
		l := start(t, topo)
		_, err := Start(testContext(t), topo, Options{})
		wantCode(t, err, control.Usage)
		if _, err := l.Inspect(testContext(t)); err != nil {
			t.Errorf("the lab that was up: %v", err)
		}
	})
	t.Run("step", func(t *testing.T) {
		topo := ring(uniqueName(t), 3)
		topo.Links[0].Endpoints[1].Interface = "eth0" // there are two in n1 now
		topo.Nodes[1].Interfaces[0].Name = "eth0"
		_, err := Start(testContext(t), topo, Options{})
		wantCode(t, err, control.Failed)
		if err == nil || !strings.Contains(err.Error(), "n1:eth0") { // whichever of the two was made last
			t.Errorf("%v does not say what failed", err)
		}
		if rest := remains(t, topo.Name); rest != "" {
			t.Errorf("left behind: %s", rest)
		}
	})
	t.Run("name", func(t *testing.T) {
		_, err := Start(testContext(t), ring("../x", 2), Options{})
		wantCode(t, err, control.Usage)
	})
	t.Run("cancelled", func(t *testing.T) {
		topo := ring(uniqueName(t), 2)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := Start(ctx, topo, Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want %v", err, context.Canceled)
		}
		if rest := remains(t, topo.Name); rest != "" {
			t.Errorf("left behind: %s", rest)
		}
	})
}

func wantCode(t testing.TB, err error, code control.Code) {
	t.Helper()
	if e := (*control.Error)(nil); !errors.As(err, &e) || e.Code != code {
		t.Errorf("%v, want an error of code %s", err, code)
	}
}

// BenchmarkUpDown makes rings of plain links and takes them down.
func BenchmarkUpDown(b *testing.B) {
	for _, n := range []int{2, 10, 100, 500} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			var up, down time.Duration
			for b.Loop() {
				begin := time.Now()
				l, err := Start(testContext(b), ring(uniqueName(b), n), Options{})
				if err != nil {
					b.Fatal(err)
				}
				up += time.Since(begin)
				begin = time.Now()
				if err := l.Down(testContext(b)); err != nil {
					b.Fatal(err)
				}
				down += time.Since(begin)
			}
			b.ReportMetric(up.Seconds()*1000/float64(b.N), "ms-up/op")
			b.ReportMetric(down.Seconds()*1000/float64(b.N), "ms-down/op")
		})
	}
}
