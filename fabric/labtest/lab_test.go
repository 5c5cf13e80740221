package labtest

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab"
)

// Labs of one file are there at the same time, each with a name of its own.
func TestSeveralLabsOfOneFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pair.ndklab.yaml")
	text := Topology().Seed(42).Hosts("client", "server").Link("client", "server").String()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	a, b := Up(t, file), Up(t, file, Seed(7))
	if a.Name() == b.Name() || !strings.HasPrefix(a.Name(), "pair-") {
		t.Fatalf("the labs are called %s and %s, want names of their own that begin with the file's", a.Name(), b.Name())
	}
	if a.Seed() != 42 || b.Seed() != 7 {
		t.Errorf("seeds %d and %d, want 42, which is the file's, and 7", a.Seed(), b.Seed())
	}
	for _, l := range []*Lab{a, b} {
		if host, err := l.Node("client").Run(bounded(t), "uname", "-n"); err != nil || host != "client\n" {
			t.Errorf("%q, %v", host, err)
		}
	}
	a.Node("server").Stop()
	if got := b.Node("server").Report().State; got != lab.Ready {
		t.Errorf("the other lab's server is %s", got)
	}
}

// Links change, are cut and healed; the lab is parted and healed.
func TestLinks(t *testing.T) {
	t.Parallel()
	l := Up(t, Topology().Hosts("a", "b", "c").Link("a", "b", Loss(0.25)).Link("b", "c").Link("c", "a"))
	link := l.Link("a:eth0")
	settings := func() string { r := link.Report(); return strings.Join(r.Directions[0].Settings, " ") }
	state := func(endpoint string) string { return l.Link(endpoint).Report().State }
	link.Set(Delay(5*time.Millisecond), Rate(Gbit))
	if got := settings(); got != "delay=5ms loss=25% rate=1gbit" {
		t.Errorf("after Set: %s", got)
	}
	link.SetFrom("b", Set("loss", "none"))
	if r := link.Report(); slices.Contains(r.Directions[1].Settings, "loss=25%") || !slices.Contains(r.Directions[0].Settings, "loss=25%") {
		t.Errorf("after SetFrom b: %v", r.Directions)
	}
	link.Reset()
	if got := settings(); got != "loss=25%" {
		t.Errorf("after Reset: %s", got)
	}
	watch := l.Watch()
	link.Cut()
	if got := settings(); got != "loss=25% cut=true" || state("a:eth0") != "up" {
		t.Errorf("after Cut: %s, %s", got, state("a:eth0"))
	}
	if e := watch.Next(event.LinkChanged); e.Link != "a:eth0" {
		t.Errorf("event %+v, want that of link a:eth0", e)
	}
	link.Heal()
	if got := settings(); got != "loss=25%" {
		t.Errorf("after Heal: %s", got)
	}
	link.Down()
	if got := state("b:eth0"); got != "down" {
		t.Errorf("after Down the link is %s", got)
	}
	link.Up()
	if got := state("a:eth0"); got != "up" {
		t.Errorf("after Up the link is %s", got)
	}
	if parted := l.Partition([]string{"a"}, []string{"b", "c"}); len(parted) != 2 {
		t.Errorf("links %v are down in the partition, want two", parted)
	}
	if a, b := state("a:eth0"), state("b:eth1"); a != "down" || b != "up" {
		t.Errorf("in the partition a:eth0 is %s and b:eth1 %s", a, b)
	}
	l.Heal()
	if got := state("a:eth1"); got != "up" {
		t.Errorf("after the partition a:eth1 is %s", got)
	}
}

// Commands run in nodes: their output, their status, and their end.
func TestCommands(t *testing.T) {
	t.Parallel()
	l := Up(t, pairOf())
	a, b := l.Node("a"), l.Node("b")
	ctx := bounded(t)
	from, to := a.PathTo(b)
	if from != a.Address() || to != b.Address() {
		t.Errorf("a reaches b by %v and %v, want %v and %v", from, to, a.Address(), b.Address())
	}
	if out, err := a.Run(ctx, "sh", "-c", "cat /proc/net/fib_trie"); err != nil || !strings.Contains(out, from.String()) {
		t.Errorf("node a has no address %v: %s, %v", from, out, err)
	}
	_, err := a.Run(ctx, "sh", "-c", "echo no such volume >&2; exit 3")
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Status != 3 || exit.Stderr != "no such volume\n" {
		t.Errorf("got %#v", err)
	}
	if want := "node a: sh -c echo no such volume >&2; exit 3: exit status 3: no such volume"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := a.Run(ctx, "no-such-command"); !errors.As(err, &exit) || exit.Status != 127 {
		t.Errorf("of a command that is not there: %v", err)
	}

	// One that goes on until it gets a signal, one until it is stopped, and one until its
	// node goes down.
	signalled, err := a.Command(ctx, "sh", "-c", `trap "echo told; exit 0" TERM; echo ready; sleep 600 & wait`)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(signalled)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := signalled.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(lines); string(rest) != "told\n" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if err := signalled.Wait(); err != nil {
		t.Error(err)
	}
	// Processes that a command leaves running are not waited for, and the command's
	// output is not lost.
	if out, err := a.Run(ctx, "sh", "-c", "sleep 600 & echo done"); err != nil || out != "done\n" {
		t.Errorf("%q, %v", out, err)
	}
	stopped, err := a.Command(ctx, "sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	stopped.Stop()
	left, err := b.Command(ctx, "sh", "-c", "echo ready; exec sleep 600")
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(left).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	b.Kill()
	if err := left.Wait(); err == nil {
		t.Error("a command outlives its node in good order")
	}
	if _, err := b.Run(ctx, "true"); err == nil || !strings.Contains(err.Error(), "node b is down") {
		t.Errorf("a command in a node that is down: %v", err)
	}
}

// Nodes are stopped, started and paused; conditions and events tell of it.
func TestNodes(t *testing.T) {
	t.Parallel()
	l := Up(t, pairOf())
	b := l.Node("b")
	watch := l.Watch()
	b.Stop()
	b.Await("down")
	b.Start()
	b.Await("ready")
	b.Pause()
	if got := b.Report().State; got != "paused" {
		t.Errorf("node b is %s, want paused", got)
	}
	b.Resume()
	b.Restart()
	l.Await("ready")
	for _, want := range []string{event.NodeDown, event.NodeUp, event.NodePaused, event.NodeResumed, event.NodeDown, event.NodeUp} {
		if e := watch.Next(); e.Kind != want {
			t.Fatalf("event %+v, want %s", e, want)
		}
	}
	if got := b.Report().Restarts; got != 2 {
		t.Errorf("node b was started %d times again, want 2", got)
	}
	if err := converse(bounded(t), l.Node("a"), b); err != nil {
		t.Error(err)
	}
	b.Await("Accept==1")
	l.Await("Connect>=1")
	if got := len(l.Nodes()); got != 2 {
		t.Errorf("%d hosts, want 2", got)
	}
}

// Eventually asks again until something holds.
func TestEventually(t *testing.T) {
	t.Parallel()
	l := Up(t, pairOf())
	asked := 0
	l.Eventually(func() error {
		if asked++; asked < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if asked != 3 {
		t.Errorf("asked %d times, want 3", asked)
	}
}
