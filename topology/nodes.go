package topology

// defaultKind is the kind of a node that is given none: an emulated host, the
// only kind that is built in. A file may still list it under kinds.
const defaultKind = "host"

// nodes applies what groups, kinds and defaults say, in containerlab's
// precedence: node, group, kind, defaults.
func (r *reader) nodes(m topologyMap) []Node {
	if len(m.nodes) == 0 && m.at != nil {
		r.errorf(m.at, "the lab has no nodes, expected topology: nodes: with at least one")
	}
	kinds, kindNames := index(m.kinds)
	if _, declared := kinds[defaultKind]; !declared {
		kindNames = append(kindNames, defaultKind)
		kinds[defaultKind] = kindMap{}
	}
	groups, groupNames := index(m.groups)

	// Every reference is checked where it stands, used by a node or not.
	kindExists := func(v val[string]) {
		if _, ok := kinds[v.is]; v.ok && !ok {
			r.errorf(v.at, "unknown kind %s, %s", quote(v.is), r.expectation(v.is, kindNames))
		}
	}
	groupExists := func(v val[string]) {
		if _, ok := groups[v.is]; v.ok && !ok {
			r.errorf(v.at, "unknown group %s, %s", quote(v.is), r.expectation(v.is, groupNames))
		}
	}
	kindExists(m.defaults.kind)
	groupExists(m.defaults.group)
	for _, k := range m.kinds {
		groupExists(k.is.group)
	}
	for _, g := range m.groups {
		kindExists(g.is.kind)
	}

	var nodes []Node
	for _, n := range m.nodes {
		if n.name.is == external {
			r.errorf(n.name.at, "external is no name for a node, expected another: an endpoint external:tap0 is outside the lab")
		}
		kindExists(n.is.kind)
		groupExists(n.is.group)
		// A node's kind may come from its group, and its group from its kind.
		kind := kinds[n.is.kind.
			or(groups[n.is.group.is].kind).
			or(groups[m.defaults.group.is].kind).
			or(m.defaults.kind).
			orElse(defaultKind)]
		group := groups[n.is.group.or(kind.group).or(m.defaults.group).is]
		l := n.is.limits.or(group.limits).or(kind.limits).or(m.defaults.limits)
		nodes = append(nodes, Node{
			Name:    n.name.is,
			Kind:    Host,
			CPU:     l.cpu.is,
			Memory:  l.memory.is,
			Adapter: r.resolveAdapter(l.adapter),
		})
	}
	return nodes
}

// index is the entries by name, and the names.
func index[T any](entries []named[T]) (map[string]T, []string) {
	byName := make(map[string]T, len(entries))
	var names []string
	for _, e := range entries {
		byName[e.name.is] = e.is
		names = append(names, e.name.is)
	}
	return byName, names
}

// or is l with what it does not give taken from limits of less precedence.
func (l limits) or(less limits) limits {
	return limits{
		cpu:     l.cpu.or(less.cpu),
		memory:  l.memory.or(less.memory),
		adapter: l.adapter.or(less.adapter),
	}
}
