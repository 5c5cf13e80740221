// Package shape is fabrics of usual shapes: which nodes they have, what these are called,
// and what joins them.
//
// It is pure, and knows nothing of files: package generate writes a shape as one, and
// package topology reads one from a block of a file. Start reading at All.
package shape

import "fmt"

// A Shape is a form of topology.
type Shape struct {
	Name       string
	Parameters []Parameter
	Tiers      []string // of its links
	Plan       func(values map[string]int) Plan
}

// A Parameter is a whole number that a shape depends on.
type Parameter struct {
	Name             string
	Usage            string
	Default          int
	Minimum, Maximum int
	Even             bool // it must be
}

// Check is the error of a value that is out of the parameter's range.
func (p Parameter) Check(value int) error {
	switch {
	case value < p.Minimum || value > p.Maximum:
		return fmt.Errorf("%d is out of range, expected %d to %d", value, p.Minimum, p.Maximum)
	case p.Even && value%2 != 0:
		return fmt.Errorf("%d is odd, expected an even number", value)
	}
	return nil
}

// A Plan is the nodes and links of a shape.
type Plan struct {
	Nodes []Node
	Links []Link
}

// A Node is one of a plan.
type Node struct {
	Name string
	Kind string // switch or router; "": a host
	Tier string // what its like are called; "" of hosts
}

// A Link joins two interfaces, each NODE:IFACE.
type Link struct {
	Ends [2]string
	Tier string // one of the shape's Tiers
	Part string // of the shape, for readers; "": not said
}

func (p *Plan) node(kind, tier, format string, args ...any) {
	p.Nodes = append(p.Nodes, Node{fmt.Sprintf(format, args...), kind, tier})
}

func (p *Plan) host(format string, args ...any) { p.node("", "", format, args...) }

func (p *Plan) link(tier, part, a, b string) {
	p.Links = append(p.Links, Link{[2]string{a, b}, tier, part})
}

// All are all shapes.
func All() []Shape { return []Shape{Star, Ring, Mesh, LeafSpine, FatTree, Dumbbell} }

const (
	ofSwitch = "switch"
	ofRouter = "router"
	ofHosts  = "host" // the tier of the links of hosts
)

// hostCount is a parameter for a number of hosts.
func hostCount(usage string, least, usual, most int) Parameter {
	return Parameter{Name: "nodes", Usage: usage, Default: usual, Minimum: least, Maximum: most}
}

// Star is hosts h1, h2 ... at switch1.
var Star = Shape{
	Name:       "star",
	Parameters: []Parameter{hostCount("how many hosts", 2, 8, 1023)},
	Tiers:      []string{ofHosts},
	Plan: func(values map[string]int) (p Plan) {
		p.node(ofSwitch, ofSwitch, "switch1")
		for i := range values["nodes"] {
			p.host("h%d", i+1)
			p.link(ofHosts, "", fmt.Sprintf("h%d:eth0", i+1), fmt.Sprintf("switch1:p%d", i+1))
		}
		return p
	},
}

// Ring is hosts h1, h2 ... of which each has a link to the next.
var Ring = Shape{
	Name:       "ring",
	Parameters: []Parameter{hostCount("how many hosts", 3, 4, 2000)},
	Tiers:      []string{ofHosts},
	Plan: func(values map[string]int) (p Plan) {
		n := values["nodes"]
		for i := range n {
			p.host("h%d", i+1)
			p.link(ofHosts, "", fmt.Sprintf("h%d:right", i+1), fmt.Sprintf("h%d:left", (i+1)%n+1))
		}
		return p
	},
}

// Mesh is hosts h1, h2 ... of which each has a link to every other.
var Mesh = Shape{
	Name:       "mesh",
	Parameters: []Parameter{hostCount("how many hosts", 2, 4, 64)},
	Tiers:      []string{ofHosts},
	Plan: func(values map[string]int) (p Plan) {
		n := values["nodes"]
		for i := range n {
			p.host("h%d", i+1)
			for j := i + 1; j < n; j++ {
				p.link(ofHosts, "", fmt.Sprintf("h%d:h%d", i+1, j+1), fmt.Sprintf("h%d:h%d", j+1, i+1))
			}
		}
		return p
	},
}

// LeafSpine is hosts hLEAF-1, hLEAF-2 ... at routers leaf1, leaf2 ..., each of which has a
// link to each of spine1, spine2 ...
var LeafSpine = Shape{
	Name: "leaf-spine",
	Parameters: []Parameter{
		{Name: "spines", Usage: "how many spines", Default: 2, Minimum: 1, Maximum: 32},
		{Name: "leaves", Usage: "how many leaves", Default: 4, Minimum: 1, Maximum: 64},
		{Name: "hosts-per-leaf", Usage: "how many hosts at each leaf", Default: 2, Minimum: 1, Maximum: 64},
	},
	Tiers: []string{ofHosts, "spine"},
	Plan: func(values map[string]int) (p Plan) {
		spines, leaves, perLeaf := values["spines"], values["leaves"], values["hosts-per-leaf"]
		for s := range spines {
			p.node(ofRouter, "spine", "spine%d", s+1)
		}
		for l := range leaves {
			p.node(ofRouter, "leaf", "leaf%d", l+1)
			for h := range perLeaf {
				p.host("h%d-%d", l+1, h+1)
				p.link(ofHosts, fmt.Sprintf("Hosts of leaf %d.", l+1), fmt.Sprintf("h%d-%d:eth0", l+1, h+1), fmt.Sprintf("leaf%d:down%d", l+1, h+1))
			}
		}
		for s := range spines {
			for l := range leaves {
				p.link("spine", fmt.Sprintf("Spine %d.", s+1), fmt.Sprintf("leaf%d:up%d", l+1, s+1), fmt.Sprintf("spine%d:leaf%d", s+1, l+1))
			}
		}
		return p
	},
}

// FatTree is k pods p1, p2 ... of routers with k ports each, pPOD-edge1 ... and
// pPOD-agg1 ..., with hosts pPOD-hEDGE-1 ..., and routers core1 ... above them.
var FatTree = Shape{
	Name:       "fat-tree",
	Parameters: []Parameter{{Name: "k", Usage: "how many ports a router has; an even number", Default: 4, Minimum: 2, Maximum: 16, Even: true}},
	Tiers:      []string{ofHosts, "agg", "core"},
	Plan: func(values map[string]int) (p Plan) {
		k := values["k"]
		half := k / 2
		for c := range half * half {
			p.node(ofRouter, "core", "core%d", c+1)
		}
		for pod := 1; pod <= k; pod++ {
			for i := range half {
				p.node(ofRouter, "agg", "p%d-agg%d", pod, i+1)
			}
			for i := range half {
				p.node(ofRouter, "edge", "p%d-edge%d", pod, i+1)
				for h := range half {
					p.host("p%d-h%d-%d", pod, i+1, h+1)
					p.link(ofHosts, fmt.Sprintf("Pod %d: hosts to edge.", pod), fmt.Sprintf("p%d-h%d-%d:eth0", pod, i+1, h+1), fmt.Sprintf("p%d-edge%d:down%d", pod, i+1, h+1))
				}
			}
		}
		for pod := 1; pod <= k; pod++ {
			for a := range half {
				for e := range half {
					p.link("agg", fmt.Sprintf("Pod %d: edge to aggregation.", pod), fmt.Sprintf("p%d-edge%d:up%d", pod, e+1, a+1), fmt.Sprintf("p%d-agg%d:down%d", pod, a+1, e+1))
				}
			}
		}
		for c := range half * half {
			for pod := 1; pod <= k; pod++ {
				p.link("core", fmt.Sprintf("Core %d: to every pod.", c+1), fmt.Sprintf("p%d-agg%d:up%d", pod, c/half+1, c%half+1), fmt.Sprintf("core%d:pod%d", c+1, pod))
			}
		}
		return p
	},
}

// Dumbbell is hosts w1, w2 ... at the switch west and e1, e2 ... at the switch east, and
// one link between these.
var Dumbbell = Shape{
	Name:       "dumbbell",
	Parameters: []Parameter{hostCount("how many hosts on each side", 1, 4, 1000)},
	Tiers:      []string{ofHosts, "trunk"},
	Plan: func(values map[string]int) (p Plan) {
		sides := []string{"west", "east"}
		for _, side := range sides {
			p.node(ofSwitch, ofSwitch, "%s", side)
		}
		p.link("trunk", "The bottleneck.", "west:trunk", "east:trunk")
		for _, side := range sides {
			for i := range values["nodes"] {
				p.host("%c%d", side[0], i+1)
				p.link(ofHosts, "", fmt.Sprintf("%c%d:eth0", side[0], i+1), fmt.Sprintf("%s:p%d", side, i+1))
			}
		}
		return p
	},
}
