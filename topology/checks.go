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

// checkSubjects are the keys of what a check is about, of which it has one.
// Deadlocks are one unless there is a switch, of which they are a metric.
var checkSubjects = []string{"workload", "counter", "link", ofSwitch, string(Deadlocks), string(Leftovers), string(OpenConnections), "exec"}

const ofSwitch = "switch"

// checkNeeds are the keys that checks of a subject need, all of them or, of metrics, one
// at least.
func checkNeeds(t *keyTable[Check], subject string) (all, some []string) {
	switch subject {
	case "workload":
		return nil, t.with(subject)
	case "counter":
		return []string{"value"}, nil
	case "link":
		return nil, metricKeys(linkMetrics())
	case ofSwitch:
		return nil, append(metricKeys(bufferMetrics()), string(Deadlocks))
	case "exec":
		return []string{"node"}, nil
	}
	return nil, nil
}

var checkTable = sync.OnceValue(func() *keyTable[Check] {
	bounds := func(metrics []measured, subject string) (keys []key[Check]) {
		for _, m := range metrics {
			keys = append(keys, only(boundKey(string(m.metric), m.metric, m.form, m.doc), subject))
		}
		return keys
	}
	return &keyTable[Check]{
		what: "a check", noun: "check", def: "check",
		also: checkRules,
		keys: slices.Concat(
			[]key[Check]{
				one("workload", anyText, func(m *Check) *string { return &m.Workload }, "a workload, by its name"),
				one("counter", counterName, func(m *Check) *string { return &m.Counter }, "a [counter](#counters), by its name"),
				asking[Check]("link", endpointName, "a link, by an endpoint: each of its directions"),
				one(ofSwitch, anyText, func(m *Check) *string { return &m.Switch }, "a switch or router with a buffer, by its name"),
				boundKey(string(Deadlocks), Deadlocks, counted, "how many times queues came to wait for each other in a circle; with `switch` those count of which a queue there was part"),
				boundKey(string(Leftovers), Leftovers, counted, "how many NDK objects are left when all workloads have ended"),
				boundKey(string(OpenConnections), OpenConnections, counted, "how many queue pairs are connected when all workloads have ended"),
				one("exec", commandForm, func(m *Check) *[]string { return &m.Command }, "a command that runs in a node when all is over: text for `sh -c`, or a list of the program and its arguments"),
			},
			bounds(workloadMetrics(), "workload"),
			[]key[Check]{
				only(one("verified", onlyTrue, func(m *Check) *bool { return &m.Verified }, "`true`: every payload was right, which needs `verify: true` there"), "workload"),
				only(boundKey("value", "", counted, "such as `\"> 0\"`. Needed"), "counter"),
				only(one("node", anyText, func(m *Check) *string { return &m.Node }, "the host whose counter, objects or connections are meant; where `exec` runs, which needs it"), "counter", string(Leftovers), string(OpenConnections), "exec").orElse("all hosts together"),
				only(one("at", instant, func(m *Check) *time.Duration { return &m.At }, "when, after all nodes are ready"), "counter").orElse("at the end"),
				only(one("snapshot", anyText, func(m *Check) *string { return &m.Snapshot }, "as the timeline has kept it under that name"), "counter"),
			},
			bounds(linkMetrics(), "link"),
			bounds(bufferMetrics(), ofSwitch),
			[]key[Check]{
				only(one("from", anyText, func(m *Check) *string { return &m.From }, "the node whose sent packets alone are meant"), "link"),
				only(one("status", count[int](0, 255), func(m *Check) *int { return &m.Status }, "what it ends with"), "exec").orElse("0"),
				only(one("output", single(expression, textSchema), func(m *Check) *string { return &m.Output }, "a [regular expression](https://pkg.go.dev/regexp/syntax) that its output matches"), "exec"),
				only(one("timeout", runTime, func(m *Check) *time.Duration { return &m.Timeout }, "from which it has failed"), "exec").orElse("1m"),
			},
		),
	}
})

// boundKey is a key whose value is a bound of a metric.
func boundKey(name string, of Metric, f form[condition], doc string) key[Check] {
	return readBy(name, f.schema, func(r *reader, n *yaml.Node) func(*Check) {
		c := f.of(r, n)
		return func(m *Check) {
			if c.ok {
				m.Bounds = append(m.Bounds, c.is.of(of))
			}
		}
	}, doc)
}

// checkRules adds to the schema of a check which keys stand together.
func checkRules(t *keyTable[Check], s schema) {
	var rules []schema
	for _, subject := range checkSubjects {
		all, some := checkNeeds(t, subject)
		condition, then := has(subject), schema{"properties": bars(t.notWith(subject))}
		if subject == string(Deadlocks) {
			condition = deadlocksAlone()
		}
		if all != nil {
			then["required"] = all
		}
		if some != nil {
			then.requiring("anyOf", some...)
		}
		rules = append(rules, rule(condition, then, nil))
	}
	s["type"] = "object"
	s.requiring("oneOf", checkSubjects...)
	s["oneOf"].([]schema)[slices.Index(checkSubjects, string(Deadlocks))] = deadlocksAlone()
	s["allOf"] = append(rules, rule(has("snapshot"), schema{"properties": bars([]string{"at"})}, nil))
}

// deadlocksAlone is the schema of a check that is about the deadlocks of the whole run.
func deadlocksAlone() schema {
	return schema{"required": []string{string(Deadlocks)}, "not": schema{"required": []string{ofSwitch}}}
}

var checkForm = mapOf(checkTable, func(m *mapping[Check]) *mapping[Check] {
	if isMap(m.at) {
		checkAgrees(m)
	}
	return m
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
func checkAgrees(m *mapping[Check]) {
	t := m.table
	subjects := m.among(checkSubjects...)
	if m.has(ofSwitch) {
		subjects = slices.DeleteFunc(subjects, func(g given) bool { return g.key == string(Deadlocks) })
	}
	if len(subjects) == 0 {
		m.errorf(m.at, "the check is about nothing, expected one of %s", strings.Join(checkSubjects, ", "))
		return
	}
	if len(subjects) > 1 {
		m.errorf(m.at, "the check is about %s and %s, expected only one of them", subjects[0].key, subjects[1].key)
		return
	}
	subject := subjects[0].key
	may := t.with(subject)
	expected := "some of " + strings.Join(may, ", ")
	switch subject {
	case ofSwitch:
		may = append(may, string(Deadlocks))
		expected += ", " + string(Deadlocks)
	case string(Deadlocks):
		expected = "none unless it has a switch, too"
	}
	for _, g := range m.keys {
		if g.key != subject && !slices.Contains(may, g.key) {
			m.errorf(g.at, "key %s stands in a check of %s, expected %s", g.key, subject, expected)
		}
	}
	all, some := checkNeeds(t, subject)
	for _, key := range m.absent(all...) {
		m.errorf(m.at, "the check has no %s, expected %s and %s", key, subject, key)
	}
	if some != nil && m.among(some...) == nil {
		m.errorf(m.at, "the check of a %s has no bound, expected at least one of %s", subject, strings.Join(some, ", "))
	}
	if at := m.place("at"); at != nil && m.has("snapshot") {
		m.errorf(at, "at stands with snapshot, expected one of them: a snapshot has its time")
	}
}

// checks makes sure that what checks are about exists.
func (l *nameIndex) checks(maps []*mapping[Check]) []Check {
	workloads, names := l.lab.workloadsByName()
	var snapshots []string
	for _, e := range l.lab.Timeline {
		if e.Snapshot != "" {
			snapshots = append(snapshots, e.Snapshot)
		}
	}
	taken := make(map[string]bool)
	for _, name := range snapshots {
		taken[name] = true
	}
	var checks []Check
	for _, m := range eachCheck(l, maps) {
		c := m.is
		c.Place = m.where()
		c.OfBuffer = m.has(ofSwitch) || m.has(string(Deadlocks))
		c.Left = m.has(string(Leftovers)) || m.has(string(OpenConnections))
		exec := m.has("exec")
		switch {
		case exec && !m.ok("timeout"):
			c.Timeout = defaultCommandTimeout
		case m.has("link"):
			var ok bool
			c.OfLink = true
			if c.Link, ok = l.linkAt(m.endpoint("link")); ok && m.ok("from") {
				l.atLink(m.word("from"), &l.links[c.Link], m.endpoint("link").is)
			}
		}
		if c.OfBuffer {
			l.hasBuffer(m)
		}
		if m.ok("workload") {
			checkWorkload(m, workloads[c.Workload], names)
		}
		if m.ok("snapshot") && !taken[c.Snapshot] {
			l.errorf(m.place("snapshot"), "no timeline entry takes the snapshot %s, %s", quote(c.Snapshot), l.expectation(c.Snapshot, snapshots))
		}
		switch node := m.word("node"); {
		case !node.ok:
		case exec:
			l.runsCommands(node)
		default:
			l.hasAdapter(node)
		}
		checks = append(checks, c)
	}
	return checks
}

// withBuffers is the names of the nodes that have a buffer.
func (t *Topology) withBuffers() []string {
	var names []string
	for _, n := range t.Nodes {
		if n.Buffer != nil {
			names = append(names, n.Name)
		}
	}
	return names
}

// hasBuffer reports if a check is about a buffer that is not there, or about deadlocks where no
// node has one.
func (l *nameIndex) hasBuffer(m *mapping[Check]) {
	with := l.lab.withBuffers()
	v := m.word(ofSwitch)
	switch {
	case !m.has(ofSwitch):
		if len(with) == 0 {
			l.errorf(m.place(string(Deadlocks)), "no node has a buffer, expected the key buffer of a switch or router: without pauses, which buffers ask for, no queue waits for another")
		}
	case l.ofKind(v, "other nodes have no buffer", Switch, Router) && !slices.Contains(with, v.is):
		others := ""
		if len(with) > 0 {
			others = ", or a node that has one (" + few(with) + ")"
		}
		l.errorf(v.at, "%s has no buffer, expected the key buffer there%s", v.is, others)
	}
}

// programMetrics are those of programs: but for the errors, what they print.
var programMetrics = []Metric{
	Errors, Throughput, MessageCount, MessageRate,
	LatencyMin, LatencyP50, LatencyP90, LatencyP99, LatencyP999, LatencyP9999, LatencyMax, LatencyJitter,
}

// checkWorkload reports if there is no such workload, or it has not what is checked.
func checkWorkload(m *mapping[Check], w *Workload, names []string) {
	name, verified := m.word("workload"), m.find("verified")
	switch {
	case w == nil:
		m.unknown(name, "workload", names)
	case verified.ok && !w.Verify:
		m.errorf(verified.at, "workload %s does not compare its payload, expected verify: true there (line %d)", w.Name, w.Place.Line)
	case w.Operation == Program:
		for _, g := range m.among(metricKeys(workloadMetrics())...) {
			if !slices.Contains(programMetrics, Metric(g.key)) {
				m.errorf(g.at, "workload %s is a program, which has no %s, expected some of %s", w.Name, g.key, strings.Join(texts(programMetrics), ", "))
			}
		}
	}
}
