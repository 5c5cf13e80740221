package topology

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"
)

// This file has the decisions of the lab's seed about a scenario.

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

// An occurrence is one time that an entry of chaos takes effect.
type occurrence struct {
	at    time.Duration
	chaos *Chaos
	// random chooses the target. Each entry has its own, so that what happens does not depend
	// on the others.
	random *rand.Rand
}

// A chaosTarget is a link or node, and what happens to it: a link can be down and impaired at
// once.
type chaosTarget struct {
	link int
	node string
	kind ChaosKind
}

// settling is the time in which nothing happens to a node that has been started again, nor to
// its links.
const settling = 500 * time.Millisecond

// draw is the events of chaos in the order of time.
func draw(all []Chaos, links []Link, seed uint64) []Event {
	var occurrences []occurrence
	for i := range all {
		c := &all[i]
		intervals := rand.New(rand.NewPCG(seed, hash("chaos")+uint64(2*i)))
		random := rand.New(rand.NewPCG(seed, hash("chaos")+uint64(2*i+1)))
		for at := c.Start; ; {
			at += max(time.Duration(intervals.ExpFloat64()*float64(c.Every)).Round(time.Microsecond), time.Microsecond)
			if at >= c.Until {
				break
			}
			occurrences = append(occurrences, occurrence{at, c, random})
		}
	}
	slices.SortStableFunc(occurrences, func(a, b occurrence) int { return cmp.Compare(a.at, b.at) })
	held := make(map[chaosTarget]time.Duration) // until when
	// A node that is away has no links that could change, and its links are to be as the
	// file has them when it is back.
	away := make(map[string]time.Duration) // nodes, until when
	busy := make(map[string]time.Duration) // nodes, until when something happens to one of their links
	free := func(s occurrence, v chaosTarget) bool {
		if held[v] > s.at {
			return false
		}
		if v.node == "" {
			return !slices.ContainsFunc(ends(links, v.link), func(node string) bool { return away[node] > s.at })
		}
		return s.chaos.Kind == PauseAny || busy[v.node] <= s.at
	}
	var events []Event
	for _, s := range occurrences {
		targets := slices.DeleteFunc(s.chaos.targets(), func(v chaosTarget) bool { return !free(s, v) })
		if len(targets) == 0 {
			continue
		}
		chosen := targets[s.random.IntN(len(targets))]
		held[chosen] = s.at + s.chaos.For
		switch s.chaos.Kind {
		case DownLink, ImpairLink:
			for _, node := range ends(links, chosen.link) {
				busy[node] = max(busy[node], held[chosen])
			}
		case KillAny, RestartAny:
			held[chosen] += settling
			away[chosen.node] = held[chosen]
		}
		events = append(events, s.chaos.events(chosen, s.at)...)
	}
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return events
}

// ends is the nodes that a link joins.
func ends(links []Link, link int) []string {
	return []string{links[link].Endpoints[0].Node, links[link].Endpoints[1].Node}
}

// targets returns what the chaos may happen to.
func (c *Chaos) targets() []chaosTarget {
	var all []chaosTarget
	if c.Kind == DownLink || c.Kind == ImpairLink {
		for _, link := range c.Links {
			all = append(all, chaosTarget{link: link, kind: c.Kind})
		}
		return all
	}
	for _, node := range c.Nodes {
		all = append(all, chaosTarget{node: node}) // only one of kill, pause and restart at a time
	}
	return all
}

// events returns what happens to a target.
func (c *Chaos) events(t chaosTarget, at time.Duration) []Event {
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
