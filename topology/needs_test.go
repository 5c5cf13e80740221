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

// TestNeedsSimulation has the place of all that a lab has not got. An empty list of pauses is nothing.
func TestNeedsSimulation(t *testing.T) {
	const file = `
topology:
  defaults: {adapter: {pfc: [3]}}
  kinds:
    tor: {kind: switch, buffer: hpcc}
  groups:
    idle: {adapter: {pfc: []}}
  nodes:
    a:
    b: {adapter: {pfc: [4], receive_rate: 1gbit, turnaround: 1us}}
    c: {group: idle}
    s: {kind: tor}
    u: {kind: tor, buffer: sonic, priorities: {lossless: []}}
  links:
    - {endpoints: ["a:eth0", "b:eth0"]}
timeline: [
  {at: 1s, storm: a, for: 1s},
  {at: 1s, storm: b, for: 1s}]
series: 1ms
`
	storm, series := "an adapter has a storm of pauses", "the lab has a series"
	at := func(line, column int) Place { return Place{"x.yaml", line, column} }
	pfc, buffer := "an adapter has pfc", "a node has a shared buffer"
	for _, c := range []struct {
		nodes []string
		want  []Need
	}{
		{nil, []Need{{"a", pfc, at(3, 29)}, {"b", pfc, at(10, 24)}, {"b", "an adapter has receive_rate", at(10, 43)}, {"b", "an adapter has turnaround", at(10, 62)}, {"s", buffer, at(5, 33)}, {"u", buffer, at(13, 28)}, {"a", storm, at(17, 19)}, {"b", storm, at(18, 19)}, {"", series, at(19, 9)}}},
		{[]string{"b", "c", "u"}, []Need{{"b", pfc, at(10, 24)}, {"b", "an adapter has receive_rate", at(10, 43)}, {"b", "an adapter has turnaround", at(10, 62)}, {"u", buffer, at(13, 28)}, {"b", storm, at(18, 19)}, {"", series, at(19, 9)}}},
	} {
		topo, err := ParseWith(Options{Nodes: c.nodes}, "x.yaml", []byte(file))
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
	err := Refuse([]Need{{"b", "late", Place{"x.yaml", 3, 1}}, {"a", "early", Place{"x.yaml", 2, 5}}, {"c", "late", Place{"x.yaml", 3, 1}}, {"c", "other", Place{"x.yaml", 3, 1}}}, "none")
	const want = "x.yaml:2:5: early, expected none\nx.yaml:3:1: late, expected none\nx.yaml:3:1: other, expected none"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
