package topology

import (
	"slices"
	"strings"
)

// This file is which keys of a workload stand together.

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
func (r *reader) keysAgree(m *workloadMap) {
	if !isMap(m.at) {
		return
	}
	if m.measure.is == Latency && m.depth.at != nil {
		r.errorf(m.depth.at, "key depth stands with measure latency, expected none: one message is in flight")
	}
	if m.exec.at != nil {
		r.execAgrees(m)
		return
	}
	if m.ready.at != nil {
		r.errorf(m.ready.at, "key ready stands without exec, expected it only with exec, which has a server")
	}
	t, needs := workloadTable(), []string{"name", "operation"}
	if !m.operation.ok {
		r.required(m.at, "workload", t.given(m, needs...)...)
		return
	}
	operation := string(m.operation.is)
	for _, k := range t.keys {
		if at := k.at(m); at != nil && k.with != nil && !slices.Contains(k.with, operation) {
			r.errorf(at, "key %s stands with operation %s, expected it only with %s", k.name, operation, alternatives(k.with))
		}
	}
	if slices.Contains(flowOperations, m.operation.is) {
		needs = append(needs, r.patternAgrees(m)...)
	}
	r.required(m.at, "workload", t.given(m, append(needs, operationNeeds(m.operation.is)...)...)...)
	if m.operation.is != Program {
		r.exactlyOne(m.at, "workload", t.given(m, untilKeys...)...)
	}
	switch sweeps := slices.Contains(messageOperations, m.operation.is); {
	case !m.size.ok || len(m.size.is.sizes) == 1 && !m.size.is.mixed:
	case !sweeps && !m.size.is.mixed:
		r.errorf(m.size.at, "several sizes stand with operation %s, expected one", m.operation.is)
	case !sweeps && m.operation.is != Storage:
		r.errorf(m.size.at, "a mix stands with operation %s, expected one size", m.operation.is)
	}
	if sizes := m.size.is.sizes; m.operation.is == Rping && len(sizes) == 1 && (sizes[0] < rpingLeast || sizes[0] > rpingMost) {
		r.errorf(m.size.at, "size: %s is out of range with operation rping, expected %s to %s", FormatSize(sizes[0]), FormatSize(rpingLeast), FormatSize(rpingMost))
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
func (r *reader) execAgrees(m *workloadMap) {
	t := workloadTable()
	for _, k := range t.given(m, notWithExec(t)...) {
		if k.at != nil {
			r.errorf(k.at, "key %s stands with exec, expected only name, %s and start: the keys of exec are the nodes", k.key, strings.Join(execKeys, ", "))
		}
	}
	r.required(m.at, "workload", t.given(m, "name")...)
}

// patternAgrees is the keys that a workload with flows has to have for its pattern.
// It reports keys that stand with another pattern.
func (r *reader) patternAgrees(m *workloadMap) []string {
	pattern := m.pattern.orElse(Pair)
	switch {
	case m.pattern.at != nil && !m.pattern.ok:
		return nil
	case m.pattern.at == nil && m.nodes.at != nil:
		r.errorf(m.nodes.at, "nodes stand without pattern, expected pattern too: ring, all-to-all, incast, broadcast or permutation")
		return nil
	}
	names := patternKeys[pattern]
	for _, k := range workloadTable().given(m, partnerKeys...) {
		if k.at != nil && !slices.Contains(names, k.key) {
			r.errorf(k.at, "key %s stands with pattern %s, expected %s", k.key, pattern, strings.Join(names, " and "))
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
