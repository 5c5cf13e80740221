package lab

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/topology"
)

const goesOn = `name: NAME
seed: 1
hosts: {on_loss: continue}
topology:
  nodes: {n0: {host: 1}, n1: {host: 2, restart: always}, n2: {host: 3}}
  links:
    - {endpoints: ["n0:eth0", "n1:eth1"], delay: 1ms}
    - endpoints: ["n1:eth0", "n2:eth1"]
    - endpoints: ["n2:eth0", "n0:eth1"]
workloads:
  - {name: gone, from: n0, to: n1, operation: write, size: 4KiB, count: 10}
  - {name: left, from: n0, to: n2, operation: write, size: 4KiB, count: 10}
`

// A lab that goes on without a host tells of it once, has the nodes there be down for that reason, takes the carrier of the
// links to them, and refuses to start them. The others go on. A run has errors of flows to them alone, and its report has the host.
func TestGoOnWithoutHost(t *testing.T) {
	for _, c := range []struct {
		part   string
		signal unix.Signal
		want   string
	}{
		{"ndklab-worker LAB/host2", unix.SIGKILL, "host host2 is gone: its process has ended"},
		{"ndklab-part LAB/host2", unix.SIGKILL, "host host2 is gone: its part has ended: signal: killed"},
		{"ndklab-worker LAB/host2", unix.SIGSTOP, "host host2 is gone: nothing was heard for 3s"},
	} {
		t.Run(strings.Fields(c.part)[0]+" "+unix.SignalName(c.signal), func(t *testing.T) {
			topo, err := topology.Parse("test.yaml", []byte(strings.Replace(goesOn, "NAME", uniqueName(t), 1)))
			if err != nil {
				t.Fatal(err)
			}
			lost := make(chan string, 8)
			l := startWith(t, topo, Options{Hosts: "local:3", Events: func(e event.Event) {
				if e.Kind == event.HostLost {
					lost <- e.Text
				}
			}})
			ctx := testContext(t)
			pid := processOf(t, topo.Name, strings.Replace(c.part, "LAB", topo.Name, 1))
			if err := unix.Kill(pid, c.signal); err != nil {
				t.Fatal(err)
			}
			text := <-lost
			if c.signal == unix.SIGSTOP {
				if err := unix.Kill(pid, unix.SIGCONT); err != nil {
					t.Fatal(err)
				}
			}
			if want := "; the lab goes on without the nodes there: 1"; !strings.HasPrefix(text, c.want) || !strings.HasSuffix(text, want) {
				t.Errorf("told: %s, want %s...%s", text, c.want, want)
			}
			eventually(t, testTime, func() string {
				found, err := l.Inspect(ctx)
				if err != nil {
					t.Fatal(err)
				}
				for i, n := range found.Nodes {
					if down := i == 1; (n.State == nodeDown) != down || down && n.Reason != "its host host2 is lost" {
						return n.Name + " is " + n.State + ": " + n.Reason
					}
				}
				for i, k := range found.Links {
					if down := i != 2; (k.State == "down") != down {
						return k.Endpoints[0] + " is " + k.State
					}
				}
				return ""
			})
			for _, e := range []topology.Endpoint{topo.Links[0].Endpoints[0], topo.Links[1].Endpoints[1]} {
				if _, out := output(t, l, e.Node, "cat /sys/class/net/"+e.Interface+"/carrier"); out != "0\n" {
					t.Errorf("carrier of %s: %s", e, out)
				}
			}
			if status, out := output(t, l, "n2", "ping -c 3 -i 0.01 -W 5 "+addressAt(topo, 2, 1)); status != 0 {
				t.Errorf("between the others: status %d, %s", status, out)
			}
			_, err = l.Nodes.Change(ctx, "n1", RestartNode)
			wantCode(t, err, control.Usage)
			if want := "node n1 does not start again: its host host2 is lost"; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a start: %v, want %s", err, want)
			}
			if err := l.Links.Up(ctx, "n0:eth0"); err == nil || !strings.Contains(err.Error(), "its host host2 is lost") {
				t.Errorf("a link to the host: %v", err)
			}
			if _, err := l.Nodes.Change(ctx, "n2", RestartNode); err != nil { // which has a link to the host
				t.Error(err)
			}
			result, err := l.Run(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for i, h := range result.Hosts {
				if is := h.Lost != ""; is != (i == 1) || is != (h.LostSeconds != nil) || is && !strings.HasPrefix(h.Lost, c.want) {
					t.Errorf("host of the report: %+v", h)
				}
			}
			for i, fails := range []bool{true, false} {
				w := result.Workloads[i]
				if (w.Errors > 0) != fails || fails && !strings.Contains(fmt.Sprintf("%+v", w), "its host host2 is lost") {
					t.Errorf("workload %s: %+v", w.Name, w)
				}
			}
			if result.Passed {
				t.Error("a run with a flow to the host has passed")
			}
			if err := l.Down(ctx); err != nil {
				t.Fatal(err)
			}
			eventually(t, testTime, func() string { return remains(t, topo.Name) })
			select {
			case again := <-lost:
				t.Errorf("told again: %s", again)
			default:
			}
		})
	}
}
