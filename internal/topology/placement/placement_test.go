package placement

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/internal/need"
	"pgregory.net/rapid"
)

// A shape is a graph of a lab: all of its nodes and links weigh the same.
type shape struct {
	vertices int
	edges    []Edge
}

func (s *shape) vertex() int {
	s.vertices++
	return s.vertices - 1
}

func (s *shape) join(a, b int) { s.edges = append(s.edges, Edge{a, b, 1}) }

func (s *shape) graph() *Graph { return NewGraph(slices.Repeat([]int{1}, s.vertices), s.edges) }

// fatTree has k pods of k switches and k*k/4 hosts each.
func fatTree(k int) *shape {
	s := &shape{}
	var cores []int
	for range k * k / 4 {
		cores = append(cores, s.vertex())
	}
	for range k {
		var upper []int
		for i := range k / 2 {
			upper = append(upper, s.vertex())
			for j := range k / 2 {
				s.join(upper[i], cores[i*k/2+j])
			}
		}
		for range k / 2 {
			edge := s.vertex()
			for _, u := range upper {
				s.join(edge, u)
			}
			for range k / 2 {
				s.join(edge, s.vertex())
			}
		}
	}
	return s
}

func leafSpine(leaves, spines, hosts int) *shape {
	s := &shape{}
	var tops []int
	for range spines {
		tops = append(tops, s.vertex())
	}
	for range leaves {
		leaf := s.vertex()
		for _, t := range tops {
			s.join(leaf, t)
		}
		for range hosts {
			s.join(leaf, s.vertex())
		}
	}
	return s
}

func ring(n int) *shape {
	s := &shape{vertices: n}
	for v := range n {
		s.join(v, (v+1)%n)
	}
	return s
}

// sites are stars, whose middles form a ring with some chords.
func sites(n, hosts, chords int) *shape {
	s := &shape{}
	var middles []int
	for range n {
		middles = append(middles, s.vertex())
		for range hosts {
			s.join(middles[len(middles)-1], s.vertex())
		}
	}
	for i := range n {
		s.join(middles[i], middles[(i+1)%n])
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range chords {
		if a, b := r.IntN(n), r.IntN(n); a != b {
			s.join(middles[a], middles[b])
		}
	}
	return s
}

// cuts has what METIS cuts: gpmetis 5.1.0 of Debian, with its defaults or with -ptype=rb, where that cuts less.
var cuts = []struct {
	name  string
	shape func() *shape
	metis map[int]int // weight of the cut, by the number of hosts
}{
	{"fat-tree", func() *shape { return fatTree(16) }, map[int]int{2: 512, 3: 697, 8: 899, 64: 1516}},
	{"leaf-spine", func() *shape { return leafSpine(32, 16, 32) }, map[int]int{2: 256, 3: 342, 8: 448, 64: 992}},
	{"ring", func() *shape { return ring(2000) }, map[int]int{2: 2, 3: 3, 8: 8, 64: 64}},
	{"sites", func() *shape { return sites(20, 50, 10) }, map[int]int{2: 2, 3: 20, 8: 105, 64: 703}},
	{"many-sites", func() *shape { return sites(600, 100, 600) }, map[int]int{2: 180, 3: 263, 8: 388, 64: 2120}},
}

// alike returns hosts that are alike.
func alike(n int) []float64 { return slices.Repeat([]float64{1}, n) }

// The cut weighs at most a tenth more than that of METIS, and no host has more than its share, three percent and a vertex.
func TestCut(t *testing.T) {
	for _, c := range cuts {
		g := c.shape().graph()
		for n, metis := range c.metis {
			parts := Divide(g, alike(n), nil, 1)
			if cut := g.Cut(parts); cut*10 > metis*11 {
				t.Errorf("%s on %d hosts: the cut weighs %d, that of METIS %d", c.name, n, cut, metis)
			}
			if most := slices.Max(weightsOf(g, parts, n)); float64(most) > 1.03*float64(g.Len())/float64(n)+1 {
				t.Errorf("%s on %d hosts: one has %d of %d", c.name, n, most, g.Len())
			}
		}
	}
}

// weightsOf returns the weight of what each host has.
func weightsOf(g *Graph, parts []int, n int) []int {
	weights := make([]int, n)
	for v, p := range parts {
		weights[p] += g.weights[v]
	}
	return weights
}

// Hosts get what their capacities say, the same for the same seed.
func TestCapacities(t *testing.T) {
	g := sites(20, 50, 10).graph()
	capacities := []float64{1, 2, 4, 3}
	parts := Divide(g, capacities, nil, 7)
	for host, weight := range weightsOf(g, parts, len(capacities)) {
		if share := capacities[host] / 10 * float64(g.Len()); float64(weight) < 0.9*share || float64(weight) > 1.03*share+1 {
			t.Errorf("host %d has %d, want %.0f", host, weight, share)
		}
	}
	if again := Divide(g, capacities, nil, 7); !slices.Equal(parts, again) {
		t.Error("the same seed gives another answer")
	}
}

// Edges that weigh more are cut last.
func TestWeights(t *testing.T) {
	const n = 100
	var edges []Edge
	for v := range n {
		edges = append(edges, Edge{v, (v + 1) % n, 1 + 9*(v%10/9^1)}) // of ten in a row, one weighs little
	}
	g := NewGraph(slices.Repeat([]int{1}, n), edges)
	if parts := Divide(g, alike(5), nil, 1); g.Cut(parts) != 5 {
		t.Errorf("the cut weighs %d: %v", g.Cut(parts), parts)
	}
}

// Any graph is divided: each vertex has a host, the one that is given, and the weights of edges between the same vertices add up.
func TestAnyGraph(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 9), rapid.IntRange(2*coarsest, 4*coarsest)).Draw(t, "vertices")
		weights := rapid.SliceOfN(rapid.IntRange(0, 9), n, n).Draw(t, "weights")
		s := &shape{vertices: n}
		if n > 0 {
			vertex := rapid.IntRange(0, n-1)
			s.edges = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Edge {
				return Edge{vertex.Draw(t, "a"), vertex.Draw(t, "b"), rapid.IntRange(0, 5).Draw(t, "weight")}
			}), 0, 3*n).Draw(t, "edges")
		}
		count := rapid.IntRange(1, 9).Draw(t, "hosts")
		at := rapid.SliceOfN(rapid.IntRange(Anywhere, count-1), n, n).Draw(t, "at")
		parts := Divide(NewGraph(weights, s.edges), alike(count), at, 1)
		for v, p := range parts {
			if p < 0 || p >= count || at[v] != Anywhere && p != at[v] {
				t.Fatalf("vertex %d is at %d, want %d", v, p, at[v])
			}
		}
		want := 0
		for _, e := range s.edges {
			if parts[e.A] != parts[e.B] {
				want += e.Weight
			}
		}
		if got := NewGraph(weights, s.edges).Cut(parts); got != want {
			t.Fatalf("the cut weighs %d, want %d", got, want)
		}
	})
}

// metis returns what gpmetis cuts.
func metis(t *testing.T, s *shape, hosts int, args ...string) int {
	t.Helper()
	neighbours := make([][]int, s.vertices)
	graph := s.graph()
	for v := range neighbours {
		for _, e := range graph.of(int32(v)) {
			neighbours[v] = append(neighbours[v], int(e.to)+1)
		}
	}
	var text bytes.Buffer
	fmt.Fprintln(&text, s.vertices, len(graph.edges)/2)
	for _, n := range neighbours {
		fmt.Fprintln(&text, strings.Trim(fmt.Sprint(n), "[]"))
	}
	file := filepath.Join(t.TempDir(), "graph")
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("gpmetis", append(args, file, fmt.Sprint(hosts))...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var cut int
	_, after, _ := strings.Cut(string(out), "Edgecut: ")
	if _, err := fmt.Sscanf(after, "%d", &cut); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return cut
}

// The figures of METIS are what it prints, where it is installed.
func TestMETIS(t *testing.T) {
	need.Check(t, need.Programs("gpmetis")) // Debian's package metis
	for _, c := range cuts {
		s := c.shape()
		for n, recorded := range c.metis {
			if got := min(metis(t, s, n), metis(t, s, n, "-ptype=rb")); got != recorded {
				t.Errorf("%s on %d hosts: METIS cuts %d, recorded is %d", c.name, n, got, recorded)
			}
		}
	}
}

func BenchmarkDivide(b *testing.B) {
	for _, c := range cuts {
		for _, hosts := range []int{8, 64} {
			b.Run(fmt.Sprintf("%s/%d", c.name, hosts), func(b *testing.B) {
				g := c.shape().graph()
				for b.Loop() {
					Divide(g, alike(hosts), nil, 1)
				}
			})
		}
	}
}
