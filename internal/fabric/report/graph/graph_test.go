package graph

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/golden"
	"github.com/ndklab/ndklab/internal/topology/generate"
	"github.com/ndklab/ndklab/topology"
	"pgregory.net/rapid"
)

// odd has everything that a drawing can show of a topology.
const odd = `
name: odd
topology:
  nodes: {storage-frontend-01: , b: , c: , lonely: , r1: {kind: router}, sw: {kind: switch}, x: , y: }
  links:
    - {endpoints: ["storage-frontend-01:eth0", "b:eth0"], delay: 1ms, jitter: 50us, loss: 0.1%, rate: 10gbit, reverse: {loss: 1%}}
    - {endpoints: ["storage-frontend-01:eth1", "b:eth1"], down: true}
    - {endpoints: ["storage-frontend-01:eth2", "b:eth2"], jitter: {spread: 50us, distribution: normal}, delay: 3ms}
    - {endpoints: ["b:eth3", "c:eth0"]}
    - {endpoints: ["c:eth1", "external:tap0"], mtu: 1500}
    - {endpoints: ["x:eth0", "sw:p1"], loss: 2%}
    - {endpoints: ["y:eth0", "sw:p2"], delay: 5ms, rate: 100mbit}
    - {endpoints: ["sw:p3", "r1:eth0"], down: true}
    - {endpoints: ["external:up", "r1:eth1"]}
`

func parse(t testing.TB, name, text string) *Graph {
	t.Helper()
	topo, err := topology.Parse(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return Of(topo)
}

// shape is the graph of a generated topology, whose parameters are the usual ones but
// for those given.
func shape(t testing.TB, name string, values map[string]int) *Graph {
	t.Helper()
	for _, s := range generate.Shapes() {
		if s.Name != name {
			continue
		}
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
		return parse(t, name, text)
	}
	t.Fatalf("no shape %s", name)
	return nil
}

// lab is the odd topology as a lab that is up, with a node that is down, a link that
// was changed and one that was brought up.
func lab(t testing.TB) *Graph {
	topo, err := topology.Parse("odd", []byte(odd))
	if err != nil {
		t.Fatal(err)
	}
	var nodes []report.Node
	for _, n := range topo.Nodes {
		node := report.Node{NodeState: report.NodeState{Name: n.Name, State: "ready"}, Kind: string(n.Kind)}
		if n.Name == "b" {
			node.State, node.Reason = "down", `its agent was killed: the node's "limits"`
		}
		nodes = append(nodes, node)
	}
	var links []report.Link
	for i, l := range topo.Links {
		link := report.Link{State: "up"}
		if i == 3 {
			link.State = "down"
		}
		for end, e := range l.Endpoints {
			link.Endpoints[end] = e.String()
			link.Directions[end].Settings = l.Directions[end].Settings()
		}
		links = append(links, link)
	}
	links[3].Directions[0].Settings = []string{"loss=5%"}
	return OfLab("odd", nodes, links, []report.External{{Endpoint: "external:tap0", Addresses: []string{"10.0.4.2/24"}}, {Endpoint: "external:up"}})
}

// TestDrawings compares drawings with those that somebody has looked at.
func TestDrawings(t *testing.T) {
	for name, g := range map[string]*Graph{
		"pair": shape(t, "pair", nil), "star": shape(t, "star", map[string]int{"nodes": 12}), "ring": shape(t, "ring", map[string]int{"nodes": 20}),
		"mesh": shape(t, "mesh", nil), "leaf-spine": shape(t, "leaf-spine", nil), "fat-tree": shape(t, "fat-tree", map[string]int{"k": 4}),
		"dumbbell": shape(t, "dumbbell", nil), "wan": shape(t, "wan", nil), "odd": parse(t, "odd", odd), "lab": lab(t), "tree": tree(), "empty": {Name: "empty"},
	} {
		t.Run(name, func(t *testing.T) {
			golden.Check(t, name+".svg", g.SVG())
			if name == "odd" || name == "lab" || name == "pair" {
				golden.Check(t, name+".dot", g.DOT())
				golden.Check(t, name+".mermaid", g.Mermaid())
			}
		})
	}
}

// tree is of hosts alone, which are placed by stress.
func tree() *Graph {
	g := &Graph{Name: "tree"}
	for i := range 15 {
		g.Nodes = append(g.Nodes, Node{Name: fmt.Sprintf("h%d", i), Kind: Host})
		if i > 0 {
			g.Links = append(g.Links, Link{Ends: [2]End{{(i - 1) / 2, fmt.Sprintf("eth%d", i)}, {i, "eth0"}}})
		}
	}
	return g
}

// hostile has names that no topology file can have, but that a drawing must survive.
func hostile() *Graph {
	name := "</text><script>alert('1')</script>\"]|`#&\x00\xff\n;"
	return &Graph{Name: name,
		Nodes: []Node{{Name: name, Kind: Host, Trouble: name, Reason: name}, {Name: "a", Kind: Switch}},
		Links: []Link{{Ends: [2]End{{0, name}, {1, name}}, Settings: [2][]string{{"loss=" + name}, nil}, Down: true}, {Ends: [2]End{{1, "x"}, {1, "y"}}}},
	}
}

func TestHostileNames(t *testing.T) {
	g := hostile()
	wellFormed(t, g.SVG())
	if svg := g.SVG(); strings.Contains(svg, "<script") {
		t.Error("the picture has a script")
	}
	for line := range strings.Lines(g.Mermaid()) {
		if strings.HasPrefix(line, "%%") { // a comment
			continue
		}
		if n := strings.Count(line, `"`); strings.Contains(line, "<script") || n != 0 && n != 2 {
			t.Errorf("mermaid: %s", line)
		}
	}
	if got, want := dotText("a\"b\\\nc"), `"a\"b\\\nc"`; got != want {
		t.Errorf("dot: %s, want %s", got, want)
	}
}

// wellFormed reads a picture as XML, whose elements and attributes refer to nothing
// outside.
func wellFormed(t rapid.TB, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		element, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		switch element.Name.Local {
		case "svg", "title", "style", "rect", "text", "g", "path":
		default:
			t.Errorf("element %s", element.Name.Local)
		}
		for _, a := range element.Attr {
			if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") || strings.Contains(a.Name.Local, "href") || strings.HasPrefix(a.Name.Local, "on") {
				t.Errorf("attribute %s=%s", a.Name.Local, a.Value)
			}
		}
	}
}

// TestAnyGraph draws random graphs: always the same way, as XML, every node and link,
// and no two nodes on top of each other.
func TestAnyGraph(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &Graph{Name: "any"}
		n := rapid.IntRange(1, 25).Draw(t, "nodes")
		for i := range n {
			kind := rapid.SampledFrom([]Kind{Host, Host, Switch, Router, External}).Draw(t, "kind")
			g.Nodes = append(g.Nodes, Node{Name: fmt.Sprintf("node-%d", i), Kind: kind})
		}
		for i := range rapid.IntRange(0, 40).Draw(t, "links") {
			l := Link{Down: rapid.Bool().Draw(t, "down")}
			for end := range l.Ends {
				l.Ends[end] = End{rapid.IntRange(0, n-1).Draw(t, "end"), fmt.Sprintf("eth%d", i)}
				l.Settings[end] = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"delay=1ms", "rate=10gbit", "loss=1%", "jitter={spread: 1ms}"}), 0, 3, rapid.ID).Draw(t, "settings")
			}
			g.Links = append(g.Links, l)
		}
		svg := g.SVG()
		wellFormed(t, svg)
		if svg != g.SVG() {
			t.Error("another time the picture is another one")
		}
		if nodes, links := strings.Count(svg, `class="name"`), strings.Count(svg, "<path "); nodes != n || links != len(g.Links) {
			t.Errorf("%d nodes and %d links are drawn, want %d and %d", nodes, links, n, len(g.Links))
		}
		p := g.layout(nil)
		for i := range n {
			for j := range i {
				apart := p.at[i].minus(p.at[j])
				if math.Abs(apart.x) < (p.widths[i]+p.widths[j])/2 && math.Abs(apart.y) < height {
					t.Errorf("nodes %d at %v and %d at %v lie on each other", i, p.at[i], j, p.at[j])
				}
			}
		}
	})
}

// TestShapesAreRecognised has the usual topologies placed in the way that suits them.
func TestShapesAreRecognised(t *testing.T) {
	fatTree := shape(t, "fat-tree", map[string]int{"k": 4})
	p := fatTree.layout(nil)
	for i, n := range fatTree.Nodes {
		want := 0
		for prefix, level := range map[string]int{"edge": 1, "agg": 2, "core": 3} {
			if strings.Contains(n.Name, prefix) {
				want = level
			}
		}
		if p.level[i] != want {
			t.Errorf("%s is in layer %d, want %d", n.Name, p.level[i], want)
		}
	}
	ring := shape(t, "ring", map[string]int{"nodes": 20}).layout(nil)
	radius := ring.at[0].minus(ring.at[10]).length() / 2
	low, up := bounds(ring.at)
	for i, q := range ring.at {
		if d := q.minus(between(low, up, 0.5)).length(); math.Abs(d-radius) > 1 {
			t.Errorf("node %d of the ring is %v from the middle, others %v", i, d, radius)
		}
	}
	for i, q := range shape(t, "pair", nil).layout(nil).at {
		if q.y != 0 {
			t.Errorf("node %d of the pair is at %v", i, q)
		}
	}
}

func TestBrief(t *testing.T) {
	for want, settings := range map[string][]string{
		"":                     nil,
		"1ms ±50us, 10gbit":    {"delay=1ms", "jitter=50us", "rate=10gbit"},
		"jitter 1us":           {"jitter=1us"},
		"jitter, loss 1%, ecn": {"jitter={spread: 1ms}", "loss=1%", "ecn={min: 1KiB, max: 2KiB}"},
	} {
		if got := brief(settings); got != want {
			t.Errorf("%q: %q, want %q", settings, got, want)
		}
	}
}

// BenchmarkSVG draws large labs.
func BenchmarkSVG(b *testing.B) {
	for _, s := range []struct {
		name   string
		values map[string]int
	}{{"ring", map[string]int{"nodes": 1000}}, {"star", map[string]int{"nodes": 1000}}, {"fat-tree", map[string]int{"k": 8}}} {
		g := shape(b, s.name, s.values)
		b.Run(fmt.Sprintf("%s-%d", s.name, len(g.Nodes)), func(b *testing.B) {
			for b.Loop() {
				_ = g.SVG()
			}
		})
	}
}

// Settings that are usual of links between nodes of the same kinds are said once of them, where
// none are usual of all.
func TestUsualByKinds(t *testing.T) {
	g := shape(t, "leaf-spine", nil)
	for i := range g.Links {
		l := &g.Links[i]
		for end, e := range l.Ends {
			l.Settings[end] = []string{"delay=20us"}
			if g.Nodes[e.Node].Kind == Router {
				l.Settings[end] = append(l.Settings[end], "queue=256KiB")
			}
		}
	}
	u := g.usual()
	if diff := cmp.Diff([]string{"host - router links: 20us; from router: queue 256KiB", "router - router links: 20us, queue 256KiB"}, g.sentences(u)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for i := range g.Links {
		if lines := g.shown(&g.Links[i], u); lines != nil {
			t.Errorf("link %d is labelled %q", i, lines)
		}
	}
	// Fewer links of one kind have a sentence of their own, too.
	routers := 0
	g.Links = slices.DeleteFunc(g.Links, func(l Link) bool {
		if g.kinds(&l) == (kinds{Router, Router}) {
			routers++
		}
		return routers > 4 && g.kinds(&l) == (kinds{Router, Router})
	})
	u = g.usual()
	if diff := cmp.Diff([]string{"links: 20us; from router: queue 256KiB", "router - router links: 20us, queue 256KiB"}, g.sentences(u)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	g.Links[0].Settings = [2][]string{}
	if got := g.shown(&g.Links[0], u); len(got) != 1 || got[0] != "plain" {
		t.Errorf("a plain link among others is labelled %q", got)
	}
}
