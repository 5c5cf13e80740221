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

// An eventMap is an entry of the timeline.
type eventMap struct {
	at             *yaml.Node
	name           val[string]
	instant, wait  val[time.Duration]
	when           val[triggerMap]
	after          val[string]
	repeat         val[int]
	every          val[time.Duration]
	link           val[Endpoint]
	from           val[string]
	set            val[impairment]
	down, up       val[bool]
	cut, reset     val[bool]
	partition      val[[][]val[string]]
	heal           val[bool]
	stop, start    val[string] // a node or a workload
	restart, kill  val[string] // nodes
	pause, resume  val[string]
	node           val[string] // of exec
	exec           val[[]string]
	timeout        val[time.Duration]
	snapshot, mark val[string]
}

// A triggerMap is what an entry waits for.
type triggerMap struct {
	workload val[string]
	state    val[WorkloadState]
	messages val[condition]
	counter  val[string]
	node     val[string]
	value    val[condition]
}

// What a command of the timeline or of a check has where the file says nothing.
const defaultCommandTimeout = time.Minute

// Bounds of the timeline.
const (
	maxRepeat = 10000
	maxMark   = 200 // bytes
)

// states are what a workload has come to.
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
var eventActions = []string{"set", "reset", "cut", "down", "up", "partition", "heal", "stop", "start", "restart", "kill", "pause", "resume", "exec", "snapshot", "mark"}

var eventTable = sync.OnceValue(func() *keyTable[eventMap] {
	return &keyTable[eventMap]{
		what: "a timeline entry", noun: "timeline entry", def: "event",
		also: eventRules,
		keys: []key[eventMap]{
			one("name", nameForm(maxNodeName), func(m *eventMap) *val[string] { return &m.name }, "by which other entries refer to this one"),
			one("at", instant, func(m *eventMap) *val[time.Duration] { return &m.instant }, "so long after all nodes are ready"),
			one("when", triggerForm, func(m *eventMap) *val[triggerMap] { return &m.when }, "once a condition holds, below"),
			one("after", anyText, func(m *eventMap) *val[string] { return &m.after }, "once the entry of that `name` has happened, as often as it does"),
			one("wait", instant, func(m *eventMap) *val[time.Duration] { return &m.wait }, "with `when` and `after`: so long after that").orElse("at once"),
			one("repeat", count[int](1, maxRepeat), func(m *eventMap) *val[int] { return &m.repeat }, "how often it happens, $range").orElse("once"),
			one("every", interval, func(m *eventMap) *val[time.Duration] { return &m.every }, "with `repeat`: from one time to the next"),
			one("link", endpointName, func(m *eventMap) *val[Endpoint] { return &m.link }, "the link that it happens to, by an endpoint"),
			one("from", anyText, func(m *eventMap) *val[string] { return &m.from }, "with `link`, and `set`, `reset`, `cut` or `heal`: a node at the link, whose sent packets alone are meant"),
			one("set", setForm, func(m *eventMap) *val[impairment] { return &m.set }, "with `link`: keys of [impairments](#impairments); what it does not name stays"),
			one("reset", onlyTrue, func(m *eventMap) *val[bool] { return &m.reset }, "with `link`, `true`: the impairments are those of the file again. That the link is down or up stays"),
			one("cut", onlyTrue, func(m *eventMap) *val[bool] { return &m.cut }, "with `link`, `true`: nothing arrives any more, though the ends keep their carrier. Brief for `set: {cut: true}`"),
			one("down", onlyTrue, func(m *eventMap) *val[bool] { return &m.down }, "with `link`, `true`: the carrier goes, in both directions, as when a cable is pulled"),
			one("up", onlyTrue, func(m *eventMap) *val[bool] { return &m.up }, "with `link`, `true`: the carrier comes back"),
			one("partition", listOf(listOf(placed(anyText))), func(m *eventMap) *val[[][]val[string]] { return &m.partition }, "sets of nodes: links between different sets go down. Nodes in none of them form one more set, and `external` ends stay with their node. Switches and routers are nodes like others: `[[a, b, s], [c]]` keeps `a` and `b` together at the switch `s`. What an earlier partition took down comes back first"),
			one("heal", onlyTrue, func(m *eventMap) *val[bool] { return &m.heal }, "`true`: with `link` it is not cut any more, brief for `set: {cut: false}`; without, what the partition took down comes back"),
			one("stop", anyText, func(m *eventMap) *val[string] { return &m.stop }, "a node that is switched off, or a workload that ends early, in good order"),
			one("start", anyText, func(m *eventMap) *val[string] { return &m.start }, "a node that is switched on, or a workload that starts, which says `start: manual`"),
			one("restart", anyText, func(m *eventMap) *val[string] { return &m.restart }, "a node that is switched off and on"),
			one("kill", anyText, func(m *eventMap) *val[string] { return &m.kill }, "a node that crashes"),
			one("pause", anyText, func(m *eventMap) *val[string] { return &m.pause }, "a node that stops where it is"),
			one("resume", anyText, func(m *eventMap) *val[string] { return &m.resume }, "a node that goes on from there"),
			one("exec", commandForm, func(m *eventMap) *val[[]string] { return &m.exec }, "a command that runs in a host or router: text for `sh -c`, or a list of the program and its arguments. If its status is not 0, the run fails"),
			one("node", anyText, func(m *eventMap) *val[string] { return &m.node }, "with `exec`: where it runs"),
			one("timeout", runTime, func(m *eventMap) *val[time.Duration] { return &m.timeout }, "with `exec`: the run fails if the command has not ended by then").orElse("1m"),
			one("snapshot", nameForm(maxNodeName), func(m *eventMap) *val[string] { return &m.snapshot }, "a name, under which the counters of all nodes are kept for [checks](#checks) and the report"),
			one("mark", single(markText, func() schema {
				return anyOf(schema{"type": "string", "pattern": `^[^\r\n]+$`, "maxLength": maxMark}, schema{"type": []string{"number", "boolean"}})
			}), func(m *eventMap) *val[string] { return &m.mark }, "a comment, which captures and reports have at this time"),
		},
	}
})

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
	}
}

var eventForm = mapOf(eventTable, func(r *reader, n *yaml.Node, m *eventMap) eventMap {
	m.at = n
	if isMap(n) {
		r.eventAgrees(m)
	}
	if m.cut.ok || m.heal.ok && m.link.at != nil { // which are brief for what set says
		m.set.is = impairment{change: Change{Cut: &m.cut.is}, at: map[string]*yaml.Node{"cut": m.cut.at}}
	}
	return *m
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

// eventAgrees reports keys of an entry that are absent, and those that do not stand with
// others.
func (r *reader) eventAgrees(m *eventMap) {
	var given []string
	t := eventTable()
	for _, k := range t.given(m, eventActions...) {
		if k.at != nil {
			given = append(given, k.key)
		}
	}
	switch {
	case given == nil:
		r.errorf(m.at, "the timeline entry does nothing, expected one of %s", strings.Join(eventActions, ", "))
	case len(given) > 1:
		r.errorf(m.at, "the timeline entry has %s, expected only one of them", strings.Join(given, " and "))
	}
	r.exactlyOne(m.at, "timeline entry", t.given(m, "at", "when", "after")...)
	if m.instant.at != nil && m.wait.at != nil {
		r.errorf(m.wait.at, "wait stands with at, expected it only with when or after")
	}
	switch {
	case m.repeat.at != nil && m.every.at == nil:
		r.errorf(m.repeat.at, "repeat stands without every, expected every too: the time from one to the next")
	case m.every.at != nil && m.repeat.at == nil:
		r.errorf(m.every.at, "every stands without repeat, expected repeat too: how often")
	}
	if len(given) != 1 {
		return
	}
	action := given[0]
	if m.link.at == nil && slices.Contains(linkActions, action) && action != "heal" {
		r.required(m.at, "timeline entry", t.given(m, "link")...)
	}
	if m.link.at != nil && !slices.Contains(linkActions, action) {
		r.errorf(m.link.at, "link stands with %s, expected it only with one of %s", action, strings.Join(linkActions, ", "))
	}
	if m.from.at != nil && (m.link.at == nil || !slices.Contains(directedActions, action)) {
		r.errorf(m.from.at, "from stands with %s, expected it only with a link and one of %s", action, strings.Join(directedActions, ", "))
	}
	if action == "exec" {
		r.required(m.at, "timeline entry", t.given(m, "exec", "node")...)
	}
	for _, k := range t.given(m, "node", "timeout") {
		if k.at != nil && action != "exec" {
			r.errorf(k.at, "%s stands with %s, expected it only with exec", k.key, action)
		}
	}
}

var triggerTable = sync.OnceValue(func() *keyTable[triggerMap] {
	return &keyTable[triggerMap]{
		what: "when", noun: "condition of when", def: "trigger", exactlyOne: []string{"workload", "counter"},
		also: func(t *keyTable[triggerMap], s schema) {
			of := schema{"properties": bars(t.notWith("workload"))}
			s["allOf"] = []schema{
				rule(has("workload"), of.requiring("oneOf", t.with("workload")...), nil),
				rule(has("counter"), schema{"properties": bars(t.notWith("counter")), "required": []string{"value"}}, nil),
			}
		},
		keys: []key[triggerMap]{
			one("workload", anyText, func(m *triggerMap) *val[string] { return &m.workload }, "a workload's name"),
			only(one("state", manyWords(func() []WorkloadState { return states }), func(m *triggerMap) *val[WorkloadState] { return &m.state }, "when the workload has `started`, is `done`, or has `failed`: it has had an error"), "workload"),
			only(one("messages", counted, func(m *triggerMap) *val[condition] { return &m.messages }, "or when it has completed so many, summed over its flows, such as `\">= 1000\"`"), "workload"),
			one("counter", counterName, func(m *triggerMap) *val[string] { return &m.counter }, "a [counter](#counters)'s name"),
			only(one("node", anyText, func(m *triggerMap) *val[string] { return &m.node }, "whose counter it is").orElse("the sum over all hosts"), "counter"),
			only(one("value", counted, func(m *triggerMap) *val[condition] { return &m.value }, "what the counter has come to, such as `\"> 0\"`"), "counter"),
		},
	}
})

// triggerForm reads the condition that an entry waits for.
var triggerForm = mapOf(triggerTable, func(r *reader, n *yaml.Node, m *triggerMap) triggerMap {
	t := triggerTable()
	if m.workload.at != nil {
		r.exactlyOne(n, t.noun, t.given(m, t.with("workload")...)...)
	} else if m.counter.at != nil {
		r.required(n, t.noun, t.given(m, "counter", "value")...)
	}
	subjects := t.given(m, t.exactlyOne...)
	for i, s := range subjects {
		for _, k := range t.given(m, t.notWith(s.key)...) {
			if k.at != nil && s.at != nil {
				r.errorf(k.at, "%s stands with %s, expected it only with %s", k.key, s.key, subjects[1-i].key)
			}
		}
	}
	return *m
})
