package topology

import (
	"fmt"
	"slices"
	"strings"
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
	onNode         map[NodeAction]*val[string]
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

// The values of the timeline.
var (
	repeats  = count[int](1, maxRepeat)
	interval = span(time.Millisecond, 24*time.Hour)
	states   = []WorkloadState{WorkloadStarted, WorkloadDone, WorkloadFailed}
)

// linkActions are the keys of what happens to a link, directedActions those of them that
// may happen to one direction alone. Heal without a link is about a partition.
var (
	linkActions     = []string{"set", "reset", "cut", "down", "up", "heal"}
	directedActions = []string{"set", "reset", "cut", "heal"}
)

// eventActions are the keys of all that can happen.
var eventActions = []string{"set", "reset", "cut", "down", "up", "partition", "heal", "stop", "start", "restart", "kill", "pause", "resume", "exec", "snapshot", "mark"}

// actions are the keys of what happens in an entry, of which it has one.
func (m *eventMap) actions() []needed {
	return []needed{
		need("set", m.set), need("reset", m.reset), need("cut", m.cut), need("down", m.down), need("up", m.up), need("partition", m.partition), need("heal", m.heal),
		need("stop", m.stop), need("start", m.start), need("restart", *m.onNode[RestartNode]), need("kill", *m.onNode[KillNode]),
		need("pause", *m.onNode[PauseNode]), need("resume", *m.onNode[ResumeNode]), need("exec", m.exec), need("snapshot", m.snapshot), need("mark", m.mark),
	}
}

func (r *reader) eventMap(n *yaml.Node) eventMap {
	m := eventMap{at: n, onNode: map[NodeAction]*val[string]{RestartNode: {}, KillNode: {}, PauseNode: {}, ResumeNode: {}}}
	r.fields(n, "a timeline entry",
		one(r, "name", &m.name, plainName(maxNodeName)),
		one(r, "at", &m.instant, instant),
		field{"when", func(n *yaml.Node) { m.when = r.trigger(n) }},
		one(r, "after", &m.after, anyText),
		one(r, "wait", &m.wait, instant),
		one(r, "repeat", &m.repeat, repeats),
		one(r, "every", &m.every, interval),
		one(r, "link", &m.link, endpoint),
		one(r, "from", &m.from, anyText),
		field{"set", func(n *yaml.Node) { m.set = r.setMap(n) }},
		one(r, "reset", &m.reset, onlyTrue),
		one(r, "cut", &m.cut, onlyTrue),
		one(r, "down", &m.down, onlyTrue),
		one(r, "up", &m.up, onlyTrue),
		field{"partition", func(n *yaml.Node) { m.partition = r.sets(n) }},
		one(r, "heal", &m.heal, onlyTrue),
		one(r, "stop", &m.stop, anyText),
		one(r, "start", &m.start, anyText),
		one(r, "restart", m.onNode[RestartNode], anyText),
		one(r, "kill", m.onNode[KillNode], anyText),
		one(r, "pause", m.onNode[PauseNode], anyText),
		one(r, "resume", m.onNode[ResumeNode], anyText),
		field{"exec", func(n *yaml.Node) { m.exec = r.command(n) }},
		one(r, "node", &m.node, anyText),
		one(r, "timeout", &m.timeout, runTime),
		one(r, "snapshot", &m.snapshot, plainName(maxNodeName)),
		one(r, "mark", &m.mark, markText),
	)
	if isMap(n) {
		r.eventAgrees(&m)
	}
	if m.cut.ok || m.heal.ok && m.link.at != nil { // which are brief for what set says
		m.set.is = impairment{change: Change{Cut: &m.cut.is}, at: map[string]*yaml.Node{"cut": m.cut.at}}
	}
	return m
}

// setMap reads what changes of a link.
func (r *reader) setMap(n *yaml.Node) val[impairment] {
	v := val[impairment]{at: n, ok: true}
	r.fields(n, "set", r.impairment(&v.is)...)
	r.noSenders(v.is)
	if isMap(n) && len(n.Content) == 0 {
		r.errorf(n, "nothing to set, expected some of %s", strings.Join(impairmentKeys, ", "))
	}
	return v
}

// sets reads the sets of a partition.
func (r *reader) sets(n *yaml.Node) val[[][]val[string]] {
	v := val[[][]val[string]]{at: n}
	before := len(r.errors)
	r.items(n, func(n *yaml.Node) {
		var set []val[string]
		r.items(n, func(n *yaml.Node) { set = append(set, scalar(r, n, anyText)) })
		v.is = append(v.is, set)
	})
	v.ok = len(r.errors) == before
	return v
}

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
	for _, k := range m.actions() {
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
	r.exactlyOne(m.at, "timeline entry", need("at", m.instant), need("when", m.when), need("after", m.after))
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
		r.required(m.at, "timeline entry", need("link", m.link))
	}
	if m.link.at != nil && !slices.Contains(linkActions, action) {
		r.errorf(m.link.at, "link stands with %s, expected it only with one of %s", action, strings.Join(linkActions, ", "))
	}
	if m.from.at != nil && (m.link.at == nil || !slices.Contains(directedActions, action)) {
		r.errorf(m.from.at, "from stands with %s, expected it only with a link and one of %s", action, strings.Join(directedActions, ", "))
	}
	if action == "exec" {
		r.required(m.at, "timeline entry", need("exec", m.exec), need("node", m.node))
	}
	for _, k := range []needed{need("node", m.node), need("timeout", m.timeout)} {
		if k.at != nil && action != "exec" {
			r.errorf(k.at, "%s stands with %s, expected it only with exec", k.key, action)
		}
	}
}

// trigger reads what an entry waits for.
func (r *reader) trigger(n *yaml.Node) val[triggerMap] {
	v := val[triggerMap]{at: n}
	m := &v.is
	before := len(r.errors)
	r.fields(n, "when",
		one(r, "workload", &m.workload, anyText),
		one(r, "state", &m.state, wordOf(r, states)),
		one(r, "messages", &m.messages, counted),
		one(r, "counter", &m.counter, counter(r)),
		one(r, "node", &m.node, anyText),
		one(r, "value", &m.value, counted),
	)
	r.exactlyOne(n, "condition of when", need("workload", m.workload), need("counter", m.counter))
	if m.workload.at != nil {
		r.exactlyOne(n, "condition of when", need("state", m.state), need("messages", m.messages))
	} else if m.counter.at != nil {
		r.required(n, "condition of when", need("counter", m.counter), need("value", m.value))
	}
	for _, k := range []needed{need("state", m.state), need("messages", m.messages)} {
		if k.at != nil && m.counter.at != nil {
			r.errorf(k.at, "%s stands with counter, expected it only with workload", k.key)
		}
	}
	for _, k := range []needed{need("node", m.node), need("value", m.value)} {
		if k.at != nil && m.workload.at != nil {
			r.errorf(k.at, "%s stands with workload, expected it only with counter", k.key)
		}
	}
	v.ok = len(r.errors) == before
	return v
}
