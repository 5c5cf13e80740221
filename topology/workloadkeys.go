package topology

import (
	"slices"
	"strings"
)

// This file says which keys of a workload stand together.

// partnerKeys are the keys beside pattern that say whose a workload is, and untilKeys
// those of which a workload that does not end by itself has one.
var (
	partnerKeys = []string{"from", "to", "nodes"}
	untilKeys   = []string{"count", "duration"}
)

// patternKeys are the keys that say which nodes a pattern is of, all of which it needs.
var patternKeys = map[Pattern][]string{
	Pair:        {"from", "to"},
	Ring:        {"nodes"},
	AllToAll:    {"nodes"},
	Incast:      {"to", "nodes"},
	Broadcast:   {"from", "nodes"},
	Permutation: {"nodes"},
}

// operationNeeds are the keys beside those of the pattern that workloads of an
// operation have to have, but for one of untilKeys.
func operationNeeds(o Operation) []string {
	switch o {
	case Connect:
		return []string{}
	case AllReduce:
		return []string{"nodes", "size"}
	case Program:
		return []string{"nodes", "command"}
	}
	return []string{"size"}
}

// keysAgree reports keys of a workload that are absent, and those that do not stand with
// others.
func keysAgree(m *mapping[workloadMap]) {
	if !isMap(m.at) {
		return
	}
	if at := m.place("depth"); at != nil && m.is.Measure == Latency {
		m.errorf(at, "key depth stands with measure latency, expected none: one message is in flight")
	}
	if m.has("exec") {
		execAgrees(m)
		return
	}
	if at := m.place("ready"); at != nil {
		m.errorf(at, "key ready stands without exec, expected it only with exec, which has a server")
	}
	needs := []string{"name", "operation"}
	if !m.ok("operation") {
		m.required(needs...)
		return
	}
	operation := m.is.Operation
	for _, g := range m.among(m.table.notWith(string(operation))...) {
		m.errorf(g.at, "key %s stands with operation %s, expected it only with %s", g.key, operation, alternatives(m.table.find(g.key).with))
	}
	if slices.Contains(flowOperations, operation) {
		needs = append(needs, patternAgrees(m)...)
	}
	m.required(append(needs, operationNeeds(operation)...)...)
	if operation != Program {
		m.exactlyOne(untilKeys...)
	}
	sizes, at := m.is.size.sizes, m.place("size")
	switch sweeps := slices.Contains(messageOperations, operation); {
	case !m.ok("size") || len(sizes) == 1 && !m.is.size.mixed:
	case !sweeps && !m.is.size.mixed:
		m.errorf(at, "several sizes stand with operation %s, expected one", operation)
	case !sweeps && operation != Storage:
		m.errorf(at, "a mix stands with operation %s, expected one size", operation)
	}
	if operation == Rping && len(sizes) == 1 && (sizes[0] < rpingLeast || sizes[0] > rpingMost) {
		m.errorf(at, "size: %s is out of range with operation rping, expected %s to %s", FormatSize(sizes[0]), FormatSize(rpingLeast), FormatSize(rpingMost))
	}
}

// execKeys are the keys of workloads with exec, beside name and start.
var execKeys = []string{"exec", "ready", "timeout"}

// notWithExec are the other keys.
func notWithExec(t *keyTable[workloadMap]) []string {
	return slices.DeleteFunc(t.names(), func(name string) bool { return slices.Contains(execKeys, name) || name == "name" || name == "start" })
}

// execAgrees reports keys that a workload with exec lacks, and those that do not stand
// with it.
func execAgrees(m *mapping[workloadMap]) {
	for _, g := range m.among(notWithExec(m.table)...) {
		m.errorf(g.at, "key %s stands with exec, expected only name, %s and start: the keys of exec are the nodes", g.key, strings.Join(execKeys, ", "))
	}
	m.required("name")
}

// patternAgrees is the keys that a workload with flows has to have for its pattern.
// It reports keys that stand with another pattern.
func patternAgrees(m *mapping[workloadMap]) []string {
	switch nodes := m.place("nodes"); {
	case m.has("pattern") && !m.ok("pattern"):
		return nil
	case !m.has("pattern") && nodes != nil:
		m.errorf(nodes, "nodes stand without pattern, expected pattern too: ring, all-to-all, incast, broadcast or permutation")
		return nil
	}
	names := patternKeys[m.is.Pattern]
	for _, g := range m.among(partnerKeys...) {
		if !slices.Contains(names, g.key) {
			m.errorf(g.at, "key %s stands with pattern %s, expected %s", g.key, m.is.Pattern, strings.Join(names, " and "))
		}
	}
	return names
}

// workloadRules adds to the schema of a workload which keys stand together.
func workloadRules(t *keyTable[workloadMap], s schema) {
	s["type"], s["required"] = "object", []string{"name"}
	rules := []schema{rule(has("exec"), schema{"properties": bars(notWithExec(t))}, schema{"properties": bars([]string{"ready"}), "required": []string{"operation"}})}
	for _, o := range operations {
		then := schema{"properties": bars(append(t.notWith(string(o)), "exec", "ready")), "required": operationNeeds(o)}
		if o != Program {
			then.requiring("oneOf", untilKeys...)
		}
		single := anyOf(sizes.schema(), schema{"type": "string", "pattern": variable})
		switch {
		case slices.Contains(messageOperations, o) || !slices.Contains(sizedOperations, o):
		case o == Storage:
			then["properties"].(schema)["size"] = anyOf(single, mixTable().reference())
		default:
			then["properties"].(schema)["size"] = single
		}
		rules = append(rules, when(then, map[string][]string{"operation": {string(o)}}))
	}
	flows := texts(flowOperations)
	for _, p := range patterns {
		barred := slices.DeleteFunc(slices.Clone(partnerKeys), func(key string) bool { return slices.Contains(patternKeys[p], key) })
		rules = append(rules, when(schema{"properties": bars(barred), "required": patternKeys[p]}, map[string][]string{"operation": flows, "pattern": {string(p)}}))
	}
	absent := when(schema{"properties": bars([]string{"nodes"}), "required": patternKeys[Pair]}, map[string][]string{"operation": flows})
	absent["if"].(schema)["not"] = schema{"required": []string{"pattern"}}
	s["allOf"] = append(rules, absent, when(schema{"properties": bars([]string{"depth"})}, map[string][]string{"measure": {string(Latency)}}))
}
