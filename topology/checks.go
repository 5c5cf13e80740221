package topology

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
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
	metrics    []needed // those with a bound
	bounds     []Bound
}

// checkSubjects are the keys of what a check is about, of which it has one.
var checkSubjects = []string{"workload", "counter", "link", string(Leftovers), string(OpenConnections), "exec"}

// checkKeys are the keys that checks of each subject may have, and checkNeeds those that
// they need, all of them or, of metrics, one at least.
func checkKeys(subject string) []string {
	switch subject {
	case "workload":
		return append(metricKeys(workloadMetrics()), "verified")
	case "counter":
		return []string{"value", "node", "at", "snapshot"}
	case "link":
		return append(metricKeys(linkMetrics()), "from")
	case "exec":
		return []string{"node", "status", "output", "timeout"}
	}
	return []string{"node"}
}

func checkNeeds(subject string) (all, some []string) {
	switch subject {
	case "workload":
		return nil, checkKeys(subject)
	case "counter":
		return []string{"value"}, nil
	case "link":
		return nil, metricKeys(linkMetrics())
	case "exec":
		return []string{"node"}, nil
	}
	return nil, nil
}

var exitStatus = count[int](0, 255)

func (r *reader) checkMap(n *yaml.Node) checkMap {
	m := checkMap{at: n}
	fields := []field{
		one(r, "workload", &m.workload, anyText),
		one(r, "counter", &m.counter, counter(r)),
		one(r, "link", &m.link, endpoint),
		one(r, string(Leftovers), &m.leftovers, counted),
		one(r, string(OpenConnections), &m.connections, counted),
		field{"exec", func(n *yaml.Node) { m.exec = r.command(n) }},
		one(r, "verified", &m.verified, onlyTrue),
		one(r, "value", &m.value, counted),
		one(r, "node", &m.node, anyText),
		one(r, "from", &m.from, anyText),
		one(r, "at", &m.instant, instant),
		one(r, "snapshot", &m.snapshot, anyText),
		one(r, "status", &m.status, exitStatus),
		one(r, "output", &m.output, expression),
		one(r, "timeout", &m.timeout, runTime),
	}
	for _, measured := range slices.Concat(workloadMetrics(), linkMetrics()) {
		fields = append(fields, field{string(measured.metric), func(n *yaml.Node) {
			m.metrics = append(m.metrics, needed{string(measured.metric), n})
			if c := scalar(r, n, measured.parse); c.ok {
				m.bounds = append(m.bounds, c.is.of(measured.metric))
			}
		}})
	}
	r.fields(n, "a check", fields...)
	if isMap(n) {
		r.checkAgrees(&m)
	}
	return m
}

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
	subjects := []needed{
		need("workload", m.workload), need("counter", m.counter), need("link", m.link),
		need(string(Leftovers), m.leftovers), need(string(OpenConnections), m.connections), need("exec", m.exec),
	}
	others := append([]needed{
		need("verified", m.verified), need("value", m.value), need("node", m.node), need("from", m.from), need("at", m.instant), need("snapshot", m.snapshot),
		need("status", m.status), need("output", m.output), need("timeout", m.timeout),
	}, m.metrics...)
	subjects = slices.DeleteFunc(subjects, func(k needed) bool { return k.at == nil })
	others = slices.DeleteFunc(others, func(k needed) bool { return k.at == nil })
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
		if may := checkKeys(subject); !slices.Contains(may, k.key) {
			r.errorf(k.at, "key %s stands in a check of %s, expected some of %s", k.key, subject, strings.Join(may, ", "))
		}
	}
	all, some := checkNeeds(subject)
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
		for _, k := range m.metrics {
			if !slices.Contains(programMetrics, Metric(k.key)) {
				r.errorf(k.at, "workload %s is a program, which has no %s, expected some of %s", w.Name, k.key, strings.Join(texts(programMetrics), ", "))
			}
		}
	}
}
