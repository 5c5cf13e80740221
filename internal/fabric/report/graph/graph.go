// Package graph draws a topology or a lab that is up: as a graph for graphviz (DOT), as a
// diagram for Markdown (Mermaid), or as a picture (SVG) that needs neither.
//
// It does no I/O, and the same graph always makes the same drawing. It draws what it is
// given: nodes by their kind, links with the names of their interfaces and their
// impairments, and which of these are down. It knows no labs; OfLab takes what
// inspection of one has shown.
//
// Start reading at Graph, which Of and OfLab make and DOT, Mermaid and SVG draw; layout.go places the
// nodes of a picture.
package graph

import (
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// A Graph has the nodes and links to be drawn.
type Graph struct {
	Name  string // of the lab
	Nodes []Node
	Links []Link
}

// A Kind is a kind of node.
type Kind string

// The kinds of nodes, and what is outside the lab.
const (
	Host     Kind = "host"
	Switch   Kind = "switch"
	Router   Kind = "router"
	External Kind = "external"
)

// A Node is a node of the lab, or the end of a link outside.
type Node struct {
	Name      string
	Kind      Kind
	Addresses []string // CIDR form
	Trouble   string   // down or unresponsive; "" if it is well, or not running yet
	Reason    string   // for the trouble
}

// A Link joins two nodes.
type Link struct {
	Ends     [2]End
	Settings [2][]string // impairments of the packets that each end sends, KEY=VALUE
	Down     bool
}

// An End is the node and interface that a link is plugged into.
type End struct {
	Node      int // index in Graph.Nodes
	Interface string
}

// Of is the graph of a topology.
func Of(t *topology.Topology) *Graph {
	g := &Graph{Name: t.Name}
	for _, n := range t.Nodes {
		node := Node{Name: n.Name, Kind: Kind(n.Kind)}
		if node.Kind == "" { // of a topology that was not read from a file
			node.Kind = Host
		}
		for _, i := range n.Interfaces {
			for _, a := range i.Addresses {
				node.Addresses = append(node.Addresses, a.String())
			}
		}
		g.Nodes = append(g.Nodes, node)
	}
	for _, x := range t.Externals {
		node := Node{Name: external + x.Name, Kind: External}
		for _, a := range x.Addresses {
			node.Addresses = append(node.Addresses, a.String())
		}
		g.Nodes = append(g.Nodes, node)
	}
	at := g.index()
	for _, l := range t.Links {
		link := Link{Down: l.Down}
		for end, e := range l.Endpoints {
			link.Ends[end] = at.end(e.Node, e.Interface)
			link.Settings[end] = l.Directions[end].Settings()
		}
		g.Links = append(g.Links, link)
	}
	return g
}

// OfLab is the graph of a lab that is up, of whose nodes, links and externals
// inspection has shown the state.
func OfLab(name string, nodes []report.Node, links []report.Link, externals []report.External) *Graph {
	g := &Graph{Name: name}
	for _, n := range nodes {
		node := Node{Name: n.Name, Kind: Kind(n.Kind), Addresses: n.Addresses}
		if n.State != core.NodeIsReady {
			node.Trouble, node.Reason = n.State, n.Reason
		}
		g.Nodes = append(g.Nodes, node)
	}
	for _, x := range externals {
		g.Nodes = append(g.Nodes, Node{Name: x.Endpoint, Kind: External, Addresses: x.Addresses})
	}
	at := g.index()
	for _, l := range links {
		link := Link{Down: l.State != "up"}
		for end, e := range l.Endpoints {
			node, iface, _ := strings.Cut(e, ":")
			link.Ends[end] = at.end(node, iface)
			link.Settings[end] = l.Directions[end].Settings
		}
		g.Links = append(g.Links, link)
	}
	return g
}

// external begins the name of an end outside the lab, whose interface makes the rest.
const external = "external:"

// An index finds nodes by their names.
type index map[string]int

func (g *Graph) index() index {
	at := make(index, len(g.Nodes))
	for i, n := range g.Nodes {
		at[n.Name] = i
	}
	return at
}

func (at index) end(node, iface string) End {
	if i, ok := at[node]; ok {
		return End{i, iface}
	}
	return End{at[external+iface], iface}
}

// name is the node's for people.
func (n *Node) name() string { return strings.TrimPrefix(n.Name, external) }

// about describes a node in a line.
func (n *Node) about() string {
	text := n.name() + ": " + string(n.Kind)
	if n.Trouble != "" {
		text += ", " + n.Trouble
	}
	if n.Reason != "" {
		text += " (" + n.Reason + ")"
	}
	if len(n.Addresses) > 0 {
		text += ", " + strings.Join(n.Addresses, ", ")
	}
	return text
}

// about describes a link in a line.
func (g *Graph) about(l *Link) string {
	name := func(e End) string {
		n := &g.Nodes[e.Node]
		if n.Kind == External {
			return n.Name
		}
		return n.Name + ":" + e.Interface
	}
	text := name(l.Ends[0]) + " - " + name(l.Ends[1])
	if l.Down {
		text += ", down"
	}
	if slices.Equal(l.Settings[0], l.Settings[1]) {
		if len(l.Settings[0]) > 0 {
			text += ", " + strings.Join(l.Settings[0], " ")
		}
		return text
	}
	for end, settings := range l.Settings {
		if len(settings) > 0 {
			text += ", from " + g.Nodes[l.Ends[end].Node].name() + ": " + strings.Join(settings, " ")
		}
	}
	return text
}

// labels are a link's impairments in a few words: a line for what both directions have in
// common, and one for what else each has, which is named for the kind of node that sends if the
// ends differ in that.
func (g *Graph) labels(l *Link) []string {
	var common []string
	var more [2][]string
	for end, settings := range l.Settings {
		for _, s := range settings {
			switch other := slices.Contains(l.Settings[1-end], s); {
			case !other:
				more[end] = append(more[end], s)
			case end == 0:
				common = append(common, s)
			}
		}
	}
	var lines []string
	if text := brief(common); text != "" {
		lines = append(lines, text)
	}
	for end, settings := range more {
		if text := brief(settings); text != "" {
			from, other := &g.Nodes[l.Ends[end].Node], &g.Nodes[l.Ends[1-end].Node]
			name := string(from.Kind)
			if from.Kind == other.Kind {
				name = from.name()
			}
			lines = append(lines, "from "+name+": "+text)
		}
	}
	return lines
}

// longest bounds the length of a value that stands in a label.
const longest = 12

// brief is settings in a few words. Of delays and rates the unit says what they are; of
// what is long, the key alone is there.
func brief(settings []string) string {
	var parts []string
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		switch {
		case len(value) > longest || strings.Contains(value, "{"):
			parts = append(parts, key)
		case key == "delay" || key == "rate":
			parts = append(parts, value)
		case key == "jitter" && len(parts) > 0:
			parts[len(parts)-1] += " ±" + value
		default:
			parts = append(parts, key+" "+value)
		}
	}
	return strings.Join(parts, ", ")
}
