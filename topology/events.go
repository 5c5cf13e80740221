package topology

import (
	"cmp"
	"slices"
	"time"

	"gopkg.in/yaml.v3"
)

// This file makes events of timeline entries.

// An eventReader makes events of what the file says.
type eventReader struct {
	*nameIndex    // of a lab with its workloads
	workloads     map[string]*Workload
	workloadNames []string
	entries       map[string]int // entries that have names, by their index in the timeline
	entryNames    []string
	snapshots     map[string]*yaml.Node
}

// timeline finds what events refer to, and checks every impairment that comes about.
func timeline(l *nameIndex, maps []*mapping[eventMap]) []Event {
	er := eventReader{nameIndex: l, entries: make(map[string]int), snapshots: make(map[string]*yaml.Node)}
	er.workloads, er.workloadNames = l.lab.workloadsByName()
	maps = eachEvent(l, maps)
	for i, m := range maps {
		name := m.word("name")
		if !name.ok {
			continue
		}
		if first, ok := er.entries[name.is]; ok {
			l.errorf(name.at, "a second timeline entry %q, expected another name (line %d has it)", name.is, maps[first].place("name").Line)
			continue
		}
		er.entries[name.is] = i
		er.entryNames = append(er.entryNames, name.is)
	}
	var events []Event
	for _, m := range maps {
		events = append(events, er.event(m))
	}
	er.reportCycles(maps)
	if len(l.errors) == 0 {
		er.play(maps, events)
	}
	return events
}

func (r *eventReader) event(m *mapping[eventMap]) Event {
	e := m.is.Event
	e.Set = m.is.set.change
	if m.ok("when") {
		e.When = r.when(m.is.when)
	}
	if after := m.word("after"); after.ok {
		if _, ok := r.entries[after.is]; !ok {
			r.unknown(after, "timeline entry", r.entryNames)
		}
	}
	if m.has("link") {
		e.Link = r.eventLink(m)
	}
	switch {
	case m.has("partition"):
		e.Partition = r.partition(m)
	case m.ok("stop"):
		r.startOrStop(&e, m.word("stop"), StopNode)
	case m.ok("start"):
		r.startOrStop(&e, m.word("start"), StartNode)
	case m.has("exec"):
		if !m.ok("timeout") {
			e.Timeout = defaultCommandTimeout
		}
		r.runsCommands(m.word("node"))
	case m.has("storm"):
		storm := m.is.storm
		if !m.has("priority") {
			storm.Priority = defaultStorm
		}
		r.hasAdapter(m.word("storm"))
		e.Storm = &storm
	case m.ok("snapshot"):
		at := m.place("snapshot")
		if first := r.snapshots[e.Snapshot]; first != nil {
			r.errorf(at, "a second snapshot %q, expected another name (line %d has it)", e.Snapshot, first.Line)
		} else {
			r.snapshots[e.Snapshot] = at
		}
	}
	for _, action := range []NodeAction{RestartNode, KillNode, PauseNode, ResumeNode} {
		if m.has(string(action)) {
			r.node(m.word(string(action)))
		}
	}
	return e
}

// startOrStop finds out whether it is a node or a workload that starts or stops.
func (r *eventReader) startOrStop(e *Event, v val[string], action NodeAction) {
	_, isNode := r.nodes[v.is]
	w := r.workloads[v.is]
	switch {
	case isNode && w != nil:
		r.errorf(v.at, "%s is a node and a workload, expected another name for one of them", quote(v.is))
	case isNode:
		e.Node, e.NodeAction = v.is, action
	case w == nil:
		r.unknown(v, "node or workload", slices.Concat(r.nodeNames, r.workloadNames))
	case action == StartNode && !w.Manual:
		r.errorf(v.at, "workload %s starts by itself, expected start: manual there (line %d)", v.is, w.Place.Line)
	case action == StartNode && e.Repeat > 0:
		r.errorf(v.at, "workload %s is started several times, expected once", v.is)
	default:
		e.Workload, e.Stop = v.is, action == StopNode
	}
}

// when is the trigger of an event.
func (r *eventReader) when(m *mapping[Trigger]) *Trigger {
	if w := m.word("workload"); w.ok && r.workloads[w.is] == nil {
		r.unknown(w, "workload", r.workloadNames)
	}
	if m.ok("node") {
		r.hasAdapter(m.word("node"))
	}
	return new(m.is)
}

// eventLink is the index of the link of an event, whose direction it checks too.
func (r *eventReader) eventLink(m *mapping[eventMap]) int {
	name := m.endpoint("link")
	index, ok := r.linkAt(name)
	if ok && m.ok("from") {
		r.atLink(m.word("from"), &r.links[index], name.is)
	}
	return index
}

// linkAt is the index of the link that has an endpoint.
func (l *nameIndex) linkAt(v val[Endpoint]) (index int, ok bool) {
	index, ok = l.linkOf[v.is]
	if !ok && v.ok && !l.broken {
		l.errorf(v.at, "no link has the endpoint %s, %s", quote(v.is.String()), l.expectation(v.is.String(), l.endpoints))
	}
	return index, ok
}

// atLink reports if a node is not at a link.
func (l *nameIndex) atLink(node val[string], link *Link, name Endpoint) {
	if ends := link.Endpoints; node.is != ends[0].Node && node.is != ends[1].Node {
		l.errorf(node.at, "%s is not on the link %s, expected %s or %s", quote(node.is), name, ends[0].Node, ends[1].Node)
	}
}

// checkedPartitions bounds how many partitions are checked for links that they
// separate, since that looks at every link.
const checkedPartitions = 100

// partition is the sets of nodes that an event separates.
func (r *eventReader) partition(m *mapping[eventMap]) [][]string {
	v := m.is.partition
	seen := make(map[string]*yaml.Node)
	sets := make([][]string, len(v))
	before := len(r.errors)
	for i, words := range v {
		var set []val[string]
		for _, word := range words {
			set = append(set, r.each(word, "node", r.nodeNames)...)
		}
		for _, node := range set {
			if _, ok := r.nodes[node.is]; node.ok && !ok {
				r.errorf(node.at, "unknown node %s, %s", quote(node.is), r.expectation(node.is, r.nodeNames))
			} else if first := seen[node.is]; first != nil {
				r.errorf(node.at, "node %s a second time, expected it in one set (line %d has it)", node.is, first.Line)
			}
			seen[node.is] = node.at
			sets[i] = append(sets[i], node.is)
		}
	}
	r.partitions++
	if t := (&Topology{Links: r.links}); r.partitions <= checkedPartitions && m.ok("partition") && len(r.errors) == before && !r.broken && len(t.Between(sets)) == 0 {
		r.errorf(m.place("partition"), "the partition separates nothing, expected sets of nodes with links between them, or to nodes in none of them")
	}
	return sets
}

// reportCycles reports entries that wait for each other. Each waits for one other at most, so
// that to go from one to the next, from each that no earlier walk has come to, finds all.
func (r *eventReader) reportCycles(maps []*mapping[eventMap]) {
	walk := make([]int, len(maps)) // the one that came to an entry, from 1
	for start := range maps {
		for i := start; walk[i] == 0; {
			walk[i] = start + 1
			after := maps[i].word("after")
			next, ok := r.entries[after.is]
			switch {
			case !after.ok || !ok:
			case next == i:
				r.errorf(after.at, "entry %s waits for itself, expected another", maps[i].is.Name)
			case walk[next] == start+1:
				r.errorf(after.at, "entry %s waits for %s, which waits for it in turn, expected one of them not to", maps[i].is.Name, maps[next].is.Name)
			default:
				i = next
			}
		}
	}
}

// inOrder is the places of events in a list in which each comes behind what it waits for.
func inOrder(events []Event) []int {
	index := make(map[string]int)
	for i, e := range events {
		index[e.Name] = i
	}
	listed := make([]bool, len(events))
	order := make([]int, 0, len(events))
	for i := range events {
		var chain []int // of events that wait for the next
		for j, more := i, true; more && !listed[j]; {
			chain, listed[j] = append(chain, j), true
			more = events[j].After != ""
			if more {
				j = index[events[j].After]
			}
		}
		slices.Reverse(chain)
		order = append(order, chain...)
	}
	return order
}

// instants returns the time at which each event happens first, after all nodes are ready, or
// -1 for those that wait for something whose time nobody knows.
func instants(events []Event) []time.Duration {
	last := make(map[string]time.Duration) // when events with names happen for the last time, or -1
	at := make([]time.Duration, len(events))
	for _, i := range inOrder(events) {
		e := events[i]
		switch before := last[e.After]; {
		case e.When != nil || e.After != "" && before < 0:
			at[i], last[e.Name] = -1, -1
		default:
			if e.After == "" {
				before = 0
			}
			at[i] = before + e.At
			last[e.Name] = at[i] + time.Duration(max(e.Repeat-1, 0))*e.Every
		}
	}
	return at
}

// play goes through the timeline in the order of time, and reports the event that
// leaves a link with an impairment that cannot be. Events of which nobody knows when
// they come are tried on links that no others change.
func (r *eventReader) play(maps []*mapping[eventMap], events []Event) {
	file := r.links
	at := instants(events)
	var order []int
	changed := make(map[int]int) // how many events change each link
	for i, e := range events {
		if e.OfLink() {
			order = append(order, i)
			changed[e.Link]++
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	links := slices.Clone(file)
	for _, i := range order {
		e := events[i]
		if e.Set == (Change{}) && !e.Reset || at[i] < 0 && changed[e.Link] > 1 {
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
				fits(r.reader, &links[e.Link], changed, from, maps[i].at, maps[i].is.set)
				fitsPort(r.reader, changed, from, maps[i].at, maps[i].is.set)
			}
			*direction = changed
		}
	}
}
