package topology

import (
	"path/filepath"
	"slices"
	"strings"
)

// Options are for reading a topology file, beside what it says itself. The
// zero Options read a file that refers to nothing else.
type Options struct {
	// Read reads the files that the file refers to, of which relative paths are from
	// its own folder. Errors in such a file are in the ErrorList with the name of
	// that file. nil: a file that refers to any is wrong.
	Read ReadFile
	// Variable looks up the variables that the file refers to; nil: none is set.
	Variable Variables
	// Name names the lab, whatever the file says; "": the file says it.
	Name string
	// Dilation is the lab's, whatever the file says; 0: the file says it.
	Dilation int
	// Nodes are names of nodes, or patterns of path.Match: the lab has only the nodes
	// that match one of them, and the links between them, or to outside the lab, with
	// the addresses that they have in the whole lab. All of the file has to be right.
	// nil: all nodes.
	Nodes []string
	// LeftOut is called for each kind of things that the lab has not got because of
	// Nodes, with what they are. nil if nobody wants to know.
	LeftOut func(what string)
	// Set are values that take the place of what the file has, in their order: of two for one place
	// the later holds. Errors in one have the place that it is for, or where that would be.
	Set []Setting
	// Running is the topology of the lab that the file is for, if it is up: what
	// was chosen for a link there, its number and its addresses, stays wherever the
	// file has the link now, and others do not get it. nil: the lab is not up.
	Running *Topology
}

// Parse reads a topology file of at most MaxSize bytes. The file's name stands
// in errors, and names the lab if the file does not: pair.ndklab.yaml is the
// lab pair. The error is nil or an ErrorList of everything wrong with the file.
//
// The result depends on nothing but the arguments. Time and memory
// are bounded by MaxSize, whatever aliases the file has.
func Parse(name string, data []byte) (*Topology, error) { return ParseWith(Options{}, name, data) }

// ParseWith is Parse with Options.
func ParseWith(o Options, name string, data []byte) (*Topology, error) {
	r := &reader{Options: o, file: name}
	if root := r.document(data); root != nil {
		if root = r.expanded(root); root != nil {
			if t := r.resolve(labTable().read(r, root)); len(r.errors) == 0 {
				return t, nil
			}
		}
	}
	return nil, r.errors.ordered(name)
}

// resolve makes a Topology of what the file says. It goes on after errors, and
// holds nothing against a value that was reported already.
func (r *reader) resolve(lab *mapping[labMap]) *Topology {
	m, t := lab.is, &lab.is.Topology
	t.Name, t.HasSeed = labName(lab), lab.ok("seed")
	if !lab.has("topology") && isMap(lab.at) {
		m.topology.at = lab.at
	}
	var ports map[string][]portMap
	t.Nodes, ports = r.nodes(m.topology)
	l := r.links(m.topology, t, ports)
	t.Links = l.links
	segments := t.segments()
	n := network{r, t, segments, m.topology.links}
	n.segmentsWork()
	numberLinks(t.Links, r.Running)
	addresses := n.addresses()
	for i, link := range t.Links {
		for end, e := range link.Endpoints {
			face := Interface{Name: e.Interface, Link: i, End: end, Addresses: addresses[i][end], Given: m.topology.links[i].is.gives(end)}
			if e.External() {
				t.Externals = append(t.Externals, face)
				r.need(link.Endpoints[1-end].Node, m.topology.links[i].is.endpoints[end].at, "a link leads outside the lab")
			} else if i, ok := l.nodes[e.Node]; ok {
				t.Nodes[i].Interfaces = append(t.Nodes[i].Interfaces, face)
			}
		}
	}
	if len(r.errors) == 0 && slices.ContainsFunc(t.Nodes, func(n Node) bool { return n.Kind == Router }) {
		n.routes(m.topology.at)
	}
	t.Dilation = r.dilation(t, m.dilation)
	t.Convergence = r.convergence(t, m.topology.convergence)
	t.Workloads = workloads(l, m.workloads, segments)
	t.Timeline = timeline(l, m.timeline)
	t.Chaos = l.chaos(m.chaos)
	t.Checks = l.checks(m.checks)
	t.Baseline = baseline(r, m.baseline, t)
	t.Captures = l.captures(m.topology.links, m.captures)
	r.needsOfBuffers(t)
	t.Needs, t.NeedsSimulation = r.needs, r.simulated
	if r.Nodes != nil && len(r.errors) == 0 {
		leaveOut(r, t, m.topology)
	}
	return t
}

// CheckName says why a lab cannot have that name; nil if it can.
func CheckName(name string) error {
	_, err := plainName(MaxLabName)(name)
	return err
}

// labName returns the name of the lab: that of the options, of the file's key, or of the file.
func labName(m *mapping[labMap]) string {
	if m.Name != "" {
		if err := CheckName(m.Name); err != nil {
			m.errorf(m.at, "the lab is to have another name: %v", err)
		}
		return m.Name
	}
	if m.has("name") {
		return m.is.Name
	}
	base := filepath.Base(m.file)
	for _, suffix := range []string{".yaml", ".yml", ".ndklab"} {
		base = strings.TrimSuffix(base, suffix)
	}
	name, err := plainName(MaxLabName)(base)
	if err != nil {
		m.errorf(m.at, "the lab has no name, expected one: the file's name gives none (%v)", err)
	}
	return name
}
