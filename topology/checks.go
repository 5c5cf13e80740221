package topology

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"
)

// This file is the keys of checks, and what they refer to.

// A checkMap is an entry of checks.
type checkMap struct {
	at          *yaml.Node
	workload    val[string]
	counter     val[string]
	link        val[Endpoint]
	leftovers   val[condition]
	connections val[condition] // that are open
	exec        val[[]string]

	verified   val[bool]
	value      val[condition]
	node, from val[string]
	instant    val[time.Duration]
	snapshot   val[string]
	status     val[int]
	output     val[string]
	timeout    val[time.Duration]
	metrics    map[Metric]*yaml.Node // those with a bound
	bounds     []Bound
}

// checkSubjects are the keys of what a check is about, of which it has one.
var checkSubjects = []string{"workload", "counter", "link", string(Leftovers), string(OpenConnections), "exec"}

// checkNeeds are the keys that checks of a subject need, all of them or, of metrics, one
// at least.
func checkNeeds(t *keyTable[checkMap], subject string) (all, some []string) {
	switch subject {
	case "workload":
		return nil, t.with(subject)
	case "counter":
		return []string{"value"}, nil
	case "link":
		return nil, metricKeys(linkMetrics())
	case "exec":
		return []string{"node"}, nil
	}
	return nil, nil
}

var checkTable = sync.OnceValue(func() *keyTable[checkMap] {
	bounds := func(metrics []measured, subject string) (keys []key[checkMap]) {
		for _, m := range metrics {
			keys = append(keys, only(boundKey(m), subject))
		}
		return keys
	}
	return &keyTable[checkMap]{
		what: "a check", noun: "check", def: "check",
		also: checkRules,
		keys: slices.Concat(
			[]key[checkMap]{
				one("workload", anyText, func(m *checkMap) *val[string] { return &m.workload }, "a workload, by its name"),
				one("counter", counterName, func(m *checkMap) *val[string] { return &m.counter }, "a [counter](#counters), by its name"),
				one("link", endpointName, func(m *checkMap) *val[Endpoint] { return &m.link }, "a link, by an endpoint: each of its directions"),
				one(string(Leftovers), counted, func(m *checkMap) *val[condition] { return &m.leftovers }, "how many NDK objects are left when all workloads have ended"),
				one(string(OpenConnections), counted, func(m *checkMap) *val[condition] { return &m.connections }, "how many queue pairs are connected when all workloads have ended"),
				one("exec", commandForm, func(m *checkMap) *val[[]string] { return &m.exec }, "a command that runs in a node when all is over: text for `sh -c`, or a list of the program and its arguments"),
			},
			bounds(workloadMetrics(), "workload"),
			[]key[checkMap]{
				only(one("verified", onlyTrue, func(m *checkMap) *val[bool] { return &m.verified }, "`true`: every payload was right, which needs `verify: true` there"), "workload"),
				only(one("value", counted, func(m *checkMap) *val[condition] { return &m.value }, "such as `\"> 0\"`. Needed"), "counter"),
				only(one("node", anyText, func(m *checkMap) *val[string] { return &m.node }, "the host whose counter, objects or connections are meant; where `exec` runs, which needs it"), "counter", string(Leftovers), string(OpenConnections), "exec").orElse("all hosts together"),
				only(one("at", instant, func(m *checkMap) *val[time.Duration] { return &m.instant }, "when, after all nodes are ready"), "counter").orElse("at the end"),
				only(one("snapshot", anyText, func(m *checkMap) *val[string] { return &m.snapshot }, "as the timeline has kept it under that name"), "counter"),
			},
			bounds(linkMetrics(), "link"),
			[]key[checkMap]{
				only(one("from", anyText, func(m *checkMap) *val[string] { return &m.from }, "the node whose sent packets alone are meant"), "link"),
				only(one("status", count[int](0, 255), func(m *checkMap) *val[int] { return &m.status }, "what it ends with"), "exec").orElse("0"),
				only(one("output", single(expression, textSchema), func(m *checkMap) *val[string] { return &m.output }, "a [regular expression](https://pkg.go.dev/regexp/syntax) that its output matches"), "exec"),
				only(one("timeout", runTime, func(m *checkMap) *val[time.Duration] { return &m.timeout }, "from which it has failed"), "exec").orElse("1m"),
			},
		),
	}
})

// boundKey is the key of a metric that has a bound.
func boundKey(of measured) key[checkMap] {
	return key[checkMap]{
		name: string(of.metric), doc: of.doc, schema: of.form.schema,
		at: func(m *checkMap) *yaml.Node { return m.metrics[of.metric] },
		read: func(r *reader, n *yaml.Node, m *checkMap) {
			if m.metrics == nil {
				m.metrics = make(map[Metric]*yaml.Node)
			}
			m.metrics[of.metric] = n
			if c := of.form.of(r, n); c.ok {
				m.bounds = append(m.bounds, c.is.of(of.metric))
			}
		},
	}
}

// checkRules adds to the schema of a check which keys stand together.
func checkRules(t *keyTable[checkMap], s schema) {
	var rules []schema
	for _, subject := range checkSubjects {
		all, some := checkNeeds(t, subject)
		then := schema{"properties": bars(t.notWith(subject))}
		if all != nil {
			then["required"] = all
		}
		if some != nil {
			then.requiring("anyOf", some...)
		}
		rules = append(rules, rule(has(subject), then, nil))
	}
	s["type"] = "object"
	s.requiring("oneOf", checkSubjects...)["allOf"] = append(rules, rule(has("snapshot"), schema{"properties": bars([]string{"at"})}, nil))
}

var checkForm = mapOf(checkTable, func(r *reader, n *yaml.Node, m *checkMap) checkMap {
	m.at = n
	if isMap(n) {
		r.checkAgrees(m)
	}
	return *m
})

// expression is a parser for a regular expression.
func expression(text string) (string, error) {
	if _, err := regexp.Compile(text); err != nil {
		return "", fmt.Errorf("found %s, expected a regular expression: %v", quote(text), err)
	}
	return text, nil
}

// checkAgrees reports keys of a check that are absent, and those that do not stand with
// others.
func (r *reader) checkAgrees(m *checkMap) {
	t := checkTable()
	absent := func(k needed) bool { return k.at == nil }
	subjects := slices.DeleteFunc(t.given(m, checkSubjects...), absent)
	others := slices.DeleteFunc(t.given(m, t.names()...), func(k needed) bool { return absent(k) || slices.Contains(checkSubjects, k.key) })
	switch len(subjects) {
	case 0:
		r.errorf(m.at, "the check is about nothing, expected one of %s", strings.Join(checkSubjects, ", "))
		return
	case 1:
	default:
		r.errorf(m.at, "the check is about %s and %s, expected only one of them", subjects[0].key, subjects[1].key)
		return
	}
	subject := subjects[0].key
	has := func(key string) bool { return slices.ContainsFunc(others, func(k needed) bool { return k.key == key }) }
	for _, k := range others {
		if may := t.with(subject); !slices.Contains(may, k.key) {
			r.errorf(k.at, "key %s stands in a check of %s, expected some of %s", k.key, subject, strings.Join(may, ", "))
		}
	}
	all, some := checkNeeds(t, subject)
	for _, key := range all {
		if !has(key) {
			r.errorf(m.at, "the check has no %s, expected %s and %s", key, subject, key)
		}
	}
	if some != nil && !slices.ContainsFunc(some, has) {
		r.errorf(m.at, "the check of a %s has no bound, expected at least one of %s", subject, strings.Join(some, ", "))
	}
	if m.instant.at != nil && m.snapshot.at != nil {
		r.errorf(m.instant.at, "at stands with snapshot, expected one of them: a snapshot has its time")
	}
}

// checks makes sure that what checks are about exists.
func (r *reader) checks(maps []checkMap, l *linked, t *Topology) []Check {
	workloads, names := t.workloadsByName()
	var snapshots []string
	taken := make(map[string]bool)
	for _, e := range t.Timeline {
		if e.Snapshot != "" {
			snapshots = append(snapshots, e.Snapshot)
			taken[e.Snapshot] = true
		}
	}
	var checks []Check
	for _, m := range r.eachCheck(maps, l, t) {
		c := Check{
			Workload: m.workload.is, Verified: m.verified.is, Counter: m.counter.is, Node: m.node.is, Snapshot: m.snapshot.is, At: m.instant.is,
			From: m.from.is, Left: m.leftovers.ok || m.connections.ok, Command: m.exec.is, Status: m.status.is, Output: m.output.is,
			Bounds: m.bounds, Place: Place{r.file, m.at.Line, m.at.Column},
		}
		switch {
		case m.leftovers.ok:
			c.Bounds = []Bound{m.leftovers.is.of(Leftovers)}
		case m.connections.ok:
			c.Bounds = []Bound{m.connections.is.of(OpenConnections)}
		case m.counter.ok && m.value.ok:
			c.Bounds = []Bound{m.value.is.of("")}
		case m.exec.at != nil:
			c.Timeout = m.timeout.orElse(defaultCommandTimeout)
		case m.link.at != nil:
			var ok bool
			c.OfLink = true
			if c.Link, ok = r.linkAt(m.link, l); ok && m.from.ok {
				r.atLink(m.from, m.link.is, &l.links[c.Link])
			}
		}
		if m.workload.ok {
			r.checkWorkload(m, workloads[m.workload.is], names)
		}
		if m.snapshot.ok && !taken[m.snapshot.is] {
			r.errorf(m.snapshot.at, "no timeline entry takes the snapshot %s, %s", quote(m.snapshot.is), r.expectation(m.snapshot.is, snapshots))
		}
		switch {
		case !m.node.ok:
		case m.exec.at != nil:
			r.runsCommands(m.node, l, t)
		default:
			r.adapterOf(m.node, l, t)
		}
		checks = append(checks, c)
	}
	return checks
}

// programMetrics are those of programs: but for the errors, what they print.
var programMetrics = []Metric{
	Errors, Throughput, MessageCount, MessageRate,
	LatencyMin, LatencyP50, LatencyP90, LatencyP99, LatencyP999, LatencyP9999, LatencyMax, LatencyJitter,
}

// checkWorkload reports if there is no such workload, or it has not what is checked.
func (r *reader) checkWorkload(m checkMap, w *Workload, names []string) {
	switch {
	case w == nil:
		r.errorf(m.workload.at, "no workload has the name %s, %s", quote(m.workload.is), r.expectation(m.workload.is, names))
	case m.verified.ok && !w.Verify:
		r.errorf(m.verified.at, "workload %s does not compare its payload, expected verify: true there (line %d)", w.Name, w.Place.Line)
	case w.Operation == Program:
		for metric, at := range m.metrics {
			if !slices.Contains(programMetrics, metric) {
				r.errorf(at, "workload %s is a program, which has no %s, expected some of %s", w.Name, metric, strings.Join(texts(programMetrics), ", "))
			}
		}
	}
}
