package graph

import (
	"fmt"
	"strings"
)

// DOT is the graph in the language of graphviz.
func (g *Graph) DOT() string {
	var b strings.Builder
	fmt.Fprintf(&b, "graph %s {\n", dotText(g.Name))
	b.WriteString("  node [fontname=\"sans-serif\", fontsize=11];\n  edge [fontname=\"sans-serif\", fontsize=9];\n")
	for i := range g.Nodes {
		n := &g.Nodes[i]
		shape := map[Kind]string{Host: "shape=box, style=rounded", Switch: "shape=box", Router: "shape=ellipse", External: "shape=box, style=dashed"}[n.Kind]
		label := n.name()
		if n.Trouble != "" {
			label += "\n" + n.Trouble
			shape += ", color=red, fontcolor=red"
		}
		fmt.Fprintf(&b, "  %s [label=%s, %s, tooltip=%s];\n", dotText(n.Name), dotText(label), shape, dotText(n.about()))
	}
	for i := range g.Links {
		l := &g.Links[i]
		label, more := strings.Join(g.labels(l), "\n"), ""
		if l.Down {
			label, more = strings.TrimPrefix(label+"\ndown", "\n"), ", style=dashed, color=red, fontcolor=red"
		}
		if label != "" {
			more = ", label=" + dotText(label) + more
		}
		fmt.Fprintf(&b, "  %s -- %s [taillabel=%s, headlabel=%s%s];\n", dotText(g.Nodes[l.Ends[0].Node].Name), dotText(g.Nodes[l.Ends[1].Node].Name),
			dotText(l.Ends[0].Interface), dotText(l.Ends[1].Interface), more)
	}
	b.WriteString("}\n")
	return b.String()
}

// dotText quotes text. Lines end with \n, which graphviz centres.
func dotText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
