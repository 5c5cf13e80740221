package topology

import (
	"cmp"
	"slices"

	"gopkg.in/yaml.v3"
)

// builtIn are the kinds that need no declaration. A file may list them under
// kinds, for what all their nodes have in common; a kind with another name is one
// of these, a host unless it says otherwise.
var builtIn = []string{string(Host), string(Switch), string(Router)}

// A nodeReader makes nodes of what the file says.
type nodeReader struct {
	*reader
	defaults              defaultsMap
	kinds, groups         map[string]*mapping[nodeMap]
	kindNames, groupNames []string
	setups                int // bytes of what nodes are given, as far as they are resolved
}

// nodes applies what groups, kinds and defaults say, in containerlab's
// precedence: node, group, kind, defaults. Where a kind of the file's own is of a
// built-in kind, what the file says of the built-in kind comes behind it.
//
// It also returns the port blocks that apply to each node, by name.
func (r *reader) nodes(m topologyMap) ([]Node, map[string][]portMap) {
	if len(m.nodes) == 0 && m.at != nil {
		r.errorf(m.at, "the lab has no nodes, expected topology: nodes: with at least one")
	}
	nr := nodeReader{reader: r, defaults: m.defaults}
	nr.kinds, nr.kindNames = index(m.kinds)
	nr.groups, nr.groupNames = index(m.groups)
	for _, name := range builtIn {
		k, declared := nr.kinds[name]
		if !declared {
			nr.kindNames = append(nr.kindNames, name)
		} else if is := k.word("kind"); is.ok && is.is != name {
			r.errorf(is.at, "kind %s is built in, expected another name for a %s", name, is.is)
		}
	}
	// Every reference is checked where it stands, used by a node or not.
	nr.kindExists(m.defaults.node)
	nr.groupExists(m.defaults.node)
	for _, k := range m.kinds {
		nr.groupExists(k.is)
		if v := k.is.word("kind"); v.ok && !slices.Contains(builtIn, v.is) {
			r.errorf(v.at, "kind %s is not built in, %s", quote(v.is), r.expectation(v.is, builtIn))
		}
	}
	for _, g := range m.groups {
		nr.kindExists(g.is)
	}
	nodes, waits := make([]Node, 0, len(m.nodes)), make([]val[[]waitMap], 0, len(m.nodes))
	ports := make(map[string][]portMap, len(m.nodes))
	for _, n := range m.nodes {
		if n.name.is == external {
			r.errorf(n.name.at, "external is no name for a node, expected another: an endpoint external:tap0 is outside the lab")
		}
		nr.kindExists(n.is)
		nr.groupExists(n.is)
		is := nr.node(n)
		waits = append(waits, is.waits)
		ports[is.Name] = is.ports
		nodes = append(nodes, is.Node)
	}
	nr.waits(nodes, waits)
	return nodes, ports
}

func (r *nodeReader) kindExists(m *mapping[nodeMap]) {
	v := m.word("kind")
	if _, ok := r.kinds[v.is]; v.ok && !ok && !slices.Contains(builtIn, v.is) {
		r.errorf(v.at, "unknown kind %s, %s", quote(v.is), r.expectation(v.is, r.kindNames))
	}
}

func (r *nodeReader) groupExists(m *mapping[nodeMap]) {
	v := m.word("group")
	if _, ok := r.groups[v.is]; v.ok && !ok {
		r.errorf(v.at, "unknown group %s, %s", quote(v.is), r.expectation(v.is, r.groupNames))
	}
}

// builtInKind returns the built-in kind that a kind is.
func (r *nodeReader) builtInKind(kind string) Kind {
	if slices.Contains(builtIn, kind) {
		return Kind(kind)
	}
	return Kind(r.kinds[kind].word("kind").orElse(string(Host)))
}

// node returns a node with what its group, its kind and the defaults say of it. Defaults are
// for the nodes that have the key.
func (r *nodeReader) node(n named[*mapping[nodeMap]]) nodeMap {
	defaults := r.defaults.node
	// A node's kind may come from its group, and its group from its kind.
	kind := n.is.word("kind").
		or(r.groups[n.is.word("group").is].word("kind")).
		or(r.groups[defaults.word("group").is].word("kind")).
		or(defaults.word("kind")).
		orElse(string(Host))
	of := r.builtInKind(kind)
	base := r.kinds[string(of)]
	groupName := n.is.word("group").or(r.kinds[kind].word("group")).or(base.word("group")).or(defaults.word("group"))
	group := r.groups[groupName.is]
	all := layers[nodeMap]{n.is, group, r.kinds[kind], base}
	with := append(slices.Clip(all), defaults)
	is := nodeMap{Node: Node{Name: n.name.is, Kind: of}}
	if host := with.find("host"); host.ok {
		is.Host, is.HostAt = host.at.Value, r.place(host.at)
	}
	if together := group.word("together"); together.is == "true" {
		is.Together, is.TogetherAt = groupName.is, r.place(together.at)
	}
	if of == Switch {
		all.apply(&is)
		r.fitsKind(is, all)
		is.Setup = Setup{}
		return is
	}
	if !r.setupFits(n.name.at, with) {
		return is
	}
	with.apply(&is)
	r.fitsKind(is, all)
	if of == Host {
		blocks := append(slices.Clip(is.adapter), r.defaults.adapter)
		is.Adapter = resolveAdapter(r.reader, blocks)
	} else {
		is.CPU, is.Memory, is.PIDs, is.NoVerbs = 0, 0, 0, false
	}
	r.completeSetup(&is, with)
	return is
}

// fitsKind reports what the maps of a node, but for the defaults, have that nodes of its
// kind do not have.
func (r *nodeReader) fitsKind(n nodeMap, all layers[nodeMap]) {
	report := func(at *yaml.Node, format string, args ...any) {
		if at != nil {
			r.errorf(at, format, args...)
		}
	}
	if n.Kind == Switch {
		report(all.find("restart").at, "restart is given to %s, which is a switch, expected a host or router: a switch has no process that could die", n.Name)
		for _, m := range all {
			for _, g := range m.among(setupNames()...) {
				report(g.at, "%s is given to %s, which is a switch, expected a host or router: a switch runs no commands", g.key, n.Name)
			}
		}
	} else {
		report(all.find("stp").at, "stp is given to %s, which is a %s, expected a switch: only switches have a spanning tree", n.Name, n.Kind)
	}
	r.fitsBuffer(n, all)
	if n.Kind == Host {
		report(all.find("port").at, "a port is given to %s, which is a host, expected a switch or router: how a host's packets fare is said by its links", n.Name)
		return
	}
	for _, key := range []string{"cpu", "memory", "pids"} {
		report(all.find(key).at, "limits of processor, memory and processes are given to %s, which is a %s, expected none: the kernel forwards for it", n.Name, n.Kind)
	}
	report(all.find("verbs").at, "verbs is given to %s, which is a %s, expected a host: only hosts have adapters", n.Name, n.Kind)
	var first *yaml.Node // of what its adapter blocks give
	given := make(map[string]bool)
	for _, block := range n.adapter {
		for _, g := range block.keys {
			if !given[g.key] && (first == nil || cmp.Or(cmp.Compare(g.at.Line, first.Line), cmp.Compare(g.at.Column, first.Column)) < 0) {
				first = g.at
			}
			given[g.key] = true
		}
	}
	report(first, "an adapter is given to %s, which is a %s, expected a host: only hosts have adapters", n.Name, n.Kind)
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
