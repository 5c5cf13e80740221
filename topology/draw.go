package topology

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"
)

// This file is what the lab's seed decides of a scenario.

// Draw is the topology with what depends on its seed: the flows of each Permutation,
// and the events of Chaos, which follow those of Timeline in the order of time. The
// result has no Chaos left, and shares all else with t, which stays as it is. The same
// seed always draws the same. A pair made in code may leave its one flow, its depth and
// its number of queue pairs to Draw.
func (t *Topology) Draw(seed uint64) *Topology {
	drawn := *t
	drawn.Seed = seed
	drawn.Workloads = slices.Clone(t.Workloads)
	for i := range drawn.Workloads {
		w := &drawn.Workloads[i]
		w.Depth, w.QPs = max(1, w.Depth), max(1, w.QPs)
		switch {
		case w.Pattern == Permutation:
			w.Flows = permute(w.Nodes, rand.New(rand.NewPCG(seed, hash("workload "+w.Name))))
		case w.Flows == nil && w.From != "" && w.To != "":
			w.Pattern, w.Flows = Pair, []Flow{{w.From, w.To}}
		}
	}
	drawn.Timeline = append(slices.Clip(slices.Clone(t.Timeline)), draw(t.Chaos, t.Links, seed)...)
	drawn.Chaos = nil
	return &drawn
}

func hash(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64()
}

// permute has each node connect to another, all of them equally likely: a permutation
// is drawn until none is left with itself, which takes e times at the mean.
func permute(nodes []string, random *rand.Rand) []Flow {
	if len(nodes) < 2 {
		return nil
	}
	for {
		flows := make([]Flow, len(nodes))
		alone := false
		for i, to := range random.Perm(len(nodes)) {
			flows[i] = Flow{nodes[i], nodes[to]}
			alone = alone || i == to
		}
		if !alone {
			return flows
		}
	}
}

// A stroke is one time that a chaos strikes.
type stroke struct {
	at    time.Duration
	chaos *Chaos
	// random chooses what is struck. Each chaos has its own, so that what strikes when
	// does not depend on the others.
	random *rand.Rand
}

// A victim is what a stroke is at, and in what regard: a link can be down and impaired
// at once.
type victim struct {
	link int
	node string
	kind ChaosKind
}

// settling is how long a node that has come back is let be, and with it its links.
const settling = 500 * time.Millisecond

// draw is the events of chaos in the order of time.
func draw(all []Chaos, links []Link, seed uint64) []Event {
	var strokes []stroke
	for i := range all {
		c := &all[i]
		intervals := rand.New(rand.NewPCG(seed, hash("chaos")+uint64(2*i)))
		random := rand.New(rand.NewPCG(seed, hash("chaos")+uint64(2*i+1)))
		for at := c.Start; ; {
			at += max(time.Duration(intervals.ExpFloat64()*float64(c.Every)).Round(time.Microsecond), time.Microsecond)
			if at >= c.Until {
				break
			}
			strokes = append(strokes, stroke{at, c, random})
		}
	}
	slices.SortStableFunc(strokes, func(a, b stroke) int { return cmp.Compare(a.at, b.at) })
	held := make(map[victim]time.Duration) // until when
	// A node that is away has no links that could change, and its links are to be as the
	// file has them when it is back.
	away := make(map[string]time.Duration)   // nodes, until when
	linked := make(map[string]time.Duration) // nodes, until when one of their links is struck
	free := func(s stroke, v victim) bool {
		if held[v] > s.at {
			return false
		}
		if v.node == "" {
			return !slices.ContainsFunc(ends(links, v.link), func(node string) bool { return away[node] > s.at })
		}
		return s.chaos.Kind == PauseAny || linked[v.node] <= s.at
	}
	var events []Event
	for _, s := range strokes {
		victims := slices.DeleteFunc(s.chaos.victims(), func(v victim) bool { return !free(s, v) })
		if len(victims) == 0 {
			continue
		}
		struck := victims[s.random.IntN(len(victims))]
		held[struck] = s.at + s.chaos.For
		switch s.chaos.Kind {
		case DownLink, ImpairLink:
			for _, node := range ends(links, struck.link) {
				linked[node] = max(linked[node], held[struck])
			}
		case KillAny, RestartAny:
			held[struck] += settling
			away[struck.node] = held[struck]
		}
		events = append(events, s.chaos.events(struck, s.at)...)
	}
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return events
}

// ends is the nodes that a link joins.
func ends(links []Link, link int) []string {
	return []string{links[link].Endpoints[0].Node, links[link].Endpoints[1].Node}
}

// victims is what the chaos may strike.
func (c *Chaos) victims() []victim {
	var all []victim
	if c.Kind == DownLink || c.Kind == ImpairLink {
		for _, link := range c.Links {
			all = append(all, victim{link: link, kind: c.Kind})
		}
		return all
	}
	for _, node := range c.Nodes {
		all = append(all, victim{node: node}) // killed, paused and restarted are one regard
	}
	return all
}

// events is what happens to a victim.
func (c *Chaos) events(t victim, at time.Duration) []Event {
	begin := Event{At: at, Link: t.link, Node: t.node, Place: c.Place}
	end := begin
	end.At += c.For
	switch c.Kind {
	case DownLink:
		begin.Down, end.Up = true, true
	case ImpairLink:
		begin.Set, end.Reset = c.Set, true
	case KillAny:
		begin.NodeAction, end.NodeAction = KillNode, StartNode
	case PauseAny:
		begin.NodeAction, end.NodeAction = PauseNode, ResumeNode
	case RestartAny:
		begin.NodeAction = RestartNode
		return []Event{begin}
	}
	return []Event{begin, end}
}
