package live

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/leak"
	"github.com/ndklab/ndklab/internal/topology/generate"
	"github.com/ndklab/ndklab/topology"
)

func TestMain(m *testing.M) { leak.Main(m) }

func parse(t testing.TB, text string) *topology.Topology {
	t.Helper()
	topo, err := topology.Parse("x.ndklab.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return topo
}

// generated is a generated topology, whose parameters are the usual ones but for those given.
func generated(t testing.TB, name string, values map[string]int) *topology.Topology {
	t.Helper()
	shapes := generate.Shapes()
	s := shapes[slices.IndexFunc(shapes, func(s generate.Shape) bool { return s.Name == name })]
	order := generate.Order{Name: name, Values: map[string]int{}, Link: s.Link}
	for _, p := range s.Parameters {
		order.Values[p.Name] = p.Default
	}
	for key, v := range values {
		order.Values[key] = v
	}
	text, err := s.Generate(order)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, text)
}

// racks has switches in a loop, a router between two subnets with two hosts each, and what is outside.
const racks = `
name: racks
seed: 7
labels: {team: storage}
topology:
  nodes: {a: , b: , c: , d: , sw: {kind: switch, stp: true}, s2: {kind: switch, stp: true}, s3: {kind: switch, stp: true}, r: {kind: router}}
  links:
    - {endpoints: ["a:eth0", "sw:p1"]}
    - {endpoints: ["b:eth0", "sw:p2"]}
    - {endpoints: ["sw:p3", "s2:p1"]}
    - {endpoints: ["s2:p2", "s3:p1"]}
    - {endpoints: ["s3:p2", "sw:p4"]}
    - {endpoints: ["r:eth0", "s3:p3"]}
    - {endpoints: ["c:eth0", "r:eth1"]}
    - {endpoints: ["d:eth0", "r:eth2"]}
    - {endpoints: ["d:eth1", "external:tap0"]}
workloads:
  - {name: near, operation: write, from: a, to: b, size: 4KiB, count: 1}
  - {name: far, operation: send, from: c, to: b, size: 4KiB, count: 1}
  - {name: all, operation: send, pattern: incast, to: a, nodes: [c], size: 4KiB, count: 1}
`

func TestMapOf(t *testing.T) {
	m := MapOf(parse(t, racks))
	var nodes []string
	for _, n := range m.Nodes {
		nodes = append(nodes, strings.TrimSpace(n.Name+" "+n.Kind+" "+n.Group))
	}
	if diff := cmp.Diff([]string{"a host sw", "b host sw", "c host", "d host", "sw switch", "s2 switch", "s3 switch", "r router", "external:tap0 external"}, nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Link{Endpoints: [2]string{"d:eth1", "external:tap0"}, Nodes: [2]int{3, 8}}, m.Links[8]); diff != "" || len(m.Links) != 9 {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	// The link from s3 to sw closes the loop: frames pass s2.
	want := []Flow{
		{Workload: "near", From: 0, To: 1, Hops: []Hop{{0, 0}, {1, 1}}},
		{Workload: "far", From: 2, To: 1, Hops: []Hop{{6, 0}, {5, 0}, {3, 1}, {2, 1}, {1, 1}}},
		{Workload: "all", From: 2, To: 0, Hops: []Hop{{6, 0}, {5, 0}, {3, 1}, {2, 1}, {0, 1}}},
	}
	if diff := cmp.Diff(want, m.Flows); diff != "" {
		t.Errorf("flows (-want +got):\n%s", diff)
	}
	if m.Lab != "racks" || m.Seed != 7 || m.Labels["team"] != "storage" {
		t.Errorf("%s, %d, %v", m.Lab, m.Seed, m.Labels)
	}
}

// A flow that may take several paths has one of them, and says so.
func TestShared(t *testing.T) {
	topo := generated(t, "leaf-spine", nil)
	m := MapOf(topo)
	shared := 0
	for _, f := range m.Flows {
		at := f.From
		for _, h := range f.Hops {
			if l := m.Links[h.Link]; l.Nodes[h.End] != at {
				t.Fatalf("%+v leaves node %d by %v", f, at, l)
			} else {
				at = l.Nodes[1-h.End]
			}
		}
		if at != f.To || f.Shared != (len(f.Hops) > 2) {
			t.Errorf("%+v ends at %d", f, at)
		}
		if f.Shared {
			shared++
		}
	}
	if shared == 0 {
		t.Error("no path goes by a spine")
	}
}

// large returns a lab of 1,011 nodes.
func large(t testing.TB) *topology.Topology {
	links := ""
	for i := range 1000 {
		links += fmt.Sprintf("    - {endpoints: [\"h%d:eth0\", \"s%d:p%d\"]}\n", i, i%10, i)
	}
	return parse(t, "topology:\n  nodes: {\"h[0-999]\": , \"s[0-9]\": {kind: switch}, core: {kind: switch}}\n  links:\n"+
		"    - {endpoints: [\"s[0-9]:up\", \"core:p[0-9]\"]}\n"+links)
}

// BenchmarkMapOf makes the map of a large lab.
func BenchmarkMapOf(b *testing.B) {
	topo := large(b)
	for b.Loop() {
		MapOf(topo)
	}
}

// Every node has a place of its own within the picture.
func TestPlaces(t *testing.T) {
	for name, topo := range map[string]*topology.Topology{
		"racks": parse(t, racks), "pair": generated(t, "pair", nil), "star": generated(t, "star", map[string]int{"nodes": 64}), "large": large(t),
		"fat-tree": generated(t, "fat-tree", map[string]int{"k": 4}), "ring": generated(t, "ring", map[string]int{"nodes": 60}),
		"lonely": parse(t, "topology: {nodes: {a: , b: , c: }}"),
	} {
		m := MapOf(topo)
		seen := make(map[[2]float64]string)
		for _, n := range m.Nodes {
			at := [2]float64{n.X, n.Y}
			if other, twice := seen[at]; twice || n.X < 0 || n.X > m.Width || n.Y < 0 || n.Y > m.Height {
				t.Errorf("%s: %s is at %v of %gx%g, where %q is", name, n.Name, at, m.Width, m.Height, other)
			}
			seen[at] = n.Name
		}
		if m.Width > 4*m.Height && len(m.Nodes) > 3 {
			t.Errorf("%s: %g x %g", name, m.Width, m.Height)
		}
		if diff := cmp.Diff(m, MapOf(topo)); diff != "" {
			t.Errorf("%s once more:\n%s", name, diff)
		}
	}
}

// Groups of hosts that are joined to several switches have names that differ.
func TestGroups(t *testing.T) {
	topo := parse(t, `
topology:
  nodes: {a: , b: , c: , d: , e: , x: {kind: switch}, y: {kind: switch}}
  links:
    - {endpoints: ["a:0", "x:a"]}
    - {endpoints: ["b:0", "x:b"]}
    - {endpoints: ["c:0", "x:c"]}
    - {endpoints: ["c:1", "y:c"]}
    - {endpoints: ["d:0", "x:d"]}
    - {endpoints: ["d:1", "y:d"]}
    - {endpoints: ["e:0", "y:e"]}
`)
	var groups []string
	for _, n := range MapOf(topo).Nodes {
		groups = append(groups, n.Group)
	}
	if diff := cmp.Diff([]string{"x", "x", "x/2", "x/2", "", "", ""}, groups); diff != "" {
		t.Error(diff)
	}
}

// A map shows observations of its nodes and links, and no others.
func TestShows(t *testing.T) {
	topo := parse(t, racks)
	m := MapOf(topo)
	o := func() *report.Observation {
		o := &report.Observation{}
		for _, n := range topo.Nodes {
			o.Nodes = append(o.Nodes, report.ObservedNode{Node: report.Node{NodeState: report.NodeState{Name: n.Name}, Kind: string(n.Kind)}})
		}
		for _, l := range topo.Links {
			o.Links = append(o.Links, report.Link{Endpoints: [2]string{l.Endpoints[0].String(), l.Endpoints[1].String()}})
		}
		return o
	}
	if !m.Shows(o()) {
		t.Error("its own observation is of another topology")
	}
	for what, change := range map[string]func(*report.Observation){
		"a node less":    func(o *report.Observation) { o.Nodes = o.Nodes[:7] },
		"a node more":    func(o *report.Observation) { o.Nodes = append(o.Nodes, o.Nodes[0]) },
		"another node":   func(o *report.Observation) { o.Nodes[2].Name = "e" },
		"another kind":   func(o *report.Observation) { o.Nodes[2].Kind = "router" },
		"a link less":    func(o *report.Observation) { o.Links = o.Links[1:] },
		"another link":   func(o *report.Observation) { o.Links[3].Endpoints[1] = "s3:p9" },
		"nothing at all": func(o *report.Observation) { *o = report.Observation{} },
	} {
		other := o()
		change(other)
		if m.Shows(other) {
			t.Errorf("%s: the map shows it", what)
		}
	}
}
