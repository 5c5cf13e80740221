package topology

import (
	"fmt"

	"gopkg.in/yaml.v3"
)

// This file is the key exec of workloads: a server and its clients, each a program.

// An execMap is an entry of exec: the nodes that a key names, and what runs in them.
type execMap struct {
	nodes   val[string]
	command val[[]string]
}

// The words of ready.
const (
	readyListening = "listening"
	readyStarted   = "started"
)

// readiness is a parser for when a server is ready.
func readiness(text string) (Readiness, error) {
	switch text {
	case readyListening:
		return Readiness{}, nil
	case readyStarted:
		return Readiness{Started: true}, nil
	}
	port, err := portNumber.parse(text)
	if err != nil {
		return Readiness{}, fmt.Errorf("%w, or %s or %s", err, readyListening, readyStarted)
	}
	return Readiness{Port: uint16(port)}, nil
}

var portNumber = count[uint32](1, 1<<16-1)

func readySchema() schema {
	return orVariable(anyOf(schema{"enum": []string{readyListening, readyStarted}}, whole(1, 1<<16-1)))
}

func programsSchema() schema {
	return schema{"type": "object", "minProperties": 2, "propertyNames": schema{"minLength": 1}, "additionalProperties": reference("command")}
}

// execMaps reads the programs of exec, in the order of the file.
func execMaps(r *reader, n *yaml.Node) (all []execMap) {
	if n.Kind != yaml.MappingNode {
		r.valueError(n, "found %s, expected a map from hosts to programs such as {server: [ib_write_bw], client: [ib_write_bw, server]}", describe(n))
		return nil
	}
	for _, e := range r.entries(n) {
		m := execMap{nodes: anyText.of(r, e.key)}
		outer := r.key
		r.key = e.key.Value
		m.command = commandForm.of(r, e.value)
		r.key = outer
		all = append(all, m)
	}
	return all
}

// programsOf gives a workload the nodes of its exec and what runs in each. A node that
// several keys name has the program of the first.
func (w *workloadReader) programsOf(is *Workload, m *mapping[workloadMap]) {
	if !m.ok("exec") {
		return
	}
	var nodes []string
	commands := map[string][]string{}
	for i, e := range m.is.exec {
		named, ok := w.named([]val[string]{e.nodes}, "host", w.hosts, w.host)
		if !ok {
			return
		}
		if i == 0 && len(named) > 1 {
			w.errorf(e.nodes.at, "%s is %d hosts, expected one first, which has the server", quote(e.nodes.is), len(named))
			return
		}
		for _, node := range named {
			if commands[node] == nil {
				commands[node] = e.command.is
				nodes = append(nodes, node)
			}
		}
	}
	if len(nodes) < 2 {
		w.errorf(m.place("exec"), "exec has no client, expected a server's host and then those of its clients; one program alone is operation: exec")
		return
	}
	if !w.mayHave(len(nodes), m.place("exec")) {
		return
	}
	for _, node := range nodes[1:] {
		if !w.joined(node, nodes[0], m.place("exec")) {
			return
		}
	}
	is.Nodes, is.Commands = nodes, make([][]string, len(nodes))
	for i, node := range nodes {
		is.Commands[i] = commands[node]
	}
}
