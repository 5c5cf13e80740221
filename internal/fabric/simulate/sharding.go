package simulate

import (
	"cmp"
	"runtime"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/hazard"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/topology"
)

// This file chooses the shards of a topology.

const (
	// fewestNodes bounds the topologies that are worth shards.
	fewestNodes = 32
	// mostShards bounds the shards: what is done between windows, on one processor, takes as long for more.
	mostShards = 8
	// leastDelay is that of links between shards. Shorter windows are not worth their beginnings.
	leastDelay = 200 * time.Nanosecond
)

// A sharding says in which shard each node is, by name, and how many shards there are.
type sharding struct {
	of    map[string]int
	count int
}

// unsharded has all nodes in one shard.
var unsharded = sharding{count: 1}

// sharding returns that of a run with these options.
func (o *Options) sharding(t *topology.Topology) sharding {
	if len(o.Programs) > 0 || len(t.Nodes) < fewestNodes { // programs may do anything at any time
		return unsharded
	}
	return shardingOf(t, min(cmp.Or(o.Shards, runtime.GOMAXPROCS(0)), mostShards))
}

// shardingOf returns shards with about the same work each, as many as there may be, between which all links have a delay. If a
// deadlock is possible there is one: in a window it would not be found where it comes.
func shardingOf(t *topology.Topology, most int) sharding {
	if most <= 1 || hazard.MayDeadlock(t) {
		return unsharded
	}
	for count := most; count > 1; count-- {
		for _, attached := range []bool{true, false} {
			if of, ok := balance(t, count, attached); ok {
				return sharding{of, count}
			}
		}
	}
	return unsharded
}

// balance puts nodes into so many shards. Nodes between which a link has no delay worth a window are in one, and with attached
// those with one link in that of their neighbour, with which they exchange all that they send. It reports whether each shard has
// work, and none more than 5/4 of the mean.
func balance(t *topology.Topology, count int, attached bool) (of map[string]int, ok bool) {
	groups := newGroups(t)
	for i := range t.Links {
		l := &t.Links[i]
		a, b := groups.index[l.Endpoints[0].Node], groups.index[l.Endpoints[1].Node]
		short := min(impair.LeastDelay(&l.Directions[0]), impair.LeastDelay(&l.Directions[1])) < leastDelay
		if short || attached && (len(t.Nodes[a].Interfaces) == 1 || len(t.Nodes[b].Interfaces) == 1) {
			groups.join(a, b)
		}
	}
	work := make([]int, count)
	shard := map[int]int{} // by group
	total := 0
	for _, g := range groups.byWork() {
		least := slices.Index(work, slices.Min(work))
		shard[g.first] = least
		work[least] += g.work
		total += g.work
	}
	of = map[string]int{}
	for i := range t.Nodes {
		of[t.Nodes[i].Name] = shard[groups.find(i)]
	}
	return of, slices.Min(work) > 0 && 4*slices.Max(work)*count <= 5*total
}

// groups are nodes that are in one shard, by their indices: a forest, each tree of which is a group.
type groups struct {
	topo  *topology.Topology
	index map[string]int
	above []int
}

func newGroups(t *topology.Topology) *groups {
	g := &groups{topo: t, index: map[string]int{}}
	for i := range t.Nodes {
		g.index[t.Nodes[i].Name] = i
		g.above = append(g.above, i)
	}
	return g
}

// find returns the node that stands for a node's group.
func (g *groups) find(i int) int {
	for g.above[i] != i {
		g.above[i] = g.above[g.above[i]]
		i = g.above[i]
	}
	return i
}

func (g *groups) join(a, b int) { g.above[g.find(b)] = g.find(a) }

// A group is one of groups: the node that stands for it, and its work.
type group struct{ first, work int }

// A host, which sends and receives, has some three times the work on a packet that a port of a switch has.
const (
	workOfHost = 3
	workOfPort = 1
)

// byWork returns the groups, those with the most work first.
func (g *groups) byWork() []group {
	work := map[int]int{}
	for i := range g.topo.Nodes {
		n := &g.topo.Nodes[i]
		w := workOfPort * len(n.Interfaces)
		if n.Kind == topology.Host {
			w = workOfHost
		}
		work[g.find(i)] += w
	}
	all := make([]group, 0, len(work))
	for first, w := range work {
		all = append(all, group{first, w})
	}
	slices.SortFunc(all, func(a, b group) int { return cmp.Or(cmp.Compare(b.work, a.work), cmp.Compare(a.first, b.first)) })
	return all
}
