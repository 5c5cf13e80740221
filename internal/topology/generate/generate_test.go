package generate

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ndklab/ndklab/topology"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"
)

// usual is an order of a shape with its defaults.
func usual(s Shape) Order {
	o := Order{Name: "lab", Command: "ndklab generate " + s.Name, Values: make(map[string]int), Link: s.Link}
	for _, p := range s.Parameters {
		o.Values[p.Name] = p.Default
	}
	if s.Fabric != nil {
		o.Fabric = *s.Fabric
	}
	return o
}

// parsed is the topology of what a shape writes.
func parsed(t rapid.TB, s Shape, o Order) *topology.Topology {
	t.Helper()
	text, err := s.Generate(o)
	if err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	for i, line := range strings.Split(text, "\n") {
		if strings.TrimRight(line, " ") != line {
			t.Errorf("%s: line %d ends in spaces: %q", s.Name, i+1, line)
		}
	}
	lab, err := topology.Parse("generated.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%s: %v\n%s", s.Name, err, text)
	}
	if len(text) > 256<<10 {
		return lab // the validator is slow, and large files have nothing that small ones have not
	}
	var values any
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	if err := schema().Validate(values); err != nil {
		t.Fatalf("%s: %v\n%s", s.Name, err, text)
	}
	return lab
}

// schema returns the schema that editors hold files to.
var schema = sync.OnceValue(func() *jsonschema.Schema {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(topology.JSONSchema()))
	c := jsonschema.NewCompiler()
	if err := errors.Join(err, c.AddResource("topology.json", document)); err != nil {
		panic(err)
	}
	return c.MustCompile("topology.json")
})

// TestAnything generates every shape with any parameters in their ranges.
func TestAnything(t *testing.T) {
	for _, s := range Shapes() {
		t.Run(s.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				o := Order{Name: "x-1", Command: "a command", Values: make(map[string]int)}
				for _, p := range s.Parameters {
					v := rapid.IntRange(p.Minimum, min(p.Maximum, 2*p.Default)).Draw(t, p.Name)
					if p.Even {
						v = max(p.Minimum, v/2*2)
					}
					o.Values[p.Name] = v
				}
				o.Link.Rate = rapid.Uint64Range(0, 1e12).Draw(t, "rate")
				o.Link.Delay = time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "delay"))
				o.Link.Loss = float64(rapid.IntRange(0, 1e6).Draw(t, "loss")) / 1e6
				if s.Fabric != nil { // a port has a rate, and the buffer room for what a pause is too late for
					o.Link.Rate = rapid.Uint64Range(1e6, 400e9).Draw(t, "rate of a port")
					o.Link.Delay %= 10 * time.Microsecond
					o.Fabric = Fabric{rapid.Uint64Range(2<<30, 1<<40).Draw(t, "buffer"), rapid.SampledFrom(Congestions).Draw(t, "congestion"), rapid.Bool().Draw(t, "PFC")}
				}
				lab := parsed(t, s, o)
				if lab.Name != "x-1" || !lab.HasSeed {
					t.Errorf("name %q, seed %v", lab.Name, lab.HasSeed)
				}
				asked := 0
				for _, l := range lab.Links {
					for _, d := range l.Directions {
						if d.Rate == o.Link.Rate && d.Delay == o.Link.Delay && d.Loss.Rate == o.Link.Loss {
							asked++
						}
					}
				}
				if asked < 2 {
					t.Error("no link is as asked")
				}
			})
		})
	}
}

// TestLargest generates every shape with the largest and the smallest parameters.
func TestLargest(t *testing.T) {
	for _, s := range Shapes() {
		least, most := usual(s), usual(s)
		for _, p := range s.Parameters {
			least.Values[p.Name], most.Values[p.Name] = p.Minimum, p.Maximum
		}
		parsed(t, s, least)
		parsed(t, s, most)
	}
}

func TestShapes(t *testing.T) {
	tests := []struct {
		shape                    string
		hosts, switches, routers int
		links, subnets           int
	}{
		{"pair", 2, 0, 0, 1, 1},
		{"star", 8, 1, 0, 8, 1},
		{"ring", 4, 0, 0, 4, 4},
		{"mesh", 4, 0, 0, 6, 6},
		{"leaf-spine", 8, 0, 6, 16, 16},
		{"fat-tree", 16, 0, 20, 48, 48},
		{"dumbbell", 8, 2, 0, 9, 1},
		{"wan", 6, 3, 3, 12, 6},
		{"incast", 17, 1, 0, 17, 1},
		{"victim", 7, 2, 0, 8, 1},
		{"parking-lot", 5, 2, 0, 6, 1},
		{"ring-routers", 5, 0, 5, 10, 10},
	}
	if len(tests) != len(Shapes()) {
		t.Errorf("%d shapes, of which %d are tested", len(Shapes()), len(tests))
	}
	for i, s := range Shapes() {
		want := tests[i]
		lab := parsed(t, s, usual(s))
		got := want
		got.shape, got.hosts, got.switches, got.routers, got.links = s.Name, 0, 0, 0, len(lab.Links)
		subnets := make(map[string]bool)
		for _, n := range lab.Nodes {
			switch n.Kind {
			case topology.Host:
				got.hosts++
			case topology.Switch:
				got.switches++
			case topology.Router:
				got.routers++
			}
			for _, f := range n.Interfaces {
				for _, a := range f.Addresses {
					if a.Addr().Is4() {
						subnets[a.Masked().String()] = true
					}
				}
			}
		}
		got.subnets = len(subnets)
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if len(lab.Workloads) < 1 || len(lab.Checks) < 2 {
			t.Errorf("%s has %d workloads and %d checks", s.Name, len(lab.Workloads), len(lab.Checks))
		}
	}
}

// TestECMP holds a leaf of a leaf-spine fabric to as many next hops as there are
// spines.
func TestECMP(t *testing.T) {
	o := usual(leafSpine)
	o.Values["spines"] = 5
	lab := parsed(t, leafSpine, o)
	to := lab.FindNode("h4-2").Interfaces[0].Addresses
	found := 0
	for _, r := range lab.FindNode("leaf1").Routes {
		for _, a := range to {
			if r.To.Contains(a.Addr()) {
				found++
				if len(r.Via) != 5 {
					t.Errorf("the route to %s has the next hops %v, want 5", a, r.Via)
				}
			}
		}
	}
	if found != 2 {
		t.Errorf("%d routes lead to %s, want one for each family", found, to)
	}
}

// TestFabric holds simulated shapes to what was asked of them.
func TestFabric(t *testing.T) {
	for _, s := range Shapes() {
		if s.Fabric == nil {
			continue
		}
		o := usual(s)
		o.Fabric = Fabric{Buffer: 5 << 20, Congestion: "dcqcn"}
		lab := parsed(t, s, o)
		for _, n := range lab.Nodes {
			if n.Kind != topology.Host && (n.Buffer == nil || n.Buffer.Size == nil || *n.Buffer.Size != 5<<20) {
				t.Errorf("%s: %s has the buffer %+v, want 5 MiB", s.Name, n.Name, n.Buffer)
			}
		}
		if text, err := s.Generate(o); err != nil || strings.Contains(text, "pfc:") || !strings.Contains(text, "congestion: dcqcn,") || !strings.Contains(text, "lossless: []") {
			t.Errorf("%s: %v: want DCQCN without pauses:\n%s", s.Name, err, text)
		}
		o.Fabric.Congestion = "timely"
		if _, err := s.Generate(o); err == nil || err.Error() != `congestion: "timely" is unknown, expected none or dcqcn` {
			t.Errorf("%s: error %v", s.Name, err)
		}
		o = usual(s)
		o.Link.Rate = 0
		if _, err := s.Generate(o); err == nil || err.Error() != "rate: none, expected a rate such as 40gbit: ports with a shared buffer have one" {
			t.Errorf("%s: error %v", s.Name, err)
		}
	}
}

func TestOutOfRange(t *testing.T) {
	for _, test := range []struct {
		shape Shape
		name  string
		value int
		want  string
	}{
		{star, "nodes", 1, "nodes: 1 is out of range, expected 2 to 1023"},
		{star, "nodes", 1024, "nodes: 1024 is out of range, expected 2 to 1023"},
		{fatTree, "k", 5, "k: 5 is odd, expected an even number"},
	} {
		o := usual(test.shape)
		o.Values[test.name] = test.value
		if _, err := test.shape.Generate(o); err == nil || err.Error() != test.want {
			t.Errorf("error %v, want %s", err, test.want)
		}
	}
}

// BenchmarkParse is of fabrics of about two thousand nodes, with their routes.
func BenchmarkParse(b *testing.B) {
	for _, size := range []struct {
		shape  Shape
		values map[string]int
	}{
		{star, map[string]int{"nodes": 1023}},
		{leafSpine, map[string]int{"spines": 16, "leaves": 64, "hosts-per-leaf": 30}},
		{fatTree, map[string]int{"k": 16}},
	} {
		o := usual(size.shape)
		o.Values = size.values
		text, err := size.shape.Generate(o)
		if err != nil {
			b.Fatal(err)
		}
		data := []byte(text)
		var lab *topology.Topology
		b.Run(size.shape.Name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if lab, err = topology.Parse("x.yaml", data); err != nil {
					b.Fatal(err)
				}
			}
			routes := 0
			for _, n := range lab.Nodes {
				routes += len(n.Routes)
			}
			b.ReportMetric(float64(len(lab.Nodes)), "nodes")
			b.ReportMetric(float64(routes), "routes")
		})
	}
}
