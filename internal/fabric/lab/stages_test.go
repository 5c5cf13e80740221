package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// logOf returns the log of a lab.
func logOf(t testing.TB, name string) string {
	t.Helper()
	p, err := placeOf(name)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(p.logFile())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// inOrder wants texts to be found in a text, one behind the other.
func inOrder(t testing.TB, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Fatalf("%q is not where it should be in:\n%s", part, text)
		}
		rest = after
	}
}

// said returns the output of a command in a node.
func said(t testing.TB, l *Lab, nodeName string, args ...string) string {
	t.Helper()
	r := runCommand(t, l, nodeName, node.Command{Args: args})
	out, err := io.ReadAll(r.stdout)
	if err != nil {
		t.Fatal(err)
	}
	r.wait(t)
	return string(out)
}

// nodesOf is the state of a lab's nodes by name.
func nodesOf(t testing.TB, l *Lab) map[string]report.Node {
	t.Helper()
	i, err := l.Inspect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	nodes := make(map[string]report.Node)
	for _, n := range i.Nodes {
		nodes[n.Name] = n
	}
	return nodes
}

func commands(stage topology.Stage, texts ...string) (all []topology.Exec) {
	for _, text := range texts {
		all = append(all, topology.Exec{Command: text, Stage: stage})
	}
	return all
}

func quick(command string) *topology.Healthcheck {
	return &topology.Healthcheck{Command: command, Interval: 20 * time.Millisecond, Timeout: testTime, Retries: 2, StartPeriod: testTime}
}

// Nodes have what they are given, and come to their stages in order, also when they
// are started again.
func TestStages(t *testing.T) {
	topo := ring(uniqueName(t), 3)
	topo.Nodes[0].Setup = topology.Setup{
		Env:   map[string]string{"WHO": "n0's own"},
		Files: []topology.File{{Path: "/etc/ndklab-test/conf", Mode: 0o600, Content: []byte("from the file\n")}},
		Exec: append(append(commands(topology.Healthy, "echo last of n0; cat /etc/ndklab-test/made"),
			commands(topology.Configured, "echo $WHO >/etc/ndklab-test/made", "ip -br address show eth0", "(exec sleep 4242) & echo behind", "printf more >&2")...),
			commands(topology.Created, "cat /etc/ndklab-test/conf; ip -br link show eth0")...),
		Healthcheck: quick("test -e /etc/ndklab-test/made"),
	}
	topo.Nodes[1].Setup = topology.Setup{
		Exec: commands(topology.Configured, "getent ahosts n0 | grep -c STREAM", "echo n1 found n0"),
		WaitFor: []topology.Wait{
			{Node: "n0", Stage: topology.Healthy}, {Node: "n2", Stage: topology.Created}, {Node: "n2", Stage: topology.Executed}, {Node: "n2", Stage: topology.Configured},
		},
	}
	topo.Nodes[2].Setup = topology.Setup{Exec: commands(topology.Configured, "echo n2 is no hurry")}
	l := start(t, topo)
	ownLog := []string{
		"node n0: from the file", "node n0: eth0", "DOWN", "node n0: eth0", "UP", "10.0.0.1/24", "node n0: behind", "node n0: more",
		"node n0 is healthy", "node n0: last of n0", "node n0: n0's own",
	}
	log := logOf(t, topo.Name)
	inOrder(t, log, ownLog...)
	inOrder(t, log, "node n0: n0's own", "node n1: 4", "node n1: n1 found n0")
	inOrder(t, log, "node n2: n2 is no hurry", "node n1: 4")
	sleepers := func() string {
		return said(t, l, "n0", "sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o 'sleep 424[2]' || echo none")
	}
	if got := sleepers(); got != "sleep 4242\n" {
		t.Errorf("in the background runs %q", got)
	}
	nodes := nodesOf(t, l)
	if h := nodes["n0"].Health; h == nil || *h != (report.Health{State: "healthy"}) || nodes["n1"].Health != nil {
		t.Errorf("health of n0: %+v, of n1: %+v", h, nodes["n1"].Health)
	}
	// A caller's command has the node's variables, and its files.
	own := runCommand(t, l, "n0", node.Command{Args: []string{"/bin/sh", "-c", "echo $WHO $OTHER; cat /etc/ndklab-test/conf"}, Env: []string{"WHO=caller", "OTHER=caller's", "PATH=" + os.Getenv("PATH")}})
	if got := own.line(t) + "|" + own.line(t); got != "n0's own caller's|from the file" {
		t.Errorf("a caller's command says %q", got)
	}
	own.wait(t)
	if _, err := os.Stat("/etc/ndklab-test"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the host has the node's folder: %v", err)
	}

	before := len(logOf(t, topo.Name))
	act(t, l, "n0", RestartNode, nodeReady)
	inOrder(t, logOf(t, topo.Name)[before:], ownLog...)
	if h := nodesOf(t, l)["n0"].Health; h == nil || h.State != "healthy" {
		t.Errorf("health of n0: %+v", h)
	}
	before = len(logOf(t, topo.Name))
	act(t, l, "n1", RestartNode, nodeReady)
	inOrder(t, logOf(t, topo.Name)[before:], "node n1: 4", "node n1: n1 found n0")
}

// The lab's start fails with what keeps a node from being ready, and nothing stays.
func TestNotReady(t *testing.T) {
	for name, test := range map[string]struct {
		setup topology.Setup
		code  control.Code
		want  []string
	}{
		"command": {topology.Setup{Exec: commands(topology.Configured, "true", "echo one; echo two >&2; exit 3", "echo never")}, control.Unmet,
			[]string{`node n0: "echo one; echo two >&2; exit 3" ended with status 3, having written`, "\n  one", "\n  two"}},
		"silent command": {topology.Setup{Exec: commands(topology.Created, "false")}, control.Unmet, []string{`link the nodes: node n0: "false" ended with status 1`}},
		"long command": {topology.Setup{Exec: commands(topology.Healthy, strings.Repeat("true;", 20)+"false")}, control.Unmet,
			[]string{`node n0: "` + strings.Repeat("true;", 12) + `..." ended with status 1`}},
		"many lines": {topology.Setup{Exec: commands(topology.Configured, "seq 30\nexit 1")}, control.Unmet,
			[]string{`"seq 30..." ended with status 1, having written:` + "\n  21\n", "\n  30"}},
		"illness": {topology.Setup{Healthcheck: &topology.Healthcheck{Command: "echo no; exit 7", Interval: time.Millisecond, Timeout: testTime, Retries: 3}}, control.Unmet,
			[]string{"node n0 is unhealthy: its healthcheck ended with status 7, having written no"}},
		"slow illness": {topology.Setup{Healthcheck: &topology.Healthcheck{Command: "echo slow; sleep 60", Interval: time.Millisecond, Timeout: 10 * time.Millisecond, Retries: 1}}, control.Unmet,
			[]string{"node n0 is unhealthy: its healthcheck takes longer than 10ms"}},
		"file": {topology.Setup{Files: []topology.File{{Path: "/etc"}}}, control.Unable, []string{"files: /etc: /etc is a folder on this machine"}},
	} {
		t.Run(name, func(t *testing.T) {
			topo := ring(uniqueName(t), 2)
			topo.Nodes[0].Setup = test.setup
			topo.Nodes[1].Setup = topology.Setup{WaitFor: []topology.Wait{{Node: "n0", Stage: topology.Healthy}}}
			_, err := Start(testContext(t), topo, Options{})
			wantCode(t, err, test.code)
			if err != nil {
				inOrder(t, err.Error(), test.want...)
			}
			if rest := remains(t, topo.Name); rest != "" {
				t.Errorf("left behind: %s", rest)
			}
		})
	}
}

// A lab that waits for its nodes can be looked at, and into its nodes, which may be what
// it waits for.
func TestLookWhileWaiting(t *testing.T) {
	topo := ring(uniqueName(t), 3)
	gate := t.TempDir() + "/go"
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	topo.Nodes[0].Setup = topology.Setup{Exec: commands(topology.Configured, "read line <"+gate)}
	topo.Nodes[1].Setup = topology.Setup{WaitFor: []topology.Wait{{Node: "n0", Stage: topology.Executed}}}
	ctx := testContext(t)
	looked := make(chan error, 1)
	go func() { looked <- lookInto(ctx, topo.Name, gate) }()
	l, err := Start(ctx, topo, Options{})
	if err != nil {
		t.Fatal(errors.Join(err, <-looked))
	}
	defer l.Close()
	if err := <-looked; err != nil {
		t.Error(err)
	}
	if i, err := l.Inspect(ctx); err != nil || i.State != Ready || i.Nodes[0].State != nodeReady {
		t.Errorf("%+v, %v", i, err)
	}
}

// lookInto looks at a lab that waits for its node n0 until somebody writes into a pipe, and
// has n0 do that.
func lookInto(ctx context.Context, name, gate string) error {
	p, err := placeOf(name)
	if err != nil {
		return err
	}
	var l *Lab
	var i *Inspection
	err = repeat(ctx, func() (bool, error) {
		if l == nil {
			if l, _ = open(ctx, p, testTime); l == nil {
				return false, nil // it is not there yet
			}
		}
		i, _ = l.Inspect(ctx)
		return i != nil && i.State == Starting && i.Nodes[0].State == nodeStarts && strings.HasPrefix(i.Nodes[0].Reason, "runs ") &&
			i.Nodes[1].Reason == "waits for n0 to be executed" && i.Nodes[2].State == nodeReady && len(i.Links) == 3, nil
	})
	if err != nil {
		return fmt.Errorf("a lab that waits is %+v: %w", i, err)
	}
	defer l.Close()
	o, err := l.Observe(ctx, nil)
	if err != nil || o.State != Starting || o.Nodes[0].State != nodeStarts || o.Nodes[2].State != nodeReady {
		return fmt.Errorf("a monitor sees of a lab that waits %+v, %v", o, err)
	}
	if _, err := l.Run(ctx); err == nil || !strings.Contains(err.Error(), "still starting") {
		return fmt.Errorf("a run of a lab that waits: %v", err)
	}
	status, err := l.Nodes.Exec(ctx, "n0", node.Command{Args: []string{"sh", "-c", "echo >" + gate}})
	if err == nil && status != 0 {
		err = fmt.Errorf("status %d", status)
	}
	return err
}

func TestHostsFile(t *testing.T) {
	topo := ring("l", 3)
	topo.Nodes = append(topo.Nodes, topology.Node{Name: "s", Kind: topology.Switch, Interfaces: []topology.Interface{{Name: "p1"}}})
	const want = `127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
10.0.0.1 n0
fd00:0:0::1 n0
10.0.2.2 n0
`
	if got := string(hostsFor(topo)); !strings.HasPrefix(got, strings.Replace(want, "fd00:0:0::1", "fd00::1", 1)) || strings.Contains(got, " s\n") || strings.Count(got, "\n") != 2+3*4 {
		t.Errorf("hosts:\n%s", got)
	}
}

func BenchmarkHostsFile(b *testing.B) {
	topo := ring("l", 1000)
	b.ReportAllocs()
	for b.Loop() {
		b.SetBytes(int64(len(hostsFor(topo))))
	}
}

// A file that is written again is the same file, with nothing left of what was longer.
func TestOverwrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	var inodes []uint64
	for _, text := range []string{"long text", "short", "", "longer than before"} {
		if err := overwrite(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Errorf("%q, %v, want %q", got, err, text)
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		inodes = append(inodes, st.Ino)
	}
	if len(slices.Compact(inodes)) != 1 {
		t.Errorf("inodes %v", inodes)
	}
}
