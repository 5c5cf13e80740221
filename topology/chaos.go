package topology

import (
	"time"

	"gopkg.in/yaml.v3"
)

// This file is the keys of chaos; what becomes of it is in draw.go.

// A chaosMap is an entry of chaos.
type chaosMap struct {
	at           *yaml.Node
	kind         val[ChaosKind]
	start, until val[time.Duration]
	every, lasts val[time.Duration]
	links, nodes val[[]val[string]]
	set          val[impairment]
}

// maxStrokes bounds how often a chaos strikes at the mean.
const maxStrokes = 10000

var chaosKinds = []ChaosKind{DownLink, ImpairLink, KillAny, PauseAny, RestartAny}

// onLink reports whether it is links that something happens to.
func (k ChaosKind) onLink() bool { return k == DownLink || k == ImpairLink }

// chaosNeeds are the keys beside those of all that chaos of a kind has to have, and
// chaosBars those that it cannot have.
func chaosNeeds(k ChaosKind) []string {
	switch k {
	case ImpairLink:
		return []string{"for", "set"}
	case RestartAny:
		return []string{}
	}
	return []string{"for"}
}

func chaosBars(k ChaosKind) []string {
	switch k {
	case DownLink:
		return []string{"nodes", "set"}
	case ImpairLink:
		return []string{"nodes"}
	case RestartAny:
		return []string{"links", "set", "for"}
	}
	return []string{"links", "set"}
}

func (r *reader) chaosMap(n *yaml.Node) chaosMap {
	m := chaosMap{at: n}
	r.fields(n, "an entry of chaos",
		one(r, "kind", &m.kind, wordOf(r, chaosKinds)),
		one(r, "start", &m.start, instant),
		one(r, "until", &m.until, instant),
		one(r, "every", &m.every, interval),
		one(r, "for", &m.lasts, interval),
		field{"links", func(n *yaml.Node) { m.links = r.nameList(n) }},
		field{"nodes", func(n *yaml.Node) { m.nodes = r.nameList(n) }},
		field{"set", func(n *yaml.Node) { m.set = r.setMap(n) }},
	)
	needs := []needed{need("kind", m.kind), need("every", m.every), need("until", m.until)}
	given := []needed{need("for", m.lasts), need("set", m.set), need("links", m.links), need("nodes", m.nodes)}
	if m.kind.ok {
		needs = append(needs, only(given, chaosNeeds(m.kind.is))...)
		for _, k := range only(given, chaosBars(m.kind.is)) {
			if k.at != nil {
				r.errorf(k.at, "key %s stands with kind %s, which has none, expected another kind", k.key, m.kind.is)
			}
		}
	}
	r.required(n, "entry of chaos", needs...)
	return m
}

// chaos finds the links and nodes that something happens to.
func (r *reader) chaos(maps []chaosMap, l *linked, t *Topology) []Chaos {
	hosts := t.Hosts()
	var all []Chaos
	for _, m := range maps {
		c := Chaos{
			Start: m.start.is, Until: m.until.is, Kind: m.kind.is, Every: m.every.is, For: m.lasts.is, Set: m.set.is.change,
			Place: Place{r.file, m.at.Line, m.at.Column},
		}
		switch {
		case !m.until.ok || !m.every.ok:
		case c.Until <= c.Start:
			r.errorf(m.until.at, "until %s is not after start %s, expected a later time", FormatDuration(c.Until), FormatDuration(c.Start))
		case (c.Until-c.Start)/c.Every > maxStrokes:
			r.errorf(m.every.at, "every %s until %s is more than %d times, expected fewer", FormatDuration(c.Every), FormatDuration(c.Until), maxStrokes)
		}
		if m.kind.ok && m.kind.is.onLink() {
			c.Links = r.chaosLinks(m, l)
			if len(r.errors) == 0 {
				r.chaosFits(m, c, t.Links)
			}
		} else if m.kind.ok {
			c.Nodes = hosts
			if m.nodes.ok {
				c.Nodes, _ = r.named(m.nodes.is, "host", hosts, func(v val[string]) bool { return r.runsCommands(v, l, t) })
			}
		}
		all = append(all, c)
	}
	return all
}

// chaosLinks is the links that something happens to: those of a list of endpoints, or
// all.
func (r *reader) chaosLinks(m chaosMap, l *linked) []int {
	list := m.links.is
	if m.links.at == nil {
		list = []val[string]{{at: m.at, is: "*", ok: true}}
	}
	if m.links.at != nil && !m.links.ok || l.broken {
		return nil
	}
	names, ok := r.named(list, "link", l.names, func(v val[string]) bool {
		e, err := endpoint(v.is)
		if err != nil {
			r.errorf(v.at, "%v", err)
			return false
		}
		_, found := r.linkAt(val[Endpoint]{v.at, e, true}, l)
		return found
	})
	if !ok {
		return nil
	}
	var links []int
	has := make(map[int]bool)
	for _, name := range names {
		e, _ := endpoint(name)
		if i := l.index[e]; !has[i] {
			has[i] = true
			links = append(links, i)
		}
	}
	return links
}

// chaosFits reports if what is set cannot be on a link as the file has it.
func (r *reader) chaosFits(m chaosMap, c Chaos, links []Link) {
	for _, i := range c.Links {
		for end, from := range links[i].Endpoints {
			before := len(r.errors)
			r.fits(&links[i], c.Set.Apply(links[i].Directions[end]), from.Node, m.at, m.set.is)
			if len(r.errors) > before {
				return
			}
		}
	}
}
