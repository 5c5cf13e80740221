package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/topology"
)

// This file is differences as people read them, a line for each node and link that
// something becomes of.

// sign begins the line of a change.
func (a Action) sign() string {
	switch a {
	case Add:
		return "+"
	case Remove:
		return "-"
	case Alter:
		return "~"
	}
	return "±"
}

// String is the difference, a line for everything.
func (d *Difference) String() string {
	var b strings.Builder
	var routes []string
	for _, n := range d.Nodes {
		if n.Action == Alter && len(n.Changes) == 1 && n.Changes[0].Key == routesKey {
			routes = append(routes, n.Name)
			continue
		}
		fmt.Fprintf(&b, "%s\n", n)
	}
	if len(routes) > 0 {
		// Of these there may be many, and the file says nothing of them.
		const shown = 8
		text := strings.Join(routes[:min(len(routes), shown)], ", ")
		if len(routes) > shown {
			text += fmt.Sprintf(" and %d more", len(routes)-shown)
		}
		fmt.Fprintf(&b, "~ routes of %s\n", text)
	}
	for _, l := range d.Links {
		fmt.Fprintf(&b, "%s\n", l)
	}
	if len(d.Plans) > 0 {
		fmt.Fprintf(&b, "~ %s\n", strings.Join(d.Plans, ", "))
	}
	if slices.Contains(d.Plans, "capture") {
		b.WriteString("  captures are those that the lab was made with, until it is made anew\n")
	}
	return b.String()
}

// String is the line for the node.
func (n Node) String() string {
	line := n.Action.sign() + " node " + n.Name
	switch n.Action {
	case Add:
		line += " (" + string(n.Is.Kind) + ")"
		for _, f := range n.Is.Interfaces {
			if len(f.Addresses) > 0 {
				line += ", " + f.Name + " " + addresses(f.Addresses)
			}
		}
	case Restart:
		line += " restarts because " + because(n.Changes)
	case Replace:
		line += " is made anew because " + because(n.Changes)
	case Alter:
		line += " " + list(n.Changes)
	}
	return line
}

// String is the line for the link.
func (l Link) String() string {
	line := l.Action.sign() + " link " + l.Ends[0] + " - " + l.Ends[1]
	switch l.Action {
	case Add:
		if made := l.made(); made != "" {
			line += ", " + made
		}
	case Replace:
		line += " is made anew because " + because(l.Changes)
	case Alter:
		line += " " + list(l.Changes)
	}
	return line
}

// made describes the settings of a new link.
func (l Link) made() string {
	there, back := l.Is.Directions[0], l.Is.Directions[1]
	var texts []string
	switch {
	case there.Equal(back) && there.None():
	case there.Equal(back):
		texts = append(texts, short(there.String()))
	default:
		texts = append(texts, short(there.String())+" from "+l.Endpoints[0].Node, short(back.String())+" from "+l.Endpoints[1].Node)
	}
	if l.Is.Down {
		texts = append(texts, "down")
	}
	if l.Is.Engine != topology.Linkem {
		texts = append(texts, "engine "+string(l.Is.Engine))
	}
	return strings.Join(texts, ", ")
}

// because is the changes that are the reason for more than Alter, and the others.
func because(changes []Change) string {
	var reasons, others []Change
	for _, c := range changes {
		if c.Why != "" {
			reasons = append(reasons, c)
		} else if c.Key != routesKey {
			others = append(others, c)
		}
	}
	if len(reasons) == 0 {
		return list(others)
	}
	text := list(reasons) + " (" + reasons[0].Why + ")"
	if len(others) > 0 {
		text += "; " + list(others)
	}
	return text
}

// list is changes, one behind the other.
func list(changes []Change) string {
	var texts []string
	for _, c := range changes {
		text := fmt.Sprintf("%s %s -> %s", c.Key, c.From, c.To)
		if c.Key == routesKey {
			text = c.Key
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

// Counts returns the numbers of nodes and links of each action.
func (d *Difference) Counts() (nodes, links map[Action]int) {
	nodes, links = make(map[Action]int), make(map[Action]int)
	for _, n := range d.Nodes {
		nodes[n.Action]++
	}
	for _, l := range d.Links {
		links[l.Action]++
	}
	return nodes, links
}
