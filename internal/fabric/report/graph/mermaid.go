package graph

import (
	"fmt"
	"strings"
)

// Mermaid is the graph as a Mermaid flowchart, which Markdown shows that is in a block of
// that name at GitHub, GitLab and others.
func (g *Graph) Mermaid() string {
	var b strings.Builder
	direction := "LR"
	for i := range g.Nodes {
		if g.Nodes[i].Kind == Switch || g.Nodes[i].Kind == Router {
			direction = "TD"
		}
	}
	fmt.Fprintf(&b, "%%%% lab %s\ngraph %s\n", strings.ReplaceAll(g.Name, "\n", " "), direction)
	var troubled, down []string
	for i := range g.Nodes {
		n := &g.Nodes[i]
		open, end := "(", ")" // a host's
		switch n.Kind {
		case Switch:
			open, end = "[", "]"
		case Router:
			open, end = "([", "])"
		case External:
			open, end = "[/", "/]"
		}
		label := mermaidText(n.name())
		if n.Trouble != "" {
			label += "<br>" + mermaidText(n.Trouble)
			troubled = append(troubled, fmt.Sprintf("n%d", i))
		}
		fmt.Fprintf(&b, "  n%d%s\"%s\"%s\n", i, open, label, end)
	}
	for i := range g.Links {
		l := &g.Links[i]
		lines := append([]string{l.Ends[0].Interface + " - " + l.Ends[1].Interface}, g.labels(l)...)
		line := "---"
		if l.Down {
			line, lines = "-.-", append(lines, "down")
			down = append(down, fmt.Sprint(i))
		}
		for i, text := range lines {
			lines[i] = mermaidText(text)
		}
		fmt.Fprintf(&b, "  n%d %s|\"%s\"| n%d\n", l.Ends[0].Node, line, strings.Join(lines, "<br>"), l.Ends[1].Node)
	}
	if troubled != nil {
		fmt.Fprintf(&b, "  classDef trouble stroke:#d1242f,color:#d1242f\n  class %s trouble\n", strings.Join(troubled, ","))
	}
	if down != nil {
		fmt.Fprintf(&b, "  linkStyle %s stroke:#d1242f\n", strings.Join(down, ","))
	}
	return b.String()
}

// mermaidText escapes text within quotation marks, where Mermaid has entities that begin
// with a number sign.
func mermaidText(s string) string {
	return strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "&", "#amp;", "`", "#96;", "\n", " ").Replace(s)
}
