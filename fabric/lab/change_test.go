package lab

import (
	"strings"
	"testing"

	"github.com/ndklab/ndklab/topology"
)

// What remains of a topology is whole: its interfaces are at its links, and its routes
// lead over those.
func TestPart(t *testing.T) {
	whole := parsed(t, "x", nil, edited(t, starFile, "workloads:", "    - {endpoints: ['z:eth1', 'external:x']}\nworkloads:"))
	remains := part(whole, func(n *topology.Node) bool { return n.Name != "b" }, func(l *topology.Link) bool {
		return l.Endpoints[0].Node != "b" && l.Endpoints[1].Node != "z"
	})
	var got []string
	for _, n := range remains.Nodes {
		line := n.Name
		for _, f := range n.Interfaces {
			line += " " + remains.Links[f.Link].Endpoints[f.End].String()
		}
		for _, r := range n.Routes {
			line += " " + r.To.String()
		}
		got = append(got, line)
	}
	const want = "a a:eth0 0.0.0.0/0 ::/0; s s:1 s:3; r r:1; z z:eth1"
	if strings.Join(got, "; ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, "; "), want)
	}
	if x := remains.Externals; len(x) != 1 || remains.Links[x[0].Link].Endpoints[1].Node != "external" {
		t.Errorf("externals %+v", x)
	}
	if remains.Workloads != nil || len(whole.Nodes[0].Interfaces) != 1 || len(whole.Links) != 5 {
		t.Error("workloads are left, or the whole was changed")
	}
}
