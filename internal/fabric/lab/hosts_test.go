package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/hosts"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// Each process of a lab over two hosts whose end is the lab's, or not, is killed: the lab ends with a reason that names
// what has gone, and where, and nothing is left at any host.
func TestHostDies(t *testing.T) {
	for _, c := range []struct{ part, want string }{
		{"ndklab-worker LAB/host2", "host host2"},
		{"ndklab-part LAB/host2", "host host2"},
		{"ndklab-supervisor", ""},
		{"ndklab-linkem", "host host"},
	} {
		t.Run(strings.Fields(c.part)[0], func(t *testing.T) {
			topo := ring(uniqueName(t), 4)
			l := startWith(t, topo, Options{Hosts: "local:2"})
			kill(t, processOf(t, topo.Name, strings.Replace(c.part, "LAB", topo.Name, 1)))
			<-l.Done()
			if err := l.End(); !strings.Contains(err.Error(), c.want) {
				t.Errorf("the lab's end: %v, want %s", err, c.want)
			}
			eventually(t, testTime, func() string { return remains(t, topo.Name) })
		})
	}
}

// A lab over several hosts goes on when its guardian is killed, which has read what the processes at hosts log.
func TestGuardianOfHostsDies(t *testing.T) {
	topo := ring(uniqueName(t), 4)
	topo.Links[0].Directions[0].Delay = time.Millisecond
	l := startWith(t, topo, Options{Hosts: "local:2"})
	kill(t, processOf(t, topo.Name, "ndklab-guardian"))
	for _, n := range topo.Nodes {
		if _, err := l.Nodes.Kill(testContext(t), n.Name, unix.SIGQUIT); err != nil { // it logs all its goroutines
			t.Fatal(err)
		}
		eventually(t, testTime, func() string {
			found, err := l.Node(testContext(t), n.Name)
			if err != nil {
				t.Fatal(err)
			}
			if found.State != nodeDown {
				return n.Name + " is " + found.State
			}
			return ""
		})
	}
	if err := l.Down(testContext(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, testTime, func() string { return remains(t, topo.Name) })
}

// A request that fails since its host is gone has failed once the core knows of the loss, whose reason is that of the lab's end: the
// request's own says no more than that a connection is closed.
func TestLossBeforeItsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &farPart{Host: &hosts.Host{Name: "host2"}, lost: make(chan struct{})}
		answered := make(chan error, 1)
		go func() {
			answered <- new(head).each(t.Context(), []*farPart{p}, func(context.Context, *farPart) error {
				return fmt.Errorf("order: %w", control.ErrClosed)
			})
		}()
		synctest.Wait()
		select {
		case err := <-answered:
			t.Errorf("before the loss was known: %v", err)
		default:
			close(p.lost)
			if err := <-answered; err != nil {
				t.Error(err)
			}
		}
	})
}

// Hosts that nobody can mean are refused before anything is made.
func TestRefusedAcrossHosts(t *testing.T) {
	topo := ring(uniqueName(t), 2)
	_, err := Start(testContext(t), topo, Options{Hosts: "nonsense:2"})
	if control.CodeOf(err) != control.Usage || remains(t, topo.Name) != "" {
		t.Errorf("%v, left: %s", err, remains(t, topo.Name))
	}
}

// Nodes of two hosts have links of any kind between them: RDMA passes, links are impaired, cut and plain again, nodes die and
// start again, and the figures of both hosts are one lab's.
func TestAcrossHosts(t *testing.T) {
	topo := ring(uniqueName(t), 4)
	delay := topology.Impairment{Delay: 2 * time.Millisecond}
	for i := range topo.Links {
		topo.Links[i].Directions = [2]topology.Impairment{delay, delay}
	}
	placed := make(chan string, 1)
	l := startWith(t, topo, Options{Hosts: "local:2", Events: func(e event.Event) {
		if e.Kind == event.LabPlaced {
			placed <- e.Text
		}
	}})
	if got := <-placed; got != "links that cross hosts: 2 of 4" {
		t.Errorf("%s", got)
	}
	ctx := testContext(t)
	ping := func(from, to string) {
		t.Helper()
		if _, out := output(t, l, from, "ping -c 3 -i 0.01 -W 5 "+to); !strings.Contains(out, " 3 received") {
			t.Errorf("%s to %s: %s", from, to, out)
		}
	}
	for i := range topo.Links {
		ping(topo.Links[i].Endpoints[0].Node, addressAt(topo, i, 1))
	}
	if err := l.Links.Down(ctx, "n1:eth0"); err != nil {
		t.Fatal(err)
	}
	for _, end := range topo.Links[1].Endpoints {
		if _, out := output(t, l, end.Node, "cat /sys/class/net/"+end.Interface+"/carrier"); out != "0\n" {
			t.Errorf("carrier of %s: %s", end, out)
		}
	}
	if err := l.Links.Up(ctx, "n1:eth0"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Nodes.Change(ctx, "n2", RestartNode); err != nil {
		t.Fatal(err)
	}
	ping("n1", addressAt(topo, 1, 1))
	links, err := l.Links.Inspect(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range links {
		for _, d := range k.Directions {
			// A link that goes down may have a report of MLD, which a kernel sends when it likes, on its way.
			unasked := d.Lost - d.LostBy.Down
			if d.Packets == 0 || unasked != 0 || d.Achieved.DelayUS == nil || *d.Achieved.DelayUS < 2000 {
				t.Errorf("%s: %+v", d.From, d)
			}
		}
	}
}

// addressAt returns the first address at an end of a link.
func addressAt(topo *topology.Topology, link, end int) string {
	e := topo.Links[link].Endpoints[end]
	for _, face := range topo.FindNode(e.Node).Interfaces {
		if face.Name == e.Interface {
			return face.Addresses[0].Addr().String()
		}
	}
	return ""
}

// output runs a command in a node and returns its status and all that it writes.
func output(t *testing.T, l *Lab, at, command string) (int, string) {
	t.Helper()
	r := runCommand(t, l, at, node.Command{Args: []string{"sh", "-c", command + " 2>&1"}, Env: os.Environ()})
	all, err := io.ReadAll(r.stdout)
	if err != nil {
		t.Fatal(err)
	}
	return <-r.status, string(all)
}
