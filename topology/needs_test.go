package topology

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A setting that needs a machine is known with its place, also where a kind gives it,
// but not of nodes that are left out.
func TestNeeds(t *testing.T) {
	const file = `
topology:
  kinds:
    busy:
      exec: [echo]
  nodes:
    a: {kind: busy}
    b:
      healthcheck: {command: "true"}
    c: {kind: busy}
  links:
    - endpoints: ["a:eth0", "b:eth0"]
    - endpoints: ["b:eth1", "external:tap0"]
`
	at := func(line, column int) Place { return Place{"x.yaml", line, column} }
	exec, health, outside := "a node executes commands", "a node has a healthcheck", "a link leads outside the lab"
	for _, c := range []struct {
		nodes []string
		want  []Need
	}{
		{nil, []Need{{"a", exec, at(5, 13)}, {"b", health, at(9, 20)}, {"c", exec, at(5, 13)}, {"b", outside, at(13, 29)}}},
		{[]string{"a", "c"}, []Need{{"a", exec, at(5, 13)}, {"c", exec, at(5, 13)}}},
	} {
		topo, err := ParseWith(Options{Nodes: c.nodes}, "x.yaml", []byte(file))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, topo.Needs); diff != "" {
			t.Errorf("nodes %v (-want +got):\n%s", c.nodes, diff)
		}
	}
}
