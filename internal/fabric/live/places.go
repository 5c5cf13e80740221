package live

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/report/graph"
)

// This file groups and places the nodes of a map. Hosts that are joined to the same others are a group, which is a block of
// places in a picture of the groups. That keeps a picture of thousands of nodes compact, and quick to make.

// join adds the links with the endpoints given, and nodes for those outside. at has the index of each node.
func (m *Map) join(at map[string]int, links int, endpoints func(link int) [2]string) {
	for i := range links {
		l := Link{Endpoints: endpoints(i)}
		for end, e := range l.Endpoints {
			name, _, _ := strings.Cut(e, ":")
			if name == external {
				name = e
			}
			if _, known := at[name]; !known {
				at[name] = len(m.Nodes)
				m.Nodes = append(m.Nodes, Node{Name: name, Kind: external})
			}
			l.Nodes[end] = at[name]
		}
		m.Links = append(m.Links, l)
	}
}

// fewest is the least number of hosts in a group.
const fewest = 2

// group names the group of hosts that are joined to the same others, of which no other is a host: by the first of these.
func (m *Map) group() {
	near := make([][]int, len(m.Nodes))
	for _, l := range m.Links {
		a, b := l.Nodes[0], l.Nodes[1]
		near[a], near[b] = append(near[a], b), append(near[b], a)
	}
	members := make(map[string][]int)
	var keys []string
	for i := range m.Nodes {
		others := slices.Compact(slices.Sorted(slices.Values(near[i])))
		if m.Nodes[i].Kind != string(graph.Host) || len(others) == 0 || slices.ContainsFunc(others, func(n int) bool {
			return m.Nodes[n].Kind == string(graph.Host) || m.Nodes[n].Kind == external
		}) {
			continue
		}
		key := fmt.Sprint(others)
		if members[key] == nil {
			keys = append(keys, key)
		}
		members[key] = append(members[key], i)
		m.Nodes[i].Group = m.Nodes[others[0]].Name
	}
	used := make(map[string]bool)
	for _, key := range keys {
		name := m.Nodes[members[key][0]].Group
		if len(members[key]) < fewest {
			name = ""
		}
		for n, free := 2, name; name != "" && used[name]; n++ { // others are joined to this one, too, but not to the same in all
			name = fmt.Sprintf("%s/%d", free, n)
		}
		used[name] = true
		for _, i := range members[key] {
			m.Nodes[i].Group = name
		}
	}
}

// Sizes of the picture, in pixels of one that is shown as it is.
const (
	cell      = 64  // of a host in a block
	alone     = 90  // the width of a node by itself
	margin    = 60  // around all
	blockGap  = 70  // from a switch to the block below it
	widest    = 2.5 // width by height, from which the picture is drawn out
	wholeLabs = 40  // up to how many nodes have places by themselves
)

// place gives each node its place.
func (m *Map) place() {
	var blocks [][]int // of nodes
	block := make(map[string]int)
	of := make([]int, len(m.Nodes))
	for i, n := range m.Nodes {
		b, known := block[n.Group]
		if !known || n.Group == "" || len(m.Nodes) <= wholeLabs {
			b = len(blocks)
			blocks = append(blocks, nil)
			block[n.Group] = b
		}
		blocks[b], of[i] = append(blocks[b], i), b
	}
	kinds, widths, columns := make([]graph.Kind, len(blocks)), make([]float64, len(blocks)), make([]int, len(blocks))
	for b, members := range blocks {
		kinds[b], widths[b], columns[b] = graph.Kind(m.Nodes[members[0]].Kind), alone, 1
		if len(members) > 1 {
			columns[b] = int(math.Ceil(math.Sqrt(float64(len(members)))))
			widths[b] = cell * float64(columns[b])
		}
	}
	links := make([][2]int, len(m.Links))
	for i, l := range m.Links {
		links[i] = [2]int{of[l.Nodes[0]], of[l.Nodes[1]]}
	}
	places := graph.Place(kinds, widths, links)
	draw(places)
	for b, members := range blocks {
		for j, i := range members {
			n := &m.Nodes[i]
			n.X, n.Y = places[b][0], places[b][1]
			if len(members) > 1 {
				n.X += cell * (float64(j%columns[b]) - float64(columns[b]-1)/2)
				n.Y += blockGap + cell*float64(j/columns[b])
			}
		}
	}
	m.frame()
}

// draw draws a picture out that is much wider than high.
func draw(places [][2]float64) {
	if len(places) == 0 {
		return
	}
	low, up := places[0], places[0]
	for _, p := range places {
		for axis := range p {
			low[axis], up[axis] = min(low[axis], p[axis]), max(up[axis], p[axis])
		}
	}
	width, height := up[0]-low[0], up[1]-low[1]
	if height < 1 || width <= widest*height {
		return
	}
	for i := range places {
		places[i][1] *= width / (widest * height)
	}
}

// frame moves the picture to where it begins at 0, and sets its size. Places are whole pixels.
func (m *Map) frame() {
	if len(m.Nodes) == 0 {
		return
	}
	left, top := math.Inf(1), math.Inf(1)
	for _, n := range m.Nodes {
		left, top = min(left, n.X), min(top, n.Y)
	}
	for i := range m.Nodes {
		n := &m.Nodes[i]
		n.X, n.Y = math.Round(n.X-left+margin), math.Round(n.Y-top+margin)
		m.Width, m.Height = max(m.Width, n.X+margin), max(m.Height, n.Y+margin)
	}
}
