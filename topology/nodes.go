package topology

import (
	"cmp"
	"maps"
	"slices"

	"gopkg.in/yaml.v3"
)

// builtIn are the kinds that need no declaration. A file may list them under
// kinds, for what all their nodes have in common; a kind with another name is one
// of these, a host unless it says otherwise.
var builtIn = []string{string(Host), string(Switch), string(Router)}

// nodes applies what groups, kinds and defaults say, in containerlab's
// precedence: node, group, kind, defaults. What a file says of the built-in kind
// that a kind of its own is comes behind that.
//
// It also returns the port blocks that apply to each node, by name.
func (r *reader) nodes(m topologyMap) ([]Node, map[string][]portMap) {
	if len(m.nodes) == 0 && m.at != nil {
		r.errorf(m.at, "the lab has no nodes, expected topology: nodes: with at least one")
	}
	kinds, kindNames := index(m.kinds)
	for _, name := range builtIn {
		k, declared := kinds[name]
		if !declared {
			kindNames = append(kindNames, name)
		} else if k.kind.ok && k.kind.is != name {
			r.errorf(k.kind.at, "kind %s is built in, expected another name for a %s", name, k.kind.is)
		}
		k.kind = val[string]{is: name, ok: true}
		kinds[name] = k
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
		if v := k.is.kind; v.ok && !slices.Contains(builtIn, v.is) {
			r.errorf(v.at, "kind %s is not built in, %s", quote(v.is), r.expectation(v.is, builtIn))
		}
	}
	for _, g := range m.groups {
		kindExists(g.is.kind)
	}

	var nodes []Node
	var waits []val[[]waitMap]
	ports := make(map[string][]portMap)
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
			orElse(string(Host))]
		base := kinds[kind.kind.orElse(string(Host))]
		group := groups[n.is.group.or(kind.group).or(base.group).or(m.defaults.group).is]
		l := n.is.limits.or(group.limits).or(kind.limits).or(base.limits)
		node := Node{Name: n.name.is, Kind: Kind(base.kind.is)}
		r.fitsKind(node, l)
		if node.Kind != Switch {
			node.Restart = l.restart.or(m.defaults.limits.restart).is
		}
		if node.Kind == Host {
			l = l.or(m.defaults.limits)
			node.CPU, node.Memory, node.PIDs = l.cpu.is, l.memory.is, l.pids.is
			node.NoVerbs = l.noVerbs.is
			node.Adapter = r.resolveAdapter(l.adapter)
		}
		var wait val[[]waitMap]
		node.Setup, wait = r.resolveSetup(node, n.name.at, n.is.setup, group.setup, kind.setup, base.setup, m.defaults.forKind(node.Kind))
		waits = append(waits, wait)
		node.SpanningTree = l.stp.is
		ports[node.Name] = l.ports
		nodes = append(nodes, node)
	}
	r.waits(nodes, waits)
	return nodes, ports
}

// forKind is the setup of the defaults, which is for all that have one.
func (m defaultsMap) forKind(k Kind) setup {
	if k == Switch {
		return setup{}
	}
	return m.setup
}

// fitsKind reports what nodes of that kind do not have. Defaults are for those
// that have it.
func (r *reader) fitsKind(n Node, l limits) {
	if n.Kind != Switch && l.stp.at != nil {
		r.errorf(l.stp.at, "stp is given to %s, which is a %s, expected a switch: only switches have a spanning tree", n.Name, n.Kind)
	}
	if n.Kind == Switch && l.restart.at != nil {
		r.errorf(l.restart.at, "restart is given to %s, which is a switch, expected a host or router: a switch has no process that could die", n.Name)
	}
	if n.Kind == Host {
		if len(l.ports) > 0 {
			r.errorf(l.ports[0].at, "a port is given to %s, which is a host, expected a switch or router: how a host's packets fare is said by its links", n.Name)
		}
		return
	}
	for _, at := range []*yaml.Node{l.cpu.at, l.memory.at, l.pids.at} {
		if at != nil {
			r.errorf(at, "limits of processor, memory and processes are given to %s, which is a %s, expected none: the kernel forwards for it", n.Name, n.Kind)
		}
	}
	if l.noVerbs.at != nil {
		r.errorf(l.noVerbs.at, "verbs is given to %s, which is a %s, expected a host: only hosts have adapters", n.Name, n.Kind)
	}
	if len(l.adapter) > 0 {
		at := slices.MinFunc(slices.Collect(maps.Values(l.adapter)), func(a, b val[func(*Adapter)]) int {
			return cmp.Or(cmp.Compare(a.at.Line, b.at.Line), cmp.Compare(a.at.Column, b.at.Column))
		}).at
		r.errorf(at, "an adapter is given to %s, which is a %s, expected a host: only hosts have adapters", n.Name, n.Kind)
	}
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
		pids:    l.pids.or(less.pids),
		adapter: l.adapter.or(less.adapter),
		restart: l.restart.or(less.restart),
		noVerbs: l.noVerbs.or(less.noVerbs),
		stp:     l.stp.or(less.stp),
		ports:   append(l.ports[:len(l.ports):len(l.ports)], less.ports...),
	}
}
