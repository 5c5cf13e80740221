package report

// What a Node may be, beside a host.
const (
	kindSwitch = "switch"
	kindRouter = "router"
)

// ports writes the ports of switches, each with where its link leads.
func (p *page) ports(nodes []Node) {
	t := table{columns: []column{
		{title: "port", wraps: true}, {title: "to", wraps: true}, {title: "state"}, {title: "MACs", right: true},
	}}
	for _, n := range nodes {
		for _, port := range n.Ports {
			t.add(n.Name+":"+port.Name, port.To, port.State, count(uint64(port.MACs)))
		}
	}
	if len(t.rows) > 0 {
		p.table(&t)
	}
	for _, n := range nodes {
		if n.Kind == kindSwitch && n.Reason != "" {
			p.paragraph(n.Name+": ", n.Reason)
		}
	}
}
