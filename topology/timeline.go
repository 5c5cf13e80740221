package topology

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"
)

// This file is the keys of timeline entries; what they refer to is found in events.go.

// An eventMap is an entry of the timeline, with what becomes of its event when the whole
// lab is known.
type eventMap struct {
	Event
	when      *mapping[Trigger]
	set       impairment
	storm     Storm
	partition [][]val[string]
}

// defaultStorm is that of data with DCQCN (DefaultDSCPClasses).
const defaultStorm = 3

// defaultCommandTimeout is that of a command of the timeline or of a check if the file has none.
const defaultCommandTimeout = time.Minute

// Bounds of the timeline.
const (
	maxRepeat = 10000
	maxMark   = 200 // bytes
)

// states are all states of workloads.
var states = []WorkloadState{WorkloadStarted, WorkloadDone, WorkloadFailed}

// interval is the time from one event to the next.
var interval = span(time.Millisecond, 24*time.Hour)

// linkActions are the keys of what happens to a link, directedActions those of them that
// may happen to one direction alone. Heal without a link is about a partition.
var (
	linkActions     = []string{"set", "reset", "cut", "down", "up", "heal"}
	directedActions = []string{"set", "reset", "cut", "heal"}
)

// eventActions are the keys of all that can happen, of which an entry has one.
var eventActions = []string{"set", "reset", "cut", "down", "up", "partition", "heal", "stop", "start", "restart", "kill", "pause", "resume", "storm", "exec", "snapshot", "mark"}

var eventTable = sync.OnceValue(func() *keyTable[eventMap] {
	return &keyTable[eventMap]{
		what: "a timeline entry", noun: "timeline entry", def: "event",
		also: eventRules,
		keys: []key[eventMap]{
			one("name", nameForm(maxNodeName), func(m *eventMap) *string { return &m.Name }, "by which other entries refer to this one"),
			one("at", instant, func(m *eventMap) *time.Duration { return &m.At }, "so long after all nodes are ready"),
			one("when", triggerForm, func(m *eventMap) **mapping[Trigger] { return &m.when }, "once a condition holds, below"),
			one("after", anyText, func(m *eventMap) *string { return &m.After }, "once the entry of that `name` has happened, as often as it does"),
			one("wait", instant, func(m *eventMap) *time.Duration { return &m.At }, "with `when` and `after`: so long after that").orElse("at once"),
			one("repeat", count[int](1, maxRepeat), func(m *eventMap) *int { return &m.Repeat }, "how often it happens, $range").orElse("once"),
			one("every", interval, func(m *eventMap) *time.Duration { return &m.Every }, "with `repeat`: from one time to the next"),
			asking[eventMap]("link", endpointName, "the link that it happens to, by an endpoint"),
			one("from", anyText, func(m *eventMap) *string { return &m.From }, "with `link`, and `set`, `reset`, `cut` or `heal`: a node at the link, whose sent packets alone are meant"),
			one("set", setForm, func(m *eventMap) *impairment { return &m.set }, "with `link`: keys of [impairments](#impairments); what it does not name stays"),
			one("reset", onlyTrue, func(m *eventMap) *bool { return &m.Reset }, "with `link`, `true`: the impairments are those of the file again. That the link is down or up stays"),
			asking[eventMap]("cut", onlyTrue, "with `link`, `true`: nothing arrives any more, though the ends keep their carrier. Brief for `set: {cut: true}`"),
			one("down", onlyTrue, func(m *eventMap) *bool { return &m.Down }, "with `link`, `true`: the carrier goes, in both directions, as when a cable is pulled"),
			one("up", onlyTrue, func(m *eventMap) *bool { return &m.Up }, "with `link`, `true`: the carrier comes back"),
			one("partition", listOf(listOf(placed(anyText))), func(m *eventMap) *[][]val[string] { return &m.partition }, "sets of nodes: links between different sets go down. Nodes in none of them form one more set, and `external` ends stay with their node. Switches and routers are nodes like others: `[[a, b, s], [c]]` keeps `a` and `b` together at the switch `s`. What an earlier partition took down comes back first"),
			one("heal", onlyTrue, func(m *eventMap) *bool { return &m.Heal }, "`true`: with `link` it is not cut any more, brief for `set: {cut: false}`; without, what the partition took down comes back"),
			asking[eventMap]("stop", anyText, "a node that is switched off, or a workload that ends early, in good order. All ports of a switch that is off or hangs are down; it has to be named, or fit a pattern that fits no host and no router"),
			asking[eventMap]("start", anyText, "a node that is switched on, or a workload that starts, which says `start: manual`"),
			actionKey(RestartNode, "a node that is switched off and on"),
			actionKey(KillNode, "a node that crashes"),
			actionKey(PauseNode, "a node that hangs: it stops where it is"),
			actionKey(ResumeNode, "a node that goes on from there"),
			one("storm", anyText, func(m *eventMap) *string { return &m.Node }, "a host whose adapter asks its neighbours to pause without end, as a broken one does"),
			one("priority", priority, func(m *eventMap) *uint32 { return &m.storm.Priority }, "with `storm`: the priority that is to pause, $range").orElse("3"),
			one("for", interval, func(m *eventMap) *time.Duration { return &m.storm.For }, "with `storm`: how long"),
			one("exec", commandForm, func(m *eventMap) *[]string { return &m.Command }, "a command that runs in a host or router: text for `sh -c`, or a list of the program and its arguments. If its status is not 0, the run fails"),
			one("node", anyText, func(m *eventMap) *string { return &m.Node }, "with `exec`: where it runs"),
			one("timeout", runTime, func(m *eventMap) *time.Duration { return &m.Timeout }, "with `exec`: the run fails if the command has not ended by then").orElse("1m"),
			one("snapshot", nameForm(maxNodeName), func(m *eventMap) *string { return &m.Snapshot }, "a name, under which the counters of all nodes are kept for [checks](#checks) and the report"),
			one("mark", single(markText, func() schema {
				return anyOf(schema{"type": "string", "pattern": `^[^\r\n]+$`, "maxLength": maxMark}, schema{"type": []string{"number", "boolean"}})
			}), func(m *eventMap) *string { return &m.Mark }, "a comment, which captures and reports have at this time"),
		},
	}
})

// actionKey is the key of what happens to a node.
func actionKey(a NodeAction, doc string) key[eventMap] {
	return one(string(a), anyText, func(m *eventMap) *string {
		m.NodeAction = a
		return &m.Node
	}, doc)
}

// eventRules adds to the schema of an entry which keys stand together.
func eventRules(_ *keyTable[eventMap], s schema) {
	s["type"] = "object"
	s.requiring("oneOf", eventActions...)["dependentRequired"] = schema{"repeat": []string{"every"}, "every": []string{"repeat"}}
	withLink := slices.DeleteFunc(slices.Clone(linkActions), func(action string) bool { return action == "heal" })
	withoutLink := slices.DeleteFunc(slices.Clone(eventActions), func(action string) bool { return slices.Contains(linkActions, action) })
	s["allOf"] = []schema{
		schema{}.requiring("oneOf", "at", "when", "after"),
		rule(has("at"), schema{"properties": bars([]string{"wait"})}, nil),
		rule(has(withLink...), schema{"required": []string{"link"}}, nil),
		rule(has(withoutLink...), schema{"properties": bars([]string{"link", "from"})}, nil),
		rule(schema{"required": []string{"link"}}, schema{}, schema{"properties": bars([]string{"from"})}),
		rule(has("down", "up"), schema{"properties": bars([]string{"from"})}, nil),
		rule(has("exec"), schema{"required": []string{"node"}}, schema{"properties": bars([]string{"node", "timeout"})}),
		rule(has("storm"), schema{"required": []string{"for"}}, schema{"properties": bars([]string{"priority", "for"})}),
	}
}

var eventForm = mapOf(eventTable, func(m *mapping[eventMap]) *mapping[eventMap] {
	if isMap(m.at) {
		eventAgrees(m)
	}
	m.is.Place = m.where()
	if cut := m.ok("cut"); cut || m.ok("heal") && m.has("link") { // which are brief for what set says
		m.is.Heal = false
		m.is.set = impairment{change: Change{Cut: &cut}, at: map[string]*yaml.Node{"cut": m.place("cut")}}
	}
	return m
})

// setForm reads the changes of a link.
var setForm = form[impairment]{
	schema: func() schema { return setTable().reference() },
	read: func(r *reader, n *yaml.Node) impairment {
		m := impairmentForm(setTable).of(r, n).is
		if isMap(n) && len(n.Content) == 0 {
			r.errorf(n, "nothing to set, expected some of %s", strings.Join(setTable().names(), ", "))
		}
		return m
	},
}

var setTable = sync.OnceValue(func() *keyTable[impairment] {
	return &keyTable[impairment]{
		what: "set", noun: "set", def: "set", keys: impaired(false),
		also: func(_ *keyTable[impairment], s schema) { s["type"], s["minProperties"] = "object", 1 },
	}
})

// markText is a parser for a comment.
func markText(text string) (string, error) {
	if text == "" || len(text) > maxMark || strings.ContainsAny(text, "\r\n") {
		return "", fmt.Errorf("found %s, expected a line of up to %d bytes", quote(text), maxMark)
	}
	return text, nil
}

// eventParts are the keys that say more of an action: one that it needs, and one that it may have.
type eventParts struct{ needs, also string }

// eventAgrees reports keys of an entry that are absent, and those that do not stand with
// others.
func eventAgrees(m *mapping[eventMap]) {
	given := textsOf(m.among(eventActions...), given.name)
	switch {
	case len(given) == 0:
		m.errorf(m.at, "the timeline entry does nothing, expected one of %s", strings.Join(eventActions, ", "))
	case len(given) > 1:
		m.errorf(m.at, "the timeline entry has %s, expected only one of them", strings.Join(given, " and "))
	}
	m.exactlyOne("at", "when", "after")
	if at := m.place("wait"); at != nil && m.has("at") {
		m.errorf(at, "wait stands with at, expected it only with when or after")
	}
	switch repeat, every := m.place("repeat"), m.place("every"); {
	case repeat != nil && every == nil:
		m.errorf(repeat, "repeat stands without every, expected every too: the time from one to the next")
	case every != nil && repeat == nil:
		m.errorf(every, "every stands without repeat, expected repeat too: how often")
	}
	if len(given) != 1 {
		return
	}
	action, link := given[0], m.place("link")
	if slices.Contains(linkActions, action) && action != "heal" {
		m.required("link")
	}
	if link != nil && !slices.Contains(linkActions, action) {
		m.errorf(link, "link stands with %s, expected it only with one of %s", action, strings.Join(linkActions, ", "))
	}
	if from := m.place("from"); from != nil && (link == nil || !slices.Contains(directedActions, action)) {
		m.errorf(from, "from stands with %s, expected it only with a link and one of %s", action, strings.Join(directedActions, ", "))
	}
	for of, keys := range map[string]eventParts{"exec": {needs: "node", also: "timeout"}, "storm": {needs: "for", also: "priority"}} {
		if action == of {
			m.required(of, keys.needs)
			continue
		}
		for _, g := range m.among(keys.needs, keys.also) {
			m.errorf(g.at, "%s stands with %s, expected it only with %s", g.key, action, of)
		}
	}
}

var triggerTable = sync.OnceValue(func() *keyTable[Trigger] {
	return &keyTable[Trigger]{
		what: "when", noun: "condition of when", def: "trigger", exactlyOne: []string{"workload", "counter"},
		also: func(t *keyTable[Trigger], s schema) {
			of := schema{"properties": bars(t.notWith("workload"))}
			s["allOf"] = []schema{
				rule(has("workload"), of.requiring("oneOf", t.with("workload")...), nil),
				rule(has("counter"), schema{"properties": bars(t.notWith("counter")), "required": []string{"value"}}, nil),
			}
		},
		keys: []key[Trigger]{
			one("workload", anyText, func(m *Trigger) *string { return &m.Workload }, "a workload's name"),
			only(one("state", manyWords(func() []WorkloadState { return states }), func(m *Trigger) *WorkloadState { return &m.State }, "when the workload has `started`, is `done`, or has `failed`: it has had an error"), "workload"),
			only(one("messages", made(counted, func(c condition) Bound { return c.of(MessageCount) }), func(m *Trigger) *Bound { return &m.Bound }, "or when it has completed so many, summed over its flows, such as `\">= 1000\"`"), "workload"),
			one("counter", counterName, func(m *Trigger) *string { return &m.Counter }, "a [counter](#counters)'s name"),
			only(one("node", anyText, func(m *Trigger) *string { return &m.Node }, "whose counter it is").orElse("the sum over all hosts"), "counter"),
			only(one("value", made(counted, func(c condition) Bound { return c.of("") }), func(m *Trigger) *Bound { return &m.Bound }, "what the counter has come to, such as `\"> 0\"`"), "counter"),
		},
	}
})

// triggerForm reads the condition that an entry waits for.
var triggerForm = mapOf(triggerTable, func(m *mapping[Trigger]) *mapping[Trigger] {
	t := m.table
	if m.has("workload") {
		m.exactlyOne(t.with("workload")...)
	} else if m.has("counter") {
		m.required("counter", "value")
	}
	for i, subject := range t.exactlyOne {
		if !m.has(subject) {
			continue
		}
		for _, g := range m.among(t.notWith(subject)...) {
			m.errorf(g.at, "%s stands with %s, expected it only with %s", g.key, subject, t.exactlyOne[1-i])
		}
	}
	return m
})
