package topology

import (
	"cmp"
	"slices"

	"gopkg.in/yaml.v3"
)

// timeline finds the links and nodes of events, and checks every impairment that
// comes about.
func (r *reader) timeline(maps []eventMap, l *linked) []Event {
	var events []Event
	for _, m := range maps {
		e := Event{
			At: m.instant.is, From: m.from.is,
			Set: m.set.is.change, Down: m.down.is, Up: m.up.is, Reset: m.reset.is, Heal: m.heal.is,
		}
		switch {
		case m.partition.at != nil:
			e.Partition = r.partition(m.partition, l)
		case m.heal.at != nil:
		default:
			e.Link = r.eventLink(m, l)
		}
		events = append(events, e)
	}
	if len(r.errors) == 0 {
		r.play(maps, events, l.links)
	}
	return events
}

// eventLink is the index of the link of an event, whose direction it checks too.
func (r *reader) eventLink(m eventMap, l *linked) int {
	index, ok := l.index[m.link.is]
	if !ok {
		if m.link.ok && !l.broken {
			r.errorf(m.link.at, "no link has the endpoint %s, %s", quote(m.link.is.String()), r.expectation(m.link.is.String(), l.names))
		}
		return 0
	}
	ends := l.links[index].Endpoints
	switch {
	case !m.from.ok:
	case m.set.at == nil && m.reset.at == nil:
		r.errorf(m.from.at, "from stands with down or up, expected it only with set or reset: a link is down in both directions")
	case m.from.is != ends[0].Node && m.from.is != ends[1].Node:
		r.errorf(m.from.at, "%s is not on the link %s, expected %s or %s", quote(m.from.is), m.link.is, ends[0].Node, ends[1].Node)
	}
	return index
}

// checkedPartitions bounds how many partitions are checked for links that they
// separate, since that looks at every link.
const checkedPartitions = 100

// partition is the sets of nodes that an event separates.
func (r *reader) partition(v val[[][]val[string]], l *linked) [][]string {
	seen := make(map[string]*yaml.Node)
	sets := make([][]string, len(v.is))
	before := len(r.errors)
	for i, set := range v.is {
		for _, node := range set {
			if _, ok := l.nodes[node.is]; node.ok && !ok {
				r.errorf(node.at, "unknown node %s, %s", quote(node.is), r.expectation(node.is, l.nodeNames))
			} else if first := seen[node.is]; first != nil {
				r.errorf(node.at, "node %s a second time, expected it in one set (line %d has it)", node.is, first.Line)
			}
			seen[node.is] = node.at
			sets[i] = append(sets[i], node.is)
		}
	}
	r.partitions++
	if t := (&Topology{Links: l.links}); r.partitions <= checkedPartitions && v.ok && len(r.errors) == before && !l.broken && len(t.Between(sets)) == 0 {
		r.errorf(v.at, "the partition separates nothing, expected sets of nodes with links between them, or to nodes in none of them")
	}
	return sets
}

// play goes through the timeline in the order of time, and reports the event that
// leaves a link with an impairment that cannot be.
func (r *reader) play(maps []eventMap, events []Event, file []Link) {
	order := make([]int, len(events))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(events[a].At, events[b].At) })
	links := slices.Clone(file)
	for _, i := range order {
		e := events[i]
		if maps[i].set.at == nil && !e.Reset {
			continue
		}
		for end := range 2 {
			from := links[e.Link].Endpoints[end].Node
			if e.From != "" && e.From != from {
				continue
			}
			direction := &links[e.Link].Directions[end]
			if e.Reset {
				*direction = file[e.Link].Directions[end]
				continue
			}
			changed := e.Set.Apply(*direction)
			if !changed.Equal(*direction) {
				r.fits(&links[e.Link], changed, from, maps[i].at, maps[i].set.is)
			}
			*direction = changed
		}
	}
}
