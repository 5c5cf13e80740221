package topology

import (
	"github.com/ndklab/ndklab/internal/topology/naming"
	"gopkg.in/yaml.v3"
)

// This file is entries of the timeline and of checks that are about several nodes or
// links, each of which becomes an entry of its own.

// linksAt is the links that a word for endpoints stands for, each by one of its ends.
func (r *reader) linksAt(v val[Endpoint], l *linked) []val[Endpoint] {
	if l.broken && naming.IsSeveral(v.is.String()) {
		return nil // what is absent may be a consequence
	}
	words := r.each(val[string]{v.at, v.is.String(), v.ok}, "link", l.names)
	var links []val[Endpoint]
	has := make(map[int]bool)
	for _, w := range words {
		e := val[Endpoint]{at: v.at, ok: v.ok}
		e.is, _ = endpoint(w.is)
		i, found := l.index[e.is]
		if !found || !has[i] { // that it is not there is reported where it is looked up
			links = append(links, e)
		}
		has[i] = found
	}
	return links
}

// senderAt is the node at a link that a word stands for. It is nothing if both ends are
// meant, and the word itself if it is neither.
func (r *reader) senderAt(from val[string], link val[Endpoint], l *linked) val[string] {
	i, ok := l.index[link.is]
	if !from.ok || !ok {
		return from
	}
	a, b := l.links[i].Endpoints[0].Node, l.links[i].Endpoints[1].Node
	switch atA, atB := r.is(from, a), r.is(from, b); {
	case atA && atB:
		return val[string]{}
	case atA:
		return val[string]{from.at, a, true}
	case atB:
		return val[string]{from.at, b, true}
	}
	return from
}

// withProcesses is the names of the nodes that run commands.
func (t *Topology) withProcesses() []string {
	var names []string
	for _, n := range t.Nodes {
		if n.Kind != Switch {
			names = append(names, n.Name)
		}
	}
	return names
}

// eachOf adds to entries what one becomes for each of the names.
func eachOf[M, T any](entries []M, m M, names []T, set func(*M, T)) []M {
	for _, name := range names {
		one := m
		set(&one, name)
		entries = append(entries, one)
	}
	return entries
}

// tooMany reports whether entries have become more than a list may have, and the error.
func (r *reader) tooMany(entries int, at *yaml.Node) bool {
	if entries > maxItems {
		r.errorf(at, "with all that this stands for the list has more than %d entries, expected up to that", maxItems)
	}
	return entries > maxItems
}

// eachEvent is the timeline with an entry for each link or node that is named. Of those
// that one entry stands for the last has the name, so that what comes after it comes
// after all of them.
func (r *reader) eachEvent(maps []eventMap, l *linked, t *Topology) []eventMap {
	nodes := t.withProcesses()
	var all []eventMap
	for _, m := range maps {
		begin := len(all)
		if m.link.ok {
			all = eachOf(all, m, r.linksAt(m.link, l), func(m *eventMap, link val[Endpoint]) {
				m.link, m.from = link, r.senderAt(m.from, link, l)
			})
		} else if v := m.target(); v != nil {
			all = eachOf(all, m, r.each(*v, "node", nodes), func(m *eventMap, node val[string]) { *m.target() = node })
		} else {
			all = append(all, m)
		}
		if len(all) == begin { // an error was reported, and others may refer to the entry
			m.link = val[Endpoint]{}
			if v := m.target(); v != nil {
				*v = val[string]{}
			}
			all = append(all, m)
		}
		for i := begin; i < len(all)-1; i++ {
			all[i].name = val[string]{}
		}
		if r.tooMany(len(all), m.at) {
			return nil
		}
	}
	return all
}

// target is the node, or the workload, that an entry names; nil if it names none.
func (m *eventMap) target() *val[string] {
	for _, v := range []*val[string]{&m.stop, &m.start, &m.node, &m.restart, &m.kill, &m.pause, &m.resume} {
		if v.at != nil {
			return v
		}
	}
	return nil
}

// eachCheck is the checks with one for each link, node or workload that is named.
func (r *reader) eachCheck(maps []checkMap, l *linked, t *Topology) []checkMap {
	_, workloads := t.workloadsByName()
	hosts, nodes := t.Hosts(), t.withProcesses()
	var all []checkMap
	for _, m := range maps {
		switch {
		case m.link.ok:
			all = eachOf(all, m, r.linksAt(m.link, l), func(m *checkMap, link val[Endpoint]) {
				m.link, m.from = link, r.senderAt(m.from, link, l)
			})
		case m.workload.ok:
			all = eachOf(all, m, r.each(m.workload, "workload", workloads), func(m *checkMap, name val[string]) { m.workload = name })
		case m.node.ok && m.exec.at != nil:
			all = eachOf(all, m, r.each(m.node, "node", nodes), func(m *checkMap, name val[string]) { m.node = name })
		case m.node.ok:
			all = eachOf(all, m, r.each(m.node, "host", hosts), func(m *checkMap, name val[string]) { m.node = name })
		default:
			all = append(all, m)
		}
		if r.tooMany(len(all), m.at) {
			return nil
		}
	}
	return all
}
