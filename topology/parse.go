package topology

import (
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Parse reads a topology file of at most MaxSize bytes. The file's name stands
// in errors, and names the lab if the file does not: pair.ndklab.yaml is the
// lab pair. The error is nil or an ErrorList of everything wrong with the file.
//
// What is read does not depend on anything but the arguments. Time and memory
// are bounded by MaxSize, whatever aliases the file has. A file that refers to
// files of samples is wrong: ParseWith reads those.
func Parse(name string, data []byte) (*Topology, error) { return ParseWith(nil, name, data) }

// ParseWith is Parse, and reads with read what the file refers to; relative paths
// there are from the file's folder. What is wrong with such a file is in the
// ErrorList with the name of that.
func ParseWith(read ReadFile, name string, data []byte) (*Topology, error) {
	r := &reader{file: name, read: read}
	if root := r.document(data); root != nil {
		if t := r.resolve(r.labMap(root)); len(r.errors) == 0 {
			return t, nil
		}
	}
	return nil, r.errors.ordered(name)
}

// resolve makes a Topology of what the file says. It goes on after errors, and
// holds nothing against a value that was reported already.
func (r *reader) resolve(m labMap) *Topology {
	t := &Topology{Name: r.labName(m), Seed: m.seed.is, HasSeed: m.seed.ok}
	var ports map[string][]portMap
	t.Nodes, ports = r.nodes(m.topology)
	l := r.links(m.topology, t.Nodes, ports)
	t.Links = l.links
	segments := t.segments()
	r.segmentsWork(t, segments, m.topology.links)
	addresses := r.addresses(m.topology.links, segments)
	for i, link := range t.Links {
		for end, e := range link.Endpoints {
			face := Interface{e.Interface, i, end, addresses[i][end]}
			if e.External() {
				t.Externals = append(t.Externals, face)
			} else if n, ok := l.nodes[e.Node]; ok {
				t.Nodes[n].Interfaces = append(t.Nodes[n].Interfaces, face)
			}
		}
	}
	if len(r.errors) == 0 && slices.ContainsFunc(t.Nodes, func(n Node) bool { return n.Kind == Router }) {
		r.routes(t, segments, m.topology.links, m.topology.at)
	}
	t.Workloads = r.workloads(m.workloads, l, t, segments)
	t.Timeline = r.timeline(m.timeline, l)
	t.Checks = r.checks(m.checks, m.workloads)
	return t
}

func (r *reader) labName(m labMap) string {
	if m.name.at != nil {
		return m.name.is
	}
	base := filepath.Base(r.file)
	for _, suffix := range []string{".yaml", ".yml", ".ndklab"} {
		base = strings.TrimSuffix(base, suffix)
	}
	name, err := plainName(maxLabName)(base)
	if err != nil {
		r.errorf(m.at, "the lab has no name, expected one: the file's name gives none (%v)", err)
	}
	return name
}

// workloads checks that the nodes of every workload exist and are joined.
func (r *reader) workloads(maps []workloadMap, l *linked, t *Topology, segments []segment) []Workload {
	parts, in := t.parts(segments), segmentOf(segments, len(t.Links))
	var workloads []Workload
	names := make(map[string]*yaml.Node)
	for _, m := range maps {
		if m.name.ok {
			if first := names[m.name.is]; first != nil {
				r.errorf(m.name.at, "a second workload %q, expected another name (line %d has it)", m.name.is, first.Line)
			} else {
				names[m.name.is] = m.name.at
			}
		}
		from, to := r.host(m.from, l, t.Nodes), r.host(m.to, l, t.Nodes)
		switch {
		case !from || !to:
		case m.from.is == m.to.is:
			r.errorf(m.to.at, "the workload goes from %s to itself, expected another node", m.from.is)
		case !l.broken:
			a, b := &t.Nodes[l.nodes[m.from.is]], &t.Nodes[l.nodes[m.to.is]]
			if !meet(a, b, parts) {
				r.errorf(m.to.at, "no link, switch or router joins %s and %s, expected nodes that are joined: hosts do not forward", a.Name, b.Name)
			} else if _, ok := t.path(a, b, in); !ok && len(r.errors) == 0 {
				r.errorf(m.to.at, "no address of %s is reached from %s by one of its own family, expected IPv4 or IPv6 on all of the way", b.Name, a.Name)
			}
		}
		workloads = append(workloads, Workload{
			Name:      m.name.is,
			From:      m.from.is,
			To:        m.to.is,
			Operation: m.operation.is,
			Size:      m.size.is,
			Depth:     m.depth.orElse(1),
			Count:     m.count.is,
			Duration:  m.duration.is,
			Start:     m.start.is,
			Verify:    m.verify.is,
		})
	}
	return workloads
}

// checks makes sure that the workloads of checks exist.
func (r *reader) checks(maps []checkMap, workloads []workloadMap) []Check {
	var names []string
	known := make(map[string]bool)
	for _, w := range workloads {
		if w.name.at != nil && !known[w.name.at.Value] {
			names = append(names, w.name.at.Value)
			known[w.name.at.Value] = true
		}
	}
	var checks []Check
	for _, m := range maps {
		if m.workload.ok && !known[m.workload.is] {
			r.errorf(m.workload.at, "no workload has the name %s, %s", quote(m.workload.is), r.expectation(m.workload.is, names))
		}
		checks = append(checks, Check{Workload: m.workload.is, Bounds: m.bounds})
	}
	return checks
}
