package topology

import (
	"slices"
	"strconv"
	"sync"
	"time"
)

// This file is the keys of chaos; what becomes of it is in draw.go.

// A chaosMap is an entry of chaos, with what becomes of it when the whole lab is known.
type chaosMap struct {
	Chaos
	links, nodes []val[string]
	set          impairment
}

// maxOccurrences bounds how often an entry of chaos takes effect, at the mean.
const maxOccurrences = 10000

var chaosKinds = []ChaosKind{DownLink, ImpairLink, KillAny, PauseAny, RestartAny}

// onLink reports whether it is links that something happens to.
func (k ChaosKind) onLink() bool { return k == DownLink || k == ImpairLink }

// chaosNeeds are the keys beside those of all that chaos of a kind has to have.
func chaosNeeds(t *keyTable[chaosMap], k ChaosKind) []string {
	return slices.DeleteFunc(t.with(string(k)), func(key string) bool { return key != "for" && key != "set" })
}

var chaosTable = sync.OnceValue(func() *keyTable[chaosMap] {
	targets := matching(`[^:]*:[\s\S]*|[\s\S]*[*?\[][\s\S]*`)
	return &keyTable[chaosMap]{
		what: "an entry of chaos", noun: "entry of chaos", def: "chaos",
		also: func(t *keyTable[chaosMap], s schema) {
			var rules []schema
			for _, k := range chaosKinds {
				then := schema{"properties": bars(t.notWith(string(k))), "required": append([]string{}, chaosNeeds(t, k)...)}
				rules = append(rules, when(then, map[string][]string{"kind": {string(k)}}))
			}
			s["type"], s["required"], s["allOf"] = "object", []string{"kind", "every", "until"}, rules
		},
		keys: []key[chaosMap]{
			one("kind", manyWords(func() []ChaosKind { return chaosKinds }), func(m *chaosMap) *ChaosKind { return &m.Kind },
				"`down` (a link loses its carrier), `impair` (a link is set, and reset to what the file says), `kill` (a node crashes, and is started again), `pause`, or `restart`"),
			one("start", instant, func(m *chaosMap) *time.Duration { return &m.Start }, "no effect begins before").orElse("at once"),
			one("until", instant, func(m *chaosMap) *time.Duration { return &m.Until }, "no effect begins from here on"),
			one("every", interval, func(m *chaosMap) *time.Duration { return &m.Every }, "from one time to the next, at the mean; at most "+strconv.Itoa(maxOccurrences)+" times in all"),
			only(one("for", interval, func(m *chaosMap) *time.Duration { return &m.For }, "how long each effect lasts. Needed"), DownLink, ImpairLink, KillAny, PauseAny),
			only(one("links", listOfNames(single(anyText.parse, func() schema { return targets })), func(m *chaosMap) *[]val[string] { return &m.links },
				"endpoints, or patterns of them such as `\"leaf-*:eth*\"`"), DownLink, ImpairLink).orElse("all links"),
			only(one("nodes", nameList, func(m *chaosMap) *[]val[string] { return &m.nodes }, "nodes, or patterns of hosts' names"), KillAny, PauseAny, RestartAny).orElse("all hosts"),
			only(one("set", setForm, func(m *chaosMap) *impairment { return &m.set }, "keys of [impairments](#impairments). Needed"), ImpairLink),
		},
	}
})

var chaosForm = mapOf(chaosTable, func(m *mapping[chaosMap]) *mapping[chaosMap] {
	needs, kind := []string{"kind", "every", "until"}, m.is.Kind
	if m.ok("kind") {
		needs = append(needs, chaosNeeds(m.table, kind)...)
		for _, g := range m.among(m.table.notWith(string(kind))...) {
			m.errorf(g.at, "key %s stands with kind %s, which has none, expected another kind", g.key, kind)
		}
	}
	m.required(needs...)
	return m
})

// chaos finds the links and nodes that something happens to.
func (l *nameIndex) chaos(maps []*mapping[chaosMap]) []Chaos {
	hosts := l.lab.Hosts()
	var all []Chaos
	for _, m := range maps {
		c := m.is.Chaos
		c.Set, c.Place = m.is.set.change, m.where()
		switch {
		case !m.ok("until") || !m.ok("every"):
		case c.Until <= c.Start:
			l.errorf(m.place("until"), "until %s is not after start %s, expected a later time", FormatDuration(c.Until), FormatDuration(c.Start))
		case (c.Until-c.Start)/c.Every > maxOccurrences:
			l.errorf(m.place("every"), "every %s until %s is more than %d times, expected fewer", FormatDuration(c.Every), FormatDuration(c.Until), maxOccurrences)
		}
		switch {
		case !m.ok("kind"):
		case c.Kind.onLink():
			c.Links = l.chaosLinks(m)
			if len(l.errors) == 0 {
				chaosFits(m, c, l.links)
			}
		case m.ok("nodes"):
			c.Nodes, _ = l.named(m.is.nodes, "host", hosts, l.node)
		default:
			c.Nodes = hosts
		}
		all = append(all, c)
	}
	return all
}

// chaosLinks is the links that something happens to: those of a list of endpoints, or
// all.
func (l *nameIndex) chaosLinks(m *mapping[chaosMap]) []int {
	list := m.is.links
	if !m.has("links") {
		list = []val[string]{{at: m.at, is: "*", ok: true}}
	}
	if m.has("links") && !m.ok("links") || l.broken {
		return nil
	}
	names, ok := l.named(list, "link", l.endpoints, func(v val[string]) bool {
		e, err := endpoint(v.is)
		if err != nil {
			l.errorf(v.at, "%v", err)
			return false
		}
		_, found := l.linkAt(val[Endpoint]{v.at, e, true})
		return found
	})
	if !ok {
		return nil
	}
	var links []int
	has := make(map[int]bool)
	for _, name := range names {
		e, _ := endpoint(name)
		if i := l.linkOf[e]; !has[i] {
			has[i] = true
			links = append(links, i)
		}
	}
	return links
}

// chaosFits reports if what is set cannot be on a link as the file has it.
func chaosFits(m *mapping[chaosMap], c Chaos, links []Link) {
	for _, i := range c.Links {
		for end, from := range links[i].Endpoints {
			before := len(m.errors)
			changed := c.Set.Apply(links[i].Directions[end])
			fits(m.reader, &links[i], changed, from.Node, m.at, m.is.set)
			fitsPort(m.reader, changed, from.Node, m.at, m.is.set)
			if len(m.errors) > before {
				return
			}
		}
	}
}
