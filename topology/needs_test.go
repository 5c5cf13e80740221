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
		{nil, []Need{{"a", exec, at(5, 13), ""}, {"b", health, at(9, 20), ""}, {"c", exec, at(5, 13), ""}, {"b", outside, at(13, 29), ""}}},
		{[]string{"a", "c"}, []Need{{"a", exec, at(5, 13), ""}, {"c", exec, at(5, 13), ""}}},
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

// TestNeedsSimulation has the place of all that a lab has not got, and what it has instead.
func TestNeedsSimulation(t *testing.T) {
	const buffers = `
topology:
  defaults: {adapter: {turnaround: 1us}}
  kinds:
    tor: {kind: switch, buffer: hpcc}
  nodes:
    a: {adapter: {receive_rate: 1gbit}}
    b: {adapter: {pfc: [3]}}
    s: {kind: tor, stp: true}
    u: {kind: tor}
    r: {kind: router, buffer: sonic, port: {rate: 1gbit}}
  links:
    - {endpoints: ["a:eth0", "b:eth0"], engine: netem}
    - {endpoints: ["b:eth1", "u:e0"], rate: 1gbit}
    - {endpoints: ["r:e0", "u:e1"], rate: 1gbit}
timeline: [{at: 1s, storm: b, for: 1s}]
series: 1ms
`
	const none = `
topology: {nodes: {a: , b: }, links: [{endpoints: ["a:eth0", "b:eth0"], engine: netem}]}
series: 1ms
`
	at := func(line, column int) Place { return Place{"x.yaml", line, column} }
	const (
		stp    = "one of them in a lab: a simulation (--simulate) has both"
		linkem = "engine: linkem in a lab, which carries the buffer"
	)
	for _, c := range []struct {
		file  string
		nodes []string
		want  []Need
	}{
		{buffers, nil, []Need{
			{"s", "a switch has stp and a shared buffer", at(5, 33), stp},
			{"a", "engine: netem is of a link at a buffer", at(13, 49), linkem},
		}},
		{buffers, []string{"b", "u"}, []Need{}},
		{none, nil, nil}, // a lab without a buffer has a series, too
	} {
		topo, err := ParseWith(Options{Nodes: c.nodes}, "x.yaml", []byte(c.file))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, topo.NeedsSimulation); diff != "" || topo.Needs != nil {
			t.Errorf("nodes %v need a machine for %v, and a simulation for (-want +got):\n%s", c.nodes, topo.Needs, diff)
		}
	}
}

// TestRefuse has what is in one place told once, in the order of the file.
func TestRefuse(t *testing.T) {
	if err := Refuse(nil, "nothing"); err != nil {
		t.Error(err)
	}
	err := Refuse([]Need{{"b", "late", Place{"x.yaml", 3, 1}, ""}, {"a", "early", Place{"x.yaml", 2, 5}, ""}, {"c", "late", Place{"x.yaml", 3, 1}, ""}, {"c", "other", Place{"x.yaml", 3, 1}, "less"}}, "none")
	const want = "x.yaml:2:5: early, expected none\nx.yaml:3:1: late, expected none\nx.yaml:3:1: other, expected less"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
