package graph

import (
	"maps"
	"slices"
	"strings"
)

// A picture of up to few links has a label at each. In others, what is usual of all is said
// once, and what is usual of links between nodes of the same kinds, if these are not fewer than some.
const (
	few  = 5
	some = 4
)

// Kinds are those of the nodes that a link joins, in order; none stands for all links.
type kinds [2]Kind

func (g *Graph) kinds(l *Link) kinds {
	k := kinds{g.Nodes[l.Ends[0].Node].Kind, g.Nodes[l.Ends[1].Node].Kind}
	slices.Sort(k[:])
	return k
}

// A usual is the label that most links have: of those that join nodes of the same kinds or, where
// these have none of their own, of all. A picture says it once, and not of these links.
type usual map[kinds]string

// usual returns the labels that more than half of many links have.
func (g *Graph) usual() usual {
	if len(g.Links) <= few {
		return nil
	}
	u := usual{}
	if label := g.most(func(*Link) bool { return true }); label != "" {
		u[kinds{}] = label
	}
	for i := range g.Links {
		of := g.kinds(&g.Links[i])
		if label := g.most(func(l *Link) bool { return g.kinds(l) == of }); label != "" && label != u[kinds{}] {
			u[of] = label
		}
	}
	return u
}

// most is the label that more than half of some links have; "" if there is none.
func (g *Graph) most(among func(*Link) bool) string {
	counts, links := map[string]int{}, 0
	for i := range g.Links {
		if l := &g.Links[i]; among(l) {
			counts[strings.Join(g.labels(l), "; ")]++
			links++
		}
	}
	if links < some {
		return ""
	}
	for label, n := range counts {
		if n > links/2 {
			return label
		}
	}
	return ""
}

// of returns the label that is usual of a link; "" if none is.
func (u usual) of(g *Graph, l *Link) string {
	if label, own := u[g.kinds(l)]; own {
		return label
	}
	return u[kinds{}]
}

// shown returns the lines of a link's label in a picture that says once what is usual.
func (g *Graph) shown(l *Link, u usual) []string {
	lines := g.labels(l)
	if label := u.of(g, l); label != "" {
		switch strings.Join(lines, "; ") {
		case label:
			lines = nil
		case "":
			lines = []string{"plain"}
		}
	}
	if l.Down {
		lines = append(lines, "down")
	}
	return lines
}

// sentences say what is usual.
func (g *Graph) sentences(u usual) []string {
	var sentences []string
	for _, of := range slices.SortedFunc(maps.Keys(u), func(a, b kinds) int { return slices.Compare(a[:], b[:]) }) {
		text := "links: "
		if of != (kinds{}) {
			text = string(of[0]) + " - " + string(of[1]) + " links: "
		}
		text += u[of]
		if slices.ContainsFunc(g.Links, func(l Link) bool {
			_, own := u[g.kinds(&l)]
			return (g.kinds(&l) == of || of == kinds{} && !own) && len(g.shown(&l, u)) > 0
		}) {
			text += ", unless labelled"
		}
		sentences = append(sentences, text)
	}
	return sentences
}
