package topology

import (
	"github.com/ndklab/ndklab/internal/topology/naming"
	"gopkg.in/yaml.v3"
)

// This file is entries of the timeline and of checks that are about several nodes or
// links, each of which becomes an entry of its own.

// asEndpoint is a word as an endpoint, the zero Endpoint if it is none.
func asEndpoint(word val[string]) val[Endpoint] {
	e, _ := endpoint(word.is)
	return val[Endpoint]{word.at, e, word.ok}
}

// linksAt is the links that a word for endpoints stands for, each by one of its ends.
func (l *nameIndex) linksAt(v val[string]) []val[string] {
	if !v.ok || l.broken && naming.IsSeveral(v.is) {
		return nil // what is absent may be a consequence
	}
	var links []val[string]
	has := make(map[int]bool)
	for _, w := range l.each(v, "link", l.endpoints) {
		i, found := l.linkOf[asEndpoint(w).is]
		if !found || !has[i] { // that it is not there is reported where it is looked up
			links = append(links, w)
		}
		has[i] = found
	}
	return links
}

// senderAt is the node at a link that a word stands for. It is nothing if both ends are
// meant, and the word itself if it is neither.
func (l *nameIndex) senderAt(from, link val[string]) val[string] {
	i, ok := l.linkOf[asEndpoint(link).is]
	if !from.ok || !ok {
		return from
	}
	a, b := l.links[i].Endpoints[0].Node, l.links[i].Endpoints[1].Node
	switch atA, atB := l.is(from, a), l.is(from, b); {
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

// changeable returns the names among which a word chooses that says which nodes stop, start or hang. A word stands for hosts
// and routers alone if it fits some; switches have to be named, or fit a word that fits no other node.
func (l *nameIndex) changeable(v val[string]) []string {
	names := l.lab.withProcesses()
	if w, err := naming.Parse(v.is); err == nil {
		if _, missing := w.Among(names); missing != "" {
			return l.nodeNames
		}
	}
	return names
}

// eachOf is a map with each of some words as the value of a key.
func eachOf[M any](m *mapping[M], key string, words []val[string]) []*mapping[M] {
	all := make([]*mapping[M], len(words))
	for i, word := range words {
		all[i] = m.saying(key, word)
	}
	return all
}

// eachLink returns a map with each of the links that its key link names, and from as the
// node there that is meant. The parameter from returns the field of the map that has the
// node.
func eachLink[M any](l *nameIndex, m *mapping[M], from func(*M) *string) []*mapping[M] {
	all := eachOf(m, "link", l.linksAt(m.word("link")))
	for i, one := range all {
		if !one.has("from") {
			continue
		}
		if sender := l.senderAt(one.word("from"), one.word("link")); sender.at != nil {
			all[i] = one.saying("from", sender)
		} else {
			all[i] = one.without("from")
			*from(&all[i].is) = ""
		}
	}
	return all
}

// tooMany reports whether entries have become more than a list may have, and the error.
func tooMany(r *reader, entries int, at *yaml.Node) bool {
	if entries > maxItems {
		r.errorf(at, "with all that this stands for the list has more than %d entries, expected up to that", maxItems)
	}
	return entries > maxItems
}

// eachEvent is the timeline with an entry for each link or node that is named. Of those
// that one entry stands for the last has the name, so that what comes after it comes
// after all of them.
func eachEvent(l *nameIndex, maps []*mapping[eventMap]) []*mapping[eventMap] {
	nodes := l.lab.withProcesses()
	var all []*mapping[eventMap]
	for _, m := range maps {
		each := []*mapping[eventMap]{m}
		target := m.among("stop", "start", "node", string(RestartNode), string(KillNode), string(PauseNode), string(ResumeNode))
		if m.ok("link") {
			each = eachLink(l, m, func(m *eventMap) *string { return &m.From })
		} else if target != nil {
			word, among := m.word(target[0].key), nodes
			if target[0].key != "node" {
				among = l.changeable(word)
			}
			each = eachOf(m, target[0].key, l.each(word, "node", among))
		}
		if len(each) == 0 { // an error was reported, and others may refer to the entry
			m = m.without("link")
			if target != nil {
				m = m.without(target[0].key)
			}
			each = append(each, m)
		}
		for i := range len(each) - 1 {
			each[i] = each[i].without("name")
			each[i].is.Name = ""
		}
		if all = append(all, each...); tooMany(l.reader, len(all), m.at) {
			return nil
		}
	}
	return all
}

// eachCheck is the checks with one for each link, node or workload that is named.
func eachCheck(l *nameIndex, maps []*mapping[Check]) []*mapping[Check] {
	_, workloads := l.lab.workloadsByName()
	hosts, nodes := l.lab.Hosts(), l.lab.withProcesses()
	var all []*mapping[Check]
	for _, m := range maps {
		each := []*mapping[Check]{m}
		switch {
		case m.ok("link"):
			each = eachLink(l, m, func(m *Check) *string { return &m.From })
		case m.ok("workload"):
			each = eachOf(m, "workload", l.each(m.word("workload"), "workload", workloads))
		case m.ok(ofSwitch):
			each = eachOf(m, ofSwitch, l.each(m.word(ofSwitch), "node with a buffer", l.lab.withBuffers()))
		case m.ok("node") && m.has("exec"):
			each = eachOf(m, "node", l.each(m.word("node"), "node", nodes))
		case m.ok("node"):
			each = eachOf(m, "node", l.each(m.word("node"), "host", hosts))
		}
		if all = append(all, each...); tooMany(l.reader, len(all), m.at) {
			return nil
		}
	}
	return all
}
