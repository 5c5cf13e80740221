package lab

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/need"
	"github.com/ndklab/ndklab/topology"
)

// randomFile is a file of some hosts, routers and switches, joined at random, in any
// order.
func randomFile(r *rand.Rand) string {
	kinds := []string{"a host", "b host", "c host", "d host", "r router", "q router", "s switch", "u switch"}
	r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	var file strings.Builder
	file.WriteString("topology:\n  nodes:\n")
	var names []string
	for _, k := range kinds[:3+r.IntN(6)] {
		name, kind, _ := strings.Cut(k, " ")
		names = append(names, name)
		if r.IntN(10) == 0 {
			kind = "router"
		}
		fmt.Fprintf(&file, "    %s: {kind: %s}\n", name, kind)
	}
	file.WriteString("  links:\n")
	for i, x := range names {
		for _, y := range names[i+1:] {
			if r.IntN(3) != 0 {
				continue
			}
			keys := []string{"", "", ", delay: 1ms", ", offload: off", ", mtu: 1500", ", loss: 1%", ", down: true"}[r.IntN(7)]
			fmt.Fprintf(&file, "    - {endpoints: [\"%s:%s\", \"%s:%s\"]%s, overrun: allow}\n", min(x, y), max(x, y), max(x, y), min(x, y), keys)
		}
	}
	return file.String()
}

// A lab that has become one and another is always as if it had just been made.
func TestApplyChain(t *testing.T) {
	need.Time(t)
	r := rand.New(rand.NewPCG(1, 2))
	next := func(running *topology.Topology) string {
		for {
			file := randomFile(r)
			if _, err := topology.ParseWith(topology.Options{Running: running}, "test.yaml", []byte(file)); err == nil {
				return file
			}
		}
	}
	l := start(t, parsed(t, uniqueName(t), nil, next(nil)))
	for step := range 12 {
		standing, err := l.Standing(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		file := next(standing.Topology)
		topo := applied(t, l, file)
		fresh := *topo
		fresh.Name = fmt.Sprintf("%s-%d", topo.Name, step)
		made := start(t, &fresh)
		is, was := inspected(t, l), inspected(t, made)
		for i, n := range is.Nodes {
			if n.State != nodeReady || n.Name != was.Nodes[i].Name {
				t.Errorf("step %d: node %s is %s: %s", step, n.Name, n.State, n.Reason)
			}
			if len(n.Ports) != len(was.Nodes[i].Ports) {
				t.Errorf("step %d: ports of %s: %+v, want %+v", step, n.Name, n.Ports, was.Nodes[i].Ports)
			}
			for j, p := range n.Ports {
				// A bridge may notice late that a port has never had a carrier.
				k, _ := topo.FindLink(n.Name + ":" + p.Name)
				if want := was.Nodes[i].Ports[j]; p.Name != want.Name || p.State != want.State && !topo.Links[k].Down {
					t.Errorf("step %d: port %+v, want %+v", step, p, want)
				}
			}
			if n.Kind != string(topology.Switch) {
				if diff := cmp.Diff(network(t, made, n.Name), network(t, l, n.Name)); diff != "" {
					t.Errorf("step %d: node %s (-made +changed):\n%s", step, n.Name, diff)
				}
			}
		}
		for i, k := range is.Links {
			want := was.Links[i]
			if k.Endpoints != want.Endpoints || k.State != want.State || k.Engine != want.Engine || !cmp.Equal(k.Directions[0].Settings, want.Directions[0].Settings) {
				t.Errorf("step %d: link %v: %s, %s, %v, want %v: %s, %s, %v", step, k.Endpoints, k.State, k.Engine, k.Directions[0].Settings,
					want.Endpoints, want.State, want.Engine, want.Directions[0].Settings)
			}
		}
		if t.Failed() {
			t.Fatalf("the file of step %d:\n%s", step, file)
		}
		if err := made.Down(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
}
