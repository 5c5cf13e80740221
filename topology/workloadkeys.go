package topology

import (
	"slices"
	"strings"
)

// This file is which keys of a workload stand together.

// flowKeys are those of operations whose workloads have flows of any pattern, and
// untilKeys those of all that do not end by themselves.
var (
	flowKeys  = []string{"from", "to", "pattern", "nodes"}
	untilKeys = []string{"count", "duration"}
	// messageKeys are those of Send, Write and Read.
	messageKeys = slices.Concat(flowKeys, untilKeys, []string{"size", "measure", "depth", "qps", "completion", "rate", "warmup", "verify", "reconnect"})
)

// operationKeys are the keys that workloads of each operation may have, beside those of
// all, which are name, operation and start.
var operationKeys = map[Operation][]string{
	Send:      append(messageKeys[:len(messageKeys):len(messageKeys)], "inline", "srq"),
	Write:     append(messageKeys[:len(messageKeys):len(messageKeys)], "inline"),
	Read:      messageKeys,
	Connect:   slices.Concat(flowKeys, untilKeys, []string{"depth", "qps"}),
	Storage:   slices.Concat(flowKeys, untilKeys, []string{"size", "depth", "qps", "verify", "reconnect"}),
	AllReduce: slices.Concat(untilKeys, []string{"nodes", "size", "verify"}),
	Rping:     slices.Concat(flowKeys, untilKeys, []string{"size", "verify"}),
	Program:   {"nodes", "command", "timeout"},
}

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

// given is a workload's keys but for those that all have.
func (m *workloadMap) given() []needed {
	return []needed{
		need("from", m.from), need("to", m.to), need("pattern", m.pattern), need("nodes", m.nodes), need("size", m.size), need("measure", m.measure),
		need("depth", m.depth), need("qps", m.qps), need("inline", m.inline), need("srq", m.srq), need("completion", m.polling), need("rate", m.rate),
		need("count", m.count), need("duration", m.duration), need("warmup", m.warmup), need("verify", m.verify), need("reconnect", m.reconnect),
		need("command", m.command), need("timeout", m.timeout),
	}
}

// only is those of the keys that have these names.
func only(all []needed, names []string) (some []needed) {
	for _, k := range all {
		if slices.Contains(names, k.key) {
			some = append(some, k)
		}
	}
	return some
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
	needs := []needed{need("name", m.name), need("operation", m.operation)}
	if !m.operation.ok {
		r.required(m.at, "workload", needs...)
		return
	}
	given, may := m.given(), operationKeys[m.operation.is]
	for _, k := range given {
		if k.at != nil && !slices.Contains(may, k.key) {
			r.errorf(k.at, "key %s stands with operation %s, expected it only with %s", k.key, m.operation.is, operationsWith(k.key))
		}
	}
	if slices.Contains(may, "pattern") {
		needs = append(needs, r.patternAgrees(m, given)...)
	}
	r.required(m.at, "workload", append(needs, only(given, operationNeeds(m.operation.is))...)...)
	if m.operation.is != Program {
		r.exactlyOne(m.at, "workload", only(given, untilKeys)...)
	}
	switch sweeps := slices.Contains(may, "measure"); {
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

// execAgrees reports keys that a workload with exec lacks, and those that do not stand
// with it.
func (r *reader) execAgrees(m *workloadMap) {
	for _, k := range append(m.given(), need("operation", m.operation)) {
		if k.at != nil && !slices.Contains(execKeys, k.key) {
			r.errorf(k.at, "key %s stands with exec, expected only name, %s and start: the keys of exec are the nodes", k.key, strings.Join(execKeys, ", "))
		}
	}
	r.required(m.at, "workload", need("name", m.name))
}

// patternAgrees is the keys that a workload with flows has to have for its pattern.
// It reports keys that stand with another pattern.
func (r *reader) patternAgrees(m *workloadMap, given []needed) []needed {
	pattern := m.pattern.orElse(Pair)
	switch {
	case m.pattern.at != nil && !m.pattern.ok:
		return nil
	case m.pattern.at == nil && m.nodes.at != nil:
		r.errorf(m.nodes.at, "nodes stand without pattern, expected pattern too: ring, all-to-all, incast, broadcast or permutation")
		return nil
	}
	names := patternKeys[pattern]
	for _, k := range given {
		if k.at != nil && k.key != "pattern" && slices.Contains(flowKeys, k.key) && !slices.Contains(names, k.key) {
			r.errorf(k.at, "key %s stands with pattern %s, expected %s", k.key, pattern, strings.Join(names, " and "))
		}
	}
	return only(given, names)
}

// operationsWith is the operations that have a key, in words.
func operationsWith(key string) string {
	var words []string
	for _, o := range operations {
		if slices.Contains(operationKeys[o], key) {
			words = append(words, string(o))
		}
	}
	if last := len(words) - 1; last > 0 {
		return strings.Join(words[:last], ", ") + " or " + words[last]
	}
	return words[0]
}
