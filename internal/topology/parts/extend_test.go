package parts

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/topology"
	"pgregory.net/rapid"
)

// placed returns the hosts of all nodes.
func placed(t *topology.Topology, p *Placement) map[string]int {
	at := map[string]int{}
	for _, n := range t.Nodes {
		at[n.Name] = p.Of(n.Name)
	}
	return at
}

// New nodes come beside those they are linked with, which stay where they are.
func TestExtend(t *testing.T) {
	kept := map[string]int{"a1": 0, "a2": 0, "a3": 0, "s1": 0, "b1": 1, "b2": 1, "b3": 1, "s2": 1}
	more := strings.Replace(pair, "  links:", "    c[1-2]: {}\n    d: {group: g, host: 2}\n  links:\n    - {endpoints: [\"c1:eth0\", \"s2:c1\"]}\n    - {endpoints: [\"c2:eth0\", \"s1:c2\"]}", 1)
	for _, test := range []struct {
		name, file string
		kept       map[string]int
		want       []string
	}{
		{"beside", more, kept, []string{"a1 a2 a3 s1 c2", "b1 b2 b3 s2 c1 d"}},
		{"what is there stays where it is bad", pair, map[string]int{"a1": 0, "b1": 0, "s2": 0, "b2": 0, "a2": 1, "a3": 1, "s1": 1, "b3": 1}, []string{"a1 b1 b2 s2", "a2 a3 b3 s1"}},
		{"host is not asked of what is there", strings.Replace(pair, "b[1-3]: {}", "b[1-3]: {host: 1}", 1), kept, []string{"a1 a2 a3 s1", "b1 b2 b3 s2"}},
		{"all of it is new", pair, nil, []string{"a1 a2 a3 s1", "b1 b2 b3 s2"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			is := parse(t, test.file)
			p, err := Extend(is, Alike(2), UsualApart, test.kept)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, on(is, p, 2)); diff != "" {
				t.Errorf("hosts (-want +got):\n%s", diff)
			}
		})
	}
}

// A file that would bring nodes of different hosts together is refused with its place.
func TestExtendRefused(t *testing.T) {
	kept := map[string]int{"a": 0, "b": 1}
	for _, test := range []struct{ name, file, want string }{
		{"netem", `topology: {nodes: {a: , b: }, links: [{endpoints: ["a:1", "b:1"], offload: off, engine: netem}]}`,
			"x.ndklab.yaml:1:89: a, which is on the host host1, would have to be on one host with b, which is on host2: the link a:1 - b:1 has engine: netem (x.ndklab.yaml:1:89); expected this only of nodes on one host, since a lab that is up moves none"},
		{"by way of a new node", "topology:\n  nodes: {a: , b: , c: }\n  links:\n    - {endpoints: [\"a:1\", \"c:1\"], offload: off, engine: netem}\n    - {endpoints: [\"c:2\", \"b:1\"], offload: off, engine: netem}",
			"x.ndklab.yaml:5:57: a, which is on the host host1, would have to be on one host with b, which is on host2: the link c:2 - b:1 has engine: netem (x.ndklab.yaml:5:57), the link a:1 - c:1 has engine: netem (x.ndklab.yaml:4:57); expected"},
		{"a pin beside what is elsewhere", "topology:\n  nodes: {a: , b: , c: {host: 2}}\n  links: [{endpoints: [\"a:1\", \"c:1\"], offload: off, engine: netem}]",
			"x.ndklab.yaml:2:31: host: c is to be on host2, but stays on one host with a, which is on host1: the link a:1 - c:1 has engine: netem (x.ndklab.yaml:3:61); expected the same host for both"},
		{"no such host", "topology:\n  nodes: {a: , b: , c: {host: 3}}", `x.ndklab.yaml:2:31: host: no host is "3", expected a number from 1 to 2 or one of host1, host2`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Extend(parse(t, test.file), Alike(2), UsualApart, kept)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%v\nwant %s", err, test.want)
			}
		})
	}
}

// Nothing moves, whatever is added or removed, and all hosts are used that there are.
func TestExtendMovesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := Alike(rapid.IntRange(1, 4).Draw(t, "hosts"))
		var kept map[string]int
		for range rapid.IntRange(2, 4).Draw(t, "changes") {
			is := randomTopology(t)
			p, err := Extend(is, hosts, UsualApart, kept)
			if err != nil {
				t.Fatal(err)
			}
			now := placed(is, p)
			for name, host := range now {
				if before, was := kept[name]; was && before != host {
					t.Fatalf("%s was on %d and is on %d", name, before, host)
				}
				if host < 0 || host >= len(hosts) {
					t.Fatalf("%s is on %d", name, host)
				}
			}
			again, err := Extend(is, hosts, UsualApart, maps.Clone(kept))
			if err != nil || !cmp.Equal(placed(is, again), now) {
				t.Fatalf("the same again: %v", err)
			}
			kept = now
		}
	})
}

// randomTopology has some of ten nodes, and links between them.
func randomTopology(t *rapid.T) *topology.Topology {
	is := &topology.Topology{Name: "x", Seed: 1, HasSeed: true}
	for _, name := range strings.Split("abcdefghij", "") {
		if rapid.Bool().Draw(t, name) {
			is.Nodes = append(is.Nodes, topology.Node{Name: name})
		}
	}
	for i := range is.Nodes {
		for j := range i {
			if rapid.IntRange(0, 3).Draw(t, "linked") == 0 {
				number := len(is.Links)
				is.Links = append(is.Links, topology.Link{Number: number, Endpoints: [2]topology.Endpoint{{Node: is.Nodes[i].Name}, {Node: is.Nodes[j].Name}}})
			}
		}
	}
	return is
}
