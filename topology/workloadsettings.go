package topology

import (
	"errors"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// ParseWorkload reads settings such as operation=write and size=[4KiB, 64KiB], KEY=VALUE
// with the keys and values that a workload has in a file, as a workload of the topology's
// nodes. A Permutation's flows are drawn by the topology's seed. The error has a line for
// everything that is wrong.
func (t *Topology) ParseWorkload(settings []string) (Workload, error) {
	r := new(reader)
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	var bad []error
	for i, setting := range settings {
		key, value, ok := strings.Cut(setting, "=")
		if !ok {
			bad = append(bad, fmt.Errorf("found %s, expected KEY=VALUE such as size=64KiB", quote(setting)))
			continue
		}
		if v, ok := r.value([]byte(value)); ok {
			mark(v, i+1)
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key, Line: i + 1}, v)
		}
		for _, e := range r.errors {
			bad = append(bad, fmt.Errorf("%s: %s", key, e.Message))
		}
		r.errors = nil
	}
	m := workloadForm.of(r, n).is
	list := []Workload{{}}
	if len(r.errors) == 0 {
		list = workloads(indexNodes(r, t), []*mapping[workloadMap]{m}, t.segments())
	}
	for _, e := range r.errors.ordered("") {
		bad = append(bad, errors.New(e.about(settings)))
	}
	if bad != nil {
		return Workload{}, errors.Join(bad...)
	}
	alone := &Topology{Workloads: list}
	return alone.Draw(t.Seed).Workloads[0], nil
}

// Only is the topology with these workloads instead of its own, and without its timeline,
// chaos, checks and baseline. It shares all else with t, which stays as it is.
func (t *Topology) Only(workloads ...Workload) *Topology {
	only := *t
	only.Workloads, only.Timeline, only.Chaos, only.Checks, only.Baseline = workloads, nil, nil, nil, nil
	return &only
}

// mark says which setting a node and those below it are of, counted from 1: errors have it
// as their line.
func mark(n *yaml.Node, setting int) {
	n.Line = setting
	for _, below := range n.Content {
		mark(below, setting)
	}
}

// about is the message of an error after the key of the setting that it is about, if it
// is about one.
func (e Error) about(settings []string) string {
	if e.Line < 1 || e.Line > len(settings) {
		return e.Message
	}
	key, _, _ := strings.Cut(settings[e.Line-1], "=")
	return key + ": " + strings.TrimPrefix(e.Message, key+": ")
}
